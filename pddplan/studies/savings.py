"""Where the savings come from: the same demand planned again with one lever more at a time, and what each is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pddplan.economics.savings import Rung, Step, ladder
from pddplan.errors import InfeasibleError, InputError, Problem
from pddplan.model.acceptance import acceptance_length, acceptance_tables
from pddplan.optimize.result import BaselineName, PlanResult
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Decision, Evaluation, Pool
from pddplan.scenario.load import override
from pddplan.scenario.schema import Scenario

Planner = Callable[[Scenario, bool], PlanResult]
"""``pipeline.plan``: a scenario, and whether its baselines are wanted."""
LARGEST_FACTOR = 64
"""A fixed-ratio plan is tried up to this multiple of the free plan's larger pool."""


@dataclass(frozen=True)
class Level:
    """A rung's plan: its evaluation, or why it has none."""

    name: str
    lever: str
    evaluation: Evaluation | None
    reason: str = ""


@dataclass(frozen=True)
class SavingsStudy:
    """rungs: of the levels that have a plan, in order. levels: all of them. product: cost of the first over that of the last."""

    levels: tuple[Level, ...]
    rungs: tuple[Rung, ...]
    currency: str
    notes: tuple[str, ...] = ()

    @property
    def product(self) -> float:
        return self.rungs[-1].cumulative


def savings(scenario: Scenario, planner: Planner, draft_tokens: int = 1) -> SavingsStudy:
    """Ladder of ``scenario``: aggregated without hits; P and D split at equal GPUs; the free ratio; prefix hits; mixed chips in one room;
    the second room with relay; speculation.

    Each rung is a plan of the same demand within the same SLA, by the same search (``planner``: pipeline.plan). draft_tokens: of
    the last rung, where the scenario has no speculation of its own and the model's acceptance was measured. Raises InfeasibleError
    when no rung has a plan, InputError where nothing arrives.
    """
    if all(deployment.workload.rate == 0 for deployment in scenario.each_deployment().values()):
        raise InputError(Problem("workload.rate", "no requests arrive, so no token has a cost to save on", "a rate over 0", "1 req/s"))
    notes: list[str] = []
    plain = without_speculation(scenario)
    cold = without_hits(plain)
    cold_plan, cold_reason = _planned(planner, cold, True)
    if cold_plan is None:
        cold = without_stock(cold)
        cold_plan, cold_reason = _planned(planner, cold, True)
        if cold_plan is not None:
            notes.append("without hits the demand does not fit the stock: those rungs are planned with as many chips as it takes")
    warm_plan, warm_reason = _planned(planner, plain, True)
    fast, note = with_speculation(scenario, draft_tokens)
    notes += [note] if note else []
    fast_plan, fast_reason = _planned(planner, fast, False) if fast is not None else (None, note)

    cold_split = _baseline(cold_plan, "one_room_one_chip", cold_reason)
    levels = [
        Level("aggregated", "one pool for both phases, no prefix hits", *_baseline(cold_plan, "aggregated", cold_reason)),
        Level("PD split", "P and D apart, equal GPUs", *_equal_split(cold, cold_split)),
        Level("free P:D ratio", "as many of each as the work asks for", *cold_split),
        Level("prefix hits", "cached prefixes are not prefilled again", *_baseline(warm_plan, "one_room_one_chip", warm_reason)),
        Level("mixed chips", "each phase on the chip that suits it, one room", *_baseline(warm_plan, "one_room_mixed", warm_reason)),
        Level("second room", "the plan over all rooms, relay decode hides the line", *_whole(warm_plan, warm_reason)),
        Level("speculation", "several tokens a step", *_whole(fast_plan, fast_reason)),
    ]
    alone = {"prefix hits": _baseline(warm_plan, "aggregated", "")[0]} if levels[0].evaluation is not None else {}
    steps = [
        Step(level.name, _cost(level.evaluation), _cost(alone.get(level.name)) if alone.get(level.name) else None)
        for level in levels
        if level.evaluation is not None
    ]
    if not steps:
        raise InfeasibleError("savings", "no rung of the ladder has a plan: " + "; ".join(f"{x.name}: {x.reason}" for x in levels))
    return SavingsStudy(tuple(levels), ladder(steps), scenario.currency, tuple(notes))


def _cost(evaluation: Evaluation | None) -> float:
    return float("nan") if evaluation is None else evaluation.metrics.usd_per_million_output_tokens


def _planned(planner: Planner, scenario: Scenario, baselines: bool) -> tuple[PlanResult | None, str]:
    try:
        return planner(scenario, baselines), ""
    except InfeasibleError as error:
        return None, f"{error.constraint}: {error.detail}"


def _whole(result: PlanResult | None, reason: str) -> tuple[Evaluation | None, str]:
    return (None, reason) if result is None else (result.evaluation, "")


def _baseline(result: PlanResult | None, name: BaselineName, reason: str) -> tuple[Evaluation | None, str]:
    """A baseline's evaluation, or why it has none."""
    if result is None:
        return None, reason
    for baseline in result.baselines:
        if baseline.name == name:
            return baseline.evaluation, baseline.reason
    return None, "this baseline was not solved"


