"""An oracle for small programs: tries every choice of columns and paths; what is left is linear and goes to scipy's linprog."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from scipy.optimize import linprog

from pddplan.optimize.program import GrowCut, PointCut, Program, UpCut


def choices(program: Program) -> Iterator[dict[str, int]]:
    """Every choice of at most one column per option: option -> column index (-1 none), within caps, resources and cuts."""
    ranges = [range(-1, option.replicas.size) for option in program.options]
    for picks in itertools.product(*ranges):
        choice = {option.name: pick for option, pick in zip(program.options, picks, strict=True)}
        taken = [(option, pick) for option, pick in zip(program.options, picks, strict=True) if pick >= 0]
        if any(sum(option.pool == pool for option, _ in taken) > most for pool, most in program.max_options.items()) or any(
            sum(option.uses[r.name][pick] for option, pick in taken if r.name in option.uses) > r.limit + 1e-9 for r in program.resources
        ):
            continue
        if all(_passes(cut, taken, program.options) for cut in program.cuts):
            yield choice


def _passes(cut, taken, options) -> bool:
    if isinstance(cut, GrowCut):
        pools = {o.pool for o in options if o.name in cut.counts}
        return any(o.pool in pools and o.replicas[pick] > cut.counts.get(o.name, 0) for o, pick in taken)
    if isinstance(cut, PointCut):
        return {option.name: int(option.replicas[pick]) for option, pick in taken if option.name in cut.counts} != dict(cut.counts)
    if isinstance(cut, UpCut):
        reached = {o.name for o, pick in taken if o.name in cut.counts and o.replicas[pick] >= cut.counts[o.name]}
        return reached != set(cut.counts)
    names = {option.name for option, _ in taken}
    return not set(cut.options) <= names


def cost(program: Program, choice: dict[str, int]) -> float:
    return float(sum(o.cost_usd_per_h[choice[o.name]] for o in program.options if choice[o.name] >= 0))


def most_goodput(program: Program, choice: dict[str, int]) -> float | None:
    """Greatest goodput that the chosen columns serve, over every choice of paths of exclusive markets; None when infeasible."""
    best: float | None = None
    exclusive = [m for m in program.markets if m.exclusive]
    options = [list(itertools.combinations([p.name for p in program.paths if p.market == m.name], m.parts)) for m in exclusive]
    for combination in itertools.product(*options):
        chosen = {name for names in combination for name in names}
        allowed = [p for p in program.paths if p.market not in {m.name for m in exclusive} or p.name in chosen]
        value = _linear(program, choice, allowed)
        if value is not None and (best is None or value > best):
            best = value
    return best


def _linear(program, choice, allowed) -> float | None:
    taken = [(o, choice[o.name]) for o in program.options if choice[o.name] >= 0]
    flows = [(o, pick, row) for o, pick in taken for row in o.loads]
    n = len(allowed) + len(flows)
    value = {m.name: m.value for m in program.markets}
    objective = np.zeros(n)
    for i, path in enumerate(allowed):
        objective[i] = -value[path.market] * path.value_share
    A, b = [], []
    for o, pick in taken:
        A.append([0.0] * len(allowed) + [o.loads[row] if f is o else 0.0 for f, _, row in flows])
        b.append(o.capacity[pick])
    for row in program.rows:
        A.append([row.rates.get(p.name, 0.0) for p in allowed] + [-1.0 if r == row.name else 0.0 for _, _, r in flows])
        b.append(0.0)
    for m in program.markets:
        mine = [1.0 if p.market == m.name else 0.0 for p in allowed] + [0.0] * len(flows)
        A += [mine, [-x for x in mine]]
        b += [m.scale_max, -m.scale_min]
    least = {m.name: m.part_min if m.parts > 1 else 0.0 for m in program.markets}
    bounds = [(least[p.market], None) for p in allowed] + [(0, None)] * len(flows)
    answer = linprog(objective, A_ub=np.array(A), b_ub=np.array(b), bounds=bounds, method="highs")
    return -float(answer.fun) if answer.status == 0 else None


def least_cost(program: Program) -> float | None:
    costs = sorted((cost(program, c), i, c) for i, c in enumerate(choices(program)))
    for price, _, choice in costs:
        if program.budget_usd_per_h is not None and price > program.budget_usd_per_h + 1e-9:
            return None
        if most_goodput(program, choice) is not None:
            return price
    return None


def _affordable(program: Program):
    for choice in choices(program):
        price = cost(program, choice)
        if program.budget_usd_per_h is None or price <= program.budget_usd_per_h + 1e-9:
            goodput = most_goodput(program, choice)
            if goodput is not None:
                yield price, goodput


def best_goodput(program: Program) -> float | None:
    return max((goodput for _, goodput in _affordable(program)), default=None)


def best_ratio(program: Program) -> float | None:
    return max((goodput / price for price, goodput in _affordable(program)), default=None)
