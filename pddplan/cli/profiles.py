"""profiles list, show, add: chips, lines, engines and prices, each number with its source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pddplan.cli.common import ForceOption, JsonOption, ReportOption, console, note, print_table, write_json, write_page

if TYPE_CHECKING:
    from pddplan.hardware import Chip, LinkProfile, Sourced

app = typer.Typer(no_args_is_help=True, help="List, show and add chips, links, engines and prices.")
Group = Literal["chips", "links", "engines", "prices"]


@app.command("list")
def list_(
    group: Annotated[Group, typer.Argument(help="What to list.")] = "chips", json_: JsonOption = None, force: ForceOption = False
) -> None:
    """List the shipped profiles of one group.

    Example: pddplan profiles list links
    """
    from pddplan.hardware import list_chips, list_links
    from pddplan.hardware.catalog import profiles_folder

    if group in ("engines", "prices"):
        from pddplan.roofline.overlay_file import ENGINES

        names = ENGINES if group == "engines" else sorted(path.stem for path in profiles_folder(group).glob("*.yaml"))
        rows: list[dict[str, Any]] = [{"name": name} for name in names]
    elif group == "links":
        rows = [_link_row(link) for link in list_links()]
    else:
        rows = [_chip_row(chip) for chip in list_chips()]
    if json_ is not None:
        write_json({"schema_version": 1, group: rows}, json_, force)
        if json_ == "-":
            return
    _print_rows(rows)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A chip, a line, a price book, or the path of your own file.")],
    json_: JsonOption = None,
    report: ReportOption = None,
    force: ForceOption = False,
) -> None:
    """Show a profile: every number with its kind, date and source, and for a chip its roofline.

    Example: pddplan profiles show h20-96
    """
    profile = _find(name)
    if json_ is not None:
        write_json({"schema_version": 1, **_as_json(profile)}, json_, force)
    if report is not None:
        _write_page(profile, report, force)
    if json_ == "-":
        return
    out = console()
    for line in _text(profile):
        out.print(line, markup=False, soft_wrap=True)


@app.command()
def add(
    file: Annotated[str, typer.Argument(help="The chip file to write, such as my-chip.yaml; its path then stands for the chip.")],
    name: Annotated[str, typer.Option(help="Name of the chip.")],
    bf16: Annotated[str, typer.Option(help="Dense bf16 (or fp16) peak: '989 TFLOPS'.")],
    fp8: Annotated[str, typer.Option(help="Dense fp8 peak, or 'none'.")],
    hbm: Annotated[str, typer.Option(help="Usable memory: '80 GB', '79.6 GiB'.")],
    hbm_bandwidth: Annotated[str, typer.Option(help="Memory bandwidth: '3.35 TB/s'.")],
    scaleup: Annotated[str, typer.Option(help="Scale-up link per GPU and direction: '450 GB/s'.")],
    domain: Annotated[int, typer.Option(help="GPUs joined by the scale-up link.")],
    nic: Annotated[str, typer.Option(help="NIC per GPU: '400 Gbps'.")],
    tdp: Annotated[str, typer.Option(help="Power: '700 W'.")],
    price: Annotated[str, typer.Option(help="'2.50 USD/h' to rent, or '25000 USD' to buy.")] = "",
    vendor: Annotated[str, typer.Option(help="Who makes it.")] = "unknown",
    kind: Annotated[str, typer.Option(help="datasheet, measured, secondary or assumed.")] = "datasheet",
    source: Annotated[str, typer.Option(help="Where the numbers come from.")] = "given by the user",
    date: Annotated[str, typer.Option(help="Date of the numbers, such as 2026-11-30.")] = "",
    force: ForceOption = False,
) -> None:
    """Write a chip file from the numbers of a data sheet; use its path wherever a chip name goes.

    Example: pddplan profiles add lab.yaml --name "Lab 1" --bf16 "500 TFLOPS" --fp8 none --hbm "64 GB" --hbm-bandwidth "1.6 TB/s"
    --scaleup "200 GB/s" --domain 8 --nic "200 Gbps" --tdp "400 W"
    """
    from pddplan.errors import InputError, Problem
    from pddplan.hardware import load_chip
    from pddplan.hardware.catalog import is_path
    from pddplan.hardware.new_chip import ChipSheet, chip_file_text, doubts
    from pddplan.report.files import write_atomically

    if not is_path(file):
        raise InputError(Problem("file", repr(file), "a name that ends in .yaml", f"{file}.yaml"))
    sheet = ChipSheet(name, bf16, fp8, hbm, hbm_bandwidth, scaleup, domain, nic, tdp, price, vendor, kind, source, date)  # type: ignore[arg-type]
    write_atomically(file, chip_file_text(sheet), force)
    chip = load_chip(file)
    for doubt in doubts(sheet):
        note(f"warning: {doubt}")
    note(f"wrote {file}; kernel efficiencies are borrowed from {chip.efficiency_of} (assumed). In a scenario: chip: {file}")


def _find(name: str) -> Any:
    """Profile of that name: a chip, else a line, else a price book. The chips' error speaks when none has it."""
    from pddplan.errors import InputError
    from pddplan.hardware import load_chip, load_link, load_prices

    try:
        return load_chip(name)
    except InputError as unknown:
        for load in (load_link, load_prices):
            try:
                return load(name)
            except InputError:
                continue
        raise unknown from None


