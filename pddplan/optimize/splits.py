"""How a solution's traffic is divided among its routes: shares that its counts can carry, and the parts of a decision that they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linprog

from pddplan.optimize.columns import PART_MIN, Columns
from pddplan.optimize.judge import PartOf
from pddplan.optimize.program import FloatArray, Option, Program, Row, Solution

Split = Mapping[str, float]
"""Path -> share of its market's traffic."""
SAME = 0.01
"""Splits whose shares are all within this of each other count as one."""


@dataclass
class Splits:
    """Divisions of one solution's traffic among the routes that it uses.

    fixed_scale: the counts must carry the whole demand; otherwise shares alone matter.
    """

    columns: Columns
    program: Program
    solution: Solution
    fixed_scale: bool
    _known: dict[tuple[tuple[str, int], ...], tuple[Split, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.options = {o.name: o for o in self.program.options if o.name in self.solution.counts}
        self.markets = {path.name: path.market for path in self.program.paths if self.solution.scales.get(path.name, 0.0) > 0.0}
        self.rows = [row for row in self.program.rows if any(row.rates.get(path, 0.0) > 0.0 for path in self.markets)]
        total: dict[str, float] = {}
        for path, market in self.markets.items():
            total[market] = total.get(market, 0.0) + self.solution.scales[path]
        self.given: Split = {path: self.solution.scales[path] / total[market] for path, market in self.markets.items()}
        self.divided = [path for path in self.markets if list(self.markets.values()).count(self.markets[path]) > 1]
        self.class_shares = self._class_shares()

    def of(self, counts: Mapping[str, int]) -> tuple[Split, ...]:
        """Shares worth trying at ``counts``: those that load every role alike, and halfway to the most of each route; where the solution
        says what each option serves of each class, its own. None where no shares could carry the demand.
        """
        if not self.divided or any(option.shared for option in self.options.values()):
            return (self.given,)
        key = tuple(sorted(counts.items()))
        if key not in self._known:
            self._known[key] = tuple(self._distinct(counts))
        return self._known[key]

    def parts(self, split: Split) -> list[PartOf]:
        """The ways of the decision: options with the share of every class that they serve; none where nothing is divided."""
        found: list[PartOf] = []
        for path, market in self.markets.items():
            asked = {row.name for row in self.rows if row.rates.get(path, 0.0) > 0.0}
            names = [name for name, o in self.options.items() if asked & o.loads.keys() and self.columns.slots[name].candidate]
            classes = len(self.columns.context.deployments[market].mix.class_names)
            served = {row for _, row in self.class_shares}
            rated = [name for name in names if any(name == option for option, _ in self.class_shares)]
            for name in rated:
                rows = [f"{market} AGG {c}" for c in range(classes)]
                mine = [self.class_shares.get((name, row), 0.0 if row in served else 1.0 / len(rated)) for row in rows]
                found.append(((name,), tuple(split[path] * share for share in mine)))
            if not rated and path in self.divided:
                found.append((tuple(names), (split[path],) * classes))
        return found

    def _distinct(self, counts: Mapping[str, int]) -> Iterator[Split]:
        kept: list[Split] = []
        for split in self._candidates(counts):
            if all(any(abs(split[path] - other[path]) > SAME for path in split) for other in kept):
                kept.append(split)
                yield split

    def _candidates(self, counts: Mapping[str, int]) -> Iterator[Split]:
        """Minimise the highest load over rows (a linear program in the shares), then lean towards every route in turn."""
        n = len(self.divided)
        loads, beside = [], []
        for row in self.rows:
            carried = sum(self._capacity(self.options[name], row, count) for name, count in counts.items() if name in self.options)
            if carried <= 0.0:
                return
            loads.append([row.rates.get(path, 0.0) / carried for path in self.divided])
            beside.append(sum(rate for path, rate in row.rates.items() if path in self.markets and path not in self.divided) / carried)
        rows = np.hstack([np.array(loads), -np.ones((len(loads), 1))])
        whole = np.append(np.ones(n), 0.0)[None, :]
        limits = [(PART_MIN, 1.0)] * n
        least = linprog(np.append(np.zeros(n), 1.0), rows, -np.array(beside), whole, [1.0], [*limits, (0.0, None)])
        if least.x is None or least.fun is None or (self.fixed_scale and least.fun > 1.0 + 1e-6):
            return
        alike = least.x[:n]
        yield self._split(alike)
        ceiling = 1.0 if self.fixed_scale else least.fun
        for i in range(n):
            most = linprog(-np.eye(n + 1)[i], rows, -np.array(beside), whole, [1.0], [*limits, (0.0, ceiling)])
            if most.x is not None:
                yield self._split(0.5 * (alike + most.x[:n]))

    def _split(self, shares: FloatArray) -> Split:
        return {**self.given, **dict(zip(self.divided, (float(share) for share in shares / shares.sum()), strict=True))}

    def _capacity(self, option: Option, row: Row, count: int) -> float:
        """Demand of a row that ``count`` instances of an option carry at most."""
        spare = self.columns.slots[option.name].candidate
        column = int(np.searchsorted(option.replicas, count + (spare.spare if spare else 0), side="right")) - 1
        return float(option.capacity[column]) / option.loads[row.name] if row.name in option.loads and column >= 0 else 0.0

    def _class_shares(self) -> dict[tuple[str, str], float]:
        """(option, row) -> share of the row's demand, for options that serve several rows or one row beside others by measured rates."""
        asked = {row.name: sum(row.rates.get(path, 0.0) * scale for path, scale in self.solution.scales.items()) for row in self.rows}
        shares = {(option, row): flow / asked[row] for (option, row), flow in self.solution.flows.items() if asked.get(row, 0.0) > 0}
        totals: dict[str, float] = {}
        for (_, row), share in shares.items():
            totals[row] = totals.get(row, 0.0) + share
        return {key: share / totals[key[1]] for key, share in shares.items()}
