"""Money: where the cost goes, and what each baseline would cost for the same demand."""

from __future__ import annotations

from collections.abc import Callable

from pddplan.optimize.result import PlanResult
from pddplan.report.document import Block, Column, Figure, Paragraph, Section, Table
from pddplan.report.numbers import signed_percent, significant
from pddplan.report.sections.charts import bars, layout
from pddplan.units import HOURS_PER_MONTH, HOURS_PER_YEAR

Translate = Callable[..., str]


def section(result: PlanResult, chip_names: dict[str, str], t: Translate) -> Section:
    figure = baselines_figure(result, t)
    terms = [terms_table(result, chip_names, t)] if result.evaluation.purchases else []
    blocks: list[Block] = [cost_split(result, chip_names, t), *terms, *([figure] if figure else []), baselines_table(result, t)]
    reasons = [b for b in result.baselines if b.evaluation is None]
    blocks.extend(Paragraph(t("money.baseline_none", name=t(f"baseline.{b.name}"), reason=b.reason), "note") for b in reasons)
    return Section("money", t("section.money"), tuple(blocks))


def cost_split(result: PlanResult, chip_names: dict[str, str], t: Translate) -> Table:
    evaluation = result.evaluation
    total = evaluation.metrics.cost_usd_per_h
    items = [
        (
            f"{r.pool.configuration.role} · {r.pool.gpus} × {chip_names.get(r.pool.configuration.chip, r.pool.configuration.chip)}",
            r.cost_usd_per_h,
        )
        for r in evaluation.pools
    ]
    items += [(f"{r.link.from_site} → {r.link.to_site}", r.cost_usd_per_h) for r in evaluation.links]
    other = total - sum(cost for _, cost in items)
    if abs(other) > 1e-9 * max(total, 1.0):
        items.append((t("money.other"), other))
    rows = [(name, cost, cost * HOURS_PER_MONTH, cost * HOURS_PER_YEAR, 100 * cost / total if total else 0.0) for name, cost in items]
    rows.append((t("row.total"), total, total * HOURS_PER_MONTH, total * HOURS_PER_YEAR, 100.0 if total else 0.0))
    columns = (
        Column(t("column.item"), align="left"),
        Column(t("column.per_hour"), "USD", 4),
        Column(t("column.per_month"), "USD", 4),
        Column(t("column.per_year"), "USD", 4),
        Column(t("column.share"), "%"),
    )
    return Table("cost-split", t("caption.cost_split"), columns, tuple(rows), emphasised_row=len(rows) - 1)


def terms_table(result: PlanResult, chip_names: dict[str, str], t: Translate) -> Table:
    """How GPUs that are priced by term are paid for over the day."""
    columns = (
        Column(t("column.chip"), align="left"),
        Column(t("column.site"), align="left"),
        Column(t("money.reserved")),
        Column(t("money.on_demand")),
        Column(t("money.spot")),
        Column(t("money.in_use_least")),
        Column(t("money.in_use_most")),
        Column(t("column.cost"), "USD/h", 4),
    )
    rows = tuple(
        (chip_names.get(b.chip, b.chip), b.site, b.mix.reserved, b.mix.on_demand, b.mix.spot, min(b.used), max(b.used), b.mix.per_hour)
        for b in result.evaluation.purchases
    )
    return Table("terms", t("caption.terms"), columns, rows, note=t("money.terms_note"))


def _compared(result: PlanResult, t: Translate) -> list[tuple[str, float, float, float, int]]:
    """(name, BCR, cost, USD per million output tokens, GPUs) of the plan and of each baseline that has one."""
    plans = [(t("money.this_plan"), result.evaluation)]
    plans += [(t(f"baseline.{b.name}"), b.evaluation) for b in result.baselines if b.evaluation is not None]
    return [(name, e.metrics.bcr, e.metrics.cost_usd_per_h, e.metrics.usd_per_million_output_tokens, e.metrics.gpus) for name, e in plans]


def baselines_table(result: PlanResult, t: Translate) -> Table:
    compared = _compared(result, t)
    bcr, cost = compared[0][1], compared[0][2]
    rows = tuple(
        (name, gpus, c, usd, b, signed_percent(bcr / b - 1) if b > 0 else None, signed_percent(cost / c - 1) if c else None)
        for name, b, c, usd, gpus in compared
    )
    columns = (
        Column(t("column.plan"), align="left"),
        Column(t("column.gpus")),
        Column(t("column.cost"), "USD/h", 4),
        Column(t("metric.usd_per_million"), "USD"),
        Column("BCR", "req/s per USD/h", 4),
        Column(t("money.bcr_gain")),
        Column(t("money.cost_change")),
    )
    return Table("baselines", t("caption.baselines"), columns, rows, note=t("money.baseline_note"), emphasised_row=0)


def baselines_figure(result: PlanResult, t: Translate) -> Figure | None:
    compared = _compared(result, t)
    if len(compared) == 1:
        return None
    names = [name for name, *_ in compared]
    values = [usd for _, _, _, usd, _ in compared]
    best = min(range(len(values)), key=values.__getitem__)
    data = Table(
        "baselines-figure-data",
        t("metric.usd_per_million"),
        (Column(t("column.plan"), align="left"), Column(t("metric.usd_per_million"), "USD")),
        tuple(zip(names, values, strict=True)),
    )
    return Figure(
        id="fig-baselines",
        title=t("money.figure"),
        summary=t("money.figure_summary", name=names[best], value=significant(values[best])),
        traces=(bars(names, values, t("metric.usd_per_million"), hover="%{x}: %{y:.3g} USD<extra></extra>"),),
        layout=layout("", t("metric.usd_per_million") + " [USD]", showlegend=False),
        data=data,
        height_px=320,
    )
