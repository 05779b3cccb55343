"""One chip's page: its roofline and every number with its source."""

from __future__ import annotations

from collections.abc import Sequence

from pddplan.hardware import Chip, Sourced, load_chip
from pddplan.hardware.balance import attainable_flops, relative_balance, ridge_flop_per_byte
from pddplan.report.document import Column, Document, Figure, Paragraph, Section, Table
from pddplan.report.sections.charts import layout, line


def chip_page(chip: Chip, numbers: Sequence[tuple[str, Sourced]]) -> Document:
    """Page of ``chip``; ``numbers`` are its sourced numbers by name."""
    ridges = ridge_flop_per_byte(chip)
    reference = load_chip("h100-sxm")
    balance = relative_balance(chip, reference)
    lead = f"Compute-bound above {', '.join(f'{ridge:.0f} FLOP/byte in {dtype}' for dtype, ridge in ridges.items())}."
    if chip.efficiency_kind == "assumed":
        lead += f" Kernel efficiencies are assumed: nobody measured this chip, the constants of {chip.efficiency_of} are used."
    relative = Table(
        "balance",
        f"Balance against {reference.name}",
        (Column("dimension", align="left"), Column("ratio")),
        tuple(balance.items()),
        "A lopsided chip is wasted if both phases must run on it.",
    )
    sourced = Table(
        "numbers",
        "Numbers and their sources",
        (
            Column("number", align="left"),
            *(Column(label, digits=6) for label in ("value", "low", "high")),
            *(Column(label, align="left") for label in ("kind", "date", "source", "note")),
        ),
        tuple((name, n.value, n.low, n.high, n.kind, n.date, n.source, n.note) for name, n in numbers),
    )
    notes = tuple(Paragraph(text, "note") for text in (*chip.contradictions, *chip.notes))
    return Document(
        lang="en",
        title=chip.name,
        headline=lead,
        facts=(("Vendor", chip.vendor), ("Status", chip.status), ("Efficiency", f"{chip.efficiency_kind}, {chip.efficiency_of}")),
        sections=(
            Section("roofline", "Roofline", (_roofline(chip), relative)),
            Section("sources", "Sources", (sourced, *notes)),
        ),
    )


def _roofline(chip: Chip) -> Figure:
    intensity = [2.0 ** (i / 2) for i in range(29)]
    curves = {dtype: [attainable_flops(chip, dtype, x) / 1e12 for x in intensity] for dtype in chip.peak_flops}
    traces = tuple(line(intensity, flops, dtype, index) for index, (dtype, flops) in enumerate(curves.items()))
    data = Table(
        "roofline-data",
        "Attainable dense TFLOP/s",
        (Column("intensity", "FLOP/byte"), *(Column(dtype, "TFLOP/s") for dtype in curves)),
        tuple((x, *(flops[i] for flops in curves.values())) for i, x in enumerate(intensity)),
    )
    axes = layout("FLOP per HBM byte", "attainable TFLOP/s (dense)")
    axes["xaxis"] = {**axes.get("xaxis", {}), "type": "log"}
    axes["yaxis"] = {**axes.get("yaxis", {}), "type": "log"}
    return Figure(
        "roofline-figure",
        "Up to which intensity is the memory the limit?",
        "Lines rise with intensity, then stay flat.",
        traces,
        axes,
        data,
    )
