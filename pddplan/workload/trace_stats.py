"""What a trace is made of: rates, burstiness, lengths, prefix hits and the hit rate over cache capacity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pddplan.units import SECONDS_PER_DAY
from pddplan.workload.arrivals import Arrivals, demand_profile, measure_arrivals
from pddplan.workload.prefix_cache import cache_hits, hits_by_blocks, p_sequence
from pddplan.workload.trace import Skipped, Trace

FloatArray = NDArray[np.float64]
BUCKET_EDGES = (0.0, 0.90, 0.95, 0.96, 0.97, 0.98, 0.99, 1.0)
SINGULAR_UNCACHED_OVER = 32768
SINGULAR_OUTPUT_UNDER = 500
_RATE_WINDOWS_S = (1.0, 10.0, 60.0, 600.0, 3600.0)
_MOST_WINDOWS = 400


@dataclass(frozen=True)
class Percentiles:
    """Of one quantity over requests; percentiles are straight between order statistics."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class CurvePoint:
    """Token-weighted hit rate of an LRU cache of so many blocks."""

    blocks: int
    tokens: int
    hit_rate: float


@dataclass(frozen=True)
class HitStats:
    """Prefix hits in an unlimited cache (that forgets after ``ttl_s``, if finite), and over capacity.

    buckets: share of requests by hit rate between BUCKET_EDGES, shape (7,). deciles: hit rate at 10, 20 ... 90 % of requests.
    singular_share: of requests with more than 32,768 uncached tokens and fewer than 500 output tokens;
    singular_uncached_share: of the uncached tokens. rate_per_s: at which sessions share the cache (traces without clock).
    """

    token_hit_rate: float
    buckets: tuple[float, ...]
    deciles: tuple[float, ...]
    uncached_tokens: Percentiles
    singular_share: float
    singular_uncached_share: float
    curve: tuple[CurvePoint, ...]
    ttl_s: float = math.inf
    rate_per_s: float | None = None


@dataclass(frozen=True)
class RateSeries:
    """Requests/s in windows of ``window_s``, shape (windows,)."""

    window_s: float
    rate_per_s: FloatArray
    peak_to_mean: float


@dataclass(frozen=True)
class TraceStats:
    """All of it; ``arrivals`` and ``rates`` are None for traces without a clock, ``hits`` for those without hashes."""

    name: str
    format: str
    requests: int
    sessions: int | None
    block_tokens: int | None
    input_tokens: Percentiles
    output_tokens: Percentiles
    arrivals: Arrivals | None
    rates: RateSeries | None
    hits: HitStats | None
    skipped: tuple[Skipped, ...]
    warnings: tuple[str, ...]


def percentiles(values: NDArray[np.int64]) -> Percentiles:
    p50, p90, p99 = np.percentile(values, (50, 90, 99))
    return Percentiles(float(values.mean()), float(p50), float(p90), float(p99))


def measure_trace(
    trace: Trace, *, cache_blocks: Sequence[int] = (), ttl_s: float = math.inf, rate_per_s: float | None = None
) -> TraceStats:
    """Statistics of ``trace``. cache_blocks: capacities of the curve (spread over the trace's own blocks when empty).

    rate_per_s: for traces without a clock, the rate at which their sessions share the cache (1 request/s when None).
    """
    arrivals = None if trace.session_times else measure_arrivals(trace.time_s)
    warnings = list(trace.notes)
    if arrivals is not None and arrivals.coarse:
        warnings.append(
            f"times fall on ticks of {arrivals.tick_s:.3g} s, and {arrivals.tick_s * arrivals.rate_per_s:.3g} requests share one: "
            "the CV of gaps and dispersion over less than two ticks are artefacts of the clock"
        )
    if trace.session_times:
        warnings.append("times count from each session's start, so the trace has no rate and no burstiness of its own")
    hits = None
    if trace.blocks is not None:
        hits = _measure_hits(trace, cache_blocks, ttl_s, rate_per_s)
        if trace.independent_sessions and rate_per_s is None:
            warnings.append("the cache curve is for sessions that bring 1 request/s; capacity grows in proportion to the rate")
    elif cache_blocks:
        warnings.append("the trace has no block hashes, so there is no cache curve")
    return TraceStats(
        trace.name,
        trace.format,
        trace.requests,
        None if trace.session is None else int(np.unique(trace.session).size),
        trace.block_tokens,
        percentiles(trace.input_tokens),
        percentiles(trace.output_tokens),
        arrivals,
        None if arrivals is None else _rates(trace.time_s, arrivals),
        hits,
        trace.skipped,
        tuple(warnings),
    )


def _rates(time_s: FloatArray, arrivals: Arrivals) -> RateSeries | None:
    windows = [w for w in _RATE_WINDOWS_S if arrivals.span_s / w <= _MOST_WINDOWS and w >= 2 * arrivals.tick_s]
    window = windows[0] if windows else math.ceil(arrivals.span_s / _MOST_WINDOWS / SECONDS_PER_DAY) * SECONDS_PER_DAY
    if arrivals.span_s < 2 * window:
        return None
    profile = demand_profile(time_s, window)
    counted = int(arrivals.span_s / window) * window
    mean = float(np.count_nonzero(time_s - time_s[0] < counted)) / counted
    return RateSeries(window, profile.factors * mean, profile.peak_to_mean)


def _measure_hits(trace: Trace, cache_blocks: Sequence[int], ttl_s: float, rate_per_s: float | None) -> HitStats:
    sequence = p_sequence(trace)
    length, size, distinct = trace.input_tokens, sequence.block_tokens, sequence.blocks.distinct
    if trace.independent_sessions:
        found = cache_hits(sequence, ttl_s=ttl_s, rate_per_s=rate_per_s)
        largest = math.ceil(found.curve.capacity_tokens[-1] / size)
        blocks = np.array(list(cache_blocks) or _round_capacities(largest), dtype=np.int64)
        cached, rates = found.cached_tokens, found.curve.hit_rate(blocks * float(size))
    else:
        by_blocks, cached = hits_by_blocks(sequence, ttl_s)
        blocks = np.array(list(cache_blocks) or _round_capacities(distinct), dtype=np.int64)
        rates = by_blocks[np.minimum(blocks, distinct)]
    hit_rate = cached / length
    uncached = length - cached
    singular = (uncached > SINGULAR_UNCACHED_OVER) & (trace.output_tokens < SINGULAR_OUTPUT_UNDER)
    edges = np.array(BUCKET_EDGES)
    bucket = np.clip(np.searchsorted(edges, hit_rate, side="right") - 1, 0, edges.size - 2)
    return HitStats(
        float(cached.sum() / length.sum()),
        tuple(np.bincount(bucket, minlength=edges.size - 1) / trace.requests),
        tuple(np.percentile(hit_rate, range(10, 100, 10)).tolist()),
        percentiles(uncached),
        float(singular.mean()),
        float(uncached[singular].sum() / uncached.sum()) if uncached.any() else 0.0,
        tuple(CurvePoint(b, b * size, float(rate)) for b, rate in zip(blocks.tolist(), rates, strict=True)),
        ttl_s,
        (1.0 if rate_per_s is None else rate_per_s) if trace.independent_sessions else None,
    )


def _round_capacities(largest: int) -> list[int]:
    """100, 300, 1000, 3000 ... under the capacity that holds all, and that one (from 1 where it is small)."""
    steps = [step * 10**power for power in range(10) for step in (1, 3)]
    least = 100 if largest > 1000 else 1
    return [step for step in steps if least <= step < largest] + [largest]
