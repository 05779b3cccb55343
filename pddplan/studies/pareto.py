"""The Pareto front of two metrics: plans that no other plan beats on both, each optimal for its own ceiling on the second."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pddplan.errors import InputError, Problem
from pddplan.optimize.infeasible import explain_infeasible
from pddplan.optimize.search import Effort, Incumbent, Search
from pddplan.pdd.context import PlanContext, traffic_of
from pddplan.pdd.plan import Evaluation
from pddplan.scenario.schema import Scenario
from pddplan.scenario.sla import Sla, TailLimits

COSTS = ("cost_usd_per_h", "usd_per_million_output_tokens", "gpus")
LATENCIES: Mapping[str, tuple[str, str]] = {
    "ttft_p50_s": ("ttft", "p50"),
    "ttft_p90_s": ("ttft", "p90"),
    "ttft_p99_s": ("ttft", "p99"),
    "tpot_mean_s": ("tpot", "mean"),
    "tpot_p99_s": ("tpot", "p99"),
    "stall_p99_s": ("stall", "p99"),
    "e2e_p50_s": ("e2e", "p50"),
    "e2e_p99_s": ("e2e", "p99"),
}
"""Metric -> the latency and the percentile of an SLA that bounds it."""
SHRINK = 0.995
"""The next ceiling lies this far under the last plan's value, so that the same plan cannot answer again."""


@dataclass(frozen=True)
class ParetoPoint:
    """A plan of the front with its two metrics; ``ceiling``: what the second was asked to stay under (None: the first point)."""

    x: float
    y: float
    ceiling: float | None
    evaluation: Evaluation


@dataclass(frozen=True)
class ParetoFront:
    """Points by increasing x. notes: where the front ends, and why."""

    x: str
    y: str
    points: tuple[ParetoPoint, ...]
    notes: tuple[str, ...] = ()


def pareto(scenario: Scenario, x: str = "cost_usd_per_h", y: str = "ttft_p99_s", points: int = 8) -> ParetoFront:
    """Cost against latency: cheapest plans under ever lower ceilings on ``y`` (epsilon constraints), from the cheapest plan of all.

    x: one of COSTS (all fall and rise with the cost). y: one of LATENCIES. The scenario's own limits hold throughout; its
    objective is replaced by the least cost. Ceilings step down to half of what the last plan reached and are refined
    between, until ``points`` plans stand or no plan is faster. Raises InputError, InfeasibleError.
    """
    _check(x, y, points)
    cheapest = scenario.model_copy(update={"objective": "min-cost"})
    context = traffic_of(PlanContext.from_scenario(cheapest))
    effort = Effort(seconds=scenario.search.time_limit, gap=scenario.search.gap)
    search = Search.of(context, effort)
    outcome = search.run()
    if outcome.best is None:
        raise explain_infeasible(search)
    found = [_point(outcome.best, x, y, None)]
    failed: list[float] = []
    while len(found) < points:
        ceiling = _next_ceiling(found, failed)
        if ceiling is None:
            break
        answer = Search.of(_under(context, y, ceiling), effort.quick()).run().best
        if answer is None:
            failed.append(ceiling)
        else:
            found.append(_point(answer, x, y, ceiling))
    front = _undominated(found)
    notes = (f"no plan reaches {y} under {max(failed):.3g} s",) if failed else ()
    return ParetoFront(x, y, front, notes)


def _check(x: str, y: str, points: int) -> None:
    problems = []
    if x not in COSTS:
        problems.append(Problem("--x", repr(x), f"one of {', '.join(COSTS)}", COSTS[0]))
    if y not in LATENCIES:
        problems.append(Problem("--y", repr(y), f"one of {', '.join(LATENCIES)}", "ttft_p99_s"))
    if points < 2:
        problems.append(Problem("--points", str(points), "at least 2", "8"))
    if problems:
        raise InputError(problems)


def _point(best: Incumbent, x: str, y: str, ceiling: float | None) -> ParetoPoint:
    metrics = best.evaluation.metrics
    return ParetoPoint(float(getattr(metrics, x)), float(getattr(metrics, y)), ceiling, best.evaluation)


def _next_ceiling(found: list[ParetoPoint], failed: list[float]) -> float | None:
    """Half of the lowest latency so far while that may work, then the middle of the widest gap; None when all gaps are narrow."""
    values = sorted({point.y for point in found if math.isfinite(point.y)})
    floor = max(failed, default=0.0)
    if not values:
        return None
    if 0.5 * values[0] > floor:
        return 0.5 * values[0]
    edges = [(low, high) for low, high in zip([floor, *values], values, strict=False) if high * SHRINK > low * 1.05]
    untried = [(high / max(low, 1e-9), low, high) for low, high in edges if not _settled(found, low, high)]
    if not untried:
        return None
    _, low, high = max(untried)
    return min(math.sqrt(max(low, 1e-9) * high), high * SHRINK)


def _settled(found: list[ParetoPoint], low: float, high: float) -> bool:
    """Whether a ceiling between the two was already asked and answered by the lower one's plan."""
    return any(p.ceiling is not None and low < p.ceiling < high and p.y <= low for p in found)


def _under(context: PlanContext, y: str, ceiling: float) -> PlanContext:
    kind, percentile = LATENCIES[y]

    def tightened(sla: Sla) -> Sla:
        limits: TailLimits = getattr(sla, kind)
        own = getattr(limits, percentile)
        lower = ceiling if own is None else min(own, ceiling)
        return sla.model_copy(update={kind: limits.model_copy(update={percentile: lower})})

    deployments = {n: replace(d, slas=tuple(tightened(sla) for sla in d.slas)) for n, d in context.deployments.items()}
    return context.with_deployments(deployments)


def _undominated(found: list[ParetoPoint]) -> tuple[ParetoPoint, ...]:
    kept: list[ParetoPoint] = []
    for point in sorted(found, key=lambda p: (p.x, p.y)):
        if not kept or point.y < kept[-1].y:
            kept.append(point)
    return tuple(kept)
