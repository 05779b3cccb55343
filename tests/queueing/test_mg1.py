"""One server: Pollaczek-Khinchine, Takacs, and the whole law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pddplan.queueing import mg1
from pddplan.queueing.grid import TimeGrid

GRID = TimeGrid()
ONE = np.ones(1)


def exponential_atoms(mean: float, count: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    u = (np.arange(count) + 0.5) / count
    return -mean * np.log1p(-u), np.full(count, 1.0 / count)


def test_constant_service_waits_half_as_long_as_exponential() -> None:
    """Kleinrock 1975, section 5.6."""
    assert float(mg1.mean_wait_s(0.7, 1.0, 0.0)) == pytest.approx(float(mg1.mean_wait_s(0.7, 1.0, 1.0)) / 2)


def test_exponential_service_has_the_wait_of_m_m_1() -> None:
    """E[W] = rho / (mu - lambda), E[W^2] = 2 rho / (mu - lambda)^2 (Kleinrock 1975, section 5.7)."""
    assert float(mg1.mean_wait_s(0.8, 1.0, 1.0)) == pytest.approx(4.0)
    assert float(mg1.second_moment_wait_s2(0.8, 1.0, 2.0, 6.0)) == pytest.approx(40.0)


def test_law_of_m_m_1_is_its_closed_form() -> None:
    """P(W > t) = rho exp(-(mu - lambda) t)."""
    cdf = mg1.waiting_cdf(0.9, *exponential_atoms(1.0), GRID)
    expected = np.log(0.9 / np.array([0.5, 0.1, 0.01])) / 0.1
    np.testing.assert_allclose(GRID.quantile(cdf, [0.5, 0.9, 0.99]), expected, rtol=2e-3)


def test_law_of_m_d_1_is_its_closed_form() -> None:
    """P(W <= t) = (1 - rho) sum_k (rho (k - t))^k / k! exp(rho (t - k)), k <= t (Erlang 1909; Cooper 1981, eq.

    5.8.33).
    """
    rho = 0.6
    cdf = mg1.waiting_cdf(rho, ONE, ONE, GRID)
    for t in (0.5, 1.0, 2.5, 4.0):
        k = np.arange(int(t) + 1)
        factorial = np.cumprod(np.maximum(k, 1))
        exact = (1 - rho) * float(np.sum((rho * (k - t)) ** k / factorial * np.exp(rho * (t - k))))
        assert float(GRID.at(cdf, t)) == pytest.approx(exact, abs=1e-3)


@given(st.floats(0.05, 0.97), st.lists(st.tuples(st.floats(0.01, 50.0), st.floats(0.05, 1.0)), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_law_has_the_mean_of_the_formula_for_any_service(rho: float, rows: list[tuple[float, float]]) -> None:
    samples = np.array([r[0] for r in rows])
    weights = np.array([r[1] for r in rows]) / sum(r[1] for r in rows)
    mean = float(weights @ samples)
    scv = max(float(weights @ samples**2) / mean**2 - 1, 0.0)
    cdf = mg1.waiting_cdf(rho / mean, samples, weights, GRID)
    assert float(GRID.mean(cdf)) == pytest.approx(float(mg1.mean_wait_s(rho / mean, mean, scv)), rel=5e-3)
    assert np.all(np.diff(cdf) >= 0)


def test_second_moment_is_that_of_the_law() -> None:
    samples, weights = np.array([0.2, 5.0]), np.array([0.9, 0.1])
    moments = [float(weights @ samples**k) for k in (1, 2, 3)]
    cdf = mg1.waiting_cdf(0.6, samples, weights, GRID)
    middle = 0.5 * (GRID.seconds[1:] + GRID.seconds[:-1])
    assert float(np.diff(cdf) @ middle**2) == pytest.approx(float(mg1.second_moment_wait_s2(0.6, *moments)), rel=5e-3)


def test_heavy_tail_form_joins_the_exact_law_far_out() -> None:
    """Pareto 1.5 truncated at 1e5 mean services, rho 0.5: at P(W > t) about 1e-3 the asymptote is within 25 %.

    Its known slowness.
    """
    u = (np.arange(200_000) + 0.5) / 200_000
    samples, weights = u ** (-1 / 1.5), np.full(u.size, 1.0 / u.size)
    rate = 0.5 / float(weights @ samples)
    cdf = mg1.waiting_cdf(rate, samples, weights, GRID)
    for t in (1000.0, 4000.0):
        assert 1.0 - float(GRID.at(cdf, t)) == pytest.approx(float(mg1.heavy_tail(rate, samples, weights, t)), rel=0.25)


def test_batches_of_one_wait_as_single_customers_and_larger_batches_longer() -> None:
    single = mg1.batch_mean_wait_s(0.5, 1.0, 1.0, 1.0, 1.0)
    assert single == pytest.approx(float(mg1.mean_wait_s(0.5, 1.0, 0.0)))
    assert mg1.batch_mean_wait_s(0.5, 1.0, 1.0, 3.0, 9.0) == pytest.approx(single + 1.0 * 2.0 / (2 * 0.5))


def test_overload_is_an_infinite_wait_and_no_load_none() -> None:
    assert float(mg1.mean_wait_s(1.0, 1.0, 1.0)) == np.inf
    assert mg1.waiting_cdf(1.2, ONE, ONE, GRID).max() == 0.0
    assert mg1.waiting_cdf(0.0, ONE, ONE, GRID).min() == 1.0
