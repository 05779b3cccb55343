"""What is optimised, read off an evaluation: the one place that says which of two plans is better."""

from __future__ import annotations

import math

from pddplan.errors import InputError, Problem
from pddplan.optimize.result import Objective
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Evaluation
from pddplan.scenario.schema import Goal

UNITS: dict[Goal, str] = {"max-bcr": "req/s per USD/h", "min-cost": "USD/h", "max-goodput": "req/s"}


def check_prices(context: PlanContext) -> None:
    """Raises InputError where prices of 0 leave an objective of money without meaning: a ratio needs a cost of every plan, a least
    cost needs some plan that costs more than another. Most goodput has a meaning at any price; its ratio is then not defined.
    """
    goal = context.scenario.objective
    free = [key for key, price in context.prices_usd_h.items() if price <= 0]
    if goal == "max-goodput" or not free or (goal == "min-cost" and len(free) < len(context.prices_usd_h)):
        return
    wants = "max-bcr divides by the cost" if goal == "max-bcr" else "min-cost cannot choose when every chip costs 0"
    example = "2.00 USD/h, or objective: max-goodput, or fleet: {sunk: true} for what is paid for already"
    raise InputError(
        Problem(f"sites.{site}.chips[{context.stocks[site, chip][0]}].price", f"{chip} costs 0", f"a price over 0: {wants}", example)
        for site, chip in free
    )


def objective_value(goal: Goal, evaluation: Evaluation) -> float:
    """The objective of an evaluated plan in its own unit."""
    metrics = evaluation.metrics
    return {"max-bcr": metrics.bcr, "min-cost": metrics.cost_usd_per_h, "max-goodput": metrics.goodput_rps}[goal]


def gap_of(goal: Goal, value: float, bound: float) -> float:
    """Relative distance of ``value`` from ``bound``, 0 where the value reaches it."""
    if bound <= 0 or not math.isfinite(bound):
        return 0.0 if value == bound else 1.0
    gap = value / bound - 1.0 if goal == "min-cost" else 1.0 - value / bound
    return max(0.0, gap)


def objective_of(goal: Goal, evaluation: Evaluation, bound: float | None = None, step: float = 0.0) -> Objective:
    """``bound`` None: the plan was not searched for, its own value stands."""
    value = objective_value(goal, evaluation)
    return Objective(goal, value, value if bound is None else bound, UNITS[goal], step)
