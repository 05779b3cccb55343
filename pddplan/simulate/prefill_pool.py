"""Prefill in the replay: each instance runs passes of at most one chunk per request and rank, packed with other requests' if it can.

A pass lasts the packed share of its pieces, but never less than a lone pass of its fullest rank: small passes pay the launch floor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import simpy

from pddplan.simulate.decode_pool import DecodeInstance
from pddplan.simulate.dispatch import Dispatcher
from pddplan.simulate.stage_tables import PrefillTimes


@dataclass(eq=False)
class Prefill:
    """A request's prefill. started: succeeds when its first pass starts; done: when its last ends. instance: the one that runs it."""

    request: int
    left_tokens: float
    started: simpy.Event
    done: simpy.Event
    instance: PrefillInstance | None = None


@dataclass(frozen=True)
class Pass:
    """Pieces (prefill, tokens) that run together, and how long."""

    pieces: tuple[tuple[Prefill, float], ...]
    seconds: float


def next_pass(queue: deque[Prefill], times: PrefillTimes) -> Pass:
    """The pass that an engine would run on ``queue`` (at least one request), oldest requests first."""
    budget = times.chunk_tokens * times.ranks
    pieces: list[tuple[Prefill, float]] = []
    left = budget
    for prefill in queue:
        if not times.packs and len(pieces) == times.ranks:
            break
        tokens = min(prefill.left_tokens, times.chunk_tokens, left)
        pieces.append((prefill, tokens))
        left -= tokens
        if left <= 0.0:
            break
    total = sum(tokens for _, tokens in pieces)
    shared = sum(times.shared_s[p.request] * tokens / times.uncached[p.request] for p, tokens in pieces)
    fullest = max(total / times.ranks, max(tokens for _, tokens in pieces))
    scale = sum(times.scale[p.request] * tokens for p, tokens in pieces) / total
    return Pass(tuple(pieces), float(max(shared, times.pass_of(fullest) * scale)))


def finish_pass(queue: deque[Prefill], run: Pass) -> list[Prefill]:
    """Take the pass's tokens off; the prefills that are done, removed from ``queue``."""
    ended = []
    for prefill, tokens in run.pieces:
        prefill.left_tokens -= tokens
        if prefill.left_tokens <= 1e-9:
            ended.append(prefill)
    for prefill in ended:
        queue.remove(prefill)
    return ended


class PrefillInstance:
    """One instance: a SimPy process that runs passes while there is work. beside: relay decode on the same instance, if colocated."""

    def __init__(self, env: simpy.Environment, times: PrefillTimes, queue: deque[Prefill]) -> None:
        self.env, self.times, self.queue = env, times, queue
        self.own: deque[Prefill] = deque()
        self.wake = env.event()
        self.busy_s = 0.0
        self.idle = True
        self.beside: DecodeInstance | None = None
        env.process(self._run())

    @property
    def load(self) -> int:
        return len(self.queue) + len(self.own) + (not self.idle)

    def poke(self) -> None:
        if self.idle:
            self.idle = False
            self.wake.succeed()

    def _take(self) -> None:
        """Move requests from the queue to the instance while the next pass has room for them."""
        room = self.times.chunk_tokens * self.times.ranks - sum(min(p.left_tokens, self.times.chunk_tokens) for p in self.own)
        while self.queue and (room > 0.0 or not self.own):
            if not self.times.packs and len(self.own) >= self.times.ranks:
                return
            prefill = self.queue.popleft()
            self.own.append(prefill)
            prefill.instance = self
            prefill.started.succeed()
            room -= min(prefill.left_tokens, self.times.chunk_tokens)

    def _run(self) -> Generator[simpy.Event, None, None]:
        while True:
            self._take()
            if not self.own:
                self.idle, self.wake = True, self.env.event()
                yield self.wake
                continue
            run = next_pass(self.own, self.times)
            yield self.env.timeout(run.seconds) if self.beside is None else self.beside.block(run.seconds)
            self.busy_s += run.seconds
            for prefill in finish_pass(self.own, run):
                prefill.done.succeed()


class PrefillPool:
    """Instances of a P pool and the way requests are spread over them."""

    def __init__(self, env: simpy.Environment, times: PrefillTimes, instances: int, dispatch: str, rng: np.random.Generator) -> None:
        self.env, self.times, self.dispatcher = env, times, Dispatcher(dispatch, rng)
        shared: deque[Prefill] = deque()
        self.instances = [PrefillInstance(env, times, shared if dispatch == "central" else deque()) for _ in range(instances)]

    def enter(self, request: int, session: int = -1) -> Prefill:
        """Queue request number ``request`` of the stream."""
        prefill = Prefill(request, float(self.times.uncached[request]), self.env.event(), self.env.event())
        instance = self.dispatcher.pick(self.instances, session)
        instance.queue.append(prefill)
        instance.poke()
        return prefill
