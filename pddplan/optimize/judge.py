"""The whole model as judge of decisions: from counts of options to a Decision, to an Evaluation, to yes or no."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pddplan.optimize.columns import Columns, Slot
from pddplan.optimize.objective import objective_value
from pddplan.optimize.purchase import by_the_hour
from pddplan.optimize.result import SeenPlan
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Decision, Evaluation, LinkPlan, Pool, Settings, Violation
from pddplan.scenario.schema import Goal


@dataclass
class Judge:
    """Evaluates decisions of one context and remembers them."""

    context: PlanContext
    evaluations: int = 0
    _known: dict[tuple[Decision, float], Evaluation] = field(default_factory=dict)

    def evaluate(self, decision: Decision, rate_scale: float = 1.0) -> Evaluation:
        """The whole model's answer; load over the policy's cap counts as a violation."""
        if (decision, rate_scale) not in self._known:
            self.evaluations += 1
        return self.probe(decision, rate_scale)

    def probe(self, decision: Decision, rate_scale: float = 1.0) -> Evaluation:
        """The same for a bound: it is remembered, and not counted as an evaluation of a plan."""
        key = (decision, rate_scale)
        if key not in self._known:
            self._known[key] = self._capped(evaluate(self.context, decision, rate_scale))
        return self._known[key]

    def by_the_hour(self, decision: Decision, rate_scale: float = 1.0) -> Evaluation:
        """The same with chips by term paid for what stands in every period, which is remembered in its place."""
        self._known[decision, rate_scale] = by_the_hour(self.context, self.evaluate(decision, rate_scale))
        return self._known[decision, rate_scale]

    def seen(self, rate_scale: float) -> tuple[SeenPlan, ...]:
        """Every plan judged so far at ``rate_scale``, in the order of asking."""
        return tuple(
            SeenPlan(decision, m.cost_usd_per_h, m.goodput_rps, m.ttft_p99_s, m.tpot_p99_s, evaluation.feasible)
            for (decision, scale), evaluation in self._known.items()
            if scale == rate_scale
            for m in (evaluation.metrics,)
        )

    def _capped(self, evaluation: Evaluation) -> Evaluation:
        over = []
        for pool in evaluation.pools:
            c = pool.pool.configuration
            policy = self.context.deployments[c.deployment].policy
            measured = pool.binding_resource == "measured rate"
            if policy.queueing == "full" and not measured and policy.utilisation_max < pool.utilisation < 1.0:
                over.append(Violation(f"utilisation_max of {c.role} at {c.site}", pool.utilisation, policy.utilisation_max))
        return replace(evaluation, violations=(*evaluation.violations, *over)) if over else evaluation


def decision_of(columns: Columns, counts: Mapping[str, int], settings: Settings, shares: Mapping[tuple[str, str], float]) -> Decision:
    """The decision that takes ``counts`` of the options. ``shares``: (option, class row) -> share of the row, for AGG by rate."""
    slots = {name: columns.slots[name] for name, count in counts.items() if count > 0}
    pools = [(name, Pool(slot.candidate.configuration, counts[name])) for name, slot in slots.items() if slot.candidate]
    links = tuple(_link(columns.context, slot, counts[name]) for name, slot in slots.items() if slot.line is not None)
    aggregated = [name for name, pool in pools if pool.configuration.role == "AGG"]
    rows = None
    if any(name in aggregated for name, _ in shares):
        rows = tuple(_row_shares(columns, slots[name], name, shares) for name in aggregated)
    return Decision(tuple(pool for _, pool in pools), links, settings, rows)


def _link(context: PlanContext, slot: Slot, circuits: int) -> LinkPlan:
    assert slot.line is not None
    return LinkPlan(slot.line, *context.lines[slot.line].between, circuits, slot.circuit_bytes_per_s)


def _row_shares(columns: Columns, slot: Slot, name: str, shares: Mapping[tuple[str, str], float]) -> tuple[float, ...]:
    """Share of every mix row that an AGG option takes: that of its class."""
    candidate, _ = slot.instance
    mix = columns.context.deployments[candidate.configuration.deployment].mix
    pool = f"{candidate.configuration.deployment} AGG"
    per_class = np.array([shares.get((name, f"{pool} {c}"), 0.0) for c in range(len(mix.class_names))])
    return tuple(per_class[mix.class_index].tolist())


def goodness(evaluation: Evaluation) -> float:
    """Share of requests that are good; 0 for an unstable plan."""
    share = evaluation.metrics.p_good
    return share if math.isfinite(share) else 0.0


def value_of(goal: Goal, evaluation: Evaluation, sunk_usd_per_h: float) -> float:
    """The objective, more being better, with what is paid for already left out of the cost."""
    metrics = evaluation.metrics
    cost = metrics.cost_usd_per_h - sunk_usd_per_h
    if goal == "max-bcr":
        return metrics.goodput_rps / cost if cost > 0 else math.inf
    return -cost if goal == "min-cost" else objective_value(goal, evaluation)
