"""Waits before and during prefill: one request after another, or passes that pack chunks of several.

Where a request takes as long alone as it takes of capacity, the pool is a plain queue (queueing.ggc). Where engines pack small requests
into
passes, or attention DP ranks prefill side by side, it is not: a small request rides in the next pass, a large one is stretched by others.
Then a seeded recursion of the passes on the actual rows gives, by size, the law of what is added to a lone prefill.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pddplan.errors import InputError
from pddplan.pdd.laws import GRID, NO_WAIT
from pddplan.queueing import arrivals
from pddplan.queueing.ggc import Dispatch, waiting_law
from pddplan.stages.protocol import PrefillStage
from pddplan.workload.mix import RequestMix

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CUSTOMERS = 24_000
CUSTOMERS_MOST = 192_000
WARM_SHARE = 0.08
SIZE_EDGES = (0.25, 1.0, 3.0)
"""Uncached tokens over the chunk at which sizes are told apart."""
LEAST_SAMPLES = 150
BATCHED_OVER = 1.02
"""Mean lone time over mean share of capacity from which prefill counts as batched."""
PACKED_OVER = 0.02
"""Share of requests under a chunk from which passes hold several: those that are packed together also end together."""
PASS_POINTS = 40
ROUNDING_S = 1e-9


@dataclass(frozen=True)
class QueueLaw:
    """What is added to a lone prefill. bin_of_row: shape (rows,); cdfs: one law on laws.GRID per bin; mean_s over all requests."""

    bin_of_row: IntArray
    cdfs: tuple[FloatArray, ...]
    mean_s: float
    method: str


@dataclass(frozen=True)
class Passes:
    """Times of passes on one kind of instance. latency_s, occupancy_s: lone, and of capacity, shape (rows,), handling excluded from neither
    nor both: ``handling_s`` is what prefill_s holds beside the GPU. points, seconds: a lone pass of so many tokens."""

    uncached: FloatArray
    alone_s: FloatArray
    occupancy_s: FloatArray
    handling_s: float
    scale: FloatArray
    points: FloatArray
    seconds: FloatArray
    chunk_tokens: float
    ranks: int
    packs: bool
    batched: bool


def passes_of(
    stage: PrefillStage,
    mix: RequestMix,
    latency_s: FloatArray,
    occupancy_s: FloatArray,
    chunk_tokens: float,
    ranks: int,
    packs: bool,
) -> Passes:
    """Pass times of ``stage`` for the rows of ``mix``, whose lone latencies and occupancies are known."""
    uncached = mix.uncached_tokens
    cached = mix.mean(mix.input_tokens - uncached)
    handling = _handling_s(stage, mix.mean(uncached), cached)
    alone = np.maximum(latency_s - handling, 1e-9)
    shared = np.minimum(occupancy_s, alone)
    points = np.unique(np.geomspace(1.0, max(min(chunk_tokens, float(uncached.max())), 2.0), PASS_POINTS))
    seconds = np.maximum(np.asarray(stage.prefill_s(points, np.full(points.size, cached))) - handling, 1e-9)
    whole = np.floor(uncached / chunk_tokens)
    tail = uncached - whole * chunk_tokens
    by_passes = whole * float(np.interp(chunk_tokens, points, seconds)) + np.where(
        tail > 0.0, np.interp(tail, points, seconds), 0.0
    )
    small = float(mix.weight[uncached < chunk_tokens].sum()) if packs else 0.0
    batched = small > PACKED_OVER or mix.mean(alone) > BATCHED_OVER * mix.mean(shared)
    return Passes(uncached, alone, shared, handling, alone / by_passes, points, seconds, chunk_tokens, ranks, packs, batched)


def _handling_s(stage: PrefillStage, uncached: float, cached: float) -> float:
    """Request handling outside the GPU: what prefill_s holds beyond the same pass as an extend; 0 where a profile cannot tell."""
    extend = getattr(stage, "extend_s", None)
    if extend is None:
        return 0.0
    one, context = np.array([uncached]), np.array([cached])
    try:
        return max(float((np.asarray(stage.prefill_s(one, context)) - np.asarray(extend(one, context)))[0]), 0.0)
    except InputError:
        return 0.0


def queue_law(
    passes: Passes,
    weight: FloatArray,
    rate_per_s: float,
    instances: int,
    arrival_scv: float,
    dispatch: Dispatch,
    beside_s: float = 0.0,
) -> QueueLaw:
    """Law of the time added to a lone prefill when ``rate_per_s`` requests of the weighted rows enter ``instances``.

    beside_s: decode steps that each pass of an aggregated instance carries; the lone prefill then has them too.
    """
    used = weight > 0.0
    rows = weight.size
    if rate_per_s <= 0.0 or not used.any():
        return QueueLaw(np.zeros(rows, dtype=np.int64), (NO_WAIT,), 0.0, "empty")
    if instances < 1 or rate_per_s * float(weight @ passes.occupancy_s) / float(weight.sum()) >= instances:
        return QueueLaw(np.zeros(rows, dtype=np.int64), (GRID.never(),), math.inf, "unstable")
    if not passes.batched and beside_s <= 0.0:
        law = waiting_law(instances, rate_per_s, passes.occupancy_s[used], weight[used], arrival_scv, dispatch, GRID)
        return QueueLaw(np.zeros(rows, dtype=np.int64), (law.cdf if law.p_wait > 0.0 else NO_WAIT,), law.mean_s, law.method)
    return _by_passes(passes, weight, rate_per_s, instances, arrival_scv, dispatch, beside_s)


def _customers(utilisation: float) -> int:
    """Customers that a queue of this load needs, doubling: its memory grows as 1 / (1 - rho)^2."""
    wanted = CUSTOMERS * (0.3 / max(1.0 - utilisation, 1e-3)) ** 2
    doublings = max(math.ceil(math.log2(wanted / CUSTOMERS)), 0)
    return min(CUSTOMERS << doublings, CUSTOMERS_MOST)


@lru_cache(maxsize=32)
def _draws(scv: float, total: int) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
    """Arrival times at rate 1, increasing levels that pick rows, who has each level, and ties.

    The same numbers for every plan, so that plans differ and not the luck.
    """
    rng = np.random.default_rng(arrivals.SEED)
    times = np.cumsum(arrivals.gaps_s(1.0, scv, total, rng))
    level = (rng.permutation(total) + rng.random(total)) / total
    customer = np.argsort(level)
    return times, level[customer], customer, rng.random(total)


def _by_passes(
    passes: Passes,
    weight: FloatArray,
    rate_per_s: float,
    instances: int,
    arrival_scv: float,
    dispatch: Dispatch,
    beside_s: float,
) -> QueueLaw:
    from pddplan.pdd import _passes

    servers, mode, scv, rate = instances, _passes.CENTRAL, arrival_scv, rate_per_s
    if dispatch in ("cache_affinity", "round_robin") or instances == 1:
        servers, mode, rate = 1, _passes.PINNED, rate_per_s / instances
        scv = 1.0 + (arrival_scv - 1.0) / instances if dispatch == "cache_affinity" else arrival_scv / instances
    elif dispatch == "shortest_queue":
        mode = _passes.SHORTEST
    count = _customers(rate_per_s * float(weight @ passes.occupancy_s) / float(weight.sum()) / instances)
    warm = int(WARM_SHARE * count)
    times, level, customer, ties = _draws(round(max(scv, 0.0), 4), count + warm)
    edges = np.cumsum(weight)
    until = np.append(np.searchsorted(level * edges[-1], edges[:-1]), level.size)
    row = np.empty(level.size, dtype=np.int64)
    row[customer] = np.repeat(np.arange(weight.size), np.diff(until, prepend=0))
    spent = _passes.pass_times(
        times / rate,
        row,
        np.zeros(row.size, dtype=np.int64),
        ties,
        np.maximum(passes.uncached, 1e-6),
        passes.occupancy_s,
        passes.scale,
        passes.points,
        passes.seconds,
        float(passes.chunk_tokens),
        float(passes.ranks),
        passes.packs,
        beside_s,
        servers,
        mode,
    )[warm:]
    row = row[warm:]
    alone = passes.alone_s + beside_s * np.maximum(np.ceil(passes.uncached / passes.chunk_tokens), 1.0)
    added = spent - alone[row]
    added[added < ROUNDING_S] = 0.0
    size = np.searchsorted(np.array(SIZE_EDGES), passes.uncached / passes.chunk_tokens)
    return QueueLaw(*_binned(size, row, added), float(added.mean()), "recursion")


def _binned(size: IntArray, row: IntArray, added: FloatArray) -> tuple[IntArray, tuple[FloatArray, ...]]:
    """Bins of sizes with enough samples (small ones join the next), and their laws."""
    counts = np.bincount(size[row], minlength=len(SIZE_EDGES) + 1)
    target = np.zeros(counts.size, dtype=np.int64)
    kept = [b for b in range(counts.size) if counts[b] >= LEAST_SAMPLES] or [int(np.argmax(counts))]
    for b in range(counts.size):
        target[b] = min(range(len(kept)), key=lambda k: (abs(kept[k] - b), -kept[k]))
    bins = target[size]
    sampled = bins[row]
    cdfs = tuple(GRID.law(added[sampled == k]) for k in range(len(kept)))
    return bins, cdfs
