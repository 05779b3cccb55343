"""Prefix-cache hits of a trace: leading runs of known blocks, at every capacity or idle time, at P and at MD."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pddplan.workload.hit_curve import HitCurve
from pddplan.workload.trace import BlockRuns, IntArray, Trace

FloatArray = NDArray[np.float64]
_IDLE_EDGES_S = np.logspace(-3, 8, 11 * 64 + 1)
_CURVE_POINTS = 257


@dataclass(frozen=True)
class CacheSequence:
    """What a cache sees: requests in order with the blocks they look up and the blocks they leave behind.

    lookup_end: shape (requests,), run index where the prompt ends and the answer's blocks begin.
    enters: shape (requests,), whether the request leaves its blocks behind.
    """

    blocks: BlockRuns
    lookup_end: IntArray
    enters: NDArray[np.bool_]
    time_s: FloatArray
    input_tokens: IntArray
    block_tokens: int
    independent_sessions: bool

    def cached_tokens(self, leading_blocks: IntArray) -> IntArray:
        """Tokens in leading runs of so many blocks: the last block of a prompt may be partial."""
        limit = self.input_tokens if leading_blocks.ndim == 1 else self.input_tokens[:, None]
        return np.asarray(np.minimum(leading_blocks * self.block_tokens, limit), dtype=np.int64)


def p_sequence(trace: Trace) -> CacheSequence:
    """What P's cache sees: every prompt, and no answers. Raises ValueError when the trace has no hashes."""
    if trace.blocks is None or trace.block_tokens is None:
        raise ValueError(f"{trace.name} has no block hashes, so prefix hits cannot be read from it")
    return CacheSequence(
        trace.blocks,
        trace.blocks.offset[1:],
        np.ones(trace.requests, dtype=np.bool_),
        trace.time_s,
        trace.input_tokens,
        trace.block_tokens,
        trace.independent_sessions,
    )


def md_sequence(trace: Trace, *, ended_locally: NDArray[np.bool_] | None = None, keeps_answers: bool = True) -> CacheSequence:
    """What MD's cache sees: prompts and the answers MD gave, of the requests that ended there.

    ended_locally: shape (requests,), requests that ended on RLD and so never enter. The blocks of an answer are those that the
    next turn shows between the two prompts (whole blocks only); an answer that no later prompt repeats takes room and is
    never hit. Raises ValueError when the trace has no hashes.
    """
    from pddplan.workload import _kernels

    seen_by_p = p_sequence(trace)
    enters = seen_by_p.enters if ended_locally is None else ~ended_locally
    blocks = seen_by_p.blocks
    if not keeps_answers:
        return CacheSequence(
            blocks, seen_by_p.lookup_end, enters, trace.time_s, trace.input_tokens, seen_by_p.block_tokens, seen_by_p.independent_sessions
        )
    size = seen_by_p.block_tokens
    parent = _kernels.find_parents(
        blocks.first, blocks.count, blocks.offset, trace.input_tokens, trace.output_tokens, size, blocks.distinct
    )
    child = np.full(trace.requests, -1, dtype=np.int64)
    has_parent = np.flatnonzero(parent >= 0)[::-1]
    child[parent[has_parent]] = has_parent
    whole = trace.input_tokens // size
    answer_blocks = (trace.input_tokens + trace.output_tokens) // size - whole
    first, count, offset, distinct = _kernels.with_answers(
        blocks.first, blocks.count, blocks.offset, whole, answer_blocks, child, blocks.distinct
    )
    lookup_end = offset[:-1] + np.diff(blocks.offset)
    return CacheSequence(
        BlockRuns(first, count, offset, int(distinct)), lookup_end, enters, trace.time_s, trace.input_tokens, size,
        seen_by_p.independent_sessions,
    )  # fmt: skip


@dataclass(frozen=True)
class CacheHits:
    """cached_tokens: shape (requests,) at the capacity asked for. curve: hit rate at every capacity."""

    cached_tokens: IntArray
    curve: HitCurve


