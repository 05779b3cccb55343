"""Chips paid by term over the day: which instances stand in each period, and the GPUs that are reserved, on demand and spot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pddplan.economics.terms import cheapest_mix
from pddplan.pdd.context import PlanContext
from pddplan.pdd.day import Day
from pddplan.pdd.plan import Configuration, Evaluation, Pool, TermPurchase, Violation

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def step_of(context: PlanContext, configuration: Configuration) -> int:
    """Instances of a configuration come in multiples of this: 1, or what fills whole nodes where the site asks for them."""
    if not context.scenario.sites[configuration.site].whole_nodes:
        return 1
    stock, gpus = context.stocks[configuration.site, configuration.chip][1], configuration.gpus_per_instance
    return math.lcm(gpus, stock.node_gpus or context.chips[configuration.chip].gpus_per_node) // gpus


def in_service(context: PlanContext, configuration: Configuration, counts: IntArray, factors: FloatArray) -> IntArray:
    """Instances that stand in each period, shape (counts, periods): in proportion to the demand, in whole instances (and nodes), at
    least one, with the spare ones always there.
    """
    spare, step = context.scenario.search.spare(configuration.role), step_of(context, configuration)
    serving = np.maximum(counts[:, None] - spare, 0)
    needed = np.maximum(np.ceil(serving * factors - 1e-9), 1.0) + spare
    whole: IntArray = np.minimum(np.ceil(needed / step) * step, counts[:, None]).astype(np.int64)
    return whole


def standing(context: PlanContext, pools: Sequence[Pool], day: Day) -> IntArray:
    """Instances of every pool in every period, shape (pools, periods)."""
    rows = [
        in_service(context, p.configuration, np.array([p.instances]), day.factors[p.configuration.deployment])[0] for p in pools
    ]
    return np.array(rows, dtype=np.int64).reshape(len(pools), day.time_share.size)


def paid(context: PlanContext, pools: Sequence[Pool], stand: IntArray | None = None) -> tuple[list[float], tuple[TermPurchase, ...]]:
    """Cost per hour of every pool, and what is bought by term. Chips at one price are paid all day; of the others the instances that
    ``stand``, shape (pools, periods) (None: in proportion to the demand), by the cheapest mix, each pool its part by GPU-hours.
    """
    costs = [pool.gpus * context.prices_usd_h[pool.configuration.site, pool.configuration.chip] for pool in pools]
    if not context.terms:
        return costs, ()
    day = context.day
    stand = standing(context, pools, day) if stand is None else stand
    keys = [(pool.configuration.site, pool.configuration.chip) for pool in pools]
    gpus = np.array([pool.configuration.gpus_per_instance for pool in pools])
    used = stand * gpus[:, None]
    bought = []
    for key, prices in context.terms.items():
        members = [i for i, other in enumerate(keys) if other == key and used[i].any()]
        if members:
            total = used[members].sum(axis=0).astype(np.float64)
            mix = cheapest_mix(prices, total, day.time_share)
            bought.append(TermPurchase(*key, mix, tuple(total.tolist()), tuple(day.time_share.tolist())))
            for i in members:
                costs[i] = mix.per_hour * float(used[i] @ day.time_share) / float(total @ day.time_share)
    return costs, tuple(bought)


def short_of(context: PlanContext, bought: Sequence[TermPurchase]) -> tuple[Violation, ...]:
    """Chips of which the terms on offer do not reach as many as are used: at most ``reserved_max``, and what spot may be of them."""
    return tuple(
        Violation(f"terms of {b.chip} at {b.site}", max(b.used), float(context.terms[b.site, b.chip].reserved_max or 0))
        for b in bought
        if math.isinf(b.mix.per_hour)
    )


def ratio_of(goodput_rps: float, cost_usd_per_h: float) -> float:
    """BCR; NaN where something is served for nothing, 0 where nothing is served."""
    if cost_usd_per_h > 0.0:
        return goodput_rps / cost_usd_per_h
    return math.nan if goodput_rps > 0.0 else 0.0


def repriced(context: PlanContext, evaluation: Evaluation, stand: IntArray) -> Evaluation:
    """An evaluation with the cost of the instances that ``stand`` in each period, shape (pools, periods)."""
    costs, bought = paid(context, evaluation.decision.pools, stand)
    m = evaluation.metrics
    cost = m.cost_usd_per_h + sum(costs) - sum(pool.cost_usd_per_h for pool in evaluation.pools)
    change = cost / m.cost_usd_per_h if m.cost_usd_per_h > 0.0 else 1.0
    metrics = replace(
        m,
        cost_usd_per_h=cost,
        bcr=ratio_of(m.goodput_rps, cost),
        usd_per_million_output_tokens=m.usd_per_million_output_tokens * change,
    )
    pools = tuple(replace(pool, cost_usd_per_h=each) for pool, each in zip(evaluation.pools, costs, strict=True))
    return replace(evaluation, pools=pools, metrics=metrics, purchases=bought)
