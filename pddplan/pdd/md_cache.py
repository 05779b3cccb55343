"""Decode-side cache: how much history MD keeps for later turns, what of it is still there, and what loading it takes.

HBM of MD is split between running requests and history; history may also lie in a tier behind HBM. A cache that holds less than the
traffic's
history has lost whole sessions (LRU): a row keeps its missing tokens with probability kappa = h(capacity) / h, else MD lacks all of its
input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pddplan.errors import InputError, Problem
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.plan import Decision, Pool
from pddplan.scenario.schema import CacheTier
from pddplan.workload.mix import RequestMix

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class MdHistory:
    """The traffic as MD's cache leaves it.

    mix: rows with what MD lacks; origin: the row of the deployment's mix each comes from, shape (rows,). load_s: seconds to bring MD's
    part of a
    row's history into HBM, shape (rows,). hit_rate: MD's, over input tokens. capacity_tokens: history that MD keeps (inf: all of it).
    """

    mix: RequestMix
    origin: IntArray
    load_s: FloatArray
    hit_rate: float
    capacity_tokens: float


def cache_bytes_per_instance(context: PlanContext, decision: Decision, pool: Pool) -> float:
    """HBM bytes of an MD instance that history takes: the decision's, else the policy's share, else none."""
    if decision.settings.md_cache_bytes is not None:
        return decision.settings.md_cache_bytes
    policy = context.deployments[pool.configuration.deployment].policy.md_cache
    if policy.tier is not None or policy.share == "auto":
        return 0.0
    return policy.share * context.instance(pool.configuration, decision.settings).kv_capacity_bytes()


def md_history(
    context: PlanContext, decision: Decision, deployment: Deployment, pools: Sequence[Pool], served_share: float = 1.0
) -> MdHistory:
    """What ``pools`` (MD) keep of the history of ``deployment``, of whose requests they serve ``served_share``. Without a stated split or
    hit curve the mix stands as it is.
    """
    mix = deployment.mix
    origin = np.arange(mix.rows)
    tier = _tier(context, deployment, pools)
    stated = tier is not None or decision.settings.md_cache_bytes is not None or deployment.policy.md_cache.share != "auto"
    curves = [curve for curve in mix.md_curves if curve is not None]
    if not stated or not curves or not pools:
        return MdHistory(mix, origin, _load_s(deployment, mix, tier, pools), _hit_rate(mix), np.inf)
    capacity = _capacity_tokens(context, decision, deployment, pools, tier)
    kept = np.ones(mix.rows)
    demand = mix.weight * mix.input_tokens
    for index, curve in enumerate(mix.md_curves):
        rows = mix.class_index == index
        if curve is None or not rows.any():
            continue
        base = 1.0 - float(mix.weight[rows] @ mix.md_missing_tokens[rows]) / float(demand[rows].sum())
        share = capacity / served_share * float(demand[rows].sum()) / float(demand.sum())
        if base > 0.0:
            kept[rows] = min(float(curve.hit_rate(share)) / base, 1.0)
    if np.all(kept >= 1.0 - 1e-9):
        return MdHistory(mix, origin, _load_s(deployment, mix, tier, pools), _hit_rate(mix), capacity)
    lost = np.nonzero((kept < 1.0) & (mix.md_missing_tokens < mix.input_tokens))[0]
    origin = np.concatenate([origin, lost])
    weight = mix.weight.copy()
    weight[lost] *= kept[lost]
    split = replace(
        mix,
        input_tokens=mix.input_tokens[origin],
        uncached_tokens=mix.uncached_tokens[origin],
        md_missing_tokens=np.concatenate([mix.md_missing_tokens, mix.input_tokens[lost]]),
        output_tokens=mix.output_tokens[origin],
        weight=np.concatenate([weight, mix.weight[lost] * (1.0 - kept[lost])]),
        class_index=mix.class_index[origin],
    )
    return MdHistory(split, origin, _load_s(deployment, split, tier, pools), _hit_rate(split), capacity)


def _hit_rate(mix: RequestMix) -> float:
    return 1.0 - mix.mean(mix.md_missing_tokens) / mix.mean(mix.input_tokens)


def _tier(context: PlanContext, deployment: Deployment, pools: Sequence[Pool]) -> CacheTier | None:
    name = deployment.policy.md_cache.tier
    if name is None or not pools:
        return None
    site = pools[0].configuration.site
    tiers = context.scenario.sites[site].cache
    if name not in tiers:
        known = ", ".join(tiers) or "none"
        raise InputError(Problem("policy.md_cache.tier", f"{name!r} is not a cache tier of site {site}", f"one of {known}"))
    return tiers[name]


def _capacity_tokens(
    context: PlanContext, decision: Decision, deployment: Deployment, pools: Sequence[Pool], tier: CacheTier | None
) -> float:
    """Tokens of history that all MD pools of a deployment keep together."""
    mean = deployment.mix.mean(deployment.mix.input_tokens)
    total = 0.0
    for pool in pools:
        if tier is not None:
            whole = float(np.asarray(deployment.kv.transfer_bytes(np.array([mean]), np.array([mean])))[0])
            total += pool.gpus * tier.capacity / (whole / mean)
            continue
        stage = context.instance(pool.configuration, decision.settings)
        resident = float(np.asarray(stage.kv_resident_bytes(np.array([mean])))[0])
        held = cache_bytes_per_instance(context, decision, pool)
        total += pool.instances * held / (resident / mean) if resident > 0.0 else np.inf
    return total


def _load_s(deployment: Deployment, mix: RequestMix, tier: CacheTier | None, pools: Sequence[Pool]) -> FloatArray:
    """Seconds to load MD's part of the history from its tier, the share that overlaps with the transfer left out."""
    if tier is None:
        return np.zeros(mix.rows)
    cached = mix.input_tokens - mix.md_missing_tokens
    size = np.where(cached > 0.0, np.asarray(deployment.kv.transfer_bytes(cached, cached), dtype=np.float64), 0.0)
    rate = tier.bandwidth * min(pool.configuration.gpus_per_instance for pool in pools)
    return np.where(size > 0.0, (size / rate) * (1.0 - tier.overlap) + tier.latency, 0.0)
