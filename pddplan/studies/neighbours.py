"""A plan's nearest neighbours: the same plan with a few more instances of one pool, judged by the whole model."""

from __future__ import annotations

from dataclasses import replace

from pddplan.optimize.result import SeenPlan
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Decision

MORE = (1, 2)


def neighbours(context: PlanContext, decision: Decision, rate_scale: float = 1.0) -> tuple[SeenPlan, ...]:
    """The plan itself, then with one and two more instances of each pool in turn, whether or not the stock holds them."""
    grown = [decision]
    for index, pool in enumerate(decision.pools):
        for more in MORE:
            pools = list(decision.pools)
            pools[index] = replace(pool, instances=pool.instances + more)
            grown.append(replace(decision, pools=tuple(pools)))
    found = []
    for plan in grown:
        evaluation = evaluate(context, plan, rate_scale, brief=True)
        m = evaluation.metrics
        found.append(SeenPlan(plan, m.cost_usd_per_h, m.goodput_rps, m.ttft_p99_s, m.tpot_p99_s, evaluation.feasible))
    return tuple(found)
