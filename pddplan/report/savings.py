"""The ladder of savings shown: as a JSON document, as text, and as a waterfall."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pddplan.report.document import Column, Document, Figure, Paragraph, Section, Table
from pddplan.report.numbers import significant
from pddplan.report.palette import GREEN, GREY, VERMILION
from pddplan.report.sections.charts import layout
from pddplan.studies.savings import Level, SavingsStudy


def savings_document(study: SavingsStudy) -> dict[str, Any]:
    """Rungs with their factors; a level without a plan has the reason in place of numbers."""
    rungs = {rung.name: rung for rung in study.rungs}

    def level_document(level: Level) -> dict[str, Any]:
        rung = rungs.get(level.name)
        known = rung is not None and level.evaluation is not None
        return {
            "name": level.name,
            "lever": level.lever,
            "cost_per_million_output_tokens": rung.cost_per_million if rung else None,
            "factor": rung.factor if rung else None,
            "cumulative": rung.cumulative if rung else None,
            "alone": rung.alone if rung else None,
            "gpus": level.evaluation.metrics.gpus if known and level.evaluation else None,
            "cost_usd_per_h": level.evaluation.metrics.cost_usd_per_h if known and level.evaluation else None,
            "reason": level.reason or None,
        }

    return {
        "schema_version": 1,
        "currency": study.currency,
        "rungs": [level_document(level) for level in study.levels],
        "product": study.product,
        "notes": list(study.notes),
    }


def savings_lines(study: SavingsStudy) -> Iterator[str]:
    """The ladder in a screen of text."""
    rungs = {rung.name: rung for rung in study.rungs}
    yield f"{significant(study.product)}x cheaper per output token, from {study.rungs[0].name} to {study.rungs[-1].name}"
    for level in study.levels:
        rung = rungs.get(level.name)
        if rung is None or level.evaluation is None:
            yield f"  {level.name:<16} no plan: {level.reason}"
            continue
        cost = f"{significant(rung.cost_per_million)} {study.currency} per million"
        alone = "" if rung.alone is None else f", {significant(rung.alone)}x as the only lever"
        yield f"  {level.name:<16} x{significant(rung.factor):<6} {cost:>24}, {level.evaluation.metrics.gpus} GPUs{alone}: {level.lever}"
    for note in study.notes:
        yield f"  note: {note}"


def savings_page(study: SavingsStudy, title: str) -> Document:
    """The ladder as one page with its waterfall."""
    missing = tuple(Paragraph(f"{level.name}: no plan: {level.reason}", "note") for level in study.levels if level.evaluation is None)
    notes = tuple(Paragraph(note, "note") for note in study.notes)
    table = Table(
        "rungs",
        "Rungs",
        (
            Column("lever", align="left"),
            Column("factor"),
            Column("cumulative"),
            Column("cost per million output tokens", study.currency),
            Column("as the only lever"),
        ),
        tuple((rung.name, rung.factor, rung.cumulative, rung.cost_per_million, rung.alone) for rung in study.rungs),
        "Factors multiply to the total; they depend on the order of the levers.",
    )
    return Document(
        lang="en",
        title=f"Where the savings come from: {title}",
        headline=f"{significant(study.product)} times cheaper per output token, from {study.rungs[0].name} to {study.rungs[-1].name}.",
        facts=(("Currency", study.currency),),
        sections=(Section("ladder", "The ladder", (_waterfall(study), table, *missing, *notes)),),
    )


def _waterfall(study: SavingsStudy) -> Figure:
    """Each bar hangs from the cost before its lever down (or up) to the cost after it."""
    rungs = study.rungs
    before = [rungs[0].cost_per_million, *(rung.cost_per_million for rung in rungs[:-1])]
    bases, heights, colours, labels = [], [], [], []
    for i, rung in enumerate(rungs):
        start = 0.0 if i == 0 else before[i]
        bases.append(min(start, rung.cost_per_million))
        heights.append(abs(rung.cost_per_million - start))
        colours.append(GREY if i == 0 else GREEN if rung.factor >= 1 else VERMILION)
        labels.append(significant(rung.cost_per_million) if i == 0 else f"x{significant(rung.factor)}")
    names = [rung.name for rung in rungs]
    trace: dict[str, Any] = {
        "type": "bar",
        "x": names,
        "y": heights,
        "base": bases,
        "text": labels,
        "textposition": "outside",
        "marker": {"color": colours},
        "name": "cost",
    }
    rows = tuple((rung.name, rung.factor, rung.cost_per_million) for rung in rungs)
    data = Table("waterfall-data", "Cost by lever", (Column("lever", align="left"), Column("factor"), Column("cost", study.currency)), rows)
    axes = layout("", f"{study.currency} per million output tokens", showlegend=False)
    return Figure("waterfall", "What is each lever worth?", f"Product {significant(study.product)}.", (trace,), axes, data)
