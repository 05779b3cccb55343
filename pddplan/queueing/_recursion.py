"""Compiled customer-by-customer recursions (numba); imported only by the modules that fall back to them."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from pddplan.compiled import compiled

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@compiled
def central_waits(gaps: FloatArray, services: FloatArray, servers: int) -> FloatArray:
    """Waits in one first-come-first-served queue (Kiefer and Wolfowitz 1955), on a heap of the servers' free times."""
    free = [0.0 for _ in range(servers)]
    waits = np.empty(gaps.size)
    now = 0.0
    for i in range(gaps.size):
        now += gaps[i]
        start = max(now, free[0])
        waits[i] = start - now
        heapq.heapreplace(free, start + services[i])
    return waits


@compiled
def assigned_waits(gaps: FloatArray, services: FloatArray, server_of: IntArray, servers: int) -> FloatArray:
    """Waits when customer i must use server ``server_of[i]`` (Lindley 1952 per server)."""
    free = np.zeros(servers)
    waits = np.empty(gaps.size)
    now = 0.0
    for i in range(gaps.size):
        now += gaps[i]
        j = server_of[i]
        start = max(now, free[j])
        waits[i] = start - now
        free[j] = start + services[i]
    return waits


@compiled
def shortest_queue_waits(gaps: FloatArray, services: FloatArray, ties: FloatArray, servers: int) -> FloatArray:
    """Waits when each customer joins the shortest queue (ties at random by ``ties`` in [0, 1)), served in order."""
    free = np.zeros(servers)
    present = np.zeros(servers, dtype=np.int64)
    departures = [(np.inf, 0)]
    waits = np.empty(gaps.size)
    now = 0.0
    for i in range(gaps.size):
        now += gaps[i]
        while departures[0][0] <= now:
            present[heapq.heappop(departures)[1]] -= 1
        fewest, count = present[0], 0
        for j in range(servers):
            if present[j] < fewest:
                fewest, count = present[j], 1
            elif present[j] == fewest:
                count += 1
        pick = int(ties[i] * count)
        chosen = 0
        for j in range(servers):
            if present[j] == fewest:
                if pick == 0:
                    chosen = j
                    break
                pick -= 1
        start = max(now, free[chosen])
        waits[i] = start - now
        free[chosen] = start + services[i]
        present[chosen] += 1
        heapq.heappush(departures, (free[chosen], chosen))
    return waits


@compiled
def shared_times(gaps: FloatArray, sizes: FloatArray, rate_of: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Waits for a place and times in service when n customers in service each proceed at ``rate_of[n]``.

    At most ``rate_of.size - 1`` are in service, the rest wait in order. Virtual time V grows at the common rate; a
    customer of size x admitted at V ends at V + x, so one heap suffices.
    """
    n, places = gaps.size, rate_of.size - 1
    arrivals = np.cumsum(gaps)
    admitted, ended = np.zeros(n), np.zeros(n)
    active = [(np.inf, -1)]
    running, entered, arrived, done = 0, 0, 0, 0
    now, virtual = 0.0, 0.0
    while done < n:
        rate = rate_of[running]
        end = now + (active[0][0] - virtual) / rate if running > 0 else np.inf
        arrival = arrivals[arrived] if arrived < n else np.inf
        if arrival <= end:
            virtual += rate * (arrival - now)
            now = arrival
            arrived += 1
        else:
            virtual, who = heapq.heappop(active)
            now = end
            ended[who] = now
            running -= 1
            done += 1
            if running == 0:
                virtual = 0.0
        while running < places and entered < arrived:
            admitted[entered] = now
            heapq.heappush(active, (virtual + sizes[entered], entered))
            entered += 1
            running += 1
    return admitted - arrivals, ended - admitted
