"""A plan's nearest neighbours: the same plan with a few more instances of one pool, judged by the whole model."""

from __future__ import annotations

from dataclasses import replace

from pddplan.optimize.result import SeenPlan
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Evaluation

MORE = (1, 2)


def neighbours(context: PlanContext, evaluation: Evaluation) -> tuple[SeenPlan, ...]:
    """The plan itself, then with one and two more instances of each pool in turn, whether or not the stock holds them."""
    found = [SeenPlan.of(evaluation)]
    for index, pool in enumerate(evaluation.decision.pools):
        for more in MORE:
            pools = list(evaluation.decision.pools)
            pools[index] = replace(pool, instances=pool.instances + more)
            grown = replace(evaluation.decision, pools=tuple(pools))
            found.append(SeenPlan.of(evaluate(context, grown, evaluation.rate_scale, brief=True)))
    return tuple(found)
