"""A new chip's profile from the numbers on its sheet, written as the text of a chip file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pddplan.errors import InputError, Problem
from pddplan.hardware.types import KINDS, Kind
from pddplan.units import (
    BANDWIDTH,
    BYTES,
    GB,
    GBPS_BYTES_PER_S,
    MONEY,
    POWER,
    PRICE_PER_HOUR,
    TERA,
    Quantity,
    UnitError,
)

_RATES = {"TFLOPS": 1e12, "TFLOP/s": 1e12, "TF": 1e12, "PFLOPS": 1e15, "PFLOP/s": 1e15, "PF": 1e15, "GFLOPS": 1e9}
_RATES |= {"tflops": 1e12, "TFlops": 1e12, "Tflops": 1e12, "pflops": 1e15, "PFlops": 1e15}
HBM_RANGE = (0.05e12, 50e12)
NIC_RANGE = (1e9 / 8, 1.6e12 / 8)
SCALEUP_MOST = 5e12
COMPUTE = Quantity("compute rate", "FLOP/s", _RATES, ("989 TFLOPS", "2.25 PFLOP/s"))


@dataclass(frozen=True)
class ChipSheet:
    """What a data sheet says, as the user wrote it, with units.

    fp8: ``none`` where the chip has no fp8. scaleup: per GPU per direction. price: per hour (``2 USD/h``) or to buy
    (``25000 USD``); empty where unknown.
    """

    name: str
    bf16: str
    fp8: str
    hbm: str
    hbm_bandwidth: str
    scaleup: str
    domain: int
    nic: str
    tdp: str
    price: str = ""
    vendor: str = "unknown"
    kind: Kind = "datasheet"
    source: str = "given by the user"
    date: str = ""


def chip_file_text(sheet: ChipSheet) -> str:
    """Text of the YAML chip file of ``sheet``. Raises InputError with everything that is wrong in it."""
    problems: list[Problem] = []

    def parse(option: str, text: str, quantity: Quantity, scale: float) -> float:
        try:
            value = quantity.parse(text)
        except UnitError as error:
            problems.append(Problem(option, error.found, error.accepted, error.example))
            return 1.0
        if value <= 0:
            problems.append(Problem(option, repr(text), f"a {quantity.name} over 0", quantity.examples[0]))
        return value / scale

    def entry(value: float | int) -> dict[str, str | float]:
        sourced: dict[str, str | float] = {"value": value, "kind": sheet.kind, "source": sheet.source}
        return sourced | ({"date": sheet.date} if sheet.date else {})

    if not sheet.name.strip():
        problems.append(Problem("name", repr(sheet.name), "a name", "My Chip"))
    if sheet.kind not in KINDS:
        problems.append(Problem("kind", repr(sheet.kind), "one of " + ", ".join(KINDS), "datasheet"))
    if sheet.domain < 1:
        problems.append(Problem("domain", str(sheet.domain), "GPUs joined by the scale-up link, at least 1", "8"))
    peaks = {"bf16": entry(parse("bf16", sheet.bf16, COMPUTE, TERA))}
    if sheet.fp8.strip().lower() != "none":
        peaks["fp8"] = entry(parse("fp8", sheet.fp8, COMPUTE, TERA))
    content: dict[str, object] = {"name": sheet.name, "vendor": sheet.vendor, "peak_tflops": peaks}
    content["hbm_bytes"] = entry(parse("hbm", sheet.hbm, BYTES, 1.0))
    content["hbm_gbyte_per_s"] = entry(parse("hbm_bandwidth", sheet.hbm_bandwidth, BANDWIDTH, GB))
    content["scaleup_gbyte_per_s_per_dir"] = entry(parse("scaleup", sheet.scaleup, BANDWIDTH, GB))
    content["scaleup_domain"] = entry(sheet.domain)
    content["scaleout_gbit_per_s"] = entry(parse("nic", sheet.nic, BANDWIDTH, GBPS_BYTES_PER_S))
    content["tdp_w"] = entry(parse("tdp", sheet.tdp, POWER, 1.0))
    if sheet.price.strip():
        hourly = "/" in sheet.price
        price = parse("price", sheet.price, PRICE_PER_HOUR if hourly else MONEY, 1.0)
        content["prices"] = {"rent_usd_h" if hourly else "purchase_usd": entry(price)}
    if problems:
        raise InputError(problems)
    return "".join(_lines(content))


def doubts(sheet: ChipSheet) -> tuple[str, ...]:
    """What a data sheet that reads well may still have wrong: sparse peaks, bits for bytes. Each with the value as read."""
    found = []
    bf16 = COMPUTE.parse(sheet.bf16)
    fp8 = None if sheet.fp8.strip().lower() == "none" else COMPUTE.parse(sheet.fp8)
    if fp8 is not None and fp8 < bf16:
        found.append(f"fp8 {fp8 / TERA:g} TFLOP/s is below bf16 {bf16 / TERA:g}: is one of them the peak with sparsity?")
    hbm, scaleup, nic = (BANDWIDTH.parse(text) for text in (sheet.hbm_bandwidth, sheet.scaleup, sheet.nic))
    if not HBM_RANGE[0] <= hbm <= HBM_RANGE[1]:
        pace = "slow" if hbm < HBM_RANGE[0] else "fast"
        found.append(f"hbm-bandwidth is read as {hbm / GB:,.10g} GB/s: no accelerator's memory is that {pace}")
    if scaleup > SCALEUP_MOST or scaleup > hbm:
        found.append(f"scaleup is read as {scaleup / GB:,.10g} GB/s a direction: faster than any published link or than its memory")
    if not NIC_RANGE[0] <= nic <= NIC_RANGE[1] or nic > scaleup * 2:
        found.append(f"nic is read as {nic / GBPS_BYTES_PER_S:,.10g} Gbit/s: a NIC's rate is in bits ('400 Gbps'), not bytes")
    return tuple(found)


def _lines(content: Mapping[str, object], indent: str = "") -> list[str]:
    """YAML lines: a sourced number on one line (flow style, which is JSON), other mappings in block style."""
    lines = []
    for key, value in content.items():
        if isinstance(value, dict) and "kind" not in value:
            lines += [f"{indent}{key}:\n", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}\n")
    return lines
