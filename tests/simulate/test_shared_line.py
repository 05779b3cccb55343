"""The line of the replay, transfer by transfer."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pytest
import simpy

from pddplan.simulate.line import SharedLine, Transfer


def line(
    env: simpy.Environment, capacity: float = 10.0, cap: float = np.inf, connections: float = np.inf, sigma: float = 0.0
) -> SharedLine:
    return SharedLine(env, capacity, cap, connections, sigma, np.random.default_rng(1))


def ends(env: simpy.Environment, shared: SharedLine, sends: list[tuple[float, float]]) -> list[float]:
    """When each (time, size) transfer ends."""
    found = [float("inf")] * len(sends)

    def one(k: int, at: float, size: float) -> Generator[simpy.Event, None, None]:
        yield env.timeout(at)
        yield shared.send(size).done
        found[k] = env.now

    for k, (at, size) in enumerate(sends):
        env.process(one(k, at, size))
    env.run()
    return found


def test_two_equal_transfers_share_the_line() -> None:
    env = simpy.Environment()
    assert ends(env, line(env), [(0.0, 100.0), (0.0, 100.0)]) == pytest.approx([20.0, 20.0])


def test_a_later_transfer_slows_the_first_and_speeds_up_when_it_ends() -> None:
    env = simpy.Environment()
    assert ends(env, line(env), [(0.0, 100.0), (5.0, 100.0)]) == pytest.approx([15.0, 20.0])


def test_the_cap_holds_on_an_empty_line() -> None:
    env = simpy.Environment()
    assert ends(env, line(env, cap=2.0), [(0.0, 100.0)]) == pytest.approx([50.0])


def test_a_full_pool_makes_transfers_wait_in_order() -> None:
    env = simpy.Environment()
    assert ends(env, line(env, cap=5.0, connections=1), [(0.0, 50.0), (1.0, 5.0), (2.0, 50.0)]) == pytest.approx([10.0, 11.0, 21.0])


def test_what_a_capped_transfer_leaves_goes_to_the_others() -> None:
    env = simpy.Environment()
    shared = line(env, sigma=1e-12)
    caps = iter([2.0, 10.0])
    shared._own_cap = lambda: next(caps)  # type: ignore[method-assign]
    assert ends(env, shared, [(0.0, 20.0), (0.0, 80.0)]) == pytest.approx([10.0, 10.0])


def test_a_cancelled_transfer_frees_its_share_and_counts_what_it_sent() -> None:
    env = simpy.Environment()
    shared = line(env)
    first: Transfer = shared.send(100.0)
    second = shared.send(100.0)
    env.process(cancel_at(env, shared, first, 4.0))
    env.run()
    assert second.ended_s == pytest.approx(12.0)
    assert shared.sent_bytes == pytest.approx(120.0)
    assert not first.done.triggered


def cancel_at(env: simpy.Environment, shared: SharedLine, transfer: Transfer, at: float) -> Generator[simpy.Event, None, None]:
    yield env.timeout(at)
    shared.cancel(transfer)


def test_prediction_is_the_share_that_one_more_transfer_would_get() -> None:
    env = simpy.Environment()
    shared = line(env)
    assert shared.predicted_s(100.0) == pytest.approx(10.0)
    shared.send(100.0)
    assert shared.predicted_s(100.0) == pytest.approx(20.0)


def test_a_line_without_circuits_never_delivers() -> None:
    env = simpy.Environment()
    transfer = line(env, capacity=0.0).send(1.0)
    env.run()
    assert not transfer.done.triggered
