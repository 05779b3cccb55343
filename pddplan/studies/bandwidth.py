"""How much line a cluster needs: over its size and the hit rate, with and without the decode-side cache.

The plan says how many machines a request per second takes, by role. At another hit rate the uncached tokens of every row are scaled (the
skew stays) and prefill takes more or less of a machine, so N machines carry another rate; what they send is that rate times the KV MD
lacks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pddplan.errors import InputError, Problem
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.flows import transfer_of
from pddplan.pdd.laws import GRID
from pddplan.pdd.line import Line
from pddplan.pdd.plan import Decision, LinkPlan
from pddplan.pdd.transfer import flow_cap_bytes_per_s
from pddplan.queueing.processor_sharing import line as line_law
from pddplan.units import GBPS_BYTES_PER_S
from pddplan.workload.mix import RequestMix

FloatArray = NDArray[np.float64]

MACHINES = (10, 100, 1000)
HIT_RATES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
SEARCHED_CIRCUITS = 100_000


@dataclass(frozen=True)
class Need:
    """Line needed in one case, Gbit/s. mean: bytes moved; target: bought so that the usable line runs at its target utilisation, in whole
    ``circuits``; sla: the least whole circuits at which the transfer's percentile is within the TTFT limit (None: no circuits do)."""

    gbps_mean: float
    gbps_target: float
    circuits: int
    circuits_sla: int | None


@dataclass(frozen=True)
class BandwidthRow:
    """One cluster size at one hit rate; ``own`` marks the traffic's own hit rate."""

    machines: int
    hit_rate: float
    own: bool
    rate_rps: float
    with_md_cache: Need
    without_md_cache: Need

    @property
    def cut(self) -> float:
        """How many times less the line carries with the decode-side cache."""
        mean = self.with_md_cache.gbps_mean
        return self.without_md_cache.gbps_mean / mean if mean > 0.0 else math.inf


@dataclass(frozen=True)
class BandwidthStudy:
    """The table, and what it was made for. quantile, ttft_limit_s: the SLA that the transfer alone must meet (limit None: none stated).

    notes: what limits the answer (per-flow cap over the limit, more circuits than the link offers).
    """

    deployment: str
    link: str
    circuit_gbps: float
    max_circuits: int
    machine_gpus: int
    plan_machines: float
    quantile: float
    ttft_limit_s: float | None
    kv_bytes_per_request: float
    rows: tuple[BandwidthRow, ...]
    notes: tuple[str, ...]


def bandwidth(
    context: PlanContext,
    decision: Decision,
    *,
    deployment: str | None = None,
    machines: Sequence[int] = MACHINES,
    hit_rates: Sequence[float] = HIT_RATES,
    machine_gpus: int = 8,
) -> BandwidthStudy:
    """Bandwidth table of ``decision``'s mix of machines. Raises InputError for a scenario without a link or a plan without P and MD."""
    owner = _owner(context, deployment)
    line, plan = _link(context, decision)
    own = hit_rate_of(owner.mix)
    p_machines, other = _machines_per_rate(context, decision, owner, machine_gpus)
    quantile, limit = _sla(owner)
    rows = []
    for h in sorted({*hit_rates, own}):
        mix = at_hit_rate(owner.mix, h)
        work = _prefill_work(context, decision, owner, mix) / _prefill_work(context, decision, owner, owner.mix)
        per_rate = p_machines * work + other
        kv = _kv(context, decision, owner)
        lacking = np.where(
            mix.md_missing_tokens > 0.0, np.asarray(kv.transfer_bytes(mix.md_missing_tokens, mix.input_tokens)), 0.0
        )
        whole = np.asarray(kv.transfer_bytes(mix.input_tokens, mix.input_tokens), dtype=np.float64)
        for count in machines:
            rate = count / per_rate
            needs = [_need(line, plan, rate, sizes, mix.weight, quantile, limit) for sizes in (lacking, whole)]
            rows.append(BandwidthRow(count, h, h == own, rate, needs[0], needs[1]))
    rows.sort(key=lambda row: (row.machines, row.hit_rate))
    total = np.asarray(
        _kv(context, decision, owner).transfer_bytes(owner.mix.input_tokens, owner.mix.input_tokens), dtype=np.float64
    )
    return BandwidthStudy(
        deployment=owner.name,
        link=line.name,
        circuit_gbps=plan.circuit_bytes_per_s / GBPS_BYTES_PER_S,
        max_circuits=line.max_circuits,
        machine_gpus=machine_gpus,
        plan_machines=sum(pool.gpus for pool in decision.pools) / machine_gpus,
        quantile=quantile,
        ttft_limit_s=limit,
        kv_bytes_per_request=owner.mix.mean(total),
        rows=tuple(rows),
        notes=_notes(line, plan, rows, limit, quantile),
    )


