"""PlanContext: everything that stays the same while plans of one scenario are compared, resolved once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pddplan.hardware.types import Chip
from pddplan.model.spec import ModelSpec
from pddplan.pdd.plan import Configuration, Settings
from pddplan.stages.protocol import AggregatedStage, KvTransfer
from pddplan.workload.mix import RequestMix

FloatArray = NDArray[np.float64]
Dispatch = Literal["central", "shortest_queue", "round_robin", "cache_affinity"]


@dataclass(frozen=True)
class MetricLimit:
    """SLA on one latency: ``limit_s`` makes a request good; ``percentiles`` are constraints of their own, {0.99: 15.0} = P99 <= 15 s."""

    limit_s: float | None = None
    percentiles: Mapping[float, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ClassSla:
    """SLA of one request class; ``attainment`` is a floor on P(TTFT and TPOT within their limits)."""

    ttft: MetricLimit = MetricLimit()
    tpot: MetricLimit = MetricLimit()
    e2e: MetricLimit = MetricLimit()
    stall: MetricLimit = MetricLimit()
    attainment: float | None = None


@dataclass(frozen=True)
class Line:
    """A link of the scenario, one direction, before circuits are bought.

    usable: share of the circuits' bytes/s that payload can take. target_utilisation: load of the usable share at which
    ``line_gbps_needed`` is stated and columns are sized. connections: transfers in progress at once, over the whole link.
    """

    name: str
    between: tuple[str, str]
    circuit_bytes_per_s: float
    max_circuits: int
    rtt_s: float
    flow_bytes_per_s: float
    connections: int
    usable: float
    target_utilisation: float
    usd_per_gbps_month: float
    usd_per_gb: float = 0.0


@dataclass(frozen=True)
class Deployment:
    """One model with its own traffic. ``slas``: one per class of ``mix.class_names``."""

    name: str
    spec: ModelSpec
    kv: KvTransfer
    kv_format: str
    mix: RequestMix
    slas: tuple[ClassSla, ...]


@dataclass(frozen=True)
class StageRows:
    """Prefill of every row of a deployment's mix on one instance: shape (rows,), seconds alone and seconds of capacity used."""

    latency_s: FloatArray
    occupancy_s: FloatArray


@dataclass(frozen=True)
class PlanContext:
    """Values of one scenario that no decision changes. Build it with ``PlanContext.from_scenario``; stage objects are cached.

    chips: by slug. prices_usd_h: by (site, chip slug), USD per GPU-hour. full_queueing False: capacities only, waits are 0.
    relay_threshold_s, handoff ...: the scenario's own policy is ``policy``; "auto" is left to whoever decides.
    """

    deployments: Mapping[str, Deployment]
    lines: Mapping[str, Line]
    chips: Mapping[str, Chip]
    prices_usd_h: Mapping[tuple[str, str], float]
    prefill_dispatch: Dispatch
    decode_dispatch: Dispatch
    full_queueing: bool
    policy: Settings
    warnings: tuple[str, ...] = ()
    _stages: dict[tuple[Configuration, int, bool], AggregatedStage] = field(default_factory=dict, repr=False, compare=False)
    _rows: dict[tuple[Configuration, int, bool], StageRows] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_scenario(cls, scenario: object) -> PlanContext:
        """Resolve chips, models, mixes, links, prices and SLAs of ``scenario`` (pddplan.scenario). Raises InputError."""
        raise NotImplementedError

    def instance(self, configuration: Configuration, settings: Settings | None = None) -> AggregatedStage:
        """Stage times of one instance: roofline, or the scenario's profile when ``configuration.profile`` is set.

        ``settings`` gives chunk and tail packing; None takes the scenario's policy.
        """
        raise NotImplementedError

    def prefill_rows(self, configuration: Configuration, settings: Settings | None = None) -> StageRows:
        """Prefill of every row of the configuration's deployment, computed once."""
        raise NotImplementedError

    def line_between(self, a: str, b: str) -> Line | None:
        """The scenario's link between two sites, None when there is none."""
        raise NotImplementedError

    @cached_property
    def rate_per_s(self) -> float:
        """Requests/s of all deployments together."""
        return sum(deployment.mix.rate_per_s for deployment in self.deployments.values())
