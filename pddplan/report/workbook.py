"""Sheets of named cells over XlsxWriter: inputs, formulas with the value they have now, and values that only the full model gives."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import xlsxwriter
from xlsxwriter.utility import xl_rowcol_to_cell

from pddplan.report.formula import Live, neutralised

Content = Live | str | int | float | None

FORMATS: dict[str, dict[str, Any]] = {
    "title": {"bold": True, "font_size": 15},
    "note": {"italic": True, "font_color": "#51585f", "text_wrap": True, "align": "left", "valign": "top", "indent": 1},
    "subtitle": {"italic": True, "font_color": "#51585f", "text_wrap": True, "valign": "top"},
    "head": {"bold": True, "bg_color": "#E8EDF2", "border": 1, "border_color": "#BFC8D0", "text_wrap": True, "valign": "top"},
    "label": {"text_wrap": True, "valign": "top"},
    "unit": {"text_wrap": True, "align": "left", "valign": "top", "indent": 1},
    "input": {"bg_color": "#FFF6D6", "border": 1, "border_color": "#C9A227", "valign": "top"},
    "formula": {"valign": "top"},
    "model": {"bg_color": "#E6E6E6", "italic": True, "valign": "top"},
}

LINE_POINTS = 15
PLAIN, BOLD = 1.15, 1.0
"""Characters of running text and of bold labels that fit in one of a column's widths, which are counted in digits."""


@dataclass(frozen=True)
class Limits:
    """What an input cell accepts: a closed range of decimals or whole numbers, or a list of words."""

    low: float | None = None
    high: float | None = None
    whole: bool = False
    choices: tuple[str, ...] = ()


class Book:
    """A workbook in memory; ``finish`` gives its bytes. Names are workbook-wide and unique."""

    def __init__(self, title: str, comment: str) -> None:
        self._buffer = io.BytesIO()
        self._book = xlsxwriter.Workbook(self._buffer, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False})
        self._book.set_properties({"title": neutralised(title), "comments": comment})
        self._book.set_calc_mode("auto")
        self._formats: dict[tuple[str, str], Any] = {}
        self.names: dict[str, str] = {}
        self.values: dict[str, float] = {}

    def sheet(self, name: str, widths: Sequence[float]) -> Sheet:
        return Sheet(self, name, widths)

    def style(self, kind: str, number_format: str) -> Any:
        key = (kind, number_format)
        if key not in self._formats:
            self._formats[key] = self._book.add_format(FORMATS[kind] | ({"num_format": number_format} if number_format else {}))
        return self._formats[key]

    def define(self, name: str, sheet: str, row: int, column: int) -> None:
        if name in self.names:
            raise ValueError(f"cell name {name} is taken by {self.names[name]}")
        address = f"'{sheet}'!{xl_rowcol_to_cell(row, column, row_abs=True, col_abs=True)}"
        self._book.define_name(name, f"={address}")
        self.names[name] = address

    def chart(self, kind: str, subtype: str = "") -> Any:
        """A native chart of XlsxWriter (line, bar, scatter ...), to be filled and inserted by the sheet."""
        return self._book.add_chart({"type": kind} | ({"subtype": subtype} if subtype else {}))

    def finish(self) -> bytes:
        self._book.close()
        return self._buffer.getvalue()


