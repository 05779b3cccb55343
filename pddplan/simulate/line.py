"""The line between rooms in the replay: transfers in progress share it, each under its own cap; a pool of connections in front."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy


@dataclass
class Transfer:
    """One transfer; ``done`` succeeds when its last byte has left the line."""

    size_bytes: float
    cap_bytes_per_s: float
    done: simpy.Event
    left_bytes: float = 0.0
    ended_s: float = math.inf
    slot: int = -1
    cancelled: bool = False


class SharedLine:
    """Max-min fair sharing of ``capacity`` bytes/s: whoever is capped below the fair share leaves the rest to the others."""

    def __init__(
        self,
        env: simpy.Environment,
        capacity: float,
        cap: float,
        connections: float,
        sigma: float,
        rng: np.random.Generator,
    ) -> None:
        self.env, self.capacity, self.cap, self.connections, self.sigma, self.rng = (
            env,
            capacity,
            min(cap, capacity),
            connections,
            sigma,
            rng,
        )
        self.flows: list[Transfer] = []
        self.left = np.zeros(64)
        self.caps = np.zeros(64)
        self.rates = np.zeros(64)
        self.queue: deque[Transfer] = deque()
        self.since = 0.0
        self.version = 0
        self.sent_bytes = 0.0

    def send(self, size_bytes: float) -> Transfer:
        """Start a transfer, or queue it for a connection."""
        transfer = Transfer(size_bytes, self._own_cap(), self.env.event(), size_bytes)
        if self.capacity <= 0.0:
            return transfer
        if size_bytes <= 0.0:
            transfer.ended_s = self.env.now
            transfer.done.succeed()
            return transfer
        if len(self.flows) < self.connections:
            self._advance()
            self._admit(transfer)
            self._plan()
        else:
            self.queue.append(transfer)
        return transfer

    def cancel(self, transfer: Transfer) -> None:
        """Stop a transfer; its connection is free at once."""
        if transfer.done.triggered or transfer.cancelled:
            return
        transfer.cancelled = True
        if transfer.slot < 0:
            self.queue.remove(transfer)
            return
        self._advance()
        self._remove(transfer)
        self._refill()
        self._plan()

    def predicted_s(self, size_bytes: float) -> float:
        """What a sender expects: the backlog before a free connection, then the share that one more transfer gets now."""
        if size_bytes <= 0.0 or self.capacity <= 0.0:
            return 0.0
        n = len(self.flows)
        wait = 0.0
        if n >= self.connections:
            self._advance()
            drain = float(self.rates[:n].sum())
            ahead = sum(t.size_bytes for t in self.queue) + float(self.left[:n].sum()) / max(n, 1)
            wait = ahead / drain
        share = self.capacity / min(n + 1, self.connections)
        return wait + size_bytes / min(self.cap, share)

    def _own_cap(self) -> float:
        if self.sigma <= 0.0:
            return self.cap
        return min(self.cap * float(np.exp(self.sigma * self.rng.standard_normal())), self.capacity)

    def _admit(self, transfer: Transfer) -> None:
        slot = len(self.flows)
        if slot == self.left.size:
            for name in ("left", "caps", "rates"):
                setattr(self, name, np.concatenate([getattr(self, name), np.zeros(slot)]))
        transfer.slot = slot
        self.left[slot], self.caps[slot] = transfer.left_bytes, transfer.cap_bytes_per_s
        self.flows.append(transfer)

    def _remove(self, transfer: Transfer) -> None:
        slot, last = transfer.slot, len(self.flows) - 1
        transfer.left_bytes = max(float(self.left[slot]), 0.0)
        self.sent_bytes += transfer.size_bytes - transfer.left_bytes
        moved = self.flows[last]
        self.flows[slot] = moved
        moved.slot = slot
        self.left[slot], self.caps[slot] = self.left[last], self.caps[last]
        self.flows.pop()
        transfer.slot = -1

    def _refill(self) -> None:
        while self.queue and len(self.flows) < self.connections:
            self._admit(self.queue.popleft())

    def _advance(self) -> None:
        n = len(self.flows)
        if n:
            self.left[:n] -= self.rates[:n] * (self.env.now - self.since)
        self.since = self.env.now

    def _share(self) -> None:
        n = len(self.flows)
        caps = self.caps[:n]
        if self.sigma <= 0.0:
            self.rates[:n] = min(self.cap, self.capacity / n)
            return
        ordered = np.sort(caps)
        level = (self.capacity - np.concatenate([[0.0], np.cumsum(ordered)[:-1]])) / np.arange(n, 0, -1)
        over = np.flatnonzero(ordered > level)
        self.rates[:n] = caps if over.size == 0 else np.minimum(caps, level[over[0]])

    def _plan(self) -> None:
        """Set the clock for the next transfer to end."""
        self.version += 1
        n = len(self.flows)
        if n == 0:
            return
        self._share()
        delay = max(float(np.min(self.left[:n] / self.rates[:n])), 0.0)
        timer = self.env.timeout(delay)
        assert timer.callbacks is not None
        timer.callbacks.append(self._ender(self.version))

    def _ender(self, version: int) -> Callable[[Any], None]:
        def end(_: Any) -> None:
            if version != self.version:
                return
            self._advance()
            n = len(self.flows)
            tiny = 1e-9 * self.capacity + 1e-6
            for transfer in [self.flows[i] for i in np.flatnonzero(self.left[:n] <= tiny)]:
                self._remove(transfer)
                transfer.ended_s = self.env.now
                transfer.done.succeed()
            self._refill()
            self._plan()

        return end
