"""Continuous batching: occupancy, time per token, the queue for a place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pddplan.errors import InputError
from pddplan.queueing import decode
from pddplan.queueing.erlang import erlang_c
from pddplan.queueing.grid import TimeGrid


def linear_steps(alpha: float, beta: float, most: int) -> np.ndarray:
    return alpha + beta * np.arange(1, most + 1)


@given(st.floats(0.1, 0.9), st.floats(1.0, 100.0))
@settings(max_examples=30, deadline=None)
def test_linear_steps_give_the_negative_binomial_law(y: float, kappa: float) -> None:
    """Mean (kappa + 1) y / (1 - y), variance over mean 1 / (1 - y)."""
    tokens, most = 100.0, 6000
    law = decode.open_loop(y * kappa / tokens, tokens, linear_steps(1.0, 1.0 / kappa, most))
    np.testing.assert_allclose(law.running, decode.negative_binomial(y, kappa, most + 1), atol=1e-9)
    assert law.batch_mean == pytest.approx((kappa + 1) * y / (1 - y), rel=1e-6)
    n = np.arange(most + 1)
    assert float(law.running @ n**2) - law.batch_mean**2 == pytest.approx(law.batch_mean / (1 - y), rel=1e-5)


def test_mean_time_per_token_obeys_littles_law_and_the_arrival_theorem() -> None:
    law = decode.open_loop(0.4, 200.0, linear_steps(0.01, 0.0001, 400))
    assert law.token_mean_s * 0.4 * 200.0 == pytest.approx(law.batch_mean, rel=1e-9)
    assert float(law.probability @ law.token_s) == pytest.approx(law.token_mean_s, rel=1e-6)


def test_constant_steps_with_one_place_are_m_m_1_and_with_many_erlang_c() -> None:
    one = decode.open_loop(0.8, 10.0, np.array([0.1]))
    assert (one.p_wait, one.wait_mean_s) == (pytest.approx(0.8), pytest.approx(4.0))
    many = decode.open_loop(16.0, 10.0, np.full(20, 0.1))
    assert many.p_wait == pytest.approx(float(erlang_c(20, 16.0)), rel=1e-9)


def test_speculation_of_two_tokens_a_step_halves_the_work() -> None:
    plain = decode.open_loop(0.5, 100.0, linear_steps(0.02, 0.0002, 64))
    double = decode.open_loop(1.0, 100.0, linear_steps(0.02, 0.0002, 64), tokens_per_step=2.0)
    np.testing.assert_allclose(double.running, plain.running, rtol=1e-9)
    assert double.token_mean_s == pytest.approx(plain.token_mean_s / 2)


def test_overload_fills_the_batch_and_waits_for_ever() -> None:
    law = decode.open_loop(5.0, 100.0, linear_steps(0.02, 0.001, 16))
    assert law.utilisation >= 1.0
    assert law.wait_given_s == np.inf
    assert law.batch_mean == 16
    assert law.throughput_per_s == pytest.approx(decode.stable_rate(100.0, linear_steps(0.02, 0.001, 16)))
    assert law.wait_cdf(TimeGrid()).max() == 0.0


def test_no_requests_run_no_batch() -> None:
    law = decode.open_loop(0.0, 100.0, linear_steps(0.02, 0.001, 16))
    assert (law.batch_mean, law.wait_mean_s, law.p_wait) == (0.0, 0.0, 0.0)
    assert law.token_mean_s == pytest.approx(0.021)


def test_balanced_instances_have_narrower_batches_than_random_ones() -> None:
    steps = linear_steps(0.01, 0.0005, 80)
    shared = decode.open_loop(8.0, 200.0, steps, instances=4, spread="balanced")
    alone = decode.open_loop(8.0, 200.0, steps, instances=4, spread="random")
    assert float(shared.token_quantile_s(0.99)) < float(alone.token_quantile_s(0.99))
    assert shared.p_wait < alone.p_wait
    assert shared.running.sum() == pytest.approx(1.0)
    one = decode.open_loop(2.0, 200.0, steps, instances=1)
    assert alone.batch_mean == pytest.approx(one.batch_mean)


@given(st.floats(0.05, 0.9), st.integers(4, 64), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_a_larger_memory_limit_never_waits_longer(load: float, most: int, more: int) -> None:
    rate = load * decode.stable_rate(100.0, linear_steps(0.02, 0.0005, most))
    small, large = (decode.open_loop(rate, 100.0, linear_steps(0.02, 0.0005, m)) for m in (most, most + more))
    assert large.wait_mean_s <= small.wait_mean_s * (1 + 1e-9)


def test_closed_loop_without_time_away_keeps_the_batch_full() -> None:
    law = decode.closed_loop(24, 0.0, 100.0, linear_steps(0.02, 0.0005, 64))
    assert law.batch_mean == pytest.approx(24)
    assert law.token_mean_s == pytest.approx(0.02 + 0.0005 * 24)
    assert law.throughput_per_s == pytest.approx(24 / (100 * law.token_mean_s))


def test_closed_loop_conserves_requests() -> None:
    """N = X (away + wait + service), Little's law over the whole circuit."""
    law = decode.closed_loop(60, 3.0, 100.0, linear_steps(0.02, 0.0005, 32))
    cycle = 3.0 + law.wait_mean_s + 100 * law.token_mean_s
    assert law.throughput_per_s * cycle == pytest.approx(60, rel=1e-9)


def test_closed_loop_of_constant_rate_is_the_machine_repair_table() -> None:
    """N = 2 machines, failure and repair rate 1: pi = (0.2, 0.4, 0.4) (Gross and Harris 1998, section 2.7)."""
    law = decode.closed_loop(2, 1.0, 1.0, np.array([1.0]))
    np.testing.assert_allclose(law.running, [0.2, 0.8])
    assert law.throughput_per_s == pytest.approx(0.8)


def test_an_empty_step_table_is_refused() -> None:
    with pytest.raises(InputError, match="batch sizes"):
        decode.open_loop(1.0, 10.0, np.array([]))


def test_bursts_widen_the_batch_as_in_an_infinite_server_queue() -> None:
    """Constant steps: variance over mean is z = (c_a^2 + 1) / 2 for exponential tokens (GI/M/inf; Whitt 1982)."""
    law = decode.open_loop(100.0, 100.0, np.full(4000, 0.1), arrival_scv=5.0, output_scv=1.0)
    n = np.arange(law.running.size)
    variance = float(law.running @ n**2) - law.batch_mean**2
    assert law.batch_mean == pytest.approx(1000.0, rel=1e-3)
    assert variance / law.batch_mean == pytest.approx(3.0, rel=0.02)


@given(st.floats(0.3, 0.9), st.floats(1.1, 30.0))
@settings(max_examples=25, deadline=None)
def test_more_bursts_slow_the_slow_percentiles_and_lengthen_the_wait(load: float, scv: float) -> None:
    steps = linear_steps(0.02, 0.0005, 64)
    rate = load * decode.stable_rate(100.0, steps)
    calm, burst = (decode.open_loop(rate, 100.0, steps, arrival_scv=c) for c in (1.0, scv))
    assert float(burst.token_quantile_s(0.99)) >= float(calm.token_quantile_s(0.99)) * (1 - 1e-9)
    assert burst.wait_mean_s >= calm.wait_mean_s
    assert burst.batch_mean / (rate * 100) == pytest.approx(burst.token_mean_s)
