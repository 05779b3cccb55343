"""The decode instance of the replay, step by step."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pytest
import simpy

from pddplan.simulate.decode_pool import DecodePool, Job
from pddplan.simulate.stage_tables import DecodeTimes, Surface

FLAT = np.array([1.0, 1e6])


def pool(
    env: simpy.Environment,
    base: float = 1.0,
    each: float = 0.0,
    places: int = 8,
    memory: float = 1e9,
    tokens: float = 1.0,
    count: int = 1,
    dispatch: str = "shortest_queue",
) -> DecodePool:
    """Instances whose step takes base + each x batch, and whose extend takes 5 s."""
    batches = np.arange(1.0, places + 1)
    times = DecodeTimes(
        Surface.of(lambda b, c: base + each * b, batches, FLAT),
        Surface.of(lambda n, c: np.full(n.shape, 5.0), FLAT, FLAT),
        tokens,
        memory,
        places,
    )
    return DecodePool(env, times, count, dispatch, np.random.default_rng(1))


def serve(env: simpy.Environment, decode: DecodePool, at: float, tokens: float, memory: float = 1.0) -> Job:
    job = Job(100.0, memory, env.event(), env.event())

    def run() -> Generator[simpy.Event, None, None]:
        yield env.timeout(at)
        entered = decode.enter(100.0, memory)
        yield entered.placed
        job.placed_s = env.now
        assert entered.instance is not None
        entered.instance.decode(entered, tokens)
        yield entered.done
        job.first_s, job.last_s = entered.first_s, entered.last_s

    env.process(run())
    return job


def test_a_lone_request_takes_its_tokens_times_the_step() -> None:
    env = simpy.Environment()
    job = serve(env, pool(env), 0.0, 10)
    env.run()
    assert (job.first_s, job.last_s) == (1.0, 10.0)


def test_a_newcomer_joins_at_the_next_step_and_slows_the_others() -> None:
    env = simpy.Environment()
    decode = pool(env, base=1.0, each=0.5)
    first, second = serve(env, decode, 0.0, 4), serve(env, decode, 1.6, 1)
    env.run()
    assert second.first_s == pytest.approx(3.0 + 2.0)
    assert first.last_s == pytest.approx(3.0 + 2.0 + 1.5)


def test_two_tokens_a_step_halve_the_steps() -> None:
    env = simpy.Environment()
    job = serve(env, pool(env, tokens=2.0), 0.0, 10)
    env.run()
    assert job.last_s == pytest.approx(5.0)


def test_memory_makes_requests_wait_in_order() -> None:
    env = simpy.Environment()
    decode = pool(env, memory=10.0)
    jobs = [serve(env, decode, 0.0, 5, 6.0), serve(env, decode, 0.1, 5, 6.0), serve(env, decode, 0.2, 1, 1.0)]
    env.run()
    assert jobs[1].placed_s == pytest.approx(5.0)
    assert jobs[2].placed_s == pytest.approx(5.0)


def test_a_request_larger_than_memory_waits_for_ever_and_blocks_nobody() -> None:
    env = simpy.Environment()
    decode = pool(env, memory=10.0)
    large, small = serve(env, decode, 0.0, 5, 11.0), serve(env, decode, 0.1, 5, 1.0)
    env.run()
    assert np.isnan(large.last_s)
    assert small.last_s == pytest.approx(5.1)


def test_an_extend_holds_up_the_steps_of_all() -> None:
    env = simpy.Environment()
    decode = pool(env)
    job = serve(env, decode, 0.0, 4)
    taken: list[float] = []

    def hand_over() -> Generator[simpy.Event, None, None]:
        yield env.timeout(0.5)
        other = decode.enter(100.0, 1.0)
        yield other.placed
        assert other.instance is not None
        yield other.instance.extend(other, 50.0)
        taken.append(env.now)
        other.instance.decode(other, 1.0)
        yield other.done

    env.process(hand_over())
    env.run()
    assert taken == [pytest.approx(6.0)]
    assert job.last_s == pytest.approx(1.0 + 5.0 + 3.0)


def test_tokens_emitted_so_far_and_leaving_at_a_step() -> None:
    env = simpy.Environment()
    decode = pool(env)
    seen: list[float] = []

    def run() -> Generator[simpy.Event, None, None]:
        job = decode.enter(100.0, 1.0)
        yield job.placed
        assert job.instance is not None
        job.instance.decode(job, 100.0)
        yield env.timeout(7.5)
        seen.extend([job.instance.emitted(job), job.instance.last_token_s(job)])
        job.instance.leave(job)
        yield env.timeout(1.0)
        seen.append(float(job.instance.occupied))

    env.process(run())
    env.run()
    assert seen == [7.0, 7.0, 0.0]


def test_balanced_dispatch_fills_instances_evenly_and_central_serves_whoever_is_free() -> None:
    for dispatch in ("shortest_queue", "central"):
        env = simpy.Environment()
        decode = pool(env, places=1, count=2, dispatch=dispatch)
        jobs = [serve(env, decode, 0.1 * k, 5) for k in range(4)]
        env.run()
        assert sorted(job.placed_s for job in jobs) == pytest.approx([0.0, 0.1, 5.0, 5.1])
