"""The prefill instance of the replay, pass by pass."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pytest
import simpy

from pddplan.simulate.prefill_pool import PrefillPool
from pddplan.simulate.stage_tables import PrefillTimes


def times(uncached: list[float], packs: bool = True, ranks: int = 1, floor: float = 0.5) -> PrefillTimes:
    """A chunk of 1,000 tokens takes 1 s packed; a lone pass never less than ``floor``."""
    tokens = np.array(uncached)
    whole, tail = np.floor(tokens / 1000), tokens % 1000
    alone = whole + np.where(tail > 0, np.maximum(tail / 1000, floor), 0.0)
    return PrefillTimes(
        tokens,
        alone,
        tokens / 1000 / ranks,
        np.ones(tokens.size),
        [1.0, 500.0, 1000.0],
        [floor, max(floor, 0.5), 1.0],
        0.0,
        1000.0,
        ranks,
        packs,
    )


def ends(table: PrefillTimes, at: list[float], instances: int = 1, dispatch: str = "shortest_queue") -> list[float]:
    env = simpy.Environment()
    pool = PrefillPool(env, table, instances, dispatch, np.random.default_rng(1))
    found = [0.0] * len(at)

    def one(k: int) -> Generator[simpy.Event, None, None]:
        yield env.timeout(at[k])
        yield pool.enter(k).done
        found[k] = env.now

    for k in range(len(at)):
        env.process(one(k))
    env.run()
    return found


def test_a_lone_request_takes_its_own_time_chunk_by_chunk() -> None:
    assert ends(times([2500.0]), [0.0]) == pytest.approx([2.5])


def test_a_small_tail_alone_pays_the_launch_floor() -> None:
    assert ends(times([100.0]), [0.0]) == pytest.approx([0.5])


def test_tails_share_a_pass_when_the_engine_packs() -> None:
    assert ends(times([1000.0, 300.0, 300.0]), [0.0, 0.1, 0.2]) == pytest.approx([1.0, 1.6, 1.6])


def test_without_packing_each_waits_for_its_own_pass() -> None:
    assert ends(times([1000.0, 300.0, 300.0], packs=False), [0.0, 0.1, 0.2]) == pytest.approx([1.0, 1.5, 2.0])


def test_ranks_prefill_side_by_side() -> None:
    assert ends(times([1000.0, 1000.0], packs=False, ranks=2), [0.0, 0.0]) == pytest.approx([1.0, 1.0])


def test_two_instances_halve_the_queue() -> None:
    for dispatch in ("shortest_queue", "central", "round_robin"):
        assert sorted(ends(times([1000.0] * 4, packs=False), [0.0, 0.01, 0.02, 0.03], 2, dispatch)) == pytest.approx([1.0, 1.01, 2.0, 2.01])
