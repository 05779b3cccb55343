"""Aggregated serving in the open: prefill and decode share an instance.

Prefill takes a share rho of the instance's time: lambda E[S], S alone for those who find no other prefill (1 - rho of them) and packed
for the rest, so rho = l / (1 + l - p) with l and p the loads of lone and of packed prefills. Decode steps last tau(b) / (1 - rho), which is
tpot = tau(b) / s + (b / O) S of a closed system; an arrival also holds the others' completions up, which widens the batch.
A chunk's step also carries the running decodes: the prefill queue serves S + chunks tau. A request first waits for a place (memory),
then for its turn to prefill; its first token ends prefill.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.decode_pool import DecodeState, DecodeTable, decode_state, interruptions
from pddplan.pdd.latency import Stream, md_place
from pddplan.pdd.laws import GRID, NO_WAIT
from pddplan.pdd.plan import Decision
from pddplan.pdd.prefill_queue import QueueLaw
from pddplan.pdd.sharing import agg_rates, agg_table
from pddplan.pdd.steady_state import spread_of

FloatArray = NDArray[np.float64]

MET_POINTS = 48
MET_EDGES = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.96, 0.985, 0.995, 0.999, 1.0])
"""Cumulative levels between which the time that others' prefills take from a request is kept as one node."""


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


def aggregated_state(
    context: PlanContext, decision: Decision, deployment: Deployment, pool: int, shares: FloatArray, rate_scale: float
) -> AggregatedState:
    """State of AGG pool ``pool`` that serves ``shares`` of each row."""
    mix, policy, chosen = deployment.mix, deployment.policy, decision.pools[pool]
    weight = mix.weight * shares
    part = float(weight.sum())
    rate = part * mix.rate_per_s * rate_scale
    rates = agg_rates(context, decision, pool)
    if rates is not None:
        seconds = rates.seconds_per_request(mix.input_tokens, mix.output_tokens)
        used = weight > 0.0
        load = mix.rate_per_s * rate_scale * float(weight[used] @ seconds[used]) / chosen.instances if used.any() else 0.0
        return AggregatedState(pool, min(load, 1.0 - 1e-12) if load <= 1.0 + 1e-9 else load, rate, None, ())
    rows = context.prefill_rows(chosen.configuration, decision.settings)
    full = policy.queueing == "full"
    passes = context.passes(chosen.configuration, decision.settings)
    per_instance = rate / chosen.instances / part if part > 0.0 else 0.0
    packed, lone = (per_instance * float(weight @ seconds) for seconds in (rows.occupancy_s, passes.alone_s))
    lone = max(lone, packed)
    prefill_share = lone / (1.0 + lone - packed)
    table = agg_table(context, decision, deployment, pool, shares)
    tokens = float(weight @ mix.output_tokens) / part if part > 0.0 else 0.0
    if prefill_share >= 1.0 or table.batch_max == 0:
        load = prefill_share + (rate / chosen.instances / table.rate_max(tokens) if table.batch_max else math.inf)
        never = QueueLaw(np.zeros(mix.rows, dtype=np.int64), (GRID.never(),), math.inf, "unstable")
        streams = _streams(deployment, weight, rows.latency_s, never, NO_WAIT, None, False, None)
        return AggregatedState(pool, max(load, 1.0), rate, None, streams, prefill_share)
    second = float(weight @ mix.output_tokens**2) / part if part > 0.0 else 0.0
    token_scv = max(second / tokens**2 - 1.0, 0.0) if tokens > 0.0 else 1.0
    scv = 1.0 + part * (mix.arrival_scv - 1.0)
    slowed = DecodeTable(table.step_s / (1.0 - prefill_share), table.tokens_per_step, table.bound_by)
    state = decode_state(
        slowed,
        chosen.instances,
        rate,
        tokens,
        spread=spread_of(policy.decode_dispatch),
        token_scv=token_scv,
        arrival_scv=_jumpy(scv, token_scv, per_instance, weight, passes.alone_s, prefill_share),
        queueing=full,
    )
    utilisation = prefill_share + (1.0 - prefill_share) * state.utilisation
    chunks = np.maximum(np.ceil(mix.uncached_tokens / decision.settings.prefill_chunk_tokens), 1.0)
    beside = round(state.step_mean_s * (1.0 - prefill_share) * -math.expm1(-state.batch_mean), 6) if full else 0.0
    dispatch = policy.decode_dispatch if policy.dispatch == "cache_affinity" else policy.dispatch
    if dispatch == "shortest_queue":
        dispatch, scv = "cache_affinity", _evened(scv, chosen.instances)
    queue = QueueLaw(np.zeros(mix.rows, dtype=np.int64), (NO_WAIT,), 0.0, "capacity")
    if full:
        queue = context.prefill_queue(
            chosen.configuration, decision.settings, chosen.instances, rate, weight, scv, dispatch, beside
        )
    pure = replace(
        state,
        token_s=state.token_s * (1.0 - prefill_share),
        interruptions=interruptions(rate / chosen.instances, passes.alone_s / chunks, weight) if full else None,
    )
    ttft = rows.latency_s + (chunks + 0.5 * (1.0 - prefill_share)) * beside + policy.fixed_ttft
    stable = utilisation < 1.0 and math.isfinite(queue.mean_s)
    service = passes.alone_s * (prefill_share / lone if lone > 0.0 else 1.0)
    met = _Met(rate / chosen.instances, service, weight, state.token_mean_s, full and prefill_share > 0.0)
    return AggregatedState(
        pool,
        utilisation if stable else max(utilisation, 1.0),
        rate,
        state,
        _streams(deployment, weight, ttft, queue, md_place(state), pure, stable, met),
        prefill_share,
    )


