"""The shared line: product form, means, limits, the pool of connections."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pddplan.errors import InputError
from pddplan.queueing import processor_sharing as ps
from pddplan.queueing.erlang import erlang_c
from pddplan.queueing.grid import TimeGrid

GRID = TimeGrid()
ONE = np.ones(1)


def test_uncapped_line_slows_every_size_by_one_over_one_minus_rho() -> None:
    """E[T | x] = x / (C (1 - rho)) (Kleinrock 1976, section 4.4)."""
    line = ps.line(0.75, [0.5, 1.5], [0.5, 0.5], 1.0)
    np.testing.assert_allclose(line.mean_s([0.1, 1.0, 10.0]), np.array([0.1, 1.0, 10.0]) / 0.25, rtol=1e-9)


@given(st.integers(1, 200), st.floats(0.05, 0.97))
@settings(deadline=None)
def test_capped_line_has_the_mean_of_the_erlang_form(c: int, rho: float) -> None:
    """E[T | x] = (x / r) [1 + C(c, c rho) / (c (1 - rho))], exact for every size (Cohen 1979)."""
    line = ps.line(rho * c, ONE, ONE, float(c), 1.0)
    expected = 1.0 + float(erlang_c(c, c * rho)) / (c * (1.0 - rho))
    assert float(line.mean_s(1.0)) == pytest.approx(expected, rel=1e-6)


def test_law_of_the_transfer_has_about_the_exact_mean() -> None:
    sizes = np.exp(stats.norm.ppf((np.arange(2000) + 0.5) / 2000))
    weights = np.full(sizes.size, 1 / sizes.size)
    mean = float(weights @ sizes)
    line = ps.line(0.85 * 12 / mean, sizes, weights, 12.0, 1.0)
    law = line.time_cdf(sizes, weights, GRID)
    assert float(GRID.mean(law)) == pytest.approx(float(weights @ line.mean_s(sizes)), rel=0.05)


def test_an_empty_line_moves_each_transfer_at_its_cap_and_none_for_nothing() -> None:
    line = ps.line(0.0, [100.0], [1.0], 50.0, 10.0, 4)
    assert float(line.mean_s(100.0)) == pytest.approx(10.0)
    law = line.time_cdf([0.0, 100.0], [0.25, 0.75], GRID, offset_s=[1.0, 2.0])
    assert float(GRID.quantile(law, 0.2)) == pytest.approx(1.0, rel=0.01)
    assert float(GRID.quantile(law, 0.5)) == pytest.approx(12.0, rel=0.01)


def test_saturated_line_and_starved_pool_never_end() -> None:
    saturated = ps.line(5.0, [10.0], [1.0], 50.0, 5.0)
    starved = ps.line(2.0, [10.0], [1.0], 50.0, 5.0, connections=4)
    for line in (saturated, starved):
        assert not line.stable
        assert line.utilisation >= 1.0
        assert line.time_cdf([10.0], [1.0], GRID).max() == 0.0
        assert float(line.mean_s(10.0)) == np.inf
    assert starved.utilisation == pytest.approx(1.0)
    assert ps.stable_rate(10.0, 50.0, 5.0, 4) == pytest.approx(2.0)
    assert ps.stable_rate(10.0, 50.0, 5.0) == pytest.approx(5.0)


def test_pool_at_the_cap_is_an_erlang_queue() -> None:
    """With K = C / r connections and exponential sizes the line is M/M/K: P(wait) = C(K, a), wait exponential."""
    u = (np.arange(20_000) + 0.5) / 20_000
    sizes = -np.log1p(-u)
    weights = np.full(u.size, 1 / u.size)
    line = ps.line(8.0, sizes, weights, 10.0, 1.0, 10)
    assert line.p_pool_wait == pytest.approx(float(erlang_c(10, 8.0)), rel=2e-3)
    assert line.pool_wait_given_s == pytest.approx(1 / (10 - 8), rel=2e-3)


def test_a_pool_too_large_to_bind_changes_nothing() -> None:
    sizes, weights = np.array([1.0, 3.0]), np.array([0.7, 0.3])
    free = ps.line(3.0, sizes, weights, 8.0, 1.0).time_cdf(sizes, weights, GRID)
    pooled = ps.line(3.0, sizes, weights, 8.0, 1.0, 100_000).time_cdf(sizes, weights, GRID)
    np.testing.assert_allclose(pooled, free, atol=1e-3)


@given(st.floats(0.1, 0.9), st.floats(1.0, 30.0), st.integers(2, 60))
@settings(max_examples=30, deadline=None)
def test_more_capacity_never_slows_a_transfer(rho: float, c: float, connections: int) -> None:
    rate = rho * min(c, connections)
    slow, fast = (ps.line(rate, ONE, ONE, c * more, 1.0, connections) for more in (1.0, 1.2))
    assert float(fast.mean_s(1.0)) + fast.pool_wait_mean_s <= (float(slow.mean_s(1.0)) + slow.pool_wait_mean_s) * (1 + 1e-9)


def test_heavy_sizes_before_a_busy_pool_are_labelled_recursion() -> None:
    sizes = np.exp(1.5 * stats.norm.ppf((np.arange(2000) + 0.5) / 2000))
    weights = np.full(sizes.size, 1 / sizes.size)
    line = ps.line(6.0 / float(weights @ sizes), sizes, weights, 10.0, 1.0, 8)
    assert line.method == "recursion"
    law = line.pool_wait_cdf(GRID)
    assert 1.0 - law[0] == pytest.approx(line.p_pool_wait)
    assert float(GRID.mean(law)) == pytest.approx(line.pool_wait_mean_s, rel=0.02)


def test_a_pool_of_no_connection_is_refused() -> None:
    with pytest.raises(InputError, match="connections"):
        ps.line(1.0, ONE, ONE, 10.0, 1.0, 0)


@pytest.mark.parametrize("left", [1e-3, 1e-5, 8e-10, 1e-14])
@pytest.mark.parametrize("c", [1.0, 9.0])
def test_a_line_next_to_saturation_keeps_the_mean_of_the_erlang_form(c: float, left: float) -> None:
    """M/M/c of load 1 - left: E[N] = a + C(c, a) rho / (1 - rho), with C going to 1."""
    rho = 1.0 - left
    line = ps.line(rho * c, ONE, ONE, c, 1.0)
    queue = float(erlang_c(int(c), c * rho)) * line.utilisation / (1.0 - line.utilisation)
    assert line.active_mean == pytest.approx(c * rho + queue, rel=1e-6)
    assert float(line.mean_s(1.0)) == pytest.approx(line.active_mean / (c * rho), rel=1e-9)
    assert float(line.probability.sum()) == pytest.approx(1.0, abs=1e-9)


def test_grouping_the_states_beyond_a_full_line_changes_no_law(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, weights = np.array([1.0, 3.0]), np.array([0.7, 0.3])
    rate = 0.9995 * 8.0 / float(weights @ sizes)
    grouped = ps.line(rate, sizes, weights, 8.0, 1.0)
    monkeypatch.setattr(ps, "_TAIL_GROUPS", 1_000_000)
    single = ps.line(rate, sizes, weights, 8.0, 1.0)
    assert grouped.active_mean == pytest.approx(single.active_mean, rel=1e-9)
    for q in (0.5, 0.9, 0.99):
        times = [GRID.quantile(law.time_cdf(sizes, weights, GRID), q) for law in (grouped, single)]
        assert times[0] == pytest.approx(times[1], rel=0.02)
