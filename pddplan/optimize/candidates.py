"""Every instance that could be deployed: site x chip x role x parallel sizes, and what was refused on the way, with the number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pddplan.model.kv_cache import kv_cache
from pddplan.model.memory import Reserves, waterfall
from pddplan.model.parallel import check, model_experts, valid_tp
from pddplan.model.spec import Parallel
from pddplan.optimize.result import Rejection
from pddplan.pdd.context import PlanContext
from pddplan.pdd.fixed_plan import configuration_of, owner_of
from pddplan.pdd.plan import Configuration, Role
from pddplan.pdd.terms import step_of
from pddplan.roofline.overlay_file import base_engine
from pddplan.scenario.schema import ChipStock, ParallelSizes, PoolCount
from pddplan.units import GB

FloatArray = NDArray[np.float64]

ROLES: tuple[Role, ...] = ("P", "RLD", "MD", "AGG")
INSTANCE_GPUS = 64
"""Largest instance that ``auto`` proposes; sizes written in the scenario may go beyond it."""
TP_AUTO = 16
"""Widest tensor parallelism that ``auto`` proposes inside a scale-up domain."""
RELAY_BATCH = 8.0
"""Batch at which RLD layouts of one size are compared."""
EXPERT_TP_AUTO = 8
"""Widest instance whose experts ``auto`` also proposes to cut instead of spread: beyond it their slices are too thin."""


@dataclass(frozen=True)
class Candidate:
    """A legal instance that fits in memory.

    counts_max: instances that stock and caps allow (None: as many as wanted). step: instances come in multiples of it
    (whole nodes). counts_min: instances asked for whenever the role is used. spare: of these, kept for failures (N+k).
    existing: instances that stand already; sunk: of these, paid for already.
    """

    configuration: Configuration
    usd_per_h: float
    watts: float
    counts_max: int | None
    step: int = 1
    counts_min: int = 0
    spare: int = 0
    existing: int = 0
    sunk: int = 0

    @property
    def role(self) -> Role:
        return self.configuration.role

    @property
    def gpus(self) -> int:
        return self.configuration.gpus_per_instance

    @cached_property
    def name(self) -> str:
        """Unique in a scenario: ``main MD B h200-sxm TP8 DP2 EP16``."""
        c = self.configuration
        return f"{c.deployment} {c.role} {c.site} {c.chip} {layout(c)}"

    def counts(self, most: int) -> NDArray[np.int64]:
        """Instance counts that may be bought, up to ``most``, shape (counts,), increasing."""
        ceiling = most if self.counts_max is None else min(most, self.counts_max)
        counts = np.arange(self.step, ceiling + 1, self.step, dtype=np.int64)
        return counts[counts >= max(self.counts_min, self.spare + 1)]


@dataclass(frozen=True)
class Candidates:
    """All candidates, and the refusals: one per site, chip, role and kind, that of the instance that came nearest."""

    found: tuple[Candidate, ...]
    rejected: tuple[Rejection, ...]
    enumerated: int

    def of(self, deployment: str, role: Role, site: str | None = None) -> tuple[Candidate, ...]:
        return tuple(
            c for c in self.found if c.configuration.deployment == deployment and c.role == role and site in (None, c.configuration.site)
        )


def layout(configuration: Configuration) -> str:
    """``TP8 DP2 EP16``, or the profile's number."""
    if configuration.profile is not None:
        return f"profile {configuration.profile} ({configuration.gpus_per_instance} GPUs)"
    p = configuration.parallel
    sizes = {"PP": p.pp, "DP": p.dp, "EP": p.moe_ep}
    return " ".join([f"TP{p.tp}", *(f"{name}{size}" for name, size in sizes.items() if size > 1)])


