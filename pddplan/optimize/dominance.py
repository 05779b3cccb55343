"""Drops columns and options that some optimal plan does not need, each by a rule with a proof, before the solver sees
them.

1. A resource that cannot run out (every option at its largest use still fits) constrains nothing.
2. A column is dominated by a smaller-use column of its own option that carries as much, or all that is ever asked
   (capacity over that is cut off, which tightens the relaxation).
3. An option is dominated by another of its pool when for each of its columns the other has one that uses no more of
anything and
   carries no less of every row. The other may already be in the plan at n replicas: then the two merge into its column
   of
   n + n', which exists and carries the sum when its table is complete and superadditive (pooling gains never are
   negative). Where
   a pool takes one configuration only, the merge cannot arise and that condition is not needed.

Options that a cut or a kept group names never dominate, and are never dropped: there is more to them than their tables.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pddplan.optimize.program import FloatArray, Option, PairCut, Program, Resource

SLACK = 1e-12


def drop_dominated(program: Program) -> Program:
    """``program`` without resources that cannot bind and without dominated columns and options: the same optimum,
    fewer binaries.
    """
    protected = _protected(program)
    most = {row.name: program.demand_max(row) for row in program.rows}
    program = replace(program, options=_trimmed(program.options, protected, most))
    resources = _that_can_bind(program)
    named = {resource.name for resource in resources}
    named |= {name for purchase in program.purchases for name in purchase.resources}
    loose = tuple(replace(o, uses={k: v for k, v in o.uses.items() if k in named}) for o in program.options)
    program = replace(program, resources=resources, options=_trimmed(loose, protected, most))
    return replace(program, options=_drop_options(program, most, protected))


def _trimmed(options: tuple[Option, ...], protected: set[str], most: dict[str, float]) -> tuple[Option, ...]:
    kept = (o if o.name in protected else _drop_columns(o, most) for o in options)
    return tuple(option for option in kept if option.replicas.size)


def _that_can_bind(program: Program) -> tuple[Resource, ...]:
    kept = []
    for resource in program.resources:
        largest = [(o.pool, float(np.max(o.uses[resource.name], initial=0.0))) for o in program.options if resource.name in o.uses]
        by_pool: dict[str, list[float]] = {}
        for pool, use in largest:
            by_pool.setdefault(pool, []).append(use)
        worst = sum(sum(sorted(uses)[::-1][: program.max_options.get(pool, len(uses))]) for pool, uses in by_pool.items())
        if worst > resource.limit:
            kept.append(resource)
    return tuple(kept)


def _protected(program: Program) -> set[str]:
    cut = {name for cut in program.cuts for name in (cut.options if isinstance(cut, PairCut) else cut.counts)}
    return cut | {name for group in program.keep for name in group}


def _burden(option: Option, names: tuple[str, ...]) -> FloatArray:
    """What each column uses of everything that counts, shape (columns, things)."""
    zeros = np.zeros(option.replicas.size)
    used = [option.uses.get(name, zeros) for name in names]
    return np.stack([*used, option.cost_usd_per_h], axis=1)


def _benefit(option: Option, most: dict[str, float]) -> FloatArray:
    """What each column can serve of each row if it serves that row alone, cut at the most that is asked; shape
    (columns, rows).

    With several rows the columns of one option, and of options with proportional loads, compare the same way as their
    capacities.
    """
    rows = sorted(option.loads)
    if len(rows) == 1:
        return np.minimum(option.capacity / option.loads[rows[0]], most[rows[0]])[:, None]
    enough = sum(load * most[row] for row, load in option.loads.items())
    capacity = np.minimum(option.capacity, enough)
    return np.stack([capacity / option.loads[row] for row in rows], axis=1)


def _drop_columns(option: Option, most: dict[str, float]) -> Option:
    benefit = _benefit(option, most)
    keep = np.max(benefit, axis=1, initial=0.0) > 0
    burden = _burden(option, tuple(sorted(option.uses))) if option.replicas.size > 1 else benefit
    for k in range(1, option.replicas.size):
        others = keep.copy()
        others[k:] = False
        lighter = np.all(burden <= burden[k] + SLACK, axis=1) & np.all(benefit >= benefit[k] * (1 - SLACK), axis=1)
        if np.any(lighter & others):
            keep[k] = False
    enough = sum(load * most[row] for row, load in option.loads.items())
    return replace(option.take(keep), capacity=np.minimum(option.capacity[keep], enough))


def _drop_options(program: Program, most: dict[str, float], protected: set[str]) -> tuple[Option, ...]:
    options = program.options
    dropped: set[str] = set()
    limits = {resource.name: resource.limit for resource in program.resources}
    pools: dict[tuple[str, tuple[str, ...]], list[Option]] = {}
    for option in options:
        pools.setdefault((option.pool, tuple(sorted(option.loads))), []).append(option)
    for (pool, _), members in pools.items():
        alone = program.max_options.get(pool) == 1
        benefits = {o.name: _benefit(o, most) for o in members}
        able = [o for o in members if o.name not in protected and (alone or _merges(o, benefits[o.name], most, limits))]
        for weak in members:
            if weak.name in protected:
                continue
            rivals = (o for o in able if o.name != weak.name and o.name not in dropped)
            if any(_dominates(o, benefits[o.name], weak, benefits[weak.name]) for o in rivals):
                dropped.add(weak.name)
    return tuple(option for option in options if option.name not in dropped)


def _dominates(strong: Option, strong_benefit: FloatArray, weak: Option, weak_benefit: FloatArray) -> bool:
    if strong.cost_usd_per_h[0] > weak.cost_usd_per_h[0] + SLACK or not strong.uses.keys() <= weak.uses.keys():
        return False
    names = tuple(sorted(weak.uses))
    burden, limit = _burden(strong, names), _burden(weak, names)
    if np.any(burden[0] > limit[0] + SLACK) or np.any(strong_benefit[-1] < weak_benefit[-1] * (1 - SLACK)):
        return False
    lighter = np.all(burden[None, :, :] <= limit[:, None, :] + SLACK, axis=2)
    carries = np.all(strong_benefit[None, :, :] >= weak_benefit[:, None, :] * (1 - SLACK), axis=2)
    return bool(np.all(np.any(lighter & carries, axis=1)))


def _merges(option: Option, benefit: FloatArray, most: dict[str, float], limits: dict[str, float]) -> bool:
    """Whether two columns of the option, or one of it and one that it dominates, always merge into one: counts 1..N without holes,
    use linear, benefit superadditive up to what is asked, and the table ends only where everything is covered or where one more
    replica would exceed a resource (both columns were within it, and what is dominated uses no less of it).
    """
    n = option.replicas.size
    if not np.array_equal(option.replicas, np.arange(1, n + 1)):
        return False
    burden = _burden(option, tuple(sorted(option.uses)))
    if not np.allclose(burden, burden[0] * option.replicas[:, None], rtol=1e-9):
        return False
    enough = sum(load * most[row] for row, load in option.loads.items())
    ends_at_limit = any(float(option.uses[name][0]) * (n + 1) > limit for name, limit in limits.items() if name in option.uses)
    if float(np.max(option.capacity)) < enough * (1 - SLACK) and not ends_at_limit:
        return False
    ceiling = np.max(benefit, axis=0)
    return all(bool(np.all(benefit[a + 1 :] >= np.minimum(benefit[a] + benefit[: n - a - 1], ceiling) * (1 - 1e-9))) for a in range(n))