def _as_json(value: Any) -> Any:
    from dataclasses import fields, is_dataclass

    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _as_json(getattr(value, field.name)) for field in fields(value) if field.name != "path"}
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, tuple) else value


def _value(number: Sourced, scale: float = 1.0) -> float | None:
    return None if number.value is None else number.value / scale


def _chip_row(chip: Chip) -> dict[str, Any]:
    fp8 = chip.peak_flops.get("fp8")
    return {
        "name": chip.slug,
        "vendor": chip.vendor,
        "bf16_tflops": _value(chip.peak_flops[chip.half_dtype], 1e12),
        "fp8_tflops": None if fp8 is None else _value(fp8, 1e12),
        "hbm_gb": _value(chip.hbm_bytes, 1e9),
        "hbm_gbyte_per_s": _value(chip.hbm_bytes_per_s, 1e9),
        "scaleup_gbyte_per_s": _value(chip.scaleup_bytes_per_s, 1e9),
        "domain": _value(chip.scaleup_domain),
        "nic_gbit_per_s": _value(chip.scaleout_bytes_per_s, 0.125e9),
        "efficiency": f"{chip.efficiency_kind} ({chip.efficiency_of})",
    }


def _link_row(link: LinkProfile) -> dict[str, Any]:
    price, rtt = link.price_usd_per_gbps_month, link.rtt_s
    return {
        "name": link.slug,
        "circuit_gbit_per_s": _value(link.circuit_bytes_per_s, 0.125e9),
        "rtt_ms": _value(rtt, 1e-3),
        "usd_per_gbps_month": price.value,
        "usd_per_gbps_month_low": price.low,
        "usd_per_gbps_month_high": price.high,
        "usd_per_gb": link.price_usd_per_gb.value,
        "what": link.name,
    }


_HEADERS = {
    "bf16_tflops": "bf16\nTFLOP/s",
    "fp8_tflops": "fp8\nTFLOP/s",
    "hbm_gb": "HBM\nGB",
    "hbm_gbyte_per_s": "HBM\nGB/s",
    "scaleup_gbyte_per_s": "link\nGB/s",
    "nic_gbit_per_s": "NIC\nGbit/s",
    "circuit_gbit_per_s": "circuit\nGbit/s",
    "rtt_ms": "RTT\nms",
    "usd_per_gbps_month": "USD/Gbps\nmonth",
    "usd_per_gbps_month_low": "low",
    "usd_per_gbps_month_high": "high",
    "usd_per_gb": "USD/GB",
}


