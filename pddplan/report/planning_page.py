"""Pareto front, sensitivity and robust plan shown: as JSON documents, headlines, tables and pages."""

from __future__ import annotations

from typing import Any

from pddplan.pdd.plan import Decision
from pddplan.report.document import Block, Column, Document, Figure, Paragraph, Section, Table
from pddplan.report.json import SCHEMA_VERSION, evaluation_document
from pddplan.report.numbers import percent, significant
from pddplan.report.sections.charts import bars, layout, line
from pddplan.scenario.schema import Scenario
from pddplan.studies.pareto import ParetoFront
from pddplan.studies.robust import RobustPlan
from pddplan.studies.sensitivity import Sensitivity, Swing


def fleet_text(decision: Decision) -> str:
    """``P 3 x 16 h100-sxm, MD 2 x 32 h200-sxm, 1 circuit of A-B``."""
    parts = [f"{p.configuration.role} {p.instances} x {p.configuration.gpus_per_instance} {p.configuration.chip}" for p in decision.pools]
    parts += [f"{link.circuits} circuit{'s' if link.circuits > 1 else ''} of {link.name}" for link in decision.links]
    return ", ".join(parts)


def _scenario(scenario: Scenario) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "scenario": {"name": scenario.name, "digest": scenario.digest}}


def pareto_document(front: ParetoFront, scenario: Scenario) -> dict[str, Any]:
    """Points by increasing cost, each with its whole plan."""
    points = [{"x": p.x, "y": p.y, "ceiling": p.ceiling, **evaluation_document(p.evaluation)} for p in front.points]
    return {**_scenario(scenario), "x": front.x, "y": front.y, "points": points, "notes": list(front.notes)}


def pareto_headline(front: ParetoFront) -> str:
    first, last = front.points[0], front.points[-1]
    if len(front.points) == 1:
        return f"one plan is best on both: {front.x} {significant(first.x, 4)}, {front.y} {significant(first.y)}"
    dearer, less = percent(last.x / first.x - 1), percent(1 - last.y / first.y)
    return f"{len(front.points)} plans: from the cheapest to the fastest, {front.x} rises {dearer} and {front.y} falls {less}"


def pareto_table(front: ParetoFront) -> Table:
    columns = (Column(front.x), Column(front.y), Column("BCR"), Column("GPUs"), Column("plan", align="left"))
    rows = tuple((p.x, p.y, p.evaluation.metrics.bcr, p.evaluation.metrics.gpus, fleet_text(p.evaluation.decision)) for p in front.points)
    return Table("pareto", "Plans that no other beats on both", columns, rows)


def pareto_page(front: ParetoFront, name: str) -> Document:
    """The front drawn, and its plans."""
    curve = line([p.x for p in front.points], [p.y for p in front.points], "best plans", mode="lines+markers", line={"shape": "hv"})
    title, summary = f"What does a lower {front.y} cost?", "Each point is the cheapest plan under its own ceiling."
    figure = Figure("front", title, summary, (curve,), layout(front.x, front.y), pareto_table(front), 420)
    blocks: tuple[Block, ...] = (figure, pareto_table(front), *(Paragraph(text, "note") for text in front.notes))
    return Document("en", f"Front of {name}", pareto_headline(front), (), (Section("plans", "Best plans", blocks),))


def sensitivity_document(study: Sensitivity, scenario: Scenario) -> dict[str, Any]:
    """Swings, widest first; null where there is no plan, or the base plan misses a limit."""
    swings = [
        {"driver": s.driver, "low": s.low, "high": s.high, "replanned": list(s.replanned), "kept": list(s.kept)} for s in study.swings
    ]
    base = {"objective": study.goal, "unit": study.unit, "base": study.base, **evaluation_document(study.evaluation)}
    return {**_scenario(scenario), **base, "swings": swings}


def sensitivity_headline(study: Sensitivity) -> str:
    widest = study.swings[0]
    return f"{study.goal} {significant(study.base, 4)} {study.unit}; it moves most with {widest.driver}"


def sensitivity_table(study: Sensitivity) -> Table:
    """Changes against the base, in per cent: planned again, and with the base plan kept."""

    def change(value: float | None) -> str:
        return "no plan" if value is None else f"{100 * (value / study.base - 1):+.1f} %"

    def kept(value: float | None) -> str:
        return "misses a limit" if value is None else change(value)

    def row(s: Swing) -> tuple[str, ...]:
        return (s.driver, change(s.replanned[0]), change(s.replanned[1]), kept(s.kept[0]), kept(s.kept[1]))

    low, high = study.swings[0].low, study.swings[0].high
    columns = (
        Column("input", align="left"),
        Column(f"x {low:g}, planned again"),
        Column(f"x {high:g}, planned again"),
        Column(f"x {low:g}, plan kept"),
        Column(f"x {high:g}, plan kept"),
    )
    return Table("sensitivity", "Change of the objective when one input moves", columns, tuple(row(s) for s in study.swings))


