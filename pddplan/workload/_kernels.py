"""Compiled passes over the blocks of a trace. Import only where a trace is computed: numba takes half a second to load."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pddplan.compiled import compiled

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_SHIFT = 10  # stamps per Fenwick leaf, as a power of two


@compiled
def _add(tree: IntArray, leaf: int, delta: int) -> None:
    i = leaf + 1
    while i < tree.size:
        tree[i] += delta
        i += i & -i


@compiled
def _live_before(tree: IntArray, live: NDArray[np.uint8], stamp: int) -> int:
    i = stamp >> _SHIFT
    total = 0
    for s in range(i << _SHIFT, stamp):
        total += int(live[s])  # bytes of numpy would overflow where nothing is compiled
    while i > 0:
        total += tree[i]
        i -= i & -i
    return total


@compiled
def stack_pass(
    first: IntArray,
    count: IntArray,
    offset: IntArray,
    lookup_end: IntArray,
    length: IntArray,
    block_tokens: int,
    enters: BoolArray,
    time: FloatArray,
    ttl: float,
    capacities: IntArray,
    distinct: int,
    touches: int,
) -> tuple[FloatArray, IntArray]:
    """Mattson's stack distances in one pass (Mattson et al., IBM Syst. J. 9 (1970) 78) with leading-run hits.

    The distance of a block is the number of distinct blocks touched since its last touch, itself included. A block at
    position j of a prompt is a hit at capacity C when blocks 0 .. j all have distance <= C (and idle time <= ttl).
    A prompt is looked up as it arrives, then touched from its last block to its first, so that a cache loses the end of
    a prefix before its beginning. Runs from lookup_end[i] on are stored but not looked up; a request that does not enter
    touches nothing. touches: blocks of all requests that enter.

    Live stamps are bytes, counted by a Fenwick tree over leaves of 1,024 stamps; neighbours in a run need no query.
    Returns hit tokens by distance, shape (distinct + 1,), and leading blocks per request and capacity (rising), shape
    (requests, capacities).
    """
    requests = offset.size - 1
    live = np.zeros(((touches >> _SHIFT) + 1) << _SHIFT, dtype=np.uint8)
    tree = np.zeros((live.size >> _SHIFT) + 1, dtype=np.int64)
    last = np.full(distinct, -1, dtype=np.int64)
    seen = np.zeros(distinct if ttl < math.inf else 0, dtype=np.float64)
    by_distance = np.zeros(distinct + 1, dtype=np.float64)
    leading = np.zeros((requests, capacities.size), dtype=np.int64)
    stamp = 0
    total_live = 0
    for i in range(requests):
        position = 0
        farthest = 0
        level = 0
        previous = -2
        distance = 0
        known = True
        for r in range(offset[i], lookup_end[i]):
            for b in range(first[r], first[r] + count[r]):
                s = last[b]
                if s < 0 or (ttl < math.inf and time[i] - seen[b] > ttl):
                    known = False
                    break
                distance = distance + 1 if s == previous - 1 else total_live - _live_before(tree, live, s)
                previous = s
                if distance > farthest:
                    farthest = distance
                    while level < capacities.size and capacities[level] < farthest:
                        leading[i, level] = position
                        level += 1
                tokens = min(block_tokens, length[i] - position * block_tokens)
                if tokens > 0:
                    by_distance[farthest] += tokens
                position += 1
            if not known:
                break
        for k in range(level, capacities.size):
            leading[i, k] = position
        if not enters[i]:
            continue
        cleared_leaf = 0
        cleared = 0
        set_leaf = stamp >> _SHIFT
        marked = 0
        for r in range(offset[i + 1] - 1, offset[i] - 1, -1):
            for b in range(first[r] + count[r] - 1, first[r] - 1, -1):
                s = last[b]
                if s >= 0:
                    live[s] = 0
                    if s >> _SHIFT != cleared_leaf:
                        if cleared:
                            _add(tree, cleared_leaf, -cleared)
                        cleared_leaf = s >> _SHIFT
                        cleared = 0
                    cleared += 1
                else:
                    total_live += 1
                if stamp >> _SHIFT != set_leaf:
                    _add(tree, set_leaf, marked)
                    set_leaf = stamp >> _SHIFT
                    marked = 0
                live[stamp] = 1
                marked += 1
                last[b] = stamp
                if ttl < math.inf:
                    seen[b] = time[i]
                stamp += 1
        if cleared:
            _add(tree, cleared_leaf, -cleared)
        if marked:
            _add(tree, set_leaf, marked)
    return by_distance, leading


@compiled
def idle_pass(
    first: IntArray,
    count: IntArray,
    offset: IntArray,
    lookup_end: IntArray,
    length: IntArray,
    block_tokens: int,
    enters: BoolArray,
    time: FloatArray,
    ttls: FloatArray,
    size: IntArray,
    edges: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray, int, IntArray]:
    """Idle times in one pass, for caches that keep a block for a time since its last touch.

    Ids are segments of ``size`` blocks, shape (segments,), that are always touched together (BlockRuns.segments).
    edges: rising idle times, shape (bins,). Returns hit tokens by bin of the longest idle time in the leading run, shape
    (bins + 1,); number and sum of idle times between touches of a block by bin, each (bins + 1,); the number of touches;
    and leading blocks per request and ttl (rising), shape (requests, ttls).
    """
    requests = offset.size - 1
    seen = np.full(size.size, -math.inf, dtype=np.float64)
    by_idle = np.zeros(edges.size + 1, dtype=np.float64)
    reuses = np.zeros(edges.size + 1, dtype=np.float64)
    idle_sum = np.zeros(edges.size + 1, dtype=np.float64)
    leading = np.zeros((requests, ttls.size), dtype=np.int64)
    touches = 0
    for i in range(requests):
        position = 0
        longest = -1.0
        level = 0
        bin_of_longest = 0
        known = True
        for r in range(offset[i], lookup_end[i]):
            for b in range(first[r], first[r] + count[r]):
                idle = time[i] - seen[b]
                if idle == math.inf:
                    known = False
                    break
                if idle > longest:
                    longest = idle
                    bin_of_longest = np.searchsorted(edges, longest)
                    while level < ttls.size and ttls[level] < longest:
                        leading[i, level] = position
                        level += 1
                tokens = min((position + size[b]) * block_tokens, length[i]) - position * block_tokens
                if tokens > 0:
                    by_idle[bin_of_longest] += tokens
                position += size[b]
            if not known:
                break
        for k in range(level, ttls.size):
            leading[i, k] = position
        if not enters[i]:
            continue
        previous = -1.0
        at = 0
        for r in range(offset[i], offset[i + 1]):
            for b in range(first[r], first[r] + count[r]):
                idle = time[i] - seen[b]
                touches += size[b]
                seen[b] = time[i]
                if idle < math.inf:
                    if idle != previous:
                        at = np.searchsorted(edges, idle)
                        previous = idle
                    reuses[at] += size[b]
                    idle_sum[at] += idle * size[b]
    return by_idle, reuses, idle_sum, touches, leading


@compiled
def find_parents(
    first: IntArray, count: IntArray, offset: IntArray, length: IntArray, output: IntArray, block_tokens: int, distinct: int
) -> IntArray:
    """For each request the earlier one whose prompt and answer it seems to continue, or -1; shape (requests,).

    The parent of a request is the latest one whose last whole block lies deepest in its prompt, provided that this block
    first came with that parent (or with one of the parent's own parents: a prefix shared by many is no conversation)
    and that the prompt is long enough to hold the parent's prompt and answer.
    """
    requests = offset.size - 1
    known = np.zeros(distinct, dtype=np.bool_)
    owner = np.full(distinct, -1, dtype=np.int64)
    parent = np.full(requests, -1, dtype=np.int64)
    for i in range(requests):
        whole = length[i] // block_tokens
        position = 0
        end = -1
        fresh = False
        for r in range(offset[i], offset[i + 1]):
            for b in range(first[r], first[r] + count[r]):
                if position < whole:
                    q = owner[b]
                    if q >= 0 and length[q] // block_tokens == position + 1 and length[q] + output[q] <= length[i]:
                        parent[i] = q
                    end = b
                    fresh = not known[b]
                known[b] = True
                position += 1
        if end >= 0 and (fresh or owner[end] >= 0):
            owner[end] = i
    return parent


@compiled
def with_answers(
    first: IntArray, count: IntArray, offset: IntArray, whole: IntArray, answer_blocks: IntArray, child: IntArray, distinct: int
) -> tuple[IntArray, IntArray, IntArray, int]:
    """Runs of each request with its answer's blocks appended: the child's ids at those places, then ids of their own.

    Returns first, count, offset as in BlockRuns and the number of distinct ids.
    """
    requests = offset.size - 1
    extra = 0
    for i in range(requests):
        if child[i] >= 0:
            extra += offset[child[i] + 1] - offset[child[i]]
        extra += 1
    new_first = np.empty(first.size + extra, dtype=np.int64)
    new_count = np.empty(first.size + extra, dtype=np.int64)
    new_offset = np.zeros(requests + 1, dtype=np.int64)
    n = 0
    for i in range(requests):
        for r in range(offset[i], offset[i + 1]):
            new_first[n] = first[r]
            new_count[n] = count[r]
            n += 1
        left = answer_blocks[i]
        if child[i] >= 0:
            position = 0
            for r in range(offset[child[i]], offset[child[i] + 1]):
                low = max(whole[i] - position, 0)
                high = min(whole[i] + answer_blocks[i] - position, count[r])
                if high > low:
                    new_first[n] = first[r] + low
                    new_count[n] = high - low
                    left -= high - low
                    n += 1
                position += count[r]
        if left > 0:
            new_first[n] = distinct
            new_count[n] = left
            distinct += left
            n += 1
        new_offset[i + 1] = n
    return new_first[:n].copy(), new_count[:n].copy(), new_offset, distinct