def enumerate_candidates(context: PlanContext) -> Candidates:
    """Legal instances of every deployment, role, site and chip that the scenario allows, in its order."""
    found: list[Candidate] = []
    rejected: dict[tuple[str, str, str, Role, str], Rejection] = {}
    faults: dict[tuple[str, str, str, Parallel], _Fault | None] = {}
    enumerated = 0
    for deployment in context.deployments:
        for (site, chip), (_, stock) in context.stocks.items():
            for role in ROLES:
                if not stock.allows(role) or (role == "AGG" and not context.scenario.search.aggregated):
                    continue
                for configuration in _configurations(context, deployment, site, chip, stock, role):
                    enumerated += 1
                    mapping = (deployment, chip, configuration.engine, configuration.parallel)
                    if configuration.profile is None and mapping not in faults:
                        faults[mapping] = _fault(context, configuration)
                    fault = faults.get(mapping) if configuration.profile is None else None
                    if fault is None:
                        found.append(_candidate(context, configuration, stock))
                        continue
                    key = (deployment, site, chip, role, fault.kind)
                    refusal = Rejection(
                        f"{role} on {chip} at {site}, {layout(configuration)}",
                        fault.reason, fault.value, fault.limit, fault.unit, fault.kind, fault.note,
                    )  # fmt: skip
                    if key not in rejected or _nearness(refusal) < _nearness(rejected[key]):
                        rejected[key] = refusal
    return Candidates(tuple(found), tuple(rejected.values()), enumerated)


def fastest_relays(context: PlanContext, candidates: Candidates) -> Candidates:
    """Candidates with one RLD layout per site, chip and size: the one with the shortest step at a small batch. RLD holds few
    requests, so layouts of one size differ in little else.
    """
    best: dict[tuple[str, str, str, int], tuple[float, str]] = {}
    for c in (candidate for candidate in candidates.found if candidate.role == "RLD"):
        where = c.configuration
        key = (where.deployment, where.site, where.chip, c.gpus)
        length = np.array([context.deployments[where.deployment].mix.input_tokens.mean()])
        step = float(np.asarray(context.instance(where).step_s(np.array([RELAY_BATCH]), length))[0])
        best[key] = min(best.get(key, (step, c.name)), (step, c.name))
    kept = {name for _, name in best.values()}
    return replace(candidates, found=tuple(c for c in candidates.found if c.role != "RLD" or c.name in kept))


def _nearness(rejection: Rejection) -> float:
    if rejection.value is None or not rejection.limit:
        return float("inf")
    return abs(rejection.value / rejection.limit - 1.0)


def _configurations(context: PlanContext, deployment: str, site: str, chip: str, stock: ChipStock, role: Role) -> Iterator[Configuration]:
    owner = context.deployments[deployment]
    engine = stock.engine or owner.engine
    profiles = [
        (i, profile) for i, profile in enumerate(stock.profiles) if profile.role == role and profile.deployment in (None, deployment)
    ]
    for index, profile in profiles:
        parallel = Parallel(tp=profile.gpus)
        yield Configuration(deployment, owner.spec.name, site, role, chip, engine, parallel, profile.gpus, index)
    if not profiles:
        for parallel in _parallels(context, deployment, chip, stock):
            yield Configuration(deployment, owner.spec.name, site, role, chip, engine, parallel, parallel.gpus)


def _parallels(context: PlanContext, deployment: str, chip: str, stock: ChipStock) -> Iterator[Parallel]:
    """Sizes that the scenario lists, or for ``auto``: tensor parallelism inside the scale-up domain, attention DP in powers of
    two for models with experts, experts spread over the whole instance or cut by tensor parallelism.
    """
    search, model = context.scenario.search, context.deployments[deployment].spec
    domain = context.chips[chip].scaleup_domain.value
    experts = bool(model_experts(model))
    redundant = context.scenario.each_deployment()[deployment].model.redundant_experts if experts else 0
    limit = min(stock.stock or INSTANCE_GPUS, INSTANCE_GPUS)
    widest = int(min(domain or TP_AUTO, TP_AUTO, limit))
    auto_tp = sorted({*valid_tp(model), *valid_tp(model, spread_experts=True)})
    for tp in _listed(search.tp) or [tp for tp in auto_tp if tp <= widest]:
        for dp in _listed(search.dp) or ([1 << e for e in range(7) if tp << e <= limit] if experts else [1]):
            width = tp * dp
            for ep in _expert_sizes(search.ep, width) if experts else [1]:
                for pp in _listed(search.pp) or [1]:
                    moe_tp = width // ep if experts else 1
                    yield Parallel(tp=tp, pp=pp, dp=dp, moe_ep=ep, moe_tp=moe_tp, redundant_experts=redundant)


