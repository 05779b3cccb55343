"""A plan as values: what is deployed (Decision) and what the whole model says of it (Evaluation)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pddplan.economics.terms import TermMix
from pddplan.model.spec import Parallel

FloatArray = NDArray[np.float64]
Role = Literal["P", "RLD", "MD", "AGG"]
Handoff = Literal["one-shot", "catch-up", "auto", "ship-kv"]
PipelineName = Literal["P-MD", "P-RLD-MD", "local", "P-RLD", "AGG"]


@dataclass(frozen=True)
class Configuration:
    """What one instance is: a model deployment on a chip at a site, in a role, cut by ``parallel``.

    profile: index of the scenario's profiled instance in ``sites.<site>.chips[i].profiles`` when one replaces the roofline.
    """

    deployment: str
    model: str
    site: str
    role: Role
    chip: str
    engine: str
    parallel: Parallel
    gpus_per_instance: int
    profile: int | None = None


@dataclass(frozen=True)
class Pool:
    configuration: Configuration
    instances: int

    @property
    def gpus(self) -> int:
        return self.instances * self.configuration.gpus_per_instance


@dataclass(frozen=True)
class LinkPlan:
    """Circuits bought on one link; ``name`` is its key in the scenario."""

    name: str
    from_site: str
    to_site: str
    circuits: int
    circuit_bytes_per_s: float


@dataclass(frozen=True)
class Settings:
    """Outer settings of a plan.

    relay_threshold_s: predicted transfer time above which a request goes through RLD (inf: never; None: no RLD in the plan).
    p_threshold_tokens: uncached length above which a request goes to the remote P pool (None: one P pool).
    md_cache_bytes: HBM bytes of each MD instance that hold history for later turns (None: as the policy says).
    """

    relay_threshold_s: float | None
    handoff: Handoff
    prefill_chunk_tokens: int
    tail_packing: bool
    p_threshold_tokens: float | None = None
    md_cache_bytes: float | None = None
    singular_uncached_over: float = 32768.0
    singular_output_under: float = 500.0


@dataclass(frozen=True)
class Way:
    """A complete way to serve a part of a deployment's traffic: some of the plan's pools, as indices, and what they take of it.

    class_shares: share of the requests of every class, shape (classes,). A pool may stand in several ways.
    """

    pools: tuple[int, ...]
    class_shares: tuple[float, ...]


@dataclass(frozen=True)
class Decision:
    """A plan to be judged.

    ways: how a deployment's traffic is divided, the shares of each class summing to 1 over the ways of its pools. Inside a way, and where
    a deployment has none, traffic is shared in proportion to what the pools can carry.
    """

    pools: tuple[Pool, ...]
    links: tuple[LinkPlan, ...]
    settings: Settings
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True)
class Law:
    """A distribution on a grid: P(T <= seconds[i]) = cdf[i]; shape (points,). The missing mass 1 - cdf[-1] lies beyond (or never ends)."""

    seconds: FloatArray
    cdf: FloatArray

    def quantile(self, q: float) -> float:
        """Smallest t with P(T <= t) >= q, linear between grid points; inf when the law never reaches q."""
        if q > self.cdf[-1]:
            return float("inf")
        i = int(np.searchsorted(self.cdf, q, side="left"))
        if i == 0 or self.cdf[i] == self.cdf[i - 1]:
            return float(self.seconds[i])
        left, right = self.cdf[i - 1], self.cdf[i]
        return float(self.seconds[i - 1] + (self.seconds[i] - self.seconds[i - 1]) * (q - left) / (right - left))

    def at(self, seconds: float) -> float:
        """P(T <= seconds)."""
        return float(np.interp(seconds, self.seconds, self.cdf, left=0.0))


@dataclass(frozen=True)
class PipelineResult:
    name: PipelineName
    share: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    ttft: Law


@dataclass(frozen=True)
class PoolResult:
    pool: Pool
    utilisation: float
    cost_usd_per_h: float
    binding_resource: str
    batch_mean: float = 0.0
    batch_max: float = 0.0


@dataclass(frozen=True)
class LinkResult:
    link: LinkPlan
    utilisation: float
    cost_usd_per_h: float
    bytes_per_s_mean: float
    bytes_per_s_needed: float
    bytes_per_s_mean_without_md_cache: float = 0.0


@dataclass(frozen=True)
class TermPurchase:
    """How the GPUs of a chip that is priced by term are paid for: ``mix`` for the GPUs ``used`` in periods of ``time_share``."""

    site: str
    chip: str
    mix: TermMix
    used: tuple[float, ...]
    time_share: tuple[float, ...]


@dataclass(frozen=True)
class Metrics:
    """The metrics of the JSON contract; field names are its keys. NaN: not defined, as what a token costs where none is served."""

    goodput_rps: float
    p_good: float
    cost_usd_per_h: float
    bcr: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    tpot_mean_s: float
    tpot_p99_s: float
    stall_p99_s: float
    e2e_p50_s: float
    e2e_p99_s: float
    rld_token_share: float
    line_gbps_mean: float
    line_gbps_needed: float
    usd_per_million_output_tokens: float
    gpus: int
    tpot_inclusive_mean_s: float = 0.0
    task_p50_s: float | None = None
    task_p99_s: float | None = None


@dataclass(frozen=True)
class Violation:
    """One SLA or stability limit that a plan misses: ``value`` against ``limit``, signed so that more is worse."""

    constraint: str
    value: float
    limit: float


@dataclass(frozen=True)
class Feedback:
    """The session feedback of a plan in closed form.

    fresh_local_share s and stale_local_share p, the long-run stale share x, RLD's load with it, and the largest s (at the same p) at which
    RLD's load stays under 1 (1: any).
    """

    fresh_local_share: float
    stale_local_share: float
    stale_share: float
    rld_utilisation: float
    largest_local_share: float

    @property
    def bounded(self) -> bool:
        return self.rld_utilisation < 1.0


@dataclass(frozen=True)
class Evaluation:
    """What the whole model says of a Decision at the demand times ``rate_scale``.

    laws: ttft, tpot, stall, e2e (and task) over all requests; class_laws: the same per class. purchases: of chips priced by term.
    """

    decision: Decision
    metrics: Metrics
    pools: tuple[PoolResult, ...]
    links: tuple[LinkResult, ...]
    pipelines: tuple[PipelineResult, ...]
    laws: Mapping[str, Law]
    stable: bool
    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()
    class_laws: Mapping[str, Mapping[str, Law]] = field(default_factory=dict)
    feedback: Feedback | None = None
    rate_scale: float = 1.0
    purchases: tuple[TermPurchase, ...] = ()

    @property
    def feasible(self) -> bool:
        return self.stable and not self.violations
