"""The program on paper: variables and one function per constraint family, in PuLP."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pulp

from pddplan.optimize.program import FloatArray, GrowCut, Option, PairCut, PointCut, Program, UpCut

ENOUGH = 1e4
"""Multiple of all that could be asked of an option at which its capacities end: the solver keeps few digits of what is far apart."""


@dataclass(frozen=True)
class Piece:
    """A run of columns, from index ``first`` to ``last``, on which everything is linear in the count: ``taken`` is its
    binary, ``beyond`` the replicas over the first column's (None where the run is one column).
    """

    first: int
    last: int
    taken: Any
    beyond: Any | None


@dataclass
class Model:
    """A PuLP problem with its variables.

    pieces [z, k]: option -> its runs of columns, of which at most one is taken. served [x]: (option, row), for options
    of several rows. carried [f]: path -> scale. chosen [y]: path of an exclusive market -> binary. paid: purchase ->
    term -> one variable per period (one in all for reserved).
    """

    problem: Any
    program: Program
    tolerance: float = 0.0
    exact: frozenset[str] = frozenset()
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    served: dict[tuple[str, str], Any] = field(default_factory=dict)
    carried: dict[str, Any] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)
    paid: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def variable(self, name: str, low: float | None = 0.0, high: float | None = None, integer: bool = False) -> Any:
        kind = pulp.LpInteger if integer else pulp.LpContinuous
        return self.problem.add_variable(self.unique(name), low, high, kind)

    def add(self, name: str, constraint: Any) -> None:
        self.problem.addConstraint(constraint, self.unique(name))

    def unique(self, name: str) -> str:
        """``name`` in the letters that an LP file allows, numbered where that makes two names equal."""
        clean = re.sub(r"[^A-Za-z0-9_]+", "_", name)[:200]
        candidate, number = clean, 2
        while candidate in self._names:
            candidate, number = f"{clean}_{number}", number + 1
        self._names.add(candidate)
        return candidate


def state(program: Program, tolerance: float = 0.0, exact: frozenset[str] = frozenset()) -> Model:
    """Variables and every constraint family of ``program``, without an objective.

    tolerance: capacities of options other than ``exact`` may be overstated by this share where that joins columns into longer
    runs. The program is then a relaxation: its bound holds, its plan may be short.
    """
    model = Model(pulp.LpProblem("plan", pulp.LpMinimize), _within_reach(program), tolerance, exact)
    _declare_paths(model)
    _declare_columns(model)
    one_column_per_option(model)
    keep_what_stands(model)
    serve_markets(model)
    only_where_needed(model)
    serve_alike(model)
    capacity_of_shared_options(model)
    cover_demand(model)
    respect_resources(model)
    cap_options_per_pool(model)
    pay_by_term(model)
    stay_within_budget(model)
    apply_cuts(model)
    return model


def _within_reach(program: Program) -> Program:
    """The program with capacities of at most ENOUGH times what all rows could ask of an option, which changes no plan."""
    most = {row.name: program.demand_max(row) for row in program.rows}
    asked = (sum(load * most.get(row, 0.0) for row, load in option.loads.items()) for option in program.options)
    capped = (replace(o, capacity=np.minimum(o.capacity, ENOUGH * a)) if a > 0 else o for o, a in zip(program.options, asked, strict=True))
    return replace(program, options=tuple(capped))


def _sum(terms: Iterable[tuple[Any, float]]) -> Any:
    return pulp.LpAffineExpression([(variable, float(weight)) for variable, weight in terms if weight != 0.0])


def _declare_paths(model: Model) -> None:
    exclusive = {market.name: market for market in model.program.markets if market.exclusive}
    for path in model.program.paths:
        model.carried[path.name] = model.variable(f"scale_{path.name}")
        if path.market in exclusive:
            model.chosen[path.name] = model.variable(f"path_{path.name}", 0, 1, integer=True)


def _declare_columns(model: Model) -> None:
    marks = _marks(model.program)
    for option in model.program.options:
        tolerance = 0.0 if option.name in model.exact else model.tolerance
        runs = linear_runs(option, tolerance, marks.get(option.name, frozenset()))
        model.pieces[option.name] = [_piece(model, option, first, last) for first, last in runs]
        if option.shared:
            for row in option.loads:
                model.served[option.name, row] = model.variable(f"serve_{option.name}_{row}")


def _piece(model: Model, option: Option, first: int, last: int) -> Piece:
    lowest, highest = int(option.replicas[first]), int(option.replicas[last])
    taken = model.variable(f"take_{option.name}_{lowest}", 0, 1, integer=True)
    if first == last:
        return Piece(first, last, taken, None)
    beyond = model.variable(f"beyond_{option.name}_{lowest}", 0, highest - lowest, integer=True)
    model.add(f"run_{option.name}_{lowest}", _sum([(beyond, 1.0), (taken, lowest - highest)]) <= 0)
    return Piece(first, last, taken, beyond)


def _marks(program: Program) -> dict[str, frozenset[int]]:
    """Counts at which a cut needs a run to end: option -> counts."""
    marks: dict[str, frozenset[int]] = {}
    for cut in program.cuts:
        if not isinstance(cut, PairCut):
            for name, count in cut.counts.items():
                ends = {count - 1} if isinstance(cut, UpCut) else {count, count - 1} if isinstance(cut, PointCut) else {count}
                marks[name] = marks.get(name, frozenset()) | ends
    return marks


def linear_runs(option: Option, tolerance: float, ends: frozenset[int]) -> list[tuple[int, int]]:
    """(first, last) column of each longest run of consecutive counts on which cost and uses are linear, and capacity is
    within ``tolerance`` of a line. ``ends``: counts at which a run must end.
    """
    n = option.replicas.size
    if n == 0:
        return []
    broken = np.diff(option.replicas) != 1
    if ends:
        broken |= np.isin(option.replicas[:-1], np.fromiter(ends, dtype=np.int64))
    bent = np.zeros(max(n - 2, 0), dtype=bool)
    for table in (option.cost_usd_per_h, *option.uses.values(), *(() if tolerance else (option.capacity,))):
        bent |= np.abs(np.diff(table, 2)) > 1e-12 * max(1.0, float(np.max(np.abs(table))))
    runs, first = [], 0
    for last in range(1, n):
        bends = last - first >= 2 and (bent[last - 2] or (tolerance and not _near_line(option.capacity[first : last + 1], tolerance)))
        if broken[last - 1] or bends:
            runs.append((first, last - 1))
            first = last
    return [*runs, (first, n - 1)]


def _near_line(run: FloatArray, tolerance: float) -> bool:
    return bool(np.all(_overstated(run) - run <= tolerance * run))


def _overstated(run: FloatArray) -> FloatArray:
    """The chord of a run of capacities, lifted until it understates none of them."""
    chord = np.linspace(run[0], run[-1], run.size)
    return np.asarray(chord + max(0.0, float(np.max(run - chord))))


def per_replica(model: Model, option: Option, table: FloatArray, lifted: bool = False) -> list[tuple[Any, float]]:
    """Terms whose sum is ``table``, shape (columns,), at the column taken. lifted: a capacity, overstated on each run."""
    terms: list[tuple[Any, float]] = []
    for piece in model.pieces[option.name]:
        run = table[piece.first : piece.last + 1]
        line = _overstated(run) if lifted else run
        terms.append((piece.taken, float(line[0])))
        if piece.beyond is not None:
            terms.append((piece.beyond, float(line[-1] - line[0]) / (run.size - 1)))
    return terms


def one_column_per_option(model: Model) -> None:
    """At most one column of each option."""
    for option in model.program.options:
        if len(model.pieces[option.name]) > 1:
            total = _sum((piece.taken, 1.0) for piece in model.pieces[option.name])
            model.add(f"one_of_{option.name}", total <= 1)


def keep_what_stands(model: Model) -> None:
    """Of each group to be kept, some option is taken."""
    for number, group in enumerate(model.program.keep):
        taken = [(piece.taken, 1.0) for name in group for piece in model.pieces.get(name, [])]
        model.add(f"keep_{number}", _sum(taken) >= 1)


def serve_markets(model: Model) -> None:
    """The paths of a market carry between its least and its greatest scale; only so many of them where the market is
    exclusive, and none of several less than its least part.
    """
    for market in model.program.markets:
        paths = [path.name for path in model.program.paths if path.market == market.name]
        total = _sum((model.carried[path], 1.0) for path in paths)
        if market.scale_min == market.scale_max:
            model.add(f"serve_{market.name}", total == market.scale_min)
        else:
            model.add(f"serve_at_least_{market.name}", total >= market.scale_min)
            model.add(f"serve_at_most_{market.name}", total <= market.scale_max)
        if market.exclusive:
            label = "one_path" if market.parts == 1 else "parts"
            model.add(f"{label}_of_{market.name}", _sum((model.chosen[path], 1.0) for path in paths) == market.parts)
            for path in paths:
                terms = [(model.carried[path], 1.0), (model.chosen[path], -market.scale_max)]
                model.add(f"only_if_chosen_{path}", _sum(terms) <= 0)
                if market.parts > 1:
                    least = [(model.carried[path], 1.0), (model.chosen[path], -market.part_min)]
                    model.add(f"a_part_if_chosen_{path}", _sum(least) >= 0)


def only_where_needed(model: Model) -> None:
    """An option whose rows only exclusive paths ask for is taken only with one of those paths, unless it may stand idle."""
    askers = {row.name: {path for path in row.rates if path in model.chosen} for row in model.program.rows}
    free = {row.name for row in model.program.rows if any(path not in model.chosen for path in row.rates)}
    every = set(model.chosen)
    for option in model.program.options:
        needed = set().union(*(askers.get(row, set()) for row in option.loads))
        if option.name in model.program.idle or free & option.loads.keys() or not needed or needed == every:
            continue
        terms = [(piece.taken, 1.0) for piece in model.pieces[option.name]]
        model.add(f"needed_{option.name}", _sum(terms + [(model.chosen[path], -1.0) for path in sorted(needed)]) <= 0)


def serve_alike(model: Model) -> None:
    """All markets are served to the same degree, where the program says so."""
    paths = {m.name: [p.name for p in model.program.paths if p.market == m.name] for m in model.program.markets}
    first, *others = model.program.markets
    for market in others if model.program.one_scale else ():
        terms = [(model.carried[path], 1.0) for path in paths[first.name]]
        terms += [(model.carried[path], -1.0) for path in paths[market.name]]
        model.add(f"alike_{market.name}", _sum(terms) == 0)


def capacity_of_shared_options(model: Model) -> None:
    """What an option serves on its rows, each with its own load, fits in the column taken."""
    for option in model.program.options:
        if option.shared:
            largest = float(np.max(option.capacity, initial=0.0)) or 1.0
            terms = [(model.served[option.name, row], load / largest) for row, load in option.loads.items()]
            capacity = per_replica(model, option, option.capacity / largest, lifted=True)
            terms += [(variable, -weight) for variable, weight in capacity]
            model.add(f"capacity_{option.name}", _sum(terms) <= 0)


def cover_demand(model: Model) -> None:
    """Capacity taken covers what the paths ask of each row, in shares of the most that could be asked."""
    for row in model.program.rows:
        most = model.program.demand_max(row)
        if most <= 0:
            continue
        terms: list[tuple[Any, float]] = []
        for option in model.program.options:
            if row.name not in option.loads:
                continue
            if option.shared:
                terms.append((model.served[option.name, row.name], 1.0 / most))
            else:
                terms += per_replica(model, option, option.capacity / option.loads[row.name] / most, lifted=True)
        terms += [(model.carried[path], -rate / most) for path, rate in row.rates.items()]
        model.add(f"cover_{row.name}", _sum(terms) >= 0)


def respect_resources(model: Model) -> None:
    """No more of a resource than there is."""
    for resource in model.program.resources:
        terms = _use(model, resource.name)
        if terms:
            model.add(f"limit_{resource.name}", _sum(terms) <= resource.limit)


def _use(model: Model, resource: str) -> list[tuple[Any, float]]:
    users = [option for option in model.program.options if resource in option.uses]
    return [term for option in users for term in per_replica(model, option, option.uses[resource])]


def cap_options_per_pool(model: Model) -> None:
    """At most m configurations in a pool."""
    for pool, most in model.program.max_options.items():
        members = [option for option in model.program.options if option.pool == pool]
        if len(members) > most:
            terms = [(piece.taken, 1.0) for option in members for piece in model.pieces[option.name]]
            model.add(f"configurations_{pool}", _sum(terms) <= most)


def pay_by_term(model: Model) -> None:
    """GPUs in use in each period are reserved, on demand or spot; spot is a limited share of them."""
    for purchase in model.program.purchases:
        paid: dict[str, list[Any]] = {}
        if purchase.reserved_usd_per_h is not None:
            paid["reserved"] = [model.variable(f"reserved_{purchase.name}", 0, purchase.reserved_max, integer=True)]
        for term, price in (("on_demand", purchase.on_demand_usd_per_h), ("spot", purchase.spot_usd_per_h)):
            if price is not None:
                paid[term] = [model.variable(f"{term}_{purchase.name}_{t}", integer=True) for t in range(len(purchase.resources))]
        model.paid[purchase.name] = paid
        for period, resource in enumerate(purchase.resources):
            in_use = _use(model, resource)
            bought = [(variables[0 if term == "reserved" else period], -1.0) for term, variables in paid.items()]
            model.add(f"paid_{purchase.name}_{period}", _sum(in_use + bought) <= 0)
            if "spot" in paid:
                share = [(z, -used * purchase.spot_share_max) for z, used in in_use]
                model.add(f"spot_share_{purchase.name}_{period}", _sum([(paid["spot"][period], 1.0), *share]) <= 0)


def stay_within_budget(model: Model) -> None:
    """The whole cost is at most the budget."""
    if model.program.budget_usd_per_h is not None:
        model.add("budget", cost_expression(model) <= model.program.budget_usd_per_h)


def apply_cuts(model: Model) -> None:
    """What verification has ruled out."""
    for number, cut in enumerate(model.program.cuts):
        if isinstance(cut, GrowCut):
            pools = {option.pool for option in model.program.options if option.name in cut.counts}
            more = [
                (piece.taken, 1.0)
                for option in model.program.options
                for piece in model.pieces[option.name]
                if option.pool in pools and option.replicas[piece.first] > cut.counts.get(option.name, 0)
            ]
            here = [(model.chosen[path], -1.0) for path in cut.paths]
            model.add(f"grow_{number}", _sum(more + here) >= 1 - len(here))
        elif isinstance(cut, PointCut):
            exactly = [
                (piece.taken, 1.0)
                for option in model.program.options
                for piece in model.pieces[option.name]
                if option.replicas[piece.first] == option.replicas[piece.last] == cut.counts.get(option.name, 0)
            ]
            model.add(f"not_again_{number}", _sum(exactly) <= len(cut.counts) - 1)
        elif isinstance(cut, UpCut):
            reached = [
                (piece.taken, 1.0)
                for option in model.program.options
                for piece in model.pieces[option.name]
                if option.name in cut.counts and option.replicas[piece.first] >= cut.counts[option.name]
            ]
            model.add(f"not_from_{number}", _sum(reached) <= len(cut.counts) - 1)
        else:
            together = [(piece.taken, 1.0) for name in cut.options for piece in model.pieces.get(name, [])]
            model.add(f"not_together_{number}", _sum(together) <= len(cut.options) - 1)


def cost_expression(model: Model) -> Any:
    """USD/h of columns and purchases."""
    terms = [term for option in model.program.options for term in per_replica(model, option, option.cost_usd_per_h)]
    for purchase in model.program.purchases:
        prices = {
            "reserved": purchase.reserved_usd_per_h,
            "on_demand": purchase.on_demand_usd_per_h,
            "spot": purchase.spot_usd_per_h,
        }
        for term, variables in model.paid[purchase.name].items():
            weights = (1.0,) if term == "reserved" else purchase.hours_share
            terms += [(v, float(prices[term] or 0.0) * w) for v, w in zip(variables, weights, strict=True)]
    return _sum(terms)


def goodput_expression(model: Model) -> Any:
    """Good requests/s of all paths."""
    value = {market.name: market.value for market in model.program.markets}
    return _sum((model.carried[path.name], value[path.market] * path.value_share) for path in model.program.paths)