def _listed(sizes: ParallelSizes) -> list[int]:
    return [] if isinstance(sizes, str) else [int(size) for size in sizes]


def _expert_sizes(sizes: ParallelSizes, width: int) -> list[int]:
    listed = _listed(sizes)
    if listed:
        return [ep for ep in listed if width % ep == 0]
    return sorted({width, 1} if width <= EXPERT_TP_AUTO else {width}, reverse=True)


@dataclass(frozen=True)
class _Fault:
    """Why a mapping on a chip is no instance, whatever its role and site."""

    reason: str
    kind: str
    value: float
    limit: float | None
    unit: str
    note: str


def _fault(context: PlanContext, configuration: Configuration) -> _Fault | None:
    """An illegal mapping, or too little memory for the weights and the longest request."""
    owner, chip = context.deployments[configuration.deployment], context.chips[configuration.chip]
    reasons = check(owner.spec, configuration.parallel, chip)
    if reasons:
        first = reasons[0]
        note = f"{first.detail}; {first.problem.accepted}"
        return _Fault(first.rule, "legality", float(first.value), None, first.parameter, note)
    options = context.scenario.each_deployment()[configuration.deployment].engine_options
    longest = longest_request_tokens(context, configuration.deployment)
    memory = waterfall(
        owner.spec,
        float(chip.hbm_bytes.value or 0.0),
        configuration.parallel,
        engine=base_engine(configuration.engine),
        cache=kv_cache(owner.spec, owner.kv_format),
        context_tokens=longest,
        concurrency=1,
        reserves=Reserves(options.memory_fraction, options.activation, options.cuda_graphs, options.framework),
    )
    if memory.verdict == "no":
        return _Fault("does not fit in memory", "memory", memory.required / GB, memory.available / GB, "GB a GPU", memory.why)
    return None


def longest_request_tokens(context: PlanContext, deployment: str) -> float:
    """Tokens of the longest request that an instance must hold: of the traffic, or the model's ``context_max`` where that is more."""
    mix = context.deployments[deployment].mix
    asked = context.scenario.each_deployment()[deployment].model.context_max or 0.0
    return max(float(asked), float(np.max(mix.input_tokens + mix.output_tokens)))


def _candidate(context: PlanContext, configuration: Configuration, stock: ChipStock) -> Candidate:
    scenario, role, gpus = context.scenario, configuration.role, configuration.gpus_per_instance
    site = scenario.sites[configuration.site]
    caps = [cap for cap in (stock.instances_max.get(role), scenario.search.replicas_max) if cap is not None]
    caps += [stock.stock // gpus] if stock.stock is not None else []
    caps += [site.gpus_max // gpus] if site.gpus_max is not None else []
    fleet = scenario.fleet.pools if scenario.fleet else ()
    mine = [pool for pool in fleet if owner_of(context, pool) == configuration.deployment]
    existing = sum(pool.instances for pool in mine if _same(pool, configuration, context))
    kept = existing if scenario.fleet and scenario.fleet.keep else 0
    return Candidate(
        configuration=configuration,
        usd_per_h=gpus * context.prices_usd_h[configuration.site, configuration.chip],
        watts=gpus * context.watts_per_gpu(configuration.site, configuration.chip),
        counts_max=min(caps) if caps else None,
        step=step_of(context, configuration),
        counts_min=max(stock.instances_min.get(role, 0), kept),
        spare=scenario.search.spare(role),
        existing=existing,
        sunk=existing if scenario.fleet and scenario.fleet.sunk else 0,
    )


def _same(pool: PoolCount, configuration: Configuration, context: PlanContext) -> bool:
    other = configuration_of(context, pool, "fleet.pools")
    return layout(other) == layout(configuration) and replace(other, parallel=configuration.parallel) == configuration
