"""A Document as one HTML file that needs no network: styles, script, plotly's basic bundle and the numbers are all inside."""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from pddplan.report.catalogue import translator
from pddplan.report.document import Cell, Column, Document, Drawing, Figure, Link, Paragraph, Table
from pddplan.report.numbers import NOT_KNOWN, significant

LONG_WORD = 16


def render(document: Document) -> str:
    """The page for ``document``. Every string of the document is escaped; SVG drawings are trusted (report/diagram.py escapes)."""
    figures = [
        {"id": block.id, "traces": list(block.traces), "layout": dict(block.layout), "height": block.height_px}
        for block in document.blocks()
        if isinstance(block, Figure)
    ]
    page: str = _template().render(
        document=document,
        t=translator(document.lang),
        css=_asset("report.css"),
        js=_asset("report.js"),
        plotly=_asset("plotly-basic.min.js"),
        figures=_script_json(figures),
    )
    return page


@lru_cache(maxsize=1)
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.tests.update(
        paragraph=lambda block: isinstance(block, Paragraph),
        table_kind=lambda block: isinstance(block, Table),
        figure=lambda block: isinstance(block, Figure),
        drawing=lambda block: isinstance(block, Drawing),
        link=lambda block: isinstance(block, Link),
    )
    environment.globals.update(raw=_raw, shown=_shown, header=_header)
    source = files("pddplan.report").joinpath("templates/report.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source)


@lru_cache(maxsize=8)
def _asset(name: str) -> str:
    return files("pddplan.report").joinpath("assets", name).read_text(encoding="utf-8")


def _script_json(value: object) -> str:
    """JSON that cannot end the script element or open a comment in it."""
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return (
        text.replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def _finite(value: Any) -> Any:
    """Numbers that JSON cannot hold become null: plotly leaves a gap there."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _raw(cell: Cell) -> str:
    return "" if cell is None else str(cell)


def _breakable(text: str) -> Markup:
    """Escaped, with places to break in words that are too long for a cell: paths, names of models."""
    words = re.split(r"(\s+)", text)
    return Markup("").join(
        Markup("<wbr>").join(re.split(r"(?<=[/_.-])(?=\w)", word)) if len(word) > LONG_WORD else escape(word) for word in words
    )


def _shown(cell: Cell, column: Column) -> str:
    if cell is None:
        return NOT_KNOWN
    if isinstance(cell, (bool, str)):
        return _breakable(str(cell))
    return f"{cell:,}" if isinstance(cell, int) else significant(cell, column.digits)


def _header(column: Column) -> str:
    return f"{column.label} [{column.unit}]" if column.unit else column.label