def _equal_split(scenario: Scenario, free: tuple[Evaluation | None, str]) -> tuple[Evaluation | None, str]:
    """The free split's own instances at as many GPUs for P as for D, the fewest that meet every limit."""
    evaluation, reason = free
    if evaluation is None:
        return None, reason
    sides = [pool for pool in evaluation.decision.pools if pool.configuration.role in ("P", "MD") and pool.instances > 0]
    if sorted(pool.configuration.role for pool in sides) != ["MD", "P"]:
        return None, "the free split has more than one pool on a side: no single ratio"
    context = PlanContext.from_scenario(scenario)
    unit = _least_common_gpus(sides[0], sides[1])

    def at(units: int) -> Evaluation:
        pools = tuple(
            replace(pool, instances=units * unit // pool.configuration.gpus_per_instance) if pool in sides else pool
            for pool in evaluation.decision.pools
        )
        return evaluate(context, Decision(pools, evaluation.decision.links, evaluation.decision.settings))

    low = max(1, min(pool.gpus for pool in sides) // unit)
    high = max(low, -(-max(pool.gpus for pool in sides) // unit))
    most = high * LARGEST_FACTOR
    while not (best := at(high)).feasible:
        low, high = high, 2 * high
        if high > most:
            return None, "no equal number of GPUs meets the SLA"
    while high - low > 1:
        middle = (low + high) // 2
        found = at(middle)
        best, low, high = (found, low, middle) if found.feasible else (best, middle, high)
    lowest = at(low)
    return (lowest if lowest.feasible else best), ""


def _least_common_gpus(one: Pool, other: Pool) -> int:
    from math import lcm

    return lcm(one.configuration.gpus_per_instance, other.configuration.gpus_per_instance)


def without_hits(scenario: Scenario) -> Scenario:
    """The scenario with an empty prefix cache on both sides. Of sessions, the prefix that all share stays cached."""
    changes: dict[str, Any] = {}
    for place, workload in _workloads(scenario).items():
        for name, given in workload.all_classes().items():
            prefix = f"{place}.classes.{_key(name)}" if workload.classes else place
            if given.sessions is not None:
                changes |= {f"{prefix}.sessions.cache_ttl": "0 s", f"{prefix}.sessions.md_cache_ttl": "0 s"}
            elif given.trace is not None:
                changes[f"{prefix}.trace.p_cache"] = {"tokens": 1}
                changes[f"{prefix}.trace.md_cache"] = {"tokens": 1}
                if given.trace.hit_rate is not None:
                    changes |= {f"{prefix}.trace.hit_rate": 0, f"{prefix}.trace.md_hit_rate": 0}
            else:
                changes |= {f"{prefix}.hit_rate": 0, f"{prefix}.md_hit_rate": 0}
    return override(scenario, changes)


def without_stock(scenario: Scenario) -> Scenario:
    """The scenario with as many chips of each kind as wanted."""
    limited = [(site, index) for site, index, stock in scenario.chips() if stock.stock is not None]
    return override(scenario, {f"sites.{_key(site)}.chips[{index}].stock": None for site, index in limited})


def without_speculation(scenario: Scenario) -> Scenario:
    """The scenario with one token a step."""
    changes = {f"{place}.speculation": "none" for place, model in _models(scenario).items() if model.speculation != "none"}
    return override(scenario, changes) if changes else scenario


def with_speculation(scenario: Scenario, draft_tokens: int) -> tuple[Scenario | None, str]:
    """The scenario with speculation for every model (its own where it has one, else as measured), and what was assumed; None where some
    model has neither."""
    changes: dict[str, Any] = {}
    notes = []
    for place, model in _models(scenario).items():
        if model.speculation != "none":
            continue
        table = _measured_table(model.name)
        if table is None:
            return None, f"no acceptance length was measured for {model.name}, and the scenario gives none"
        try:
            length = acceptance_length(table, draft_tokens)
        except InputError as error:
            return None, str(error)
        changes[f"{place}.speculation"] = {"draft_tokens": draft_tokens, "measured": table}
        notes.append(f"speculation: {draft_tokens} draft tokens give {length:g} tokens a step ({table})")
    return (override(scenario, changes) if changes else scenario), "; ".join(notes)


def _measured_table(model: str) -> str | None:
    """The model's own measured table; of several the one that accepts least at one draft token."""
    wanted = model.rsplit("/", 1)[-1].lower()
    fitting = {
        name: table.lengths[1] for name, table in acceptance_tables().items() if name.startswith(f"{wanted}-") and 1 in table.lengths
    }
    return min(fitting, key=lambda name: fitting[name]) if fitting else None


def _workloads(scenario: Scenario) -> Mapping[str, Any]:
    if scenario.deployments:
        return {f"deployments.{_key(name)}.workload": each.workload for name, each in scenario.deployments.items()}
    return {"workload": scenario.workload}


def _models(scenario: Scenario) -> Mapping[str, Any]:
    if scenario.deployments:
        return {f"deployments.{_key(name)}.model": each.model for name, each in scenario.deployments.items()}
    return {"model": scenario.model}


def _key(name: str) -> str:
    from pddplan.scenario.document import written

    return written((name,))