class Sheet:
    """One sheet, filled from the top. Labelled rows have label, value, unit, note in columns A to D."""

    def __init__(self, book: Book, name: str, widths: Sequence[float]) -> None:
        self.book, self.name, self.row = book, name, 0
        self.sheet = book._book.add_worksheet(name)
        self._widths, self._lines = tuple(widths), dict[int, int]()
        for column, width in enumerate(widths):
            self.sheet.set_column(column, column, width)
        self.sheet.set_landscape()
        self.sheet.set_paper(9)
        self.sheet.fit_to_pages(1, 0)

    def title(self, text: str, note: str = "") -> None:
        self.sheet.write_string(self.row, 0, neutralised(text), self.book.style("title", ""))
        self.row += 1
        if note:
            last = max(len(self._widths) - 1, 1)
            self.sheet.merge_range(self.row, 0, self.row, last, neutralised(note), self.book.style("subtitle", ""))
            self._make_room(self.row, note, PLAIN * sum(self._widths))
            self.row += 1
        self.row += 1

    def heading(self, *labels: str) -> None:
        for column, label in enumerate(labels):
            self.put(self.row, column, label, "head")
        self.row += 1

    def _make_room(self, row: int, text: str, width: float) -> None:
        """Make a row as high as ``text``, wrapped at ``width`` characters, needs; LibreOffice and Excel keep the height they are given."""
        lines = len(textwrap.wrap(text, max(int(width), 1))) or 1
        if lines > self._lines.get(row, 1):
            self._lines[row] = lines
            self.sheet.set_row(row, LINE_POINTS * lines)

    def freeze(self) -> None:
        """Keep everything above the next row in view."""
        self.sheet.freeze_panes(self.row, 1)

    def input(
        self,
        name: str,
        label: str,
        value: float | str,
        unit: str = "",
        note: str = "",
        number_format: str = "General",
        limits: Limits | None = None,
    ) -> Live:
        """A coloured cell that the user changes. Text inputs give a Live of value nan (they feed no arithmetic)."""
        live = self._labelled(name, label, value, unit, note, "input", number_format)
        if limits is not None:
            self._validate(self.row - 1, 1, label, unit, limits)
        return live

    def formula(self, name: str, label: str, live: Live, unit: str = "", note: str = "", number_format: str = "#,##0.####") -> Live:
        self._labelled(name, label, live, unit, note, "formula", number_format)
        return Live.named(name, live.value)

    def model(self, name: str, label: str, value: float, unit: str = "", note: str = "", number_format: str = "#,##0.####") -> Live:
        """A value that only the full model can give; grey, with the command that recomputes it in ``note``."""
        return self._labelled(name, label, value, unit, note, "model", number_format)

    def _labelled(self, name: str, label: str, content: Content, unit: str, note: str, kind: str, number_format: str) -> Live:
        self.put(self.row, 0, label, "label")
        self.put(self.row, 1, content, kind, number_format)
        self.put(self.row, 2, unit, "unit")
        self.put(self.row, 3, note, "note")
        self.book.define(name, self.name, self.row, 1)
        self.row += 1
        value = content.value if isinstance(content, Live) else content
        self.book.values[name] = value if isinstance(value, int | float) else math.nan
        return Live.named(name, self.book.values[name])

    def cell(
        self, column: int, content: Content, kind: str = "formula", number_format: str = "", name: str = "", limits: Limits | None = None
    ) -> Live:
        """Put ``content`` in the current row; the result refers to it by ``name``, or by address."""
        self.put(self.row, column, content, kind, number_format)
        if name:
            self.book.define(name, self.name, self.row, column)
        if limits is not None:
            self._validate(self.row, column, "", "", limits)
        value = content.value if isinstance(content, Live) else content
        address = name or f"'{self.name}'!{xl_rowcol_to_cell(self.row, column, row_abs=True, col_abs=True)}"
        return Live.named(address, value if isinstance(value, int | float) else math.nan)

    def traffic_lights(self, first_row: int, first_column: int, last_row: int, last_column: int, amber: float, red: float) -> None:
        """Colour cells by value: green under ``amber``, amber under ``red``, red from there."""
        for criteria, value, colour in ((">=", red, "#F4C7B8"), (">=", amber, "#FBE3B0"), ("<", amber, "#CFEBDD")):
            rule = {
                "type": "cell",
                "criteria": criteria,
                "value": value,
                "format": self.book._book.add_format({"bg_color": colour}),
                "stop_if_true": True,
            }
            self.sheet.conditional_format(first_row, first_column, last_row, last_column, rule)

    def put(self, row: int, column: int, content: Content, kind: str, number_format: str = "") -> None:
        style = self.book.style(kind, number_format)
        if content is None or content == "":
            self.sheet.write_blank(row, column, None, style)
        elif isinstance(content, Live):
            self.sheet.write_formula(row, column, content.formula, style, content.value)
        elif isinstance(content, str):
            self.sheet.write_string(row, column, neutralised(content), style)
            if FORMATS[kind].get("text_wrap") and column < len(self._widths):
                self._make_room(row, content, self._widths[column] * (BOLD if kind == "head" else PLAIN))
        elif math.isfinite(content):
            self.sheet.write_number(row, column, content, style)
        else:
            self.sheet.write_string(row, column, "∞" if content > 0 else "–", style)

    def _validate(self, row: int, column: int, label: str, unit: str, limits: Limits) -> None:
        if limits.choices:
            rule: dict[str, Any] = {"validate": "list", "source": list(limits.choices)}
        else:
            low = -1e300 if limits.low is None else limits.low
            high = 1e300 if limits.high is None else limits.high
            rule = {"validate": "integer" if limits.whole else "decimal", "criteria": "between", "minimum": low, "maximum": high}
            rule["error_message"] = (
                f"{label or 'this cell'} takes {'a whole number' if limits.whole else 'a number'} from {low:g} to {high:g} {unit}"[:255]
            )
        self.sheet.data_validation(row, column, row, column, rule)
