"""From a trace to the rows of a request class, with the hits of a cache at P and one at MD."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pddplan.workload.hit_curve import HitCurve
from pddplan.workload.laws import QuantileLaw
from pddplan.workload.mix import ClassRows
from pddplan.workload.prefix_cache import CacheHits, CacheSequence, cache_hits, md_sequence, p_sequence
from pddplan.workload.reduction import reduce_requests
from pddplan.workload.trace import Trace

FloatArray = NDArray[np.float64]
_TASK_QUANTILES = 200
LocalRule = Callable[[FloatArray, FloatArray], NDArray[np.bool_]]
"""(uncached tokens, output tokens) of all requests -> which of them end on RLD."""


@dataclass(frozen=True)
class Cache:
    """Capacity in tokens, and the idle time in s after which it forgets."""

    capacity_tokens: float = math.inf
    ttl_s: float = math.inf


UNLIMITED = Cache()


@dataclass(frozen=True)
class TraceHits:
    """Tokens of each request cached at P and at MD, shape (requests,), and both caches' hit rates over capacity."""

    cached_p: FloatArray
    cached_md: FloatArray
    p_curve: HitCurve
    md_curve: HitCurve


def trace_hits(
    trace: Trace,
    *,
    p_cache: Cache = UNLIMITED,
    md_cache: Cache = UNLIMITED,
    keeps_answers: bool = True,
    shared_prefix: bool = False,
    ends_locally: LocalRule | None = None,
    rate_per_s: float | None = None,
) -> TraceHits:
    """Hits of the same sequence of requests in P's cache and in MD's, which requests that end on RLD never enter.

    shared_prefix: both hold the tools and system prompt of every session beforehand (curves leave that out).
    rate_per_s: rate to plan for. A trace with a clock is sped up to it, which shortens idle times; sessions come more often.
    Raises ValueError when the trace has no hashes.
    """
    speed = 1.0 if trace.session_times or rate_per_s is None or not trace.rate_per_s else rate_per_s / trace.rate_per_s
    at_p = _hits(trace, p_sequence(trace), p_cache, speed, rate_per_s)
    local = None
    if ends_locally is not None:
        uncached = (trace.input_tokens - at_p.cached_tokens).astype(np.float64)
        local = ends_locally(uncached, trace.output_tokens.astype(np.float64))
    sequence = md_sequence(trace, ended_locally=local, keeps_answers=keeps_answers)
    at_md = _hits(trace, sequence, md_cache, speed, rate_per_s)
    before = np.zeros(1)
    if shared_prefix and trace.shared_prefix_tokens is not None:
        before = np.minimum(trace.shared_prefix_tokens, trace.input_tokens).astype(np.float64)
    cached_p, cached_md = np.maximum(at_p.cached_tokens, before), np.maximum(at_md.cached_tokens, before)
    return TraceHits(cached_p, cached_md, at_p.curve, at_md.curve)


def _hits(trace: Trace, sequence: CacheSequence, cache: Cache, speed: float, rate_per_s: float | None) -> CacheHits:
    rate = rate_per_s if trace.independent_sessions else None
    return cache_hits(sequence, capacity_tokens=cache.capacity_tokens, ttl_s=cache.ttl_s * speed, rate_per_s=rate)


def trace_rows(
    trace: Trace,
    *,
    rows: int,
    hits: TraceHits | None = None,
    hit_rate: QuantileLaw | None = None,
    md_hit_rate: QuantileLaw | None = None,
) -> ClassRows:
    """The trace as at most ``rows`` atoms. Hits are ``hits``; for a trace without hashes they are drawn from the laws.

    Requests without an answer count as answers of one token.
    """
    length = trace.input_tokens.astype(np.float64)
    if hits is not None:
        cached_p, cached_md = hits.cached_p, hits.cached_md
    else:
        n = trace.requests
        level = np.random.default_rng(1).permutation((np.arange(n) + 0.5) / n)
        cached_p = np.zeros(n) if hit_rate is None else np.rint(hit_rate.quantile(level) * length)
        cached_md = cached_p if md_hit_rate is None else np.rint(md_hit_rate.quantile(level) * length)
    uncached = np.maximum(length - cached_p, 1.0)
    atoms = reduce_requests(length, uncached, length - cached_md, np.maximum(trace.output_tokens, 1).astype(np.float64), rows=rows)
    if hits is not None:
        atoms = replace(atoms, md_curve=hits.md_curve)
    turns = turns_per_task(trace)
    if turns is None:
        return atoms
    quantiles = np.quantile(turns, (np.arange(_TASK_QUANTILES) + 0.5) / _TASK_QUANTILES, method="inverted_cdf")
    return replace(
        atoms,
        turns_per_task=float(turns.mean()),
        task_turns=quantiles.astype(np.float64),
        pause_s_per_turn=_pause_per_turn(trace),
    )


def _task_starts(trace: Trace) -> NDArray[np.bool_] | None:
    if trace.session is None:
        return None
    starts = np.ones(trace.requests, dtype=np.bool_)
    starts[1:] = np.diff(trace.session) != 0
    if trace.ends_task is not None:
        starts[1:] |= trace.ends_task[:-1]
    return starts


def turns_per_task(trace: Trace) -> FloatArray | None:
    """Requests of each task, shape (tasks,): a task ends where the model hands back to its user, and with its session.

    None for traces without sessions.
    """
    if trace.session is None:
        return None
    if trace.ends_task is None:
        return np.bincount(trace.session).astype(np.float64)
    starts = _task_starts(trace)
    assert starts is not None
    return np.diff(np.concatenate((np.flatnonzero(starts), [trace.requests]))).astype(np.float64)


def _pause_per_turn(trace: Trace) -> float:
    """Mean pause in s before a turn that continues a task, per turn; 0 where pauses are unknown."""
    starts = _task_starts(trace)
    if trace.pause_s is None or starts is None:
        return 0.0
    return float(np.where(starts | np.isnan(trace.pause_s), 0.0, trace.pause_s).mean())
