"""The integer program as values: what may be bought, what it carries, what it uses, and what is asked of it.

No solver here (optimize/milp.py states and solves it) and no language model either: a brute force over these values
must
agree with the solver. Symbols of docs/model/optimisation.md stand in brackets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
ObjectiveKind = Literal["min-cost", "max-goodput", "max-bcr"]


@dataclass(frozen=True)
class Market:
    """Traffic that is served to a degree: its scale [s] lies in [scale_min, scale_max] (1 = the scenario's demand).

    value: goodput of scale 1, requests/s (weighted by the hours of its period, where there are periods).
    exclusive: exactly ``parts`` of its paths carry everything, each at least ``part_min`` where they are several; otherwise all its paths
    share it.
    """

    name: str
    value: float
    scale_min: float = 1.0
    scale_max: float = 1.0
    exclusive: bool = False
    parts: int = 1
    part_min: float = 0.0


@dataclass(frozen=True)
class Path:
    """One way to serve a market (a structure, a pair of sites): carries scale [f]. value_share: share of its traffic
    that is good.
    """

    name: str
    market: str
    value_share: float = 1.0


@dataclass(frozen=True)
class Row:
    """A demand that capacity must cover: requests/s (or bytes/s of a line) per unit scale of each path in ``rates``
    [d].
    """

    name: str
    rates: Mapping[str, float]


@dataclass(frozen=True)
class Option:
    """One configuration with its table of columns, of which a plan takes at most one [z].

    pool: options of one pool count together against ``max_options``. loads: capacity that one unit of a row's demand
    takes [a].
    replicas: shape (columns,), increasing, > 0. capacity [c], cost_usd_per_h: shape (columns,). uses: resource ->
    shape (columns,).
    """

    name: str
    pool: str
    loads: Mapping[str, float]
    replicas: IntArray
    capacity: FloatArray
    cost_usd_per_h: FloatArray
    uses: Mapping[str, FloatArray] = field(default_factory=dict)
    divisible: bool = False

    @property
    def shared(self) -> bool:
        """Whether what it serves of each row is a variable [x] of its own."""
        return self.divisible or len(self.loads) > 1

    def take(self, keep: NDArray[np.bool_]) -> Option:
        """The option with only the columns where ``keep``, shape (columns,), is True."""
        return replace(
            self,
            replicas=self.replicas[keep],
            capacity=self.capacity[keep],
            cost_usd_per_h=self.cost_usd_per_h[keep],
            uses={name: used[keep] for name, used in self.uses.items()},
        )


@dataclass(frozen=True)
class Resource:
    """A hard cap: sum of ``uses`` <= limit (GPUs of a chip at a site, nodes, watts, GPUs changed)."""

    name: str
    limit: float


@dataclass(frozen=True)
class Purchase:
    """How the GPUs of one kind are paid for over the periods of a day, in place of the columns' cost.

    resources: one per period, the GPUs in use then. hours_share: share of the day of each, sums to 1. Reserved GPUs are
    paid all day, on-demand and spot by use. spot_share_max: cap on the spot share of the GPUs in use. Prices are None
    where a term is not on offer.
    """

    name: str
    resources: tuple[str, ...]
    hours_share: tuple[float, ...]
    reserved_usd_per_h: float | None = None
    reserved_max: float | None = None
    on_demand_usd_per_h: float | None = None
    spot_usd_per_h: float | None = None
    spot_share_max: float = 0.0


@dataclass(frozen=True)
class GrowCut:
    """What these counts reach on these exclusive paths is known, and plans within them reach no more: another path, or some option
    of the same pools with more than ``counts`` [b].
    """

    counts: Mapping[str, int]
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class PointCut:
    """A plan of exactly these counts (and perhaps more options) is not to be proposed again."""

    counts: Mapping[str, int]


@dataclass(frozen=True)
class UpCut:
    """Plans with at least these counts of each option are known: not to be proposed again."""

    counts: Mapping[str, int]


@dataclass(frozen=True)
class PairCut:
    """These options do not work together: not all of them in one plan."""

    options: tuple[str, ...]


Cut = GrowCut | PointCut | UpCut | PairCut


@dataclass(frozen=True)
class Program:
    """The whole program.

    max_options: pool -> most configurations in it (absent: no cap). budget_usd_per_h: hard cap on cost. keep: of each group of
    options one must be taken (what stands and is kept). idle: options that may be taken where no chosen path needs them.
    one_scale: all markets are served to the same degree.
    """

    markets: tuple[Market, ...]
    paths: tuple[Path, ...]
    rows: tuple[Row, ...]
    options: tuple[Option, ...]
    resources: tuple[Resource, ...] = ()
    max_options: Mapping[str, int] = field(default_factory=dict)
    budget_usd_per_h: float | None = None
    purchases: tuple[Purchase, ...] = ()
    cuts: tuple[Cut, ...] = ()
    keep: tuple[tuple[str, ...], ...] = ()
    idle: frozenset[str] = frozenset()
    one_scale: bool = False

    @property
    def columns(self) -> int:
        return sum(option.replicas.size for option in self.options)

    def demand_max(self, row: Row) -> float:
        """Most that ``row`` can be asked for: the path with the largest rate carries its market at full scale."""
        ceiling = {market.name: market.scale_max for market in self.markets}
        most: dict[str, float] = {}
        for path in self.paths:
            rate = row.rates.get(path.name, 0.0)
            if rate > 0:
                most[path.market] = max(most.get(path.market, 0.0), rate * ceiling[path.market])
        return sum(most.values())


@dataclass(frozen=True)
class Solution:
    """What the solver found. status: optimal or feasible. objective and bound in the objective's unit; gap relative to
    the bound.

    counts: option -> replicas (> 0). scales: path -> scale carried. flows: (option, row) -> demand served, for options
    of several rows.
    ratio_bound_step: U / (least cost) of the Dinkelbach certificate. iterations: programs solved. paid: purchase ->
    term -> GPUs.
    """

    status: Literal["optimal", "feasible"]
    objective: float
    bound: float
    gap: float
    counts: Mapping[str, int]
    scales: Mapping[str, float]
    flows: Mapping[tuple[str, str], float]
    cost_usd_per_h: float
    goodput_rps: float
    ratio_bound_step: float = 0.0
    iterations: int = 1
    paid: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