def _print_rows(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from pddplan.report.numbers import NOT_KNOWN, significant

    table = Table(box=None, pad_edge=False)
    for key, first in rows[0].items():
        table.add_column(_HEADERS.get(key, key), justify="left" if isinstance(first, str) else "right", no_wrap=key == "name")
    for row in rows:
        table.add_row(
            *(
                NOT_KNOWN if v is None else v if isinstance(v, str) else f"{v:,.0f}" if v == int(v) else significant(v, 4)
                for v in row.values()
            )
        )
    print_table(table)


def _sourced_numbers(profile: Any, prefix: str = "") -> Iterator[tuple[str, Sourced]]:
    """(name, number) of every sourced number in a profile."""
    from dataclasses import fields, is_dataclass

    from pddplan.hardware import Sourced

    if isinstance(profile, Sourced):
        yield prefix, profile
    elif isinstance(profile, dict):
        for key, item in profile.items():
            yield from _sourced_numbers(item, f"{prefix}.{key}" if prefix else key)
    elif is_dataclass(profile):
        for field in fields(profile):
            yield from _sourced_numbers(getattr(profile, field.name), f"{prefix}.{field.name}" if prefix else field.name)


def _text(profile: Any) -> Iterator[str]:
    from pddplan.hardware import Chip

    title = getattr(profile, "name", None)
    yield f"{title} ({profile.slug})" if title else f"prices: {profile.path}"
    if isinstance(profile, Chip):
        yield f"  {profile.vendor}, {profile.status}; efficiency {profile.efficiency_kind} (constants of {profile.efficiency_of})"
        yield from _roofline(profile)
    yield "numbers"
    for name, number in _sourced_numbers(profile):
        yield f"  {name}: {_written(name, number)}  [{number.kind}, {number.date or 'undated'}] {number.source}" + (
            f" ({number.note})" if number.note else ""
        )
    for key in ("contradictions", "notes"):
        for text in getattr(profile, key, ()):
            yield f"  {key.removesuffix('s')}: {text}"


_UNITS = (
    ("peak_flops.", 1e12, "TFLOP/s"),
    ("hbm_bytes", 1e9, "GB"),
    ("_bytes_per_s", 1e9, "GB/s"),
    ("rtt_s", 1e-3, "ms"),
    ("tdp_w", 1.0, "W"),
)


def _written(name: str, number: Sourced) -> str:
    per_s = name.endswith("_bytes_per_s")
    scale, unit = next(
        ((scale, unit) for part, scale, unit in _UNITS if (part in name and not per_s) or (per_s and unit == "GB/s")), (1.0, "")
    )
    span = "" if number.low is None or number.high is None else f"{number.low / scale:g} to {number.high / scale:g}"
    if number.value is None:
        return f"{span} {unit}".strip() if span else "unknown"
    return f"{number.value / scale:g} {unit}".strip() + (f" ({span})" if span else "")


def _roofline(chip: Chip) -> Iterator[str]:
    """Attainable dense TFLOP/s over arithmetic intensity, as bars of equal ratio per character."""
    from math import log2

    from pddplan.hardware.balance import attainable_flops, relative_balance, ridge_flop_per_byte

    dtype = "fp8" if "fp8" in chip.peak_flops else chip.half_dtype
    ridges = ", ".join(f"{key} {ridge:.0f}" for key, ridge in ridge_flop_per_byte(chip).items())
    yield f"roofline ({dtype}, dense): TFLOP/s over FLOP per HBM byte; a bar is 4 characters per doubling"
    lowest = attainable_flops(chip, dtype, 1.0)
    for power in range(16):
        flops = attainable_flops(chip, dtype, 2.0**power)
        yield f"  {2**power:>5} {'#' * (1 + round(4 * log2(flops / lowest)))} {flops / 1e12:.4g}"
        if flops >= (chip.peak_flops[dtype].value or 0.0):
            break
    yield f"  ridge (FLOP/byte): {ridges}"
    from pddplan.hardware import load_chip

    balance = relative_balance(chip, load_chip("h100-sxm"))
    yield "balance against h100-sxm: " + ", ".join(f"{name} {ratio:.2f}x" for name, ratio in balance.items())


def _write_page(profile: Any, target: str, force: bool) -> None:
    from pddplan.errors import InputError, Problem
    from pddplan.hardware import Chip
    from pddplan.report.chip_page import chip_page

    if not isinstance(profile, Chip):
        raise InputError(Problem("--report", f"{profile.slug} is not a chip", "a chip: lines and prices have no roofline"))
    write_page(chip_page(profile, tuple(_sourced_numbers(profile))), target, force)
