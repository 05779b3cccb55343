"""How the plan's GPUs are paid for over the day: reserved for the base, on demand and spot for the peaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pddplan.economics.gpu_price import TERMS
from pddplan.pdd.context import PlanContext
from pddplan.pdd.day import Day
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Decision, Evaluation, TermPurchase, Violation
from pddplan.pdd.terms import IntArray, repriced, standing

BUDGET_SLACK = 1e-9


def by_the_hour(context: PlanContext, evaluation: Evaluation) -> Evaluation:
    """A feasible evaluation with what its chips by term really cost: in every period the instances stand, in proportion to the demand
    and as many more of each pool as it takes, with which the whole model meets every limit then. A budget that this breaks is a
    violation.
    """
    if not evaluation.purchases or not evaluation.feasible:
        return evaluation
    day = context.day
    plan = standing(context, evaluation.decision.pools, day)
    stand = np.stack([_period(context, evaluation, day, t, plan[:, t]) for t in range(day.time_share.size)], axis=1)
    honest = repriced(context, evaluation, stand)
    budget, cost = context.scenario.budget, honest.metrics.cost_usd_per_h
    over = budget is not None and cost > budget * (1 + BUDGET_SLACK)
    return replace(honest, violations=(Violation("budget", cost, float(budget or 0.0)),)) if over else honest


def _period(context: PlanContext, evaluation: Evaluation, day: Day, period: int, least: IntArray) -> IntArray:
    """Instances of each pool in a period, shape (pools,): ``least`` and the fewest more of each that meet every limit."""
    most = np.array([pool.instances for pool in evaluation.decision.pools])
    factors = {name: float(row[period]) for name, row in day.factors.items()}
    if not any(factors.values()):
        return least

    def works(more: int) -> bool:
        counts = np.minimum(least + more, most)
        return bool(np.array_equal(counts, most)) or _meets(context, evaluation, counts, factors)

    high = 0
    while not works(high):
        high = 2 * high or 1
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    counts: IntArray = np.minimum(least + high, most)
    return counts


def _meets(context: PlanContext, evaluation: Evaluation, counts: IntArray, factors: Mapping[str, float]) -> bool:
    decision: Decision = evaluation.decision
    pools = tuple(replace(pool, instances=int(n)) for pool, n in zip(decision.pools, counts, strict=True))
    smaller = replace(decision, pools=pools)
    if len(set(factors.values())) == 1:
        return evaluate(context, smaller, evaluation.rate_scale * next(iter(factors.values())), brief=True).feasible
    slower = {n: replace(d, mix=replace(d.mix, rate_per_s=d.mix.rate_per_s * factors[n])) for n, d in context.deployments.items()}
    return evaluate(context.with_deployments(slower), smaller, evaluation.rate_scale, brief=True).feasible


def purchase_terms(context: PlanContext, bought: tuple[TermPurchase, ...]) -> Mapping[str, float]:
    """GPUs per chip and term as means over the day, and their mean USD/h; empty where no chip is priced by term."""
    if not bought:
        return {}
    gpus = {
        f"{b.chip} at {b.site}, {term} GPUs": float(getattr(b.mix, term))
        for b in bought
        for term in TERMS
        if getattr(context.terms[b.site, b.chip], term) is not None
    }
    return {**gpus, "usd_per_h": sum(b.mix.per_hour for b in bought)}