def hit_rate_of(mix: RequestMix) -> float:
    """Share of the input tokens that P holds."""
    return 1.0 - mix.mean(mix.uncached_tokens) / mix.mean(mix.input_tokens)


def at_hit_rate(mix: RequestMix, hit_rate: float) -> RequestMix:
    """The mix with every row's uncached and missing tokens scaled to a mean ``hit_rate``, never above the row's input: the skew stays."""
    from dataclasses import replace

    if abs(hit_rate_of(mix) - hit_rate) < 1e-12:
        return mix
    target = (1.0 - hit_rate) * mix.mean(mix.input_tokens)
    return replace(
        mix,
        uncached_tokens=_scaled(mix.uncached_tokens, mix.input_tokens, mix.weight, target),
        md_missing_tokens=_scaled(mix.md_missing_tokens, mix.input_tokens, mix.weight, target),
    )


def _scaled(tokens: FloatArray, most: FloatArray, weight: FloatArray, target: float) -> FloatArray:
    """``min(factor x tokens, most)`` with the factor that gives the mean ``target``."""
    positive = np.maximum(tokens, 1.0)
    if target >= float(weight @ most) * (1.0 - 1e-12):
        return most.copy()
    low, high = 0.0, 1.0
    while float(weight @ np.minimum(high * positive, most)) < target:
        high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(weight @ np.minimum(middle * positive, most)) < target else (low, middle)
    return np.minimum(high * positive, most)


def _owner(context: PlanContext, deployment: str | None) -> Deployment:
    name = deployment or next(iter(context.deployments))
    if name not in context.deployments:
        raise InputError(Problem("--deployment", f"{name!r} is not a deployment", f"one of {', '.join(context.deployments)}"))
    return context.deployments[name]


def _link(context: PlanContext, decision: Decision) -> tuple[Line, LinkPlan]:
    if not context.lines:
        raise InputError(
            Problem("links", "the scenario has no line between rooms", "a link", "links: {A-B: {between: [A, B], ...}}")
        )
    if decision.links:
        return context.lines[decision.links[0].name], decision.links[0]
    line = next(iter(context.lines.values()))
    return line, LinkPlan(line.name, *line.between, 1, line.circuit_bytes_per_s)


def _kv(context: PlanContext, decision: Decision, owner: Deployment):  # type: ignore[no-untyped-def]
    for pool in decision.pools:
        if pool.configuration.role == "P" and pool.configuration.deployment == owner.name:
            return transfer_of(context, owner, pool, decision.settings)
    return owner.kv


def _p_pools(decision: Decision, owner: Deployment):  # type: ignore[no-untyped-def]
    return [
        p
        for p in decision.pools
        if p.instances and p.configuration.deployment == owner.name and p.configuration.role in ("P", "AGG")
    ]


def _machines_per_rate(context: PlanContext, decision: Decision, owner: Deployment, machine_gpus: int) -> tuple[float, float]:
    """Machines of P, and of all else, per request/s of the plan."""
    if not _p_pools(decision, owner):
        raise InputError(Problem("plan", "no P or AGG pool", "a plan that serves the traffic"))
    prefill = sum(p.gpus for p in decision.pools if p.configuration.deployment == owner.name and p.configuration.role == "P")
    rest = sum(p.gpus for p in decision.pools if p.configuration.deployment == owner.name and p.configuration.role != "P")
    rate = owner.mix.rate_per_s
    if rate <= 0.0:
        raise InputError(Problem("workload.rate", f"{rate:g}", "a rate over 0", "10 req/s"))
    return prefill / machine_gpus / rate, rest / machine_gpus / rate


