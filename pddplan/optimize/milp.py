"""Solves a Program with HiGHS: least cost, most goodput, best ratio."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pulp

from pddplan.errors import SolverError
from pddplan.optimize.program import Option, Program, Solution
from pddplan.optimize.statement import Model, cost_expression, goodput_expression, linear_runs, state

TOLERANCE = 1e-9
LARGE = 4000  # runs of columns above which a program is first relaxed
TOLERANCES = (5e-4, 2e-4)  # overstatement of capacities in that relaxation


@dataclass(frozen=True)
class Limits:
    """When the solver may stop: at a proven relative ``gap``, or after ``seconds`` with the incumbent and the gap it
    has.
    """

    gap: float = 0.0
    seconds: float | None = None


def solve_cost(program: Program, limits: Limits = Limits()) -> Solution | None:
    """Least cost of serving every market at its least scale; None when nothing can.

    A large program is bounded by its relaxation (capacities overstated by at most a tolerance on longer runs) and then solved
    exactly over the options that relaxations have used, which are exact in the next; the tolerance falls until the gap
    between the two is within limits.
    """
    best: Solution | None = None
    bound, rounds = -math.inf, 0
    settled: frozenset[str] = frozenset()
    started = time.monotonic()
    for tolerance in TOLERANCES if _pieces(program) > LARGE else ():
        left = None if limits.seconds is None else 0.75 * (limits.seconds - (time.monotonic() - started))
        if left is not None and left < 1.0 and best is not None:
            break
        rounds += 2
        relaxed_model = state(program, tolerance, settled)
        relaxed = _run(relaxed_model, cost_expression(relaxed_model), Limits(0.5 * limits.gap, left))
        if relaxed is None:
            return None
        bound = max(bound, relaxed.bound)
        settled |= relaxed.counts.keys()
        near = replace(program, options=tuple(o for o in program.options if o.name in settled))
        model = state(near)
        plan = _run(model, cost_expression(model), Limits(0.1 * limits.gap, left))
        if plan is not None and (best is None or plan.objective < best.objective):
            best = plan
        if best is not None and 1.0 - bound / best.objective <= limits.gap:
            break
    if best is not None and (limits.seconds is not None or 1.0 - bound / best.objective <= limits.gap):
        gap = max(0.0, 1.0 - bound / best.objective)
        return replace(best, status="feasible" if gap > 0 else "optimal", bound=bound, gap=gap, iterations=rounds)
    model = state(program)
    return _run(model, cost_expression(model), limits)


def _pieces(program: Program) -> int:
    return sum(len(linear_runs(option, 0.0, frozenset())) for option in program.options)


def solve_goodput(program: Program, limits: Limits = Limits()) -> Solution | None:
    """Most goodput under resources and budget, and of the plans that reach it a cheapest; None when nothing is
    feasible.
    """
    model = state(program)
    best = _run(model, -goodput_expression(model), limits)
    if best is None:
        return None
    best = replace(best, objective=-best.objective, bound=-best.bound)
    cheapest = state(program)
    cheapest.add("keep_goodput", goodput_expression(cheapest) >= best.objective * (1 - TOLERANCE))
    second = _run(cheapest, cost_expression(cheapest), limits)
    if second is None:
        return best
    return replace(second, status=best.status, objective=second.goodput_rps, bound=best.bound, gap=best.gap, iterations=2)


def solve_ratio(program: Program, limits: Limits = Limits()) -> Solution | None:
    """Greatest goodput per cost (Dinkelbach 1967): the ratio lambda is optimal when max(goodput - lambda cost) is 0.

    With U the solver's bound on that maximum, no plan's ratio is over lambda + U / (least cost): the certificate. None
    when
    nothing is feasible. Raises ValueError when a plan of no cost exists: the ratio then has no scale.
    """
    cheapest = solve_cost(program, limits)
    if cheapest is None:
        return None
    least_cost = cheapest.bound
    if cheapest.cost_usd_per_h <= 0 or least_cost <= 0:
        raise ValueError("max-bcr needs plans that cost something: a demand floor and prices over 0")
    best, programs = cheapest, 1
    while True:
        ratio = best.goodput_rps / best.cost_usd_per_h
        model = state(program)
        answer = _run(model, ratio * cost_expression(model) - goodput_expression(model), limits)
        programs += 1
        if answer is None:
            raise SolverError("the solver called a program infeasible after it had solved it; relax the tolerances")
        surplus, step = -answer.objective, max(0.0, -answer.bound) / least_cost
        improved = answer.goodput_rps / answer.cost_usd_per_h > ratio * (1 + TOLERANCE)
        if not improved or surplus <= TOLERANCE * max(1.0, best.goodput_rps):
            gap = step / (ratio + step) if ratio + step > 0 else 0.0
            gap = 0.0 if gap < 1e-7 else gap
            return replace(
                best, status="optimal" if gap <= max(limits.gap, 0.0) else "feasible", objective=ratio, bound=ratio + step, gap=gap,
                ratio_bound_step=step, iterations=programs,
            )  # fmt: skip
        best = answer


def _run(model: Model, objective: Any, limits: Limits) -> Solution | None:
    """Minimise ``objective``; None when infeasible; SolverError when the solver ends without an answer."""
    problem = model.problem
    problem.setObjective(objective)
    try:
        problem.solve(pulp.HiGHS(msg=False, gapRel=limits.gap, gapAbs=0.0, threads=1, timeLimit=limits.seconds, random_seed=0))
    except Exception as error:  # whatever a foreign library raises: missing, broken, out of memory
        raise SolverError(f"HiGHS is missing or failed: {error}; install it with: pip install 'pulp[highs]'") from error
    if problem.sol_status == pulp.LpSolutionInfeasible:
        return None
    if problem.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        raise SolverError(f"HiGHS ended as {pulp.LpSolution[problem.sol_status]} without a plan; allow more time")
    info = problem.solverModel.getInfo()
    if info.primal_solution_status != 2:
        raise SolverError(f"HiGHS stopped after {limits.seconds} s before it had a plan; allow more time")
    value = float(info.objective_function_value)
    bound = float(info.mip_dual_bound) if np.isfinite(info.mip_dual_bound) and problem.isMIP() else value
    gap = max(0.0, (value - bound) / max(abs(value), 1e-12))
    gap = 0.0 if gap < 1e-7 else gap
    return _read(model, value, bound if gap else value, gap)


def _read(model: Model, value: float, bound: float, gap: float) -> Solution:
    program = model.program
    counts = {option.name: count for option in program.options if (count := _taken(model, option))}
    cost = cost_expression(model).value() or 0.0
    return Solution(
        status="optimal" if gap == 0.0 else "feasible",
        objective=value,
        bound=bound,
        gap=gap,
        counts=counts,
        scales={name: float(v.varValue) for name, v in model.carried.items() if v.varValue > TOLERANCE},
        flows={key: float(v.varValue) for key, v in model.served.items() if v.varValue > TOLERANCE},
        cost_usd_per_h=float(cost),
        goodput_rps=float(goodput_expression(model).value() or 0.0),
        paid=_paid(model),
    )


def _taken(model: Model, option: Option) -> int:
    """Replicas taken, 0 for none."""
    for piece in model.pieces[option.name]:
        if piece.taken.varValue > 0.5:
            return int(option.replicas[piece.first]) + (round(piece.beyond.varValue) if piece.beyond is not None else 0)
    return 0


def _paid(model: Model) -> Mapping[str, Mapping[str, float]]:
    """GPUs per term, averaged over the periods."""
    paid: dict[str, dict[str, float]] = {}
    for purchase in model.program.purchases:
        paid[purchase.name] = {
            term: float(sum(v.varValue * w for v, w in zip(variables, (1.0,) if term == "reserved" else purchase.hours_share, strict=True)))
            for term, variables in model.paid[purchase.name].items()
        }
    return paid
