"""Decode in the replay: instances that step all their requests together, with a memory limit and a queue for places in front.

Every step is simulated, but events happen only where something changes: a run of equal steps is one event, cut at the next step
boundary when somebody comes or leaves. Extend passes of handed-over requests (and prefill passes of a colocated P) run between steps and
hold them up, at most one between two steps.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy

from pddplan.simulate.dispatch import Dispatcher
from pddplan.simulate.stage_tables import DecodeTimes

RUN_CONTEXT_GROWTH = 0.02  # a run of equal steps ends when its contexts have grown by this share
RUN_STEPS_LEAST = 16


@dataclass(eq=False)
class Job:
    """A request on a decode instance. placed: succeeds with a place in memory; done: with its last token there."""

    context_tokens: float
    memory_bytes: float
    placed: simpy.Event
    done: simpy.Event
    instance: DecodeInstance | None = None
    running: bool = False
    tokens: float = 0.0
    joined_step: int = 0
    first_s: float = math.nan
    last_s: float = math.nan
    placed_s: float = math.nan
    left: bool = False


@dataclass(eq=False)
class _Extend:
    seconds: float
    done: simpy.Event


class DecodeInstance:
    """One instance. ``queue`` is its own, or the pool's under central dispatch."""

    def __init__(self, env: simpy.Environment, times: DecodeTimes, queue: deque[Job]) -> None:
        self.env, self.times, self.queue = env, times, queue
        self.occupied = 0  # places taken
        self.memory = 0.0
        self.active = 0  # requests that step
        self.context = 0.0  # sum of contexts of those
        self.steps = 0
        self.heap: list[tuple[int, int, Job]] = []
        self.serial = 0
        self.joining: list[Job] = []
        self.extends: deque[_Extend] = deque()
        self.owes_step = False
        self.leaving: list[Job] = []
        self.version = 0
        self.run_start = 0.0
        self.run_step_s = 0.0
        self.last_step_s = 0.0
        self.run_end = math.inf
        self.busy = False
        self.gaps: list[tuple[float, float]] = []  # (end, seconds) of every run's step, and of every extend
        self.occupied_seconds = 0.0
        self.since = 0.0

    @property
    def load(self) -> int:
        return self.occupied + (len(self.queue) if self.queue is not None else 0)

    def fits(self, job: Job) -> bool:
        return self.occupied < self.times.places and self.memory + job.memory_bytes <= self.times.memory_bytes * (1 + 1e-12)

    def admit(self) -> None:
        """Give places to those who wait, in order, as long as they fit."""
        while self.queue and self.fits(self.queue[0]):
            job = self.queue.popleft()
            self._count()
            self.occupied += 1
            self.memory += job.memory_bytes
            job.instance, job.placed_s = self, self.env.now
            job.placed.succeed()

    def decode(self, job: Job, tokens: float) -> None:
        """Let a placed job emit ``tokens`` more, from the next step on; ``job.done`` succeeds with the last."""
        job.tokens = tokens
        if tokens <= 0.0:
            self.leave(job)
            return
        self.joining.append(job)
        self._cut()

    def extend(self, job: Job, tokens: float) -> simpy.Event:
        """Recompute the KV of ``tokens`` handed-over ids between two steps; succeeds at its end (at once where its cost is not known)."""
        return self.block(self.times.extend(max(tokens, 1.0), job.context_tokens) if self.times.extend is not None else 0.0)

    def block(self, seconds: float) -> simpy.Event:
        """Take the instance for ``seconds`` between two steps; the event succeeds when they are over."""
        entry = _Extend(seconds, self.env.event())
        self.extends.append(entry)
        self._cut()
        return entry.done

    def emitted(self, job: Job) -> float:
        """Tokens that a running job has emitted by now."""
        if not job.running:
            return 0.0
        steps = self.steps - job.joined_step + self._steps_done()
        return min(steps * self.times.tokens_per_step, job.tokens)

    def last_token_s(self, job: Job) -> float:
        """When a running job's latest token came; NaN before its first."""
        if not job.running or self.steps - job.joined_step + self._steps_done() == 0:
            return math.nan
        return self.run_start + self._steps_done() * self.run_step_s if self.busy and self.run_step_s > 0.0 else self.env.now

    def leave(self, job: Job) -> None:
        """Take a job off the instance: at the next step boundary when it steps, else now."""
        if job.left:
            return
        job.left = True
        if job.running:
            self.leaving.append(job)
            self._cut()
            return
        if job in self.joining:
            self.joining.remove(job)
        self._release(job)

    def _release(self, job: Job) -> None:
        self._count()
        self.occupied -= 1
        self.memory -= job.memory_bytes
        self.admit()

    def _count(self) -> None:
        self.occupied_seconds += self.occupied * (self.env.now - self.since)
        self.since = self.env.now

    def _steps_done(self) -> int:
        if not self.busy or self.run_step_s <= 0.0:
            return 0
        return int((self.env.now - self.run_start) / self.run_step_s + 1e-9)

    def _cut(self) -> None:
        """Somebody comes or leaves: start when idle, else end the present run at its next step boundary."""
        if not self.busy:
            self._next()
            return
        if self.run_step_s <= 0.0:
            return  # an extend runs to its end
        boundary = self.run_start + (self._steps_done() + 1) * self.run_step_s
        if boundary < self.run_end - 1e-12:
            self._arm(boundary)

    def _arm(self, at: float) -> None:
        self.version += 1
        self.run_end = at
        version = self.version
        timer = self.env.timeout(max(at - self.env.now, 0.0))
        assert timer.callbacks is not None
        timer.callbacks.append(lambda _: self._end() if version == self.version else None)

    def _end(self) -> None:
        """End of a run of steps."""
        count = round((self.run_end - self.run_start) / self.run_step_s)
        self.steps += count
        self.context += count * self.active * self.times.tokens_per_step
        self.gaps.append((self.env.now, self.run_step_s))
        self.busy = False
        while self.heap and self.heap[0][0] <= self.steps:
            _, _, job = heapq.heappop(self.heap)
            if job.running:
                self._stop(job)
                if not job.left:
                    job.left = True
                    self._release(job)
                job.done.succeed()
        for job in self.leaving:
            if job.running:
                self._stop(job)
            self._release(job)
        self.leaving.clear()
        self._next()

    def _stop(self, job: Job) -> None:
        grown = (self.steps - job.joined_step) * self.times.tokens_per_step
        job.running = False
        job.last_s = self.env.now
        self.active -= 1
        self.context -= job.context_tokens + grown
        if self.active == 0:
            self.context = 0.0

    def _next(self) -> None:
        """Start an extend, or a run of steps; idle when there is neither."""
        if self.busy:
            return
        if self.extends and not (self.owes_step and (self.active or self.joining)):
            self._run_extend(self.extends.popleft())
            return
        self.owes_step = False
        for job in self.joining:
            steps = max(math.ceil(job.tokens / self.times.tokens_per_step - 1e-9), 1)
            job.running, job.joined_step = True, self.steps
            self.serial += 1
            heapq.heappush(self.heap, (self.steps + steps, self.serial, job))
            self.active += 1
            self.context += job.context_tokens
        if not self.active:
            self.joining.clear()
            return
        mean = self.context / self.active
        step = self.times.step(self.active, mean)
        for job in self.joining:
            if math.isnan(job.first_s):
                job.first_s = self.env.now + step
        self.joining.clear()
        while self.heap and not self.heap[0][2].running:
            heapq.heappop(self.heap)
        most = max(RUN_STEPS_LEAST, int(RUN_CONTEXT_GROWTH * mean / self.times.tokens_per_step))
        count = 1 if self.extends else min(self.heap[0][0] - self.steps, most)
        self.busy, self.run_start, self.run_step_s, self.last_step_s = True, self.env.now, step, step
        self._arm(self.env.now + count * step)

    def _run_extend(self, entry: _Extend) -> None:
        self.busy, self.run_start, self.run_step_s = True, self.env.now, 0.0
        self.run_end = self.env.now + entry.seconds
        self.version += 1

        def end(_: Any) -> None:
            self.busy, self.owes_step = False, True
            self.gaps.append((self.env.now, entry.seconds + self.last_step_s))
            entry.done.succeed()
            # the handed-over request joins before the next step starts
            self.env.timeout(0.0).callbacks.append(lambda _: self._next())

        timer = self.env.timeout(entry.seconds)
        assert timer.callbacks is not None
        timer.callbacks.append(end)


