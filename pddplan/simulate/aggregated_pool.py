"""Aggregated serving in the replay: each step of an instance carries its running decodes and, when requests wait, a prefill pass."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import simpy

from pddplan.simulate.decode_pool import RUN_CONTEXT_GROWTH, RUN_STEPS_LEAST
from pddplan.simulate.dispatch import Dispatcher
from pddplan.simulate.prefill_pool import Prefill, finish_pass, next_pass
from pddplan.simulate.stage_tables import DecodeTimes, PrefillTimes


@dataclass(eq=False)
class Served:
    """A request on an AGG instance. first_s: its first token, at the end of its prefill; done succeeds with the last."""

    request: int
    context_tokens: float
    output_tokens: float
    memory_bytes: float
    prefill: Prefill
    done: simpy.Event
    joined_step: int = 0
    first_s: float = math.nan
    instance: AggregatedInstance | None = None


class AggregatedInstance:
    """One instance: a SimPy process that steps while there is work."""

    def __init__(self, env: simpy.Environment, prefill: PrefillTimes, decode: DecodeTimes, queue: deque[Served]) -> None:
        self.env, self.prefill_times, self.times, self.queue = env, prefill, decode, queue
        self.prefilling: deque[Prefill] = deque()
        self.of: dict[int, Served] = {}
        self.running: list[tuple[int, Served]] = []  # (step of its last token, request), earliest first
        self.occupied, self.memory, self.context, self.steps = 0, 0.0, 0.0, 0
        self.idle, self.wake = True, env.event()
        self.busy_s = 0.0
        self.gaps: list[tuple[float, float]] = []
        env.process(self._run())

    @property
    def load(self) -> int:
        return self.occupied + len(self.queue) + (not self.idle)

    def poke(self) -> None:
        if not self.wake.triggered:
            self.idle = False
            self.wake.succeed()

    def _admit(self) -> None:
        while self.queue:
            served = self.queue[0]
            if self.occupied >= self.times.places or self.memory + served.memory_bytes > self.times.memory_bytes * (1 + 1e-12):
                return
            self.queue.popleft()
            self.occupied += 1
            self.memory += served.memory_bytes
            self.of[served.request] = served
            served.instance = self
            self.prefilling.append(served.prefill)

    def _run(self) -> Generator[simpy.Event, None, None]:
        while True:
            self._admit()
            self.wake = self.env.event()
            if self.prefilling:
                yield from self._mixed_step()
            elif self.running:
                yield from self._decode_run()
            else:
                self.idle = True
                yield self.wake

    def _step_s(self) -> float:
        n = len(self.running)
        return self.times.step(n, self.context / n) if n else 0.0

    def _mixed_step(self) -> Generator[simpy.Event, None, None]:
        run = next_pass(self.prefilling, self.prefill_times)
        seconds = run.seconds + self._step_s()
        yield self.env.timeout(seconds)
        self._account(seconds, 1)
        for prefill in finish_pass(self.prefilling, run):
            served = self.of.pop(prefill.request)
            served.first_s = self.env.now
            prefill.done.succeed()
            steps = math.ceil((served.output_tokens - 1.0) / self.times.tokens_per_step - 1e-9)
            if steps <= 0:
                self._release(served)
                continue
            served.joined_step = self.steps
            self._insert(self.steps + steps, served)
            self.context += served.context_tokens

    def _decode_run(self) -> Generator[simpy.Event, None, None]:
        """Equal steps until somebody ends or comes."""
        step = self._step_s()
        mean = self.context / len(self.running)
        most = max(RUN_STEPS_LEAST, int(RUN_CONTEXT_GROWTH * mean / self.times.tokens_per_step))
        count = min(self.running[0][0] - self.steps, most)
        start = self.env.now
        if count > 1:
            yield self.env.timeout(count * step) | self.wake
            count = min(math.floor((self.env.now - start) / step + 1e-9) + 1, count)
        end = start + count * step
        if end > self.env.now:
            yield self.env.timeout(end - self.env.now)
        self._account(count * step, count)

    def _account(self, seconds: float, steps: int) -> None:
        """Let ``steps`` steps have passed: tokens, contexts, and the requests that end with them."""
        self.busy_s += seconds
        self.gaps.append((self.env.now, seconds / steps))
        self.steps += steps
        self.context += steps * len(self.running) * self.times.tokens_per_step
        while self.running and self.running[0][0] <= self.steps:
            _, served = self.running.pop(0)
            self.context -= served.context_tokens + (self.steps - served.joined_step) * self.times.tokens_per_step
            self._release(served)

    def _insert(self, last_step: int, served: Served) -> None:
        at = len(self.running)
        while at and self.running[at - 1][0] > last_step:
            at -= 1
        self.running.insert(at, (last_step, served))

    def _release(self, served: Served) -> None:
        self.occupied -= 1
        self.memory -= served.memory_bytes
        served.done.succeed()


class AggregatedPool:
    """Instances of an AGG pool and the way requests are spread over them."""

    def __init__(
        self, env: simpy.Environment, prefill: PrefillTimes, decode: DecodeTimes, instances: int, dispatch: str, rng: np.random.Generator
    ) -> None:
        self.env, self.prefill_times, self.times, self.dispatcher = env, prefill, decode, Dispatcher(dispatch, rng)
        shared: deque[Served] = deque()
        self.instances = [AggregatedInstance(env, prefill, decode, shared if dispatch == "central" else deque()) for _ in range(instances)]

    def enter(self, request: int, context_tokens: float, output_tokens: float, memory_bytes: float, session: int = -1) -> Served:
        """Queue a request; one that can never fit waits for ever."""
        prefill = Prefill(request, float(self.prefill_times.uncached[request]), self.env.event(), self.env.event())
        served = Served(request, context_tokens, output_tokens, memory_bytes, prefill, self.env.event())
        if self.times.places < 1 or memory_bytes > self.times.memory_bytes:
            return served
        instance = self.dispatcher.pick(self.instances, session)
        instance.queue.append(served)
        instance.poke()
        return served
