"""Laws of times on the grid: sums, mixtures, percentiles from milliseconds to hours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pddplan.queueing.grid import TimeGrid

GRID = TimeGrid()
QUANTILES = np.array([0.01, 0.1, 0.5, 0.9, 0.99, 0.999])


@given(st.floats(2e-3, 500.0), st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_sum_of_exponentials_is_the_gamma_law_within_one_per_mille(mean: float, terms: int) -> None:
    law = GRID.convolve(*[GRID.exponential(1.0, mean)] * terms)
    np.testing.assert_allclose(GRID.quantile(law, QUANTILES), stats.gamma.ppf(QUANTILES, terms, scale=mean), rtol=1e-3)


@given(st.lists(st.floats(1e-3, 1000.0), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_sum_of_constants_is_their_sum_within_the_grid(parts: list[float]) -> None:
    """A cell is up to 0.4 % of its time wide, and each of up to three convolutions spreads a point over its two ends: 1.2 %."""
    law = GRID.convolve(*[GRID.law([part]) for part in parts])
    np.testing.assert_allclose(GRID.quantile(law, [0.01, 0.5, 0.99]), sum(parts), rtol=0.012)


@pytest.mark.parametrize("grid", [GRID, TimeGrid(0.3, 4, 6), TimeGrid(1e-3, 1, 512)])
def test_atoms_fall_where_a_search_among_the_middles_of_cells_finds_them(grid: TimeGrid) -> None:
    edges = [*grid.seconds[1:], *grid.middles]
    times = np.array(sorted({*edges, *np.nextafter(edges, 0.0), *np.nextafter(edges, grid.seconds[-1])}))
    right = np.clip(np.searchsorted(grid.middles, times), 1, grid.middles.size - 1)
    span = grid.middles[right] - grid.middles[right - 1]
    share = np.clip((times - grid.middles[right - 1]) / span, 0.0, 1.0)
    mass = np.bincount(right, share, grid.middles.size) + np.bincount(right - 1, 1.0 - share, grid.middles.size)
    np.testing.assert_allclose(grid.law(times)[1:], np.cumsum(mass) / times.size, rtol=1e-12)


def test_a_law_over_five_decades_keeps_every_percentile() -> None:
    """5 ms nine times in ten and 200 s otherwise, plus a log-normal of median 50 ms and sigma 2.

    Against a million draws (0.5 %).
    """
    rng = np.random.default_rng(3)
    u = (np.arange(20_000) + 0.5) / 20_000
    wide = 0.05 * np.exp(2 * stats.norm.ppf(u))
    law = GRID.convolve(GRID.law([0.005, 200.0], [0.9, 0.1]), GRID.law(wide))
    draws = np.where(rng.random(1_000_000) < 0.9, 0.005, 200.0) + 0.05 * np.exp(2 * rng.standard_normal(1_000_000))
    q = np.array([0.05, 0.5, 0.8, 0.95, 0.99])
    np.testing.assert_allclose(GRID.quantile(law, q), np.quantile(draws, q), rtol=0.01)


@given(
    st.lists(st.tuples(st.floats(1e-3, 2000.0), st.floats(0.01, 1.0)), min_size=1, max_size=30),
    st.floats(1e-3, 1000.0),
)
@settings(max_examples=40, deadline=None)
def test_means_of_sums_add(rows: list[tuple[float, float]], mean: float) -> None:
    values = np.array([r[0] for r in rows])
    weights = np.array([r[1] for r in rows]) / sum(r[1] for r in rows)
    law = GRID.convolve(GRID.law(values, weights), GRID.exponential(0.7, mean))
    assert float(GRID.mean(law)) == pytest.approx(float(weights @ values) + 0.7 * mean, rel=2e-3)


def test_convolution_is_symmetric_and_zero_is_neutral() -> None:
    a, b = GRID.exponential(0.4, 3.0), GRID.law([0.02, 9.0], [0.3, 0.7])
    np.testing.assert_allclose(GRID.convolve(a, b), GRID.convolve(b, a), atol=1e-12)
    np.testing.assert_allclose(GRID.convolve(a, GRID.immediate()), a, atol=1e-12)


def test_halving_the_unit_of_time_changes_nothing_else() -> None:
    law = GRID.convolve(GRID.exponential(0.8, 2.0), GRID.law([1.0, 5.0]))
    half = GRID.convolve(GRID.exponential(0.8, 1.0), GRID.law([0.5, 2.5]))
    np.testing.assert_allclose(GRID.quantile(half, QUANTILES[2:]), GRID.quantile(law, QUANTILES[2:]) / 2, rtol=1e-6)


def test_mass_that_never_ends_stays_missing() -> None:
    never_third = GRID.law([1.0, np.inf], [2 / 3, 1 / 3])
    total = GRID.convolve(never_third, GRID.exponential(1.0, 0.5))
    assert total[-1] == pytest.approx(2 / 3)
    assert float(GRID.quantile(total, 0.7)) == np.inf
    assert float(GRID.mean(total)) == np.inf
    assert GRID.convolve(GRID.never(), GRID.immediate()).max() == 0.0


def test_mixture_shift_scale_and_maximum() -> None:
    a, b = GRID.law([1.0]), GRID.law([10.0])
    assert float(GRID.quantile(GRID.mixture([a, b], [0.8, 0.2]), 0.79)) == pytest.approx(1.0, rel=0.01)
    exponential = GRID.exponential(1.0, 2.0)
    assert float(GRID.quantile(GRID.shift(exponential, 3.0), 0.5)) == pytest.approx(3 + 2 * np.log(2), rel=2e-3)
    assert float(GRID.quantile(GRID.scale(exponential, 4.0), 0.5)) == pytest.approx(8 * np.log(2), rel=2e-3)
    longest = GRID.maximum(GRID.exponential(1.0, 1.0), GRID.exponential(1.0, 1.0))
    assert float(GRID.at(longest, 1.0)) == pytest.approx((1 - np.exp(-1)) ** 2, rel=1e-3)


def test_many_laws_are_convolved_at_once() -> None:
    laws = GRID.exponential(np.array([0.2, 0.9]), np.array([1.0, 4.0]))
    both = GRID.convolve(laws, GRID.law([2.0]))
    np.testing.assert_allclose(both[1], GRID.convolve(laws[1], GRID.law([2.0])), atol=1e-12)
    assert GRID.quantile(both, [0.5, 0.9]).shape == (2, 2)
