"""Extend-decode handoff against its closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pddplan.pdd.handoff import Extend, catch_up, catch_up_limit_tokens, one_shot, resolve, ship_kv

EXTEND = Extend(np.asarray(0.3), np.asarray(5e-5))
RTT_S, TOKEN_S = 0.02, 0.02


def test_one_shot_stalls_for_half_a_round_trip_and_the_recompute():
    found = one_shot(np.array([100.0]), EXTEND, RTT_S)
    assert found.stall_s == pytest.approx(0.01 + 0.3 + 0.005)
    assert found.rld_extra_s == 0.0
    assert found.line_bytes == pytest.approx(400.0)  # ids of 4 bytes; the published 1.5 KB counts headers


def test_catch_up_converges_to_a_last_batch_of_n_inf_not_to_nothing():
    """n_inf = (e0 + RTT) / (tau - e1): the batch that grows while MD recomputes the one before."""
    limit = float(catch_up_limit_tokens(EXTEND, TOKEN_S, RTT_S))
    assert limit == pytest.approx(0.32 / (0.02 - 5e-5))
    found = catch_up(np.array([400.0]), np.array([10_000.0]), EXTEND, TOKEN_S, RTT_S, threshold_tokens=1.0)
    assert found.stall_s == pytest.approx(0.01 + 0.3 + 5e-5 * limit, rel=0.02)


def test_catch_up_follows_the_sequence_of_its_definition():
    batch, extra = 400.0, 0.0
    while batch > 64.0:
        batch = (0.3 + 5e-5 * batch + RTT_S) / TOKEN_S
        extra += batch
    found = catch_up(np.array([400.0]), np.array([10_000.0]), EXTEND, TOKEN_S, RTT_S, threshold_tokens=64.0)
    assert found.extra_tokens == pytest.approx(extra)
    assert found.stall_s == pytest.approx(0.01 + 0.3 + 5e-5 * batch)


def test_a_recompute_slower_than_decoding_cannot_be_caught_up_with():
    slow = Extend(np.asarray(0.3), np.asarray(0.03))
    assert catch_up_limit_tokens(slow, np.float64(TOKEN_S), RTT_S) == np.inf
    found = catch_up(np.array([100.0]), np.array([1000.0]), slow, TOKEN_S, RTT_S)
    assert found.stall_s == pytest.approx(one_shot(np.array([100.0]), slow, RTT_S).stall_s)


def test_an_answer_that_ends_while_catching_up_ends_on_rld_without_a_stall():
    found = catch_up(np.array([100.0]), np.array([3.0]), EXTEND, TOKEN_S, RTT_S)
    assert found.extra_tokens == 3.0
    assert found.stall_s == 0.0


def test_auto_catches_up_only_while_rld_has_room():
    assert resolve("auto", 0.5, 0.7) == "catch-up"
    assert resolve("auto", 0.7, 0.7) == "one-shot"
    assert resolve("ship-kv", 0.0, 0.7) == "ship-kv"


def test_shipping_kv_reproduces_the_published_micro_benchmark():
    """4,649 KB in a mean of 185 ms (0.20 Gbit/s) and 24.5 ms of copies; the peak of 512.6 ms is a flow of 0.07 Gbit/s."""
    mean = ship_kv(np.array([4649e3]), np.array([4649e3 / 0.185]), 0.0, 0.0)
    assert mean.stall_s == pytest.approx(0.185 + 0.0245)
    assert np.array([4649e3]) * 8 / 0.185 / 1e9 == pytest.approx(0.20, abs=0.005)


@given(st.floats(1, 5000), st.floats(0, 5000), st.floats(0.01, 1), st.floats(0, 0.05), st.floats(0.005, 0.1), st.floats(1, 256))
def test_catch_up_never_stalls_longer_than_one_shot_by_more_than_its_limit(n, rest, e0, e1, token, threshold):
    extend = Extend(np.asarray(e0), np.asarray(e1))
    one = one_shot(np.array([n]), extend, RTT_S)
    many = catch_up(np.array([n]), np.array([rest]), extend, token, RTT_S, threshold)
    limit = float(catch_up_limit_tokens(extend, np.float64(token), RTT_S))
    assert many.stall_s <= max(float(one.stall_s[0]), RTT_S / 2 + e0 + e1 * max(threshold, min(limit, 1e9) * 1.01)) + 1e-9
    assert 0.0 <= many.extra_tokens <= rest + 1e-9
