"""The whole model as judge of decisions: from counts of options to a Decision, to an Evaluation, to yes or no."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pddplan.optimize.columns import Columns, Slot
from pddplan.optimize.objective import objective_value
from pddplan.optimize.purchase import by_the_hour
from pddplan.optimize.result import SeenPlan
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Decision, Evaluation, LinkPlan, Pool, Settings, Violation, Way
from pddplan.scenario.schema import Goal


class TimeUpError(Exception):
    """The time of a search ended in the middle of it."""


PartOf = tuple[tuple[str, ...], tuple[float, ...]]


@dataclass
class Judge:
    """Evaluates decisions of one context and remembers them. deadline: time (time.monotonic) from which it answers only what it knows,
    and raises TimeUpError for the rest.
    """

    context: PlanContext
    evaluations: int = 0
    deadline: float = math.inf
    _known: dict[tuple[Decision, float], Evaluation] = field(default_factory=dict)
    _whole: set[tuple[Decision, float]] = field(default_factory=set)

    def whole(self, decision: Decision, rate_scale: float = 1.0) -> Evaluation:
        """The whole model's answer by the hour with every law, also those that no limit asks for."""
        key = (decision, rate_scale)
        if key not in self._whole:
            self._whole.add(key)
            self._known[key] = by_the_hour(self.context, self._capped(evaluate(self.context, decision, rate_scale)))
        return self._known[key]

    def evaluate(self, decision: Decision, rate_scale: float = 1.0) -> Evaluation:
        """The whole model's answer, laws that no limit asks for left out; load over the policy's cap counts as a violation."""
        if (decision, rate_scale) not in self._known:
            self.evaluations += 1
        return self.probe(decision, rate_scale)

    def probe(self, decision: Decision, rate_scale: float = 1.0) -> Evaluation:
        """The same for a bound: it is remembered, and not counted as an evaluation of a plan."""
        key = (decision, rate_scale)
        if key not in self._known:
            if time.monotonic() > self.deadline:
                raise TimeUpError
            self._known[key] = self._capped(evaluate(self.context, decision, rate_scale, brief=True))
        return self._known[key]

    def by_the_hour(self, decision: Decision, rate_scale: float = 1.0) -> Evaluation:
        """The same with chips by term paid for what stands in every period, which is remembered in its place."""
        self._known[decision, rate_scale] = by_the_hour(self.context, self.evaluate(decision, rate_scale))
        return self._known[decision, rate_scale]

    def seen(self, rate_scale: float) -> tuple[SeenPlan, ...]:
        """Every plan judged so far at ``rate_scale``, in the order of asking."""
        return tuple(SeenPlan.of(evaluation) for (_, scale), evaluation in self._known.items() if scale == rate_scale)

    def _capped(self, evaluation: Evaluation) -> Evaluation:
        over = []
        for pool in evaluation.pools:
            c = pool.pool.configuration
            policy = self.context.deployments[c.deployment].policy
            measured = pool.binding_resource == "measured rate"
            if policy.queueing == "full" and not measured and policy.utilisation_max < pool.utilisation < 1.0:
                over.append(Violation(f"utilisation_max of {c.role} at {c.site}", pool.utilisation, policy.utilisation_max))
        return replace(evaluation, violations=(*evaluation.violations, *over)) if over else evaluation


def decision_of(columns: Columns, counts: Mapping[str, int], settings: Settings, parts: Sequence[PartOf]) -> Decision:
    """The decision that takes ``counts`` of the options; ``parts``: options that serve a part of a deployment, with its class shares."""
    slots = {name: columns.slots[name] for name, count in counts.items() if count > 0}
    pools = [(name, Pool(slot.candidate.configuration, counts[name])) for name, slot in slots.items() if slot.candidate]
    links = tuple(_link(columns.context, slot, counts[name]) for name, slot in slots.items() if slot.line is not None)
    place = {name: i for i, (name, _) in enumerate(pools)}
    ways = tuple(Way(tuple(place[name] for name in names if name in place), shares) for names, shares in parts)
    return Decision(tuple(pool for _, pool in pools), links, settings, ways)


def _link(context: PlanContext, slot: Slot, circuits: int) -> LinkPlan:
    assert slot.line is not None
    return LinkPlan(slot.line, *context.lines[slot.line].between, circuits, slot.circuit_bytes_per_s)


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