def cache_hits(
    sequence: CacheSequence, *, capacity_tokens: float = math.inf, ttl_s: float = math.inf, rate_per_s: float | None = None
) -> CacheHits:
    """Hits of each request in an LRU prefix cache of ``capacity_tokens`` that forgets after ``ttl_s`` idle.

    Where the trace has a clock, stack distances give every capacity in one pass. Where times are relative to sessions,
    many independent sessions at ``rate_per_s`` share the cache (1 request/s when None): each then finds the cache to
    forget after one idle time T (Che, Tung and Wang, IEEE JSAC 20 (2002) 1305), and its mean content is, by Little's law,
    the rate of touches times the mean of min(idle time to the next touch, T).
    """
    if sequence.independent_sessions:
        curve, leading = _session_pass(sequence, 1.0 if rate_per_s is None else rate_per_s, ttl_s)
        if (keep_s := curve.idle_at(capacity_tokens)) < ttl_s:
            _, leading = _session_pass(sequence, 1.0, keep_s)
        return CacheHits(sequence.cached_tokens(leading), curve)
    capacity_blocks = min(capacity_tokens / sequence.block_tokens, float(sequence.blocks.distinct))
    by_distance, leading = _stack_pass(sequence, np.array([int(capacity_blocks)]), ttl_s)
    hit_rate = np.cumsum(by_distance) / sequence.input_tokens.sum()
    points = _curve_blocks(sequence.blocks.distinct)
    curve = HitCurve(np.asarray(points * float(sequence.block_tokens)), hit_rate[points])
    return CacheHits(sequence.cached_tokens(leading[:, 0]), curve)


def hits_by_blocks(sequence: CacheSequence, ttl_s: float = math.inf) -> tuple[FloatArray, IntArray]:
    """Exact token-weighted hit rate for a capacity of 0, 1, 2 ... distinct blocks, shape (distinct + 1,), and the tokens of each
    request cached in an unlimited one, shape (requests,). Of the requests in the order given: for traces with a clock."""
    by_distance, leading = _stack_pass(sequence, np.array([sequence.blocks.distinct]), ttl_s)
    return np.cumsum(by_distance) / sequence.input_tokens.sum(), sequence.cached_tokens(leading[:, 0])


def _curve_blocks(distinct: int) -> IntArray:
    spaced = np.unique(np.rint(np.geomspace(1, max(distinct, 1), _CURVE_POINTS)).astype(np.int64))
    return np.concatenate(([0], spaced[spaced <= distinct]))


def _stack_pass(sequence: CacheSequence, capacities: IntArray, ttl_s: float) -> tuple[FloatArray, IntArray]:
    from pddplan.workload import _kernels

    blocks = sequence.blocks
    touches = int(blocks.per_request()[sequence.enters].sum())
    by_distance, leading = _kernels.stack_pass(
        blocks.first, blocks.count, blocks.offset, sequence.lookup_end, sequence.input_tokens, sequence.block_tokens,
        sequence.enters, sequence.time_s, ttl_s, capacities, blocks.distinct, touches,
    )  # fmt: skip
    return by_distance, leading


def _session_pass(sequence: CacheSequence, rate_per_s: float, ttl_s: float) -> tuple[HitCurve, IntArray]:
    """Curve of a cache shared by sessions at ``rate_per_s``, and leading blocks of each request at ``ttl_s``."""
    from pddplan.workload import _kernels

    blocks, size = sequence.blocks.segments()
    by_idle, reuses, idle_sum, touches, leading = _kernels.idle_pass(
        blocks.first, blocks.count, blocks.offset, sequence.lookup_end, sequence.input_tokens, sequence.block_tokens,
        sequence.enters, sequence.time_s, np.array([ttl_s]), size, _IDLE_EDGES_S,
    )  # fmt: skip
    longer = touches - np.cumsum(reuses[:-1])
    block_seconds = np.cumsum(idle_sum[:-1]) + longer * _IDLE_EDGES_S
    rates = np.cumsum(by_idle[:-1]) / sequence.input_tokens.sum()
    capacity = rate_per_s / sequence.input_tokens.size * block_seconds * sequence.block_tokens
    used = min(int(np.searchsorted(rates, rates[-1])) + 1, rates.size)
    curve = HitCurve(
        np.concatenate(([0.0], capacity[:used])),
        np.concatenate(([0.0], rates[:used])),
        np.concatenate(([0.0], _IDLE_EDGES_S[:used])),
    )
    return curve, leading[:, 0]