class DecodePool:
    """Instances of a decode pool and the way requests are spread over them."""

    def __init__(self, env: simpy.Environment, times: DecodeTimes, instances: int, dispatch: str, rng: np.random.Generator) -> None:
        self.env, self.times, self.dispatcher = env, times, Dispatcher(dispatch, rng)
        shared: deque[Job] = deque()
        self.instances = [DecodeInstance(env, times, shared if dispatch == "central" else deque()) for _ in range(instances)]

    def enter(self, context_tokens: float, memory_bytes: float, session: int = -1, at: DecodeInstance | None = None) -> Job:
        """Queue a request for a place (on instance ``at`` when given); one that can never fit waits for ever."""
        job = Job(context_tokens, memory_bytes, self.env.event(), self.env.event())
        if self.times.places < 1 or memory_bytes > self.times.memory_bytes or not self.instances:
            return job
        instance = at or self.dispatcher.pick(self.instances, session)
        instance.queue.append(job)
        instance.admit()
        return job

    def withdraw(self, job: Job) -> None:
        """Take back a request that still waits for its place."""
        if job.instance is not None:
            job.instance.leave(job)
            return
        for instance in self.instances:
            if job in instance.queue:
                instance.queue.remove(job)
                instance.admit()
                return

    def occupied_share(self) -> float:
        """Places in use now, as a share of all."""
        return sum(i.occupied for i in self.instances) / max(len(self.instances) * self.times.places, 1)
