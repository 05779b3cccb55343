"""Units: the only home of GB, GiB, Gbps and their parsing.

Base units inside: seconds, bytes, FLOP, tokens, requests, watts, one currency. GB is 1e9 bytes, GiB 2^30; the case of b and B
decides between bits and bytes (400 Gbps = 50e9 B/s, 400 GB/s = 400e9 B/s). K is 1000, Ki is 1024.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

KB, MB, GB, TB, PB = 1e3, 1e6, 1e9, 1e12, 1e15
KIB, MIB, GIB, TIB = 2.0**10, 2.0**20, 2.0**30, 2.0**40
BITS_PER_BYTE = 8.0
GBPS_BYTES_PER_S = 1e9 / BITS_PER_BYTE
HOURS_PER_YEAR = 8760.0
HOURS_PER_MONTH = HOURS_PER_YEAR / 12.0
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0
TERA = 1e12

_DECIMAL_COMMA = re.compile(r"\s*[^\d]?\s*[-+]?\d+,(?:\d{1,2}|\d{4,})(?!\d|,)")
_NUMBER = re.compile(r"\s*([-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?\.?(?:inf|nan)(?![a-z]))\s*(.*?)\s*", re.IGNORECASE)
_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_PREFIXES = {**_DECIMAL, **_BINARY}


def _sizes(unit: str, factor: float) -> dict[str, float]:
    return {prefix + unit: scale * factor for prefix, scale in _PREFIXES.items()}


_BYTES = {**_sizes("B", 1.0), "bytes": 1.0, "byte": 1.0}
_BYTES_PER_S = {
    **_sizes("B/s", 1.0),
    **_sizes("b/s", 1 / BITS_PER_BYTE),
    **_sizes("bps", 1 / BITS_PER_BYTE),
    **_sizes("bit/s", 1 / BITS_PER_BYTE),
    **_sizes("Bit/s", 1 / BITS_PER_BYTE),
    **_sizes("Bps", 1.0),
    "mbps": 1e6 / BITS_PER_BYTE,
    "gbps": 1e9 / BITS_PER_BYTE,
    "tbps": 1e12 / BITS_PER_BYTE,
}
_SECONDS = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9,
    "min": 60.0, "minute": 60.0, "minutes": 60.0, "h": SECONDS_PER_HOUR, "hr": SECONDS_PER_HOUR, "hour": SECONDS_PER_HOUR,
    "hours": SECONDS_PER_HOUR, "d": SECONDS_PER_DAY, "day": SECONDS_PER_DAY, "days": SECONDS_PER_DAY,
}  # fmt: skip
_PER_TIME = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 1 / 60, "minute": 1 / 60, "h": 1 / SECONDS_PER_HOUR,
             "hour": 1 / SECONDS_PER_HOUR, "day": 1 / SECONDS_PER_DAY, "d": 1 / SECONDS_PER_DAY}  # fmt: skip
_REQUESTS = ("req", "reqs", "request", "requests")
_PER_S = {
    **{f"{request}/{time}": scale for request in _REQUESTS for time, scale in _PER_TIME.items()},
    **{f"{request} per {time}": scale for request in _REQUESTS for time, scale in _PER_TIME.items()},
    **{f"/{time}": scale for time, scale in _PER_TIME.items()},
    "rps": 1.0, "RPS": 1.0, "qps": 1.0, "QPS": 1.0, "rpm": 1 / 60, "RPM": 1 / 60,
}  # fmt: skip
_TOKENS = {**_PREFIXES, **{f"{p}{t}": s for p, s in _PREFIXES.items() for t in (" tokens", " token", "tokens", "token", "tok", " tok")}}
_FRACTION = {"": 1.0, "%": 0.01, "percent": 0.01}
_WATTS = {"W": 1.0, "kW": 1e3, "KW": 1e3, "MW": 1e6, "GW": 1e9}
_YEARS = {"y": 1.0, "yr": 1.0, "year": 1.0, "years": 1.0, "month": 1 / 12, "months": 1 / 12}
_HOURLY = {"h": 1.0, "hour": 1.0, "hr": 1.0, "day": 1 / 24, "d": 1 / 24, "month": 1 / HOURS_PER_MONTH, "mo": 1 / HOURS_PER_MONTH,
           "year": 1 / HOURS_PER_YEAR, "y": 1 / HOURS_PER_YEAR}  # fmt: skip
_MONTHLY = {"month": 1.0, "mo": 1.0, "h": HOURS_PER_MONTH, "year": 1 / 12, "y": 1 / 12}
_GBPS = {"Gbps": 1.0, "Gb/s": 1.0, "Gbit/s": 1.0, "Mbps": 1e3, "Mb/s": 1e3, "Tbps": 1e-3}
_GB = {"GB": 1.0, "TB": 1e-3, "MB": 1e3, "GiB": GB / 2**30, "TiB": GB / 2**40}
_CURRENCY_SIGNS = {"$": "USD", "€": "EUR", "¥": "CNY", "£": "GBP"}


class UnitError(ValueError):
    """A text that is no quantity of the kind wanted: what was found, what is accepted, a value that works."""

    def __init__(self, found: str, accepted: str, example: str = "") -> None:
        self.found, self.accepted, self.example = found, accepted, example
        super().__init__(f"{found}; {accepted}")


@dataclass(frozen=True, eq=False)
class Quantity:
    """One physical dimension: its unit table and how it reads in an error message.

    units: factor to the base unit; for money the part after the currency (``/h``). bare: whether a number without unit is allowed.
    """

    name: str
    base: str
    units: Mapping[str, float] = field(repr=False)
    examples: tuple[str, ...]
    bare: bool = False
    money: bool = False

    def parse(self, value: object, currency: str = "USD") -> float:
        """Base-unit float of ``value`` (a number, or text with a unit). ``currency``: the one that money must be in. Raises UnitError."""
        accepted = f"write a {self.name} such as {' or '.join(repr(e) for e in self.examples)}"
        example = self.examples[0]
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise UnitError(f"{shown(value)} is not a {self.name}", accepted, example)
        if _DECIMAL_COMMA.match(str(value)):
            raise UnitError(f"{shown(value)} has a decimal comma", "write a decimal point; a comma parts thousands only", example)
        match = _NUMBER.fullmatch(str(value))
        label, unit = "", ""
        if match is None and isinstance(value, str) and self.money:
            sign = value.strip()[:1]
            if sign in _CURRENCY_SIGNS:
                label, match = _CURRENCY_SIGNS[sign], _NUMBER.fullmatch(value.strip()[1:])
        if match is None:
            raise UnitError(f"{shown(value)} is not a {self.name}", accepted, example)
        try:
            number = float(match[1].replace("_", "").replace(",", "").replace(".inf", "inf").replace(".nan", "nan"))
        except (ValueError, OverflowError):
            raise UnitError(f"{shown(value)} is not a {self.name}", accepted, example) from None
        unit = match[2]
        if not math.isfinite(number):
            raise UnitError(f"{shown(value)} is not a finite {self.name}", accepted, example)
        if not unit and not self.bare and not label:
            bare = shown(value).strip("'\" ")
            written = " or ".join(repr(f"{bare} {u}") for u in self._suggested())
            raise UnitError(f"{shown(value)} has no unit", f"a {self.name} needs one: write {written}", f"{bare} {self._suggested()[0]}")
        if self.money:
            label, unit = self._split_currency(label, unit, value, accepted, example)
            if label != currency:
                raise UnitError(
                    f"{shown(value)} is in {label}, the scenario in {currency}",
                    f"one scenario has one currency: convert the price, or write 'currency: {label}' at the top",
                )
        factor = self._factor(unit)
        if factor is None and not unit:
            raise UnitError(f"{shown(value)} says no time or amount it is for", accepted, example)
        if factor is None:
            raise UnitError(f"{shown(value)}: {unit!r} is not a unit of a {self.name}", accepted, example)
        inverse = round(1 / factor)
        exact = inverse > 1 and math.isclose(inverse * factor, 1.0, rel_tol=1e-12)
        return number / inverse if exact else number * factor

    def _factor(self, unit: str) -> float | None:
        squeezed = re.sub(r"\s*/\s*", "/", re.sub(r"(?:\s+|/)per\s+", "/", f" {unit}").strip())
        squeezed = re.sub(r"/sec(ond)?$", "/s", squeezed)
        if self.money:  # a price is of one chip, and of one million tokens
            squeezed = re.sub(r"/(gpu|chip|accelerator)(?=[/-]|$)[-]?", "", squeezed, flags=re.IGNORECASE).replace("/1M", "/M")
            squeezed = squeezed if squeezed.startswith("/") or squeezed in self.units else f"/{squeezed}"
        return next((self.units[u] for u in (squeezed, squeezed.replace(" ", "")) if u in self.units), None)

    def _suggested(self) -> list[str]:
        return [re.sub(r"^[-\d.,]+\s*", "", example) for example in self.examples[:2]]

    def _split_currency(self, label: str, unit: str, value: object, accepted: str, example: str) -> tuple[str, str]:
        if label:
            return label, unit if unit in self.units else f"/{unit.lstrip('/')}" if unit else ""
        match = re.fullmatch(r"([A-Z]{3}|[a-z]{3}(?![a-z])|[$€¥£])\s*(.*)", unit)
        if match is None:
            raise UnitError(f"{shown(value)} names no currency", accepted, example)
        return _CURRENCY_SIGNS.get(match[1], match[1].upper()), match[2]

    def show(self, value: float, currency: str = "USD") -> str:
        """``value`` with its base unit, exact (reads back to the same float)."""
        return f"{value!r} {currency}{self.base}" if self.money else f"{value!r} {self.base}".strip()


def shown(value: object) -> str:
    """How a message quotes what the user wrote, cut to a line."""
    if isinstance(value, bool | None):
        return {True: "true", False: "false", None: "nothing"}[value]
    text = f"{value:.15g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


BYTES = Quantity("size", "B", _BYTES, ("80 GB", "64 GiB"))
BANDWIDTH = Quantity("bandwidth", "B/s", _BYTES_PER_S, ("100 Gbps", "12.5 GB/s"))
DURATION = Quantity("duration", "s", _SECONDS, ("200 ms", "0.2 s"))
RATE = Quantity("rate", "req/s", _PER_S, ("11.5 req/s", "60 req/min"))
TOKENS = Quantity("token count", "", _TOKENS, ("8192", "64k", "64Ki"), bare=True)
FRACTION = Quantity("fraction", "", _FRACTION, ("0.9", "90 %"), bare=True)
POWER = Quantity("power", "W", _WATTS, ("500 kW", "1.2 MW"))
YEARS = Quantity("period", "years", _YEARS, ("4 years", "36 months"))
SECONDS_OR_BARE = Quantity("duration", "s", {**_SECONDS, "": 1.0}, ("2 s", "2.0"), bare=True)
BYTES_OR_BARE = Quantity("size", "B", {**_BYTES, "": 1.0}, ("190.8 MiB", "200e6"), bare=True)
MONEY = Quantity("sum", "", {"": 1.0, **{k: v for k, v in _DECIMAL.items() if k}}, ("25000 USD",), money=True)
PRICE_PER_HOUR = Quantity("price per hour", "/h", {f"/{t}": f for t, f in _HOURLY.items()}, ("2.00 USD/h", "1460 USD/month"), money=True)
LINK_PRICE = Quantity(
    "line price",
    "/Gbps/month",
    {f"/{b}/{t}": fb * ft for b, fb in _GBPS.items() for t, ft in _MONTHLY.items()},
    ("120 USD/Gbps/month",),
    money=True,
)
STORAGE_PRICE = Quantity(
    "storage price",
    "/GB/month",
    {f"/{b}/{t}": fb * ft for b, fb in _GB.items() for t, ft in _MONTHLY.items()},
    ("0.08 USD/GB/month",),
    money=True,
)
VOLUME_PRICE = Quantity("price per volume", "/GB", {f"/{b}": f for b, f in _GB.items()}, ("0.02 USD/GB",), money=True)
ENERGY_PRICE = Quantity("electricity price", "/kWh", {"/kWh": 1.0, "/MWh": 1e-3}, ("0.08 USD/kWh",), money=True)
RACK_PRICE = Quantity("colocation price", "/kW/month", {f"/kW/{t}": f for t, f in _MONTHLY.items()}, ("130 USD/kW/month",), money=True)
TOKEN_PRICE = Quantity(
    "token price", "/Mtok", {"/Mtok": 1.0, "/M": 1.0, "/Mtokens": 1.0, "/M tokens": 1.0, "/million": 1.0, "/million tokens": 1.0,
    "/ktok": 1e3, "/k": 1e3},
    ("0.55 USD/Mtok",), money=True,
)  # fmt: skip
