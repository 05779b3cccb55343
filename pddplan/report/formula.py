"""Live formulas: one expression gives both the spreadsheet's formula and the value stored beside it, so the two cannot differ.

``Live`` overloads arithmetic. A cell with a defined name is ``Live.named(name, value)``; whatever is built from it carries text and value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Number = int | float


@dataclass(frozen=True)
class Live:
    """``text`` is a spreadsheet expression without its leading '=', ``value`` what it evaluates to now."""

    text: str
    value: float

    @staticmethod
    def named(name: str, value: Number) -> Live:
        return Live(name, float(value))

    @staticmethod
    def of(operand: Live | Number) -> Live:
        return operand if isinstance(operand, Live) else Live(repr(float(operand)) if operand % 1 else str(int(operand)), float(operand))

    @property
    def formula(self) -> str:
        return f"={self.text}"

    def _with(self, other: Live | Number, sign: str, value: float) -> Live:
        return Live(f"({self.text}{sign}{Live.of(other).text})", value)

    def __add__(self, other: Live | Number) -> Live:
        return self._with(other, "+", self.value + Live.of(other).value)

    def __radd__(self, other: Number) -> Live:
        return Live.of(other) + self

    def __sub__(self, other: Live | Number) -> Live:
        return self._with(other, "-", self.value - Live.of(other).value)

    def __rsub__(self, other: Number) -> Live:
        return Live.of(other) - self

    def __mul__(self, other: Live | Number) -> Live:
        return self._with(other, "*", self.value * Live.of(other).value)

    def __rmul__(self, other: Number) -> Live:
        return Live.of(other) * self

    def __truediv__(self, other: Live | Number) -> Live:
        """Division; where the divisor is 0 the cell shows 0 (a pool of no instances, a line of no circuits)."""
        divisor = Live.of(other)
        if not isinstance(other, Live):
            return self._with(other, "/", self.value / divisor.value)
        return Live(f"IF({divisor.text}=0,0,{self.text}/{divisor.text})", self.value / divisor.value if divisor.value else 0.0)

    def __rtruediv__(self, other: Number) -> Live:
        return Live.of(other) / self

    def __pow__(self, exponent: Number) -> Live:
        return self._with(exponent, "^", self.value**exponent)


def maximum(*operands: Live | Number) -> Live:
    lives = [Live.of(operand) for operand in operands]
    return Live(f"MAX({','.join(live.text for live in lives)})", max(live.value for live in lives))


def minimum(*operands: Live | Number) -> Live:
    lives = [Live.of(operand) for operand in operands]
    return Live(f"MIN({','.join(live.text for live in lives)})", min(live.value for live in lives))


def total(operands: Sequence[Live]) -> Live:
    if not operands:
        return Live.of(0)
    return Live(f"SUM({','.join(live.text for live in operands)})", math.fsum(live.value for live in operands))


def round_up(operand: Live) -> Live:
    """Smallest integer at or above; a hair under an integer counts as that integer (spreadsheets round at 1e-9 here)."""
    return Live(f"ROUNDUP({operand.text}-0.000000001,0)", float(math.ceil(operand.value - 1e-9)))


def floor(operand: Live) -> Live:
    return Live(f"INT({operand.text})", float(math.floor(operand.value)))


def power(base: Live, exponent: Live | Number) -> Live:
    to = Live.of(exponent)
    return Live(f"({base.text}^{to.text})", base.value**to.value)


def where(left: Live, relation: str, right: Live | Number, then: Live | Number, otherwise: Live | Number) -> Live:
    """IF(left relation right, then, otherwise); ``relation``: one of < <= > >= =."""
    operand, yes, no = Live.of(right), Live.of(then), Live.of(otherwise)
    truth = {
        "<": left.value < operand.value,
        "<=": left.value <= operand.value,
        ">": left.value > operand.value,
        ">=": left.value >= operand.value,
        "=": left.value == operand.value,
    }[relation]
    return Live(f"IF({left.text}{relation}{operand.text},{yes.text},{no.text})", yes.value if truth else no.value)


def interpolated(x: Live, grid: Sequence[Live], values: Sequence[Live], grid_range: str, value_range: str) -> Live:
    """Linear interpolation of a table in the workbook (ranges in A1 or as names), held at its ends.

    ``grid`` increasing, same length as ``values``.
    """
    xs, ys = [cell.value for cell in grid], [cell.value for cell in values]
    inside = min(max(x.value, xs[0]), xs[-1])
    i = max(1, min(len(xs) - 1, sum(1 for g in xs if g <= inside)))
    value = ys[i - 1] + (ys[i] - ys[i - 1]) * (inside - xs[i - 1]) / (xs[i] - xs[i - 1])
    clamped = f"MIN(MAX({x.text},MIN({grid_range})),MAX({grid_range}))"
    at = f"MIN(MATCH({clamped},{grid_range},1),ROWS({grid_range})-1)"
    x0, x1 = f"INDEX({grid_range},{at})", f"INDEX({grid_range},{at}+1)"
    y0, y1 = f"INDEX({value_range},{at})", f"INDEX({value_range},{at}+1)"
    return Live(f"({y0}+({y1}-{y0})*({clamped}-{x0})/({x1}-{x0}))", value)


def neutralised(text: str) -> str:
    """User text that a spreadsheet must not read as a formula: a leading = + - @ (or tab, return) gets an apostrophe before it."""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text