def _jumpy(scv: float, token_scv: float, rate: float, weight: FloatArray, service_s: FloatArray, prefill_share: float) -> float:
    """Arrival variability that widens the batch as arrivals do which also hold completions up by their prefill.

    An arrival moves the number running by 1 + S d in place of 1, d = lambda / (1 - rho) the completions that its prefill delays.
    rate: of an instance, per unit of ``weight``.
    """
    completions = rate * float(weight.sum()) / (1.0 - prefill_share)
    mean, square = (completions**k * float(weight @ service_s**k) / float(weight.sum()) for k in (1, 2))
    return max(0.0, 1.0 + (scv - 1.0) * (1.0 + mean) ** 2 + (1.0 + token_scv) * (mean + square / 2.0))


def _evened(scv: float, instances: int) -> float:
    """Variability of the pool's arrivals that gives one of its instances halfway between chance and turns.

    Requests go to the instance with fewest places taken, which evens out the arrivals of each, but less than taking turns would.
    """
    alone = 0.5 * (1.0 + (scv - 1.0) / instances) + 0.5 * scv / instances
    return 1.0 + (alone - 1.0) * instances


@dataclass(frozen=True)
class _Met:
    """Prefills of others that a decoding request sits through, which come first: decode work A then takes A / (1 - rho) with variance
    lambda E[S^2] A / (1 - rho)^3 (completion time under preemptive priority, Gaver 1962), taken as gamma.

    rate_per_s: prefills of an instance; service_s with weight: their durations; token_s: pace of decode, them included.
    """

    rate_per_s: float
    service_s: FloatArray
    weight: FloatArray
    token_s: float
    varies: bool

    def nodes(self, gaps: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Seconds met by a request of ``gaps`` gaps, shape (requests, nodes), and their probabilities, shape (nodes,)."""
        total = float(self.weight.sum())
        first = self.rate_per_s * float(self.weight @ self.service_s) / total
        second = self.rate_per_s * float(self.weight @ self.service_s**2) / total
        residence = gaps * self.token_s
        if not self.varies or first <= 0.0:
            return (first * residence)[:, None], np.ones(1)
        spread = second / (1.0 - min(first, 0.99)) ** 2
        points = np.unique(np.geomspace(max(float(residence.min()), 1e-6), max(float(residence.max()), 2e-6), MET_POINTS))
        shape = points * first**2 / spread
        levels = 0.5 * (MET_EDGES[1:] + MET_EDGES[:-1])
        share = np.diff(MET_EDGES)
        drawn = gammaincinv(shape[:, None], levels[None, :])
        drawn *= (shape / np.maximum(drawn @ share, 1e-300))[:, None]
        seconds = drawn * (spread / first)
        return np.stack([np.interp(residence, points, column) for column in seconds.T], axis=1), share


def _streams(
    deployment: Deployment,
    weight: FloatArray,
    ttft_s: FloatArray,
    queue: QueueLaw,
    place: FloatArray,
    state: DecodeState | None,
    stable: bool,
    met: _Met | None,
) -> tuple[Stream, ...]:
    mix = deployment.mix
    gaps = np.maximum(mix.output_tokens - 1.0, 0.0)
    streams = []
    for index, size in itertools.product(range(len(mix.class_names)), range(len(queue.cdfs))):
        rows = np.nonzero((mix.class_index == index) & (queue.bin_of_row == size) & (weight > 0.0))[0]
        if rows.size == 0:
            continue
        base, share = met.nodes(gaps[rows]) if met is not None else (np.zeros((rows.size, 1)), np.ones(1))
        atom = np.repeat(rows, share.size)
        streams.append(
            Stream(
                deployment=deployment.name,
                pipeline="AGG",
                class_index=index,
                weight=(weight[rows][:, None] * share[None, :]).ravel(),
                ttft_s=ttft_s[atom],
                base_s=base.ravel(),
                md_gaps=gaps[atom],
                gaps=gaps[atom],
                stall_s=np.zeros(atom.size),
                rld_step_s=0.0,
                queue_cdf=queue.cdfs[size],
                place_cdf=place,
                md=state,
                direct=True,
                served=stable,
                starts=stable,
                paces=stable,
                flow=-1,
                atom=atom,
            )
        )
    return tuple(streams)
