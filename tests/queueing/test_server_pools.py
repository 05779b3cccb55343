"""Pools of servers under the four dispatches: textbook values, order, and the answers at the edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pddplan.errors import InputError
from pddplan.queueing import ggc, mg1
from pddplan.queueing.grid import TimeGrid

GRID = TimeGrid()
U = (np.arange(4000) + 0.5) / 4000
EXPONENTIAL = -np.log1p(-U) / float(np.mean(-np.log1p(-U)))
EQUAL = np.full(U.size, 1.0 / U.size)


def sojourn_p99(dispatch: ggc.Dispatch, scv: float = 1.0, rate: float = 8.5) -> float:
    law = ggc.waiting_law(10, rate, EXPONENTIAL, EQUAL, scv, dispatch, GRID)
    return float(GRID.quantile(GRID.convolve(law.cdf, GRID.law(EXPONENTIAL)), 0.99))


def test_m_m_c_mean_and_law_are_erlangs() -> None:
    """M/M/2 at 1.6 Erlang: C = 0.7111, Wq = 1.7778 services (Gross and Harris 1998, section 2.3)."""
    law = ggc.waiting_law(2, 1.6, EXPONENTIAL, EQUAL, 1.0, "central", GRID)
    assert law.p_wait == pytest.approx(0.71111, rel=1e-4)
    assert law.mean_s == pytest.approx(1.77778, rel=2e-3)
    assert float(GRID.quantile(law.cdf, 0.9)) == pytest.approx(2.5 * np.log(0.71111 / 0.1), rel=2e-3)


def test_dispatch_matters_more_than_any_formula() -> None:
    """Simulated P99 sojourns of 10 servers at load 0.85 and CV 1: 5.6, 7.0, 19.9 and 31.4 mean services.

    Within 15 %, that run's noise.
    """
    published = {"central": 5.6, "shortest_queue": 7.0, "round_robin": 19.9, "cache_affinity": 31.4}
    found = {dispatch: sojourn_p99(dispatch) for dispatch in ggc.DISPATCHES}
    assert list(found.values()) == sorted(found.values())
    assert found == pytest.approx(published, rel=0.15)


def test_recursion_agrees_with_the_closed_forms_inside_their_limits() -> None:
    for dispatch in ("central", "cache_affinity"):
        closed = ggc.waiting_law(4, 2.8, EXPONENTIAL, EQUAL, 1.0, dispatch, GRID)
        single = np.ones(1, dtype=np.int64)
        waits = ggc.recursion_waits(4, 2.8, EXPONENTIAL, EQUAL, 1.0, dispatch, single, np.ones(1), 400_000, 7)
        assert float(waits.mean()) == pytest.approx(closed.mean_s, rel=0.05)
        assert float(np.quantile(waits, 0.99)) == pytest.approx(float(GRID.quantile(closed.cdf, 0.99)), rel=0.07)


def test_the_method_is_labelled() -> None:
    bursty = ggc.waiting_law(4, 2.0, EXPONENTIAL, EQUAL, 10.0, "central", GRID)
    wide = ggc.waiting_law(4, 2.0, [0.1, 20.0], [0.95, 0.05], 1.0, "central", GRID)
    assert (bursty.method, wide.method) == ("recursion", "recursion")
    assert ggc.waiting_law(4, 2.0, [1.0], [1.0], 1.0, "central", GRID).method == "tijms"
    assert ggc.waiting_law(4, 2.0, [0.1, 20.0], [0.95, 0.05], 1.0, "cache_affinity", GRID).method == "pollaczek-khinchine"


def test_bursts_of_cv_ten_wait_far_longer_than_poisson_arrivals() -> None:
    calm = ggc.waiting_law(10, 7.0, EXPONENTIAL, EQUAL, 1.0, "central", GRID)
    burst = ggc.waiting_law(10, 7.0, EXPONENTIAL, EQUAL, 100.0, "central", GRID)
    assert burst.mean_s > 30 * calm.mean_s
    assert burst.p_wait > 4 * calm.p_wait


def test_batches_wait_as_burkes_formula_says() -> None:
    law = ggc.waiting_law(1, 0.6, [1.0], [1.0], 1.0, "central", GRID, batch_sizes=[1, 4], batch_weights=[0.5, 0.5])
    assert law.method == "recursion"
    assert law.mean_s == pytest.approx(mg1.batch_mean_wait_s(0.6, 1.0, 1.0, 2.5, 8.5), rel=0.03)


def test_a_rate_of_zero_waits_for_nothing_and_an_overloaded_pool_for_ever() -> None:
    idle = ggc.waiting_law(3, 0.0, [1.0], [1.0], 1.0, "central", GRID)
    assert (idle.mean_s, idle.cdf.min(), idle.method) == (0.0, 1.0, "empty")
    full = ggc.waiting_law(3, 3.0, [1.0], [1.0], 1.0, "cache_affinity", GRID)
    assert (full.mean_s, full.cdf.max(), full.method) == (np.inf, 0.0, "unstable")
    assert ggc.waiting_law(0, 1.0, [1.0], [1.0], 1.0, "central", GRID).method == "unstable"
    assert float(ggc.wait_quantile_s(3, 3.0, 1.0, 1.0, 0.5)) == np.inf


def test_unknown_dispatch_names_the_four() -> None:
    with pytest.raises(InputError, match="central, shortest_queue, round_robin, cache_affinity"):
        ggc.waiting_law(1, 0.1, [1.0], [1.0], 1.0, "sticky", GRID)  # type: ignore[arg-type]


def test_quantiles_of_many_candidates_at_once_equal_their_own_laws() -> None:
    servers = np.array([2, 5, 20])
    q = ggc.wait_quantile_s(servers, 0.8 * servers, 1.0, 1.0, 0.95)
    for c, value in zip(servers, q, strict=True):
        law = ggc.waiting_law(int(c), 0.8 * c, EXPONENTIAL, EQUAL, 1.0, "central", GRID)
        assert float(GRID.quantile(law.cdf, 0.95)) == pytest.approx(value, rel=5e-3, abs=1e-9)


@given(st.integers(1, 200), st.floats(0.05, 0.99), st.floats(0.0, 4.0), st.sampled_from([0.5, 0.9, 0.99]))
def test_more_servers_never_wait_longer(servers: int, rho: float, scv: float, q: float) -> None:
    waits = ggc.wait_quantile_s([servers, servers + 1], rho * servers, 1.0, scv, q)
    means = ggc.mean_wait_s([servers, servers + 1], rho * servers, 1.0, scv)
    assert waits[1] <= waits[0]
    assert means[1] <= means[0]


@given(st.floats(0.1, 0.95), st.floats(0.01, 0.04))
@settings(max_examples=20, deadline=None)
def test_more_load_never_shortens_any_percentile(rho: float, more: float) -> None:
    laws = [ggc.waiting_law(3, 3 * load, EXPONENTIAL, EQUAL, 1.0, "cache_affinity", GRID).cdf for load in (rho, rho + more)]
    assert np.all(laws[1] <= laws[0] + 1e-6)


@pytest.mark.parametrize("dispatch", ggc.DISPATCHES)
def test_one_server_is_the_same_queue_under_every_dispatch(dispatch: ggc.Dispatch) -> None:
    law = ggc.waiting_law(1, 0.7, [0.5, 1.5], [0.5, 0.5], 1.0, dispatch, GRID)
    assert law.mean_s == pytest.approx(float(mg1.mean_wait_s(0.7, 1.0, 0.25)), rel=1e-9)
