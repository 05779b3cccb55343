"""Compiled recursion of prefill passes (numba); imported only where prefill is batched."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pddplan.compiled import compiled

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

PINNED, CENTRAL, SHORTEST = 0, 1, 2
_TINY = 1e-9


@compiled
def _between(x: float, points: FloatArray, values: FloatArray) -> float:
    """``np.interp`` of one number, which numba takes a second to compile and calls three times slower."""
    below, above = 0, points.size - 1
    if x <= points[below]:
        return float(values[below])
    if x >= points[above]:
        return float(values[above])
    while above - below > 1:
        middle = (below + above) // 2
        if points[middle] <= x:
            below = middle
        else:
            above = middle
    slope = (values[above] - values[below]) / (points[above] - points[below])
    return float(slope * (x - points[below]) + values[below])


@compiled
def _pass_s(
    first: int,
    pieces: int,
    nxt: IntArray,
    left: FloatArray,
    row: IntArray,
    uncached: FloatArray,
    shared_s: FloatArray,
    scale: FloatArray,
    points: FloatArray,
    seconds: FloatArray,
    chunk: float,
    ranks: float,
    budget: float,
    beside: float,
) -> float:
    """Duration of the pass made of the first ``pieces`` requests of a list: their shared work, never less than its fullest rank alone."""
    room, total, most, work, scaled = budget, 0.0, 0.0, 0.0, 0.0
    customer = first
    for _ in range(pieces):
        tokens = min(left[customer], chunk, room)
        r = row[customer]
        total += tokens
        most = max(most, tokens)
        work += shared_s[r] * tokens / uncached[r]
        scaled += scale[r] * tokens
        room -= tokens
        customer = nxt[customer]
    fullest = max(total / ranks, most)
    return max(work, _between(fullest, points, seconds) * scaled / total) + beside


@compiled
def _run(
    arrival: FloatArray,
    row: IntArray,
    server: IntArray,
    ties: FloatArray,
    uncached: FloatArray,
    shared_s: FloatArray,
    scale: FloatArray,
    points: FloatArray,
    seconds: FloatArray,
    chunk: float,
    ranks: float,
    packs: bool,
    beside: float,
    mode: int,
    left: FloatArray,
    nxt: IntArray,
    ended: FloatArray,
    head: IntArray,
    tail: IntArray,
    count: IntArray,
    pieces: IntArray,
    end: FloatArray,
) -> None:
    """Fill ``ended``, shape (customers,): when each prefill ends.

    State, made by the caller because numba compiles an array's making slowly: tokens ``left`` of each customer, the ``nxt`` of its
    list; ``head``, ``tail`` and ``count`` of the lists, one for each instance and last the central queue; ``pieces`` and ``end`` of the
    pass that an instance runs.
    """
    budget = chunk * ranks
    shared = end.size  # list number of the central queue
    came, done = 0, 0
    while done < arrival.size:
        k = 0
        for j in range(1, shared):
            if end[j] < end[k]:
                k = j
        now = end[k]
        if came < arrival.size and arrival[came] <= now:
            i = came
            now = arrival[i]
            came += 1
            where = shared
            if mode == PINNED:
                where = server[i]
            elif mode == SHORTEST:
                fewest, equal = count[0], 0
                for j in range(shared):
                    if count[j] < fewest:
                        fewest, equal = count[j], 1
                    elif count[j] == fewest:
                        equal += 1
                pick = int(ties[i] * equal)
                where = 0
                for j in range(shared):
                    if count[j] == fewest:
                        if pick == 0:
                            where = j
                            break
                        pick -= 1
            if head[where] < 0:
                head[where] = i
            else:
                nxt[tail[where]] = i
            tail[where] = i
            count[where] += 1
            k = -1
            if mode == CENTRAL:
                for j in range(shared):
                    if end[j] == np.inf:
                        k = j
                        break
            elif end[where] == np.inf:
                k = where
            if k < 0:
                continue
        else:
            room = budget
            before, customer = -1, head[k]
            for _ in range(pieces[k]):
                tokens = min(left[customer], chunk, room)
                room -= tokens
                left[customer] -= tokens
                after = nxt[customer]
                if left[customer] <= _TINY:
                    ended[customer] = now
                    done += 1
                    count[k] -= 1
                    if before < 0:
                        head[k] = after
                    else:
                        nxt[before] = after
                    if tail[k] == customer:
                        tail[k] = before
                else:
                    before = customer
                customer = after
            end[k] = np.inf
        if mode == CENTRAL:
            room = budget
            customer = head[k]
            while customer >= 0:
                room -= min(left[customer], chunk)
                customer = nxt[customer]
            while head[shared] >= 0 and (room > 0.0 or count[k] == 0):
                if not packs and count[k] >= ranks:
                    break
                customer = head[shared]
                head[shared] = nxt[customer]
                nxt[customer] = -1
                count[shared] -= 1
                if head[k] < 0:
                    head[k] = customer
                else:
                    nxt[tail[k]] = customer
                tail[k] = customer
                count[k] += 1
                room -= min(left[customer], chunk)
        if head[k] < 0:
            continue
        room, number = budget, 0
        customer = head[k]
        while customer >= 0 and room > 0.0 and (packs or number < ranks):
            room -= min(left[customer], chunk, room)
            number += 1
            customer = nxt[customer]
        pieces[k] = number
        end[k] = now + _pass_s(head[k], number, nxt, left, row, uncached, shared_s, scale, points, seconds, chunk, ranks, budget, beside)


def pass_times(
    arrival: FloatArray,
    row: IntArray,
    server: IntArray,
    ties: FloatArray,
    uncached: FloatArray,
    shared_s: FloatArray,
    scale: FloatArray,
    points: FloatArray,
    seconds: FloatArray,
    chunk: float,
    ranks: float,
    packs: bool,
    beside: float,
    instances: int,
    mode: int,
) -> FloatArray:
    """Seconds from arrival to the end of prefill, shape (customers,), for arrivals in order of time.

    Each instance runs passes: at most ``chunk`` tokens of a request and chunk x ranks in all (without packing: ``ranks`` requests), oldest
    first; ``beside`` seconds are added to every pass (decode steps that it carries). mode: PINNED (customer i on ``server[i]``),
    CENTRAL (one queue), SHORTEST (fewest requests, ties by ``ties`` in [0, 1)).
    """
    customers, lists = arrival.size, instances + 1
    ended = np.full(customers, np.inf)
    _run(
        arrival,
        row,
        server,
        ties,
        uncached,
        shared_s,
        scale,
        points,
        seconds,
        chunk,
        ranks,
        packs,
        beside,
        mode,
        uncached[row],
        np.full(customers, -1, dtype=np.int64),
        ended,
        np.full(lists, -1, dtype=np.int64),
        np.full(lists, -1, dtype=np.int64),
        np.zeros(lists, dtype=np.int64),
        np.zeros(instances, dtype=np.int64),
        np.full(instances, np.inf),
    )
    return ended - arrival
