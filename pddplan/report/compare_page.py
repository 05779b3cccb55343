"""Two plans side by side: what differs in counts, money and service."""

from __future__ import annotations

from dataclasses import asdict

from pddplan.optimize.result import PlanResult
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Law
from pddplan.report.catalogue import Lang, translator
from pddplan.report.diagram import deployment_summary, deployment_svg
from pddplan.report.document import Block, Cell, Column, Document, Drawing, Figure, Section, Table
from pddplan.report.made_by import footer
from pddplan.report.numbers import duration, signed_percent
from pddplan.report.sections import decision
from pddplan.report.sections.charts import layout, line
from pddplan.report.sections.service import QUANTILES, thinned

Planned = tuple[PlanContext, PlanResult]


def compare_page(first: Planned, second: Planned, command: str, lang: Lang = "en") -> Document:
    """A document with both plans; changes are of the second relative to the first."""
    t = translator(lang)
    plans = {t("compare.first"): first, t("compare.second"): second}
    names = {label: f"{label}: {context.scenario.name}" for label, (context, _) in plans.items()}
    a, b = first[1].evaluation.metrics, second[1].evaluation.metrics
    chips = {slug: chip.name for context, _ in plans.values() for slug, chip in context.chips.items()}
    deployments: list[Block] = []
    for i, (label, (_, result)) in enumerate(plans.items()):
        summary, svg = deployment_summary(result.evaluation, chips, t), deployment_svg(result.evaluation, chips, t)
        deployments.append(Drawing(f"fig-deployment-{i + 1}", names[label], summary, svg))
    laws = {metric: {names[label]: result.evaluation.laws[metric] for label, (_, result) in plans.items()} for metric in ("ttft", "tpot")}
    change = signed_percent(b.bcr / a.bcr - 1) if a.bcr else "–"
    return Document(
        lang=lang,
        title=t("compare.title", first=first[0].scenario.name, second=second[0].scenario.name),
        headline=t("compare.headline", bcr=change, cost=signed_percent(b.cost_usd_per_h / a.cost_usd_per_h - 1)),
        facts=tuple((names[label], decision.headline(result, chips, t)) for label, (_, result) in plans.items()),
        sections=(
            Section("difference", t("compare.difference"), (_metrics(first[1], second[1], names, t),)),
            Section("deployment", t("section.deployment"), tuple(deployments)),
            Section("sla", t("section.sla"), tuple(_curves(metric, t(f"sla.{metric}_title"), laws[metric], t) for metric in laws)),
        ),
        footer=footer(command, t),
    )


def _metrics(first: PlanResult, second: PlanResult, names: dict[str, str], t: decision.Translate) -> Table:
    mine, other = asdict(first.evaluation.metrics), asdict(second.evaluation.metrics)
    rows = []
    for name, value in mine.items():
        new = other[name]
        change = signed_percent(new / value - 1) if isinstance(value, float) and value and new is not None else None
        rows.append((name, value, new, change))
    columns = (
        Column(t("column.metric"), align="left"),
        *(Column(label, digits=4) for label in names.values()),
        Column(t("compare.change")),
    )
    return Table("compared-metrics", t("compare.difference"), columns, tuple(rows))


def _curves(metric: str, title: str, laws: dict[str, Law], t: decision.Translate) -> Figure:
    scale, unit = (1.0, "s") if metric == "ttft" else (1e3, "ms")
    traces = []
    for index, (name, law) in enumerate(laws.items()):
        seconds, share = thinned(law)
        traces.append(line(scale * seconds, 100 * share, name, index, f"%{{y:.1f}} % ≤ %{{x:.3g}} {unit}<extra></extra>"))
    columns = (Column(t("column.percentile"), align="left"), *(Column(name, unit) for name in laws))
    rows: tuple[tuple[Cell, ...], ...] = tuple((f"P{100 * q:g}", *(scale * law.quantile(q) for law in laws.values())) for q in QUANTILES)
    right = max(law.quantile(0.995) for law in laws.values())
    axis = {"range": [0, scale * right]} if right < float("inf") else {}
    summary = "; ".join(f"{name}: P99 {duration(law.quantile(0.99))}" for name, law in laws.items())
    axes = layout(f"{t(f'axis.{metric}')} [{unit}]", t("axis.share_within"), xaxis=axis, yaxis={"range": [0, 101]})
    return Figure(f"fig-{metric}", title, summary, tuple(traces), axes, Table(f"{metric}-quantiles", title, columns, rows))
