"""What if: the tornado of the plan kept as it is, and the plans that the whole model judged, cost against TTFT."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pddplan.optimize.result import PlanResult, SeenPlan
from pddplan.pdd.plan import Evaluation
from pddplan.report.document import Block, Cell, Column, Figure, Paragraph, Section, Table
from pddplan.report.numbers import percent, signed_percent, significant
from pddplan.report.palette import BLUE, GREY, ORANGE, VERMILION
from pddplan.report.planning_page import fleet_text
from pddplan.report.sections.charts import layout
from pddplan.studies.sensitivity import KeptSwing

Translate = Callable[..., str]


DEAR = 3
"""Plans that cost over this many times the plan's would only squeeze the others together in the figure."""


def section(result: PlanResult, swings: Sequence[KeptSwing], neighbours: Sequence[SeenPlan], t: Translate) -> Section:
    blocks: list[Block] = [Paragraph(t("whatif.kept"))]
    if swings:
        blocks.append(_tornado(result, swings, t))
    most = DEAR * result.evaluation.metrics.cost_usd_per_h
    judged = {plan.decision: plan for plan in (*result.seen, *neighbours)}.values()
    feasible = [plan for plan in judged if plan.feasible and math.isfinite(plan.ttft_p99_s) and plan.cost_usd_per_h <= most]
    if len(feasible) > 1:
        blocks.append(_front(result, feasible, t))
    return Section("sensitivity", t("section.sensitivity"), tuple(blocks))


def _tornado(result: PlanResult, swings: Sequence[KeptSwing], t: Translate) -> Figure:
    base = result.evaluation.metrics.bcr
    changes = [(s, _change(s.evaluations[0], base), _change(s.evaluations[1], base)) for s in swings]
    changes.sort(key=lambda change: max(abs(change[1]), abs(change[2])))
    labels = [s.driver for s, *_ in changes]
    spread = swings[0].high - 1
    traces = tuple(
        {
            "type": "bar",
            "orientation": "h",
            "y": labels,
            "x": [100 * change for change in ends],
            "name": signed_percent(sign * spread),
            "marker": {"color": colour, "pattern": {"shape": pattern}},
            "hovertemplate": f"%{{y}} {signed_percent(sign * spread)}: BCR %{{x:+.1f}} %<extra></extra>",
        }
        for ends, sign, colour, pattern in (([c[1] for c in changes], -1, ORANGE, "/"), ([c[2] for c in changes], 1, BLUE, ""))
    )
    columns = (
        Column(t("whatif.driver"), align="left"),
        *(Column(t("whatif.bcr_at", change=signed_percent(sign * spread)), "%") for sign in (-1, 1)),
        *(Column(t("whatif.good_at", change=signed_percent(sign * spread)), "%") for sign in (-1, 1)),
    )
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (s.driver, 100 * low, 100 * high, *(100 * e.metrics.p_good for e in s.evaluations)) for s, low, high in reversed(changes)
    )
    widest = changes[-1]
    return Figure(
        id="fig-tornado",
        title=t("whatif.tornado_title", spread=percent(spread)),
        summary=t("whatif.tornado_summary", driver=widest[0].driver, low=signed_percent(widest[1]), high=signed_percent(widest[2])),
        traces=traces,
        layout=layout("BCR [%]", "", barmode="overlay", margin={"l": 180, "r": 16, "t": 32, "b": 56}, yaxis={"automargin": True}),
        data=Table("tornado", t("whatif.tornado_title", spread=percent(spread)), columns, rows),
        height_px=120 + 34 * len(labels),
    )


def _change(evaluation: Evaluation, base: float) -> float:
    return evaluation.metrics.bcr / base - 1 if base else 0.0


def _front(result: PlanResult, plans: Sequence[SeenPlan], t: Translate) -> Figure:
    front = undominated(plans)
    others = [plan for plan in plans if plan not in front]
    metrics = result.evaluation.metrics
    marks = (
        (t("whatif.seen"), others, "circle", GREY, 6, "markers"),
        (t("whatif.front"), front, "diamond", BLUE, 9, "lines+markers"),
    )
    traces = [
        {
            "type": "scatter",
            "mode": mode,
            "x": [plan.cost_usd_per_h for plan in chosen],
            "y": [plan.ttft_p99_s for plan in chosen],
            "text": [fleet_text(plan.decision) for plan in chosen],
            "name": name,
            "marker": {"symbol": symbol, "color": colour, "size": size},
            "line": {"shape": "hv", "color": colour},
            "hovertemplate": "%{x:.4g} USD/h, TTFT P99 %{y:.3g} s<br>%{text}<extra></extra>",
        }
        for name, chosen, symbol, colour, size, mode in marks
        if chosen
    ]
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "x": [metrics.cost_usd_per_h],
            "y": [metrics.ttft_p99_s],
            "name": t("money.this_plan"),
            "marker": {"symbol": "star", "color": VERMILION, "size": 14},
            "hovertemplate": "%{x:.4g} USD/h, TTFT P99 %{y:.3g} s<extra></extra>",
        }
    )
    columns = (
        Column(t("column.plan"), align="left"),
        Column(t("column.cost"), "USD/h", 4),
        Column("TTFT P99", "s"),
        Column(t("metric.goodput"), "req/s"),
    )
    rows = tuple((fleet_text(plan.decision), plan.cost_usd_per_h, plan.ttft_p99_s, plan.goodput_rps) for plan in front)
    return Figure(
        id="fig-front",
        title=t("whatif.front_title"),
        summary=t(
            "whatif.front_summary",
            seen=len(plans),
            cost=significant(metrics.cost_usd_per_h),
            ttft=significant(metrics.ttft_p99_s),
            dear=DEAR,
        ),
        traces=tuple(traces),
        layout=layout(t("column.cost") + " [USD/h]", "TTFT P99 [s]", xaxis={"rangemode": "normal"}),
        data=Table("front", t("whatif.front"), columns, rows),
    )


def undominated(plans: Sequence[SeenPlan]) -> list[SeenPlan]:
    """Plans that no other beats on both cost and TTFT P99, cheapest first."""
    front: list[SeenPlan] = []
    for plan in sorted(plans, key=lambda p: (p.cost_usd_per_h, p.ttft_p99_s)):
        if not front or plan.ttft_p99_s < front[-1].ttft_p99_s:
            front.append(plan)
    return front
