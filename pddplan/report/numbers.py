"""Numbers as people read them: significant digits, thousands, no exponent where a plain number fits."""

from __future__ import annotations

import math

from pddplan.pdd.plan import Violation

NOT_KNOWN = "–"


def significant(value: float, digits: int = 3) -> str:
    """``value`` with ``digits`` significant digits: 1234567 -> 1,230,000; 0.012345 -> 0.0123; inf -> ∞; nan -> –."""
    if math.isnan(value):
        return NOT_KNOWN
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -5:
        return f"{value:.{digits - 1}e}"
    rounded = round(value, digits - 1 - magnitude)
    magnitude = math.floor(math.log10(abs(rounded)))
    decimals = max(0, digits - 1 - magnitude)
    return f"{rounded:,.{decimals}f}"


def percent(fraction: float, digits: int = 3) -> str:
    """A share as percent: 0.062 -> 6.2 %; changes carry their sign through ``signed_percent``."""
    return f"{_trim(significant(100 * fraction, digits))} %"


def signed_percent(fraction: float, digits: int = 3) -> str:
    text = percent(fraction, digits)
    return text if fraction < 0 else f"+{text}"


def missed(violation: Violation) -> tuple[str, str]:
    """Value and limit of a missed limit in its own unit: times of an SLA, shares for attainment, load and utilisation."""
    timed = ".sla." in violation.constraint and not violation.constraint.endswith("attainment")
    form = duration if timed else percent
    return form(abs(violation.value)), form(abs(violation.limit))


def duration(seconds: float, digits: int = 3) -> str:
    """Seconds in the unit people say: 0.0123 -> 12.3 ms, 4.2 -> 4.2 s, 700 -> 11.7 min."""
    if math.isnan(seconds) or math.isinf(seconds):
        return significant(seconds)
    if abs(seconds) < 1e-3:
        return f"{_trim(significant(seconds * 1e6, digits))} µs"
    if abs(seconds) < 1:
        return f"{_trim(significant(seconds * 1e3, digits))} ms"
    if abs(seconds) < 600:
        return f"{_trim(significant(seconds, digits))} s"
    return f"{_trim(significant(seconds / 60, digits))} min"


def data_size(size_bytes: float, digits: int = 3) -> str:
    """Bytes in the decimal unit that reads best: 5.243e7 -> 52.4 MB."""
    if not math.isfinite(size_bytes):
        return significant(size_bytes)
    power = next((p for p in range(len(_SIZES) - 1) if abs(size_bytes) < 999.5 * 1000.0**p), len(_SIZES) - 1)
    return f"{_trim(significant(size_bytes / 1000.0**power, digits))} {_SIZES[power]}"


_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
