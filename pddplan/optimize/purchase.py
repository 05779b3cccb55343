"""How the plan's GPUs are paid for over the day: reserved for the base, on demand and spot for the peaks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pddplan.optimize.milp import solve_cost
from pddplan.optimize.program import Market, Option, Path, Program, Purchase, Row
from pddplan.optimize.search import Incumbent
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Decision
from pddplan.scenario.schema import ChipStock


def purchase_terms(context: PlanContext, best: Incumbent) -> Mapping[str, float]:
    """GPUs per chip and term, averaged over the day, and the mean USD/h; empty without a demand profile or term prices.

    Every hour runs the fewest instances, in proportion to the plan's, with which the whole model meets every limit at that
    hour's demand. The purchase is then a program of its own: reserved GPUs are paid all day, the others by use.
    """
    terms = {key: stock for key, (_, stock) in context.stocks.items() if stock.prices is not None}
    profile = next((d.mix.demand for d in context.deployments.values() if d.mix.demand is not None), None)
    if not terms or profile is None:
        return {}
    factors, counts = np.unique(np.minimum(profile.factors / profile.sizing_factor, 1.0), return_counts=True)
    hours_share = counts / counts.sum()
    fleets = [_fleet(context, best, float(factor)) for factor in factors]
    paid: dict[str, float] = {}
    total = 0.0
    for key, stock in terms.items():
        used = [sum(p.gpus for p in fleet.pools if (p.configuration.site, p.configuration.chip) == key) for fleet in fleets]
        if max(used) > 0:
            cost, bought = _pay(stock, used, hours_share.tolist())
            total += cost
            paid |= {f"{key[1]} at {key[0]}, {term} GPUs": gpus for term, gpus in bought.items()}
    return {**paid, "usd_per_h": total} if paid else {}


def _fleet(context: PlanContext, best: Incumbent, factor: float) -> Decision:
    """The plan shrunk to a share of its demand: counts in proportion, one instance more of each until every limit is met."""
    for extra in range(max((pool.instances for pool in best.decision.pools), default=0) + 1):
        pools = tuple(
            replace(pool, instances=min(pool.instances, max(1, math.ceil(pool.instances * factor) + extra))) for pool in best.decision.pools
        )
        smaller = replace(best.decision, pools=pools)
        if smaller == best.decision or evaluate(context, smaller, best.scale * factor).feasible:
            return smaller
    return best.decision


def _pay(stock: ChipStock, used: list[int], hours_share: list[float]) -> tuple[float, Mapping[str, float]]:
    """Least mean USD/h for GPUs in use per period, and the GPUs of each term."""
    assert stock.prices is not None
    prices = stock.prices
    periods = tuple(f"period {i}" for i in range(len(used)))
    uses = {name: np.array([float(gpus)]) for name, gpus in zip(periods, used, strict=True)}
    fleet = Option("fleet", "fleet", {"fleet": 1.0}, np.array([1]), np.array([1.0]), np.array([0.0]), uses)
    purchase = Purchase(
        "gpus", periods, tuple(hours_share), prices.reserved, prices.reserved_max, prices.on_demand, prices.spot, prices.spot_share_max
    )
    program = Program((Market("all", 1.0),), (Path("all", "all"),), (Row("fleet", {"all": 1.0}),), (fleet,), purchases=(purchase,))
    solution = solve_cost(program)
    if solution is None:
        return math.inf, {}
    return solution.cost_usd_per_h, solution.paid["gpus"]