def sensitivity_page(study: Sensitivity, name: str) -> Document:
    """The tornado, widest input first; ends without a plan have no bar."""

    def side(end: int, label: str) -> dict[str, Any]:
        known = [(s.driver, s.replanned[end]) for s in study.swings]
        moved = [(driver, 100 * (value / study.base - 1)) for driver, value in known if value is not None]
        return bars([driver for driver, _ in moved], [value for _, value in moved], label, end)

    table, first = sensitivity_table(study), study.swings[0]
    figure = Figure(
        "tornado",
        "Which input moves the best plan most?",
        f"Change of {study.goal} with everything planned again.",
        (side(0, f"x {first.low:g}"), side(1, f"x {first.high:g}")),
        layout("", f"change of {study.goal} (%)", xaxis={"automargin": True}, yaxis={"rangemode": "normal"}),
        table,
        420,
    )
    facts = ((study.goal, f"{significant(study.base, 4)} {study.unit}"), ("plan", fleet_text(study.evaluation.decision)))
    section = Section("inputs", "Inputs moved one at a time", (figure, table))
    return Document("en", f"Sensitivity of {name}", sensitivity_headline(study), facts, (section,))


def robust_document(plan: RobustPlan, scenario: Scenario) -> dict[str, Any]:
    """The robust plan, and for each future its own evaluation beside that of the plan made for it alone."""
    cases = [
        {
            "name": r.future.name,
            "weight": r.future.weight,
            "demand": r.future.demand,
            "uncached": r.future.uncached,
            "robust": evaluation_document(r.robust),
            "own": evaluation_document(r.own) if r.own else None,
        }
        for r in plan.results
    ]
    summary = {
        "expected_bcr": plan.expected_bcr,
        "worst_bcr": plan.worst_bcr,
        "cost_usd_per_h": plan.cost_usd_per_h,
        "price_of_robustness": plan.price_of_robustness,
        "nominal_fails": list(plan.nominal_fails),
    }
    return {**_scenario(scenario), **summary, "nominal": evaluation_document(plan.nominal), "futures": cases}


def robust_headline(plan: RobustPlan) -> str:
    fails = f"; the plan for the scenario as it stands misses a limit in {len(plan.nominal_fails)} of {len(plan.results)} futures"
    cost = f"{fleet_text(plan.decision)}: {significant(plan.cost_usd_per_h, 4)} USD/h, {percent(plan.price_of_robustness)} for certainty"
    return cost + (fails if plan.nominal_fails else "")


def robust_table(plan: RobustPlan) -> Table:
    columns = (
        Column("future", align="left"),
        Column("own plan", "USD/h"),
        Column("own BCR"),
        Column("robust BCR"),
        Column("TTFT P99", "s"),
        Column("P(good)", "%"),
    )
    rows = tuple(
        (
            r.future.name,
            r.own.metrics.cost_usd_per_h if r.own else None,
            r.own.metrics.bcr if r.own else None,
            r.robust.metrics.bcr,
            r.robust.metrics.ttft_p99_s,
            100 * r.robust.metrics.p_good,
        )
        for r in plan.results
    )
    return Table("robust", "The robust plan in every future", columns, rows)


def robust_page(plan: RobustPlan, name: str) -> Document:
    """The robust plan against the plan made for each future alone."""
    own = [(r.future.name, r.own.metrics.bcr) for r in plan.results if r.own is not None]
    traces = (
        bars([name for name, _ in own], [bcr for _, bcr in own], "plan for this future alone"),
        bars([r.future.name for r in plan.results], [r.robust.metrics.bcr for r in plan.results], "robust plan", 1),
    )
    table = robust_table(plan)
    summary = "BCR of the one plan that holds in all futures, beside the best that each future could have."
    axes = layout("", "BCR", xaxis={"automargin": True})
    figure = Figure("futures", "What does certainty cost in each future?", summary, traces, axes, table, 420)
    facts = (
        ("expected BCR", significant(plan.expected_bcr)),
        ("worst BCR", significant(plan.worst_bcr)),
        ("price of certainty", percent(plan.price_of_robustness)),
        ("misses a limit without it", ", ".join(plan.nominal_fails) or "in no future"),
    )
    return Document("en", f"Robust plan of {name}", robust_headline(plan), facts, (Section("futures", "Futures", (figure, table)),))
