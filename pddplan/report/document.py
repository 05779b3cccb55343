"""The report as values: sections of paragraphs, tables, figures and drawings, before any markup.

A section builder returns these; report/html.py turns them into one page. Text is plain: escaping happens once, in the template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Cell = str | float | int | None


@dataclass(frozen=True)
class Column:
    """A table column; ``unit`` stands once, in the header. Numbers print with ``digits`` significant digits."""

    label: str
    unit: str = ""
    digits: int = 3
    align: Literal["left", "right"] = "right"


@dataclass(frozen=True)
class Table:
    """``note`` prints under the table. Every table can be copied or downloaded as CSV with full precision."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    emphasised_row: int | None = None


@dataclass(frozen=True)
class Paragraph:
    text: str
    kind: Literal["plain", "lead", "note", "warning"] = "plain"


@dataclass(frozen=True)
class Link:
    """A plain link in the sources; the only place where an external address may stand."""

    text: str
    url: str


@dataclass(frozen=True)
class Figure:
    """A plotly figure. ``title`` is the question it answers; ``data`` holds the numbers drawn, shown as a table on request.

    traces and layout: plotly.js structures without colours of text and paper (the page's theme sets those).
    """

    id: str
    title: str
    summary: str
    traces: tuple[Mapping[str, Any], ...]
    layout: Mapping[str, Any]
    data: Table
    height_px: int = 360


@dataclass(frozen=True)
class Drawing:
    """An inline SVG made by report/diagram.py (already escaped there). ``summary`` is its text alternative."""

    id: str
    title: str
    summary: str
    svg: str


@dataclass(frozen=True)
class Preformatted:
    id: str
    caption: str
    text: str


Block = Paragraph | Table | Figure | Drawing | Preformatted | Link


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """One report. ``lang``: en or zh. ``facts``: short pairs under the title (scenario, date of prices, version)."""

    lang: Literal["en", "zh"]
    title: str
    headline: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    footer: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def blocks(self) -> Sequence[Block]:
        return [block for section in self.sections for block in section.blocks]