def _prefill_work(context: PlanContext, decision: Decision, owner: Deployment, mix: RequestMix) -> float:
    """Mean prefill seconds of capacity per request over the plan's P pools."""
    pools = _p_pools(decision, owner)
    total, weight = 0.0, 0
    for pool in pools:
        stage = context.instance(pool.configuration, decision.settings)
        seconds = np.asarray(stage.prefill_occupancy_s(mix.uncached_tokens, mix.input_tokens - mix.uncached_tokens))
        total += pool.gpus * mix.mean(seconds)
        weight += pool.gpus
    return total / weight


def _sla(owner: Deployment) -> tuple[float, float | None]:
    """The strictest TTFT limit with its percentile: a stated percentile, else the limit at the attainment."""
    found: list[tuple[float, float]] = []
    for sla in owner.slas:
        found += [(q, limit) for q, limit in sla.ttft.percentiles().items()]
        if sla.ttft.limit is not None:
            found.append((sla.attainment or 0.99, sla.ttft.limit))
    if not found:
        return 0.99, None
    top = max(q for q, _ in found)
    return top, min(limit for q, limit in found if q == top)


def _need(
    line: Line, plan: LinkPlan, rate: float, sizes: FloatArray, weight: FloatArray, quantile: float, limit: float | None
) -> Need:
    mean = rate * float(weight @ sizes)
    bought = mean / line.usable / line.target_utilisation
    circuits = math.ceil(bought / plan.circuit_bytes_per_s - 1e-9)
    sla = None if limit is None else _circuits_for(line, plan, rate, sizes, weight, quantile, limit)
    return Need(mean / GBPS_BYTES_PER_S, bought / GBPS_BYTES_PER_S, max(circuits, 1 if mean > 0.0 else 0), sla)


def _circuits_for(
    line: Line, plan: LinkPlan, rate: float, sizes: FloatArray, weight: FloatArray, quantile: float, limit: float
) -> int | None:
    """Least circuits whose transfers meet ``limit`` at ``quantile``; the number of connections is taken to grow with the line."""

    def late(circuits: int) -> bool:
        grown = LinkPlan(plan.name, plan.from_site, plan.to_site, circuits, plan.circuit_bytes_per_s)
        law = line_law(rate, sizes, weight, line.rate_cap_bytes_per_s(grown), flow_cap_bytes_per_s(line, grown))
        return not law.stable or float(GRID.quantile(law.time_cdf(sizes, weight, GRID, line.rtt_s), quantile)) > limit

    alone = sizes / line.flow_bytes_per_s + line.rtt_s
    if float(GRID.quantile(GRID.law(alone, weight), quantile)) > limit:
        return None
    low = math.floor(rate * float(weight @ sizes) / (line.usable * plan.circuit_bytes_per_s))
    high = max(low + 1, 1)
    while late(high):
        low, high = high, 2 * high
        if high > SEARCHED_CIRCUITS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if late(middle) else (low, middle)
    return high


def _notes(line: Line, plan: LinkPlan, rows: Sequence[BandwidthRow], limit: float | None, quantile: float) -> tuple[str, ...]:
    notes = []
    if limit is None:
        notes.append("no TTFT limit is stated: circuits for the SLA are not given")
    elif any(row.with_md_cache.circuits_sla is None for row in rows):
        cap = flow_cap_bytes_per_s(line, plan) / GBPS_BYTES_PER_S
        notes.append(
            f"where no number of circuits meets P{100 * quantile:g} <= {limit:g} s, one transfer is too slow at its cap of "
            f"{cap:.3g} Gbit/s: more streams, or hiding the transfer behind relay decode, help; more line does not"
        )
    over = sorted({row.machines for row in rows if row.own and row.with_md_cache.circuits > line.max_circuits})
    if over:
        notes.append(
            f"link {line.name} offers {line.max_circuits} circuits, fewer than {' or '.join(map(str, over))} machines need"
        )
    return tuple(notes)
