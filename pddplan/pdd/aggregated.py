"""Aggregated serving in the open: prefill and decode share an instance.

Prefill takes rho = lambda E[S] of the instance's time, so decode steps last tau(b) / (1 - rho); that is
tpot = tau(b) / s + (b / O) S of a closed system. A chunk's step also carries the running decodes: the prefill queue
serves S + chunks tau. A request first waits for a place (memory), then for its turn to prefill; its first token ends prefill.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.decode_pool import DecodeState, DecodeTable, decode_state
from pddplan.pdd.latency import Stream, md_place
from pddplan.pdd.laws import NO_WAIT
from pddplan.pdd.plan import Decision
from pddplan.pdd.steady_state import spread_of
from pddplan.stages.profiled import ProfiledStage, RateGrid

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class AggregatedState:
    """One AGG pool under load. decode is None for a pool known by its rate alone, whose latencies are not known."""

    pool: int
    utilisation: float
    rate_per_s: float
    decode: DecodeState | None
    streams: tuple[Stream, ...]
    prefill_share: float = 0.0

    @property
    def stable(self) -> bool:
        return self.utilisation < 1.0


def aggregated_pools(decision: Decision, deployment: str) -> list[int]:
    return [
        i
        for i, pool in enumerate(decision.pools)
        if pool.configuration.role == "AGG" and pool.configuration.deployment == deployment and pool.instances
    ]


def row_shares(context: PlanContext, decision: Decision, deployment: Deployment) -> dict[int, FloatArray]:
    """Share of each row, shape (rows,), that each AGG pool takes: as the decision says, else in proportion to what it carries."""
    pools, mix = aggregated_pools(decision, deployment.name), deployment.mix
    if decision.agg_row_shares is not None:
        order = [i for i, pool in enumerate(decision.pools) if pool.configuration.role == "AGG"]
        return {i: np.asarray(decision.agg_row_shares[order.index(i)], dtype=np.float64) for i in pools}
    work = {i: _seconds_per_request(context, decision, deployment, i) for i in pools}
    speed = {i: decision.pools[i].instances / work[i] for i in pools}
    if not any(_rates(context, decision, i) for i in pools):
        speed = {i: np.full(mix.rows, decision.pools[i].instances / mix.mean(work[i])) for i in pools}
    total = np.sum(list(speed.values()), axis=0)
    safe = np.where(total > 0.0, total, 1.0)
    return {i: np.where(total > 0.0, speed[i] / safe, 1.0 / len(pools)) for i in pools}


def _seconds_per_request(context: PlanContext, decision: Decision, deployment: Deployment, pool: int) -> FloatArray:
    """Seconds of an instance's capacity per request of each row, shape (rows,): prefill and a full batch's share of decode."""
    mix, configuration = deployment.mix, decision.pools[pool].configuration
    rates = _rates(context, decision, pool)
    if rates is not None:
        return rates.seconds_per_request(mix.input_tokens, mix.output_tokens)
    table = _table(context, decision, deployment, pool)
    decode = mix.output_tokens / table.rate_max(1.0) if table.batch_max else np.full(mix.rows, math.inf)
    return np.asarray(context.prefill_rows(configuration, decision.settings).occupancy_s + decode)


def _rates(context: PlanContext, decision: Decision, pool: int) -> RateGrid | None:
    stage = context.instance(decision.pools[pool].configuration, decision.settings)
    return stage.rate if isinstance(stage, ProfiledStage) else None


def _table(context: PlanContext, decision: Decision, deployment: Deployment, pool: int) -> DecodeTable:
    mix, configuration = deployment.mix, decision.pools[pool].configuration
    tables = context.decode_tables(configuration, decision.settings)
    residence = mix.weight * mix.output_tokens
    middle = mix.input_tokens + mix.output_tokens / 2.0
    mean = float(residence @ middle) / float(residence.sum())
    resident = float(residence @ np.asarray(tables.stage.kv_resident_bytes(middle))) / float(residence.sum())
    return tables.table(mean, resident)


def aggregated_state(
    context: PlanContext, decision: Decision, deployment: Deployment, pool: int, shares: FloatArray, rate_scale: float
) -> AggregatedState:
    """State of AGG pool ``pool`` that serves ``shares`` of each row."""
    mix, policy, chosen = deployment.mix, deployment.policy, decision.pools[pool]
    weight = mix.weight * shares
    part = float(weight.sum())
    rate = part * mix.rate_per_s * rate_scale
    rates = _rates(context, decision, pool)
    if rates is not None:
        seconds = rates.seconds_per_request(mix.input_tokens, mix.output_tokens)
        used = weight > 0.0
        load = mix.rate_per_s * rate_scale * float(weight[used] @ seconds[used]) / chosen.instances if used.any() else 0.0
        return AggregatedState(pool, min(load, 1.0 - 1e-12) if load <= 1.0 + 1e-9 else load, rate, None, ())
    rows = context.prefill_rows(chosen.configuration, decision.settings)
    full = policy.queueing == "full"
    service = float(weight @ rows.occupancy_s) / part if part > 0.0 else 0.0
    prefill_share = rate * service / chosen.instances
    table = _table(context, decision, deployment, pool)
    tokens = float(weight @ mix.output_tokens) / part if part > 0.0 else 0.0
    if prefill_share >= 1.0 or table.batch_max == 0:
        load = prefill_share + (rate / chosen.instances / table.rate_max(tokens) if table.batch_max else math.inf)
        return AggregatedState(
            pool, max(load, 1.0), rate, None, _streams(deployment, weight, rows.latency_s, NO_WAIT, NO_WAIT, None), prefill_share
        )
    second = float(weight @ mix.output_tokens**2) / part if part > 0.0 else 0.0
    slowed = DecodeTable(table.step_s / (1.0 - prefill_share), table.tokens_per_step, table.bound_by)
    state = decode_state(
        slowed,
        chosen.instances,
        rate,
        tokens,
        spread=spread_of(policy.decode_dispatch),
        token_scv=max(second / tokens**2 - 1.0, 0.0) if tokens > 0.0 else 1.0,
        queueing=full,
    )
    chunks = np.maximum(np.ceil(mix.uncached_tokens / decision.settings.prefill_chunk_tokens), 1.0)
    step = state.step_mean_s * (1.0 - prefill_share)
    busy = 1.0 - math.exp(-state.batch_mean)
    carried = rows.occupancy_s + chunks * step * busy
    utilisation = prefill_share + (1.0 - prefill_share) * state.utilisation if state.stable else state.utilisation
    wait = NO_WAIT
    if full and rate > 0.0:
        used = weight > 0.0
        scv = 1.0 + part * (mix.arrival_scv - 1.0)
        law = context.prefill_wait(chosen.instances, rate, carried[used], weight[used], scv, policy.dispatch)
        wait = law.cdf if law.p_wait > 0.0 else NO_WAIT
        utilisation = max(utilisation, law.utilisation) if law.utilisation >= 1.0 else utilisation
    ttft = rows.latency_s + chunks * step * busy + policy.fixed_ttft
    stable = utilisation < 1.0
    return AggregatedState(
        pool,
        utilisation,
        rate,
        state,
        _streams(deployment, weight, ttft, wait, md_place(state), state, stable, step + _chunk_s(rows.latency_s, chunks, weight)),
        prefill_share,
    )


def _chunk_s(latency_s: FloatArray, chunks: FloatArray, weight: FloatArray) -> float:
    """Mean time of a chunk, weighted by how many there are."""
    total = float(weight @ chunks)
    return float(weight @ latency_s) / total if total > 0.0 else 0.0


def _streams(
    deployment: Deployment,
    weight: FloatArray,
    ttft_s: FloatArray,
    queue: FloatArray,
    place: FloatArray,
    state: DecodeState | None,
    stable: bool = False,
    stall_s: float = 0.0,
) -> tuple[Stream, ...]:
    mix = deployment.mix
    gaps = np.maximum(mix.output_tokens - 1.0, 0.0)
    streams = []
    for index in range(len(mix.class_names)):
        pick = (mix.class_index == index) & (weight > 0.0)
        if not pick.any():
            continue
        zero = np.zeros(int(pick.sum()))
        streams.append(
            Stream(
                deployment=deployment.name,
                pipeline="AGG",
                class_index=index,
                weight=weight[pick],
                ttft_s=ttft_s[pick],
                base_s=zero,
                md_gaps=gaps[pick],
                gaps=gaps[pick],
                stall_s=zero + stall_s,
                rld_step_s=0.0,
                queue_cdf=queue,
                place_cdf=place,
                md=state,
                direct=True,
                served=stable,
                starts=stable,
                paces=stable,
                flow=-1,
                atom=np.nonzero(pick)[0],
            )
        )
    return tuple(streams)
