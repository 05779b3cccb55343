"""Which instance of a pool takes a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import pytest
import simpy

from pddplan.simulate.aggregated_pool import AggregatedPool
from pddplan.simulate.dispatch import Dispatcher, spread
from pddplan.simulate.prefill_pool import PrefillPool
from pddplan.simulate.stage_tables import DecodeTimes, PrefillTimes, Surface


@dataclass(frozen=True)
class Busy:
    load: int


def dispatcher(name: str) -> Dispatcher:
    return Dispatcher(name, np.random.default_rng(3))


def test_a_session_keeps_its_instance_and_sessions_are_even_over_the_instances() -> None:
    instances = [Busy(0), Busy(9), Busy(4), Busy(0), Busy(2)]
    chosen = dispatcher("cache_affinity")
    counts = Counter(id(chosen.pick(instances, session)) for session in range(1000))
    assert all(chosen.pick(instances, 7) is chosen.pick(instances, 7) for _ in range(5))
    assert min(counts.values()) > 190
    lone = Counter(id(chosen.pick(instances)) for _ in range(5000))
    assert max(lone.values()) < 1200


@pytest.mark.parametrize("buckets", [1, 2, 3, 100])
def test_a_bucket_is_one_of_the_buckets(buckets: int) -> None:
    assert {spread(key, buckets) for key in range(10_000)} == set(range(buckets))


def test_round_robin_takes_each_in_turn_whatever_its_load() -> None:
    instances = [Busy(5), Busy(0), Busy(1)]
    chosen = dispatcher("round_robin")
    picked = [instances.index(chosen.pick(instances)) for _ in range(6)]
    assert picked[:3] == picked[3:]
    assert sorted(picked[:3]) == [0, 1, 2]


def test_shortest_queue_is_one_of_the_least_loaded_each_as_often() -> None:
    instances = [Busy(1), Busy(3), Busy(1), Busy(2)]
    chosen = dispatcher("shortest_queue")
    counts = Counter(id(chosen.pick(instances)) for _ in range(2000))
    assert counts.keys() == {id(instances[0]), id(instances[2])}
    assert min(counts.values()) > 900


def prefill_times(count: int) -> PrefillTimes:
    """Every prefill is one chunk of 1 s, one at a time."""
    ones = np.ones(count)
    return PrefillTimes(1000.0 * ones, ones, ones, ones, [1.0, 1000.0], [1.0, 1.0], 0.0, 1000.0, 1, False)


@pytest.mark.parametrize("dispatch", ["central", "shortest_queue", "round_robin"])
def test_requests_that_come_at_once_each_wake_an_idle_prefill_instance(dispatch: str) -> None:
    env = simpy.Environment()
    pool = PrefillPool(env, prefill_times(3), 3, dispatch, np.random.default_rng(1))
    ended: list[float] = []

    def one(k: int) -> Generator[simpy.Event, None, None]:
        yield env.timeout(1.0)
        yield pool.enter(k).done
        ended.append(env.now)

    for k in range(3):
        env.process(one(k))
    env.run()
    assert ended == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("dispatch", ["central", "shortest_queue", "round_robin"])
def test_requests_that_come_at_once_each_wake_an_idle_aggregated_instance(dispatch: str) -> None:
    """A prefill of 1 s and 4 more tokens of 0.5 s each end at 3 s after arrival on an instance of one's own."""
    env = simpy.Environment()
    flat = np.array([1.0, 1e6])
    decode = DecodeTimes(Surface.of(lambda b, c: 0.5 + 0.0 * b, np.array([1.0, 2.0]), flat), None, 1.0, 1e9, 1)
    pool = AggregatedPool(env, prefill_times(3), decode, 3, dispatch, np.random.default_rng(1))
    ended: list[float] = []

    def one(k: int) -> Generator[simpy.Event, None, None]:
        yield env.timeout(1.0)
        yield pool.enter(k, 100.0, 5.0, 1.0).done
        ended.append(env.now)

    for k in range(3):
        env.process(one(k))
    env.run()
    assert ended == pytest.approx([4.0, 4.0, 4.0])


def test_an_aggregated_request_that_no_memory_holds_waits_for_ever_and_blocks_nobody() -> None:
    env = simpy.Environment()
    flat = np.array([1.0, 1e6])
    decode = DecodeTimes(Surface.of(lambda b, c: 0.5 + 0.0 * b, np.array([1.0, 2.0]), flat), None, 1.0, 10.0, 2)
    pool = AggregatedPool(env, prefill_times(2), decode, 1, "central", np.random.default_rng(1))
    large, small = pool.enter(0, 100.0, 5.0, 11.0), pool.enter(1, 100.0, 5.0, 1.0)
    env.run(until=100.0)
    assert small.done.triggered
    assert not large.done.triggered
