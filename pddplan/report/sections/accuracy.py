"""How accurate the model has been on measured servers, for the engines of the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pddplan.report.document import Block, Cell, Column, Paragraph, Section, Table
from pddplan.roofline.overlay_file import read_overlay

Translate = Callable[..., str]
SPLITS = ("in_sample", "four_fold_by_curve", "leave_one_family_out")
METRICS = {
    "tpot_agg": "TPOT, aggregated",
    "ttft_agg": "TTFT, aggregated",
    "tpot_disagg": "TPOT, disaggregated",
    "ttft_disagg": "TTFT, disaggregated",
}


def section(engines: Iterable[str], t: Translate) -> Section:
    """``engines``: those of the plan's roofline pools; a plan of measured profiles has none and says so."""
    chosen = {engine: read_overlay(engine) for engine in dict.fromkeys(engines)}
    fits = {engine: overlay["fit"] for engine, overlay in chosen.items() if "fit" in overlay}
    blocks: list[Block] = [Paragraph(t("accuracy.intro") if chosen else t("accuracy.profiles"))]
    blocks += [Paragraph(t("accuracy.unfitted", engine=engine), "note") for engine in chosen if engine not in fits]
    if fits:
        blocks.append(_by_engine(fits, t))
    everywhere = next((fit["all_engines_percent"] for fit in fits.values() if "all_engines_percent" in fit), None)
    if everywhere is not None:
        blocks.append(_everywhere(everywhere, t))
        blocks.append(Paragraph(t("accuracy.splits"), "note"))
    return Section("accuracy", t("section.accuracy"), tuple(blocks))


def _columns(t: Translate, *labels: str) -> tuple[Column, ...]:
    errors = ((t("accuracy.median"), "%"), (t("accuracy.mean"), "%"), ("P90", "%"), (t("accuracy.bias"), "%"), (t("accuracy.rows"), ""))
    return (*(Column(label, align="left") for label in labels), *(Column(name, unit) for name, unit in errors))


def _errors(found: Mapping[str, Any]) -> tuple[Cell, ...]:
    return tuple(found.get(name) for name in ("median", "mean", "p90", "bias", "rows"))


def _by_engine(fits: Mapping[str, Mapping[str, Any]], t: Translate) -> Table:
    rows = tuple(
        (engine, metric.upper(), *_errors(found))
        for engine, fit in fits.items()
        for split, errors in fit.items()
        if split.startswith("held_out_by_")
        for metric, found in errors.items()
    )
    return Table("accuracy-engines", t("accuracy.by_engine"), _columns(t, t("column.engine"), t("column.metric")), rows)


def _everywhere(found: Mapping[str, Mapping[str, Any]], t: Translate) -> Table:
    rows = tuple(
        (t(f"accuracy.{split}"), label, *_errors(found[split][metric]))
        for split in SPLITS
        for metric, label in METRICS.items()
        if metric in found.get(split, {})
    )
    return Table("accuracy-all", t("accuracy.all_engines"), _columns(t, t("accuracy.split"), t("column.metric")), rows)
