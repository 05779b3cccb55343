"""The cheapest mix of terms against every reservation tried out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pddplan.economics.terms import cheapest_mix, price_per_gpu
from pddplan.scenario.schema import TermPrices

HALF = np.array([0.5, 0.5])


def terms(**given: object) -> TermPrices:
    prices = {term: f"{given.pop(term)} USD/h" for term in ("reserved", "on_demand", "spot") if term in given}
    return TermPrices.model_validate({**prices, **given})


def tried_out(prices: TermPrices, used: list[int], share: list[float]) -> float:
    """Least cost over every whole reservation, period by period."""
    most = max(used) if prices.reserved is not None else 0
    most = most if prices.reserved_max is None else min(most, prices.reserved_max)
    best = math.inf
    for reserved in range(most + 1):
        cost = reserved * (prices.reserved or 0.0)
        for gpus, time in zip(used, share, strict=True):
            rest = max(gpus - reserved, 0)
            spot_most = math.floor(prices.spot_share_max * gpus + 1e-9) if prices.spot is not None else 0
            over = prices.on_demand if prices.on_demand is not None else 1e12
            cost += time * min(spot * (prices.spot or 0.0) + (rest - spot) * over for spot in range(min(rest, spot_most) + 1))
        best = min(best, cost)
    return best if best < 1e9 else math.inf


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=5),
    st.floats(0.1, 5) | st.none(),
    st.floats(0.1, 5) | st.none(),
    st.floats(0.1, 5) | st.none(),
    st.integers(0, 10) | st.none(),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
def test_the_cheapest_mix_is_the_least_over_every_reservation(used, reserved, on_demand, spot, reserved_max, share):
    prices = TermPrices.model_construct(
        reserved=reserved, on_demand=on_demand, spot=spot, reserved_max=reserved_max, spot_share_max=share
    )
    time = [1 / len(used)] * len(used)
    mix = cheapest_mix(prices, np.array(used, dtype=float), np.array(time))
    expected = tried_out(prices, used, time)
    assert mix.per_hour == pytest.approx(expected, rel=1e-9, abs=1e-12)
    if math.isfinite(mix.per_hour):
        paid = mix.reserved * (reserved or 0) + mix.on_demand * (on_demand or 0) + mix.spot * (spot or 0)
        assert paid == pytest.approx(mix.per_hour, rel=1e-9, abs=1e-12)
        assert mix.held >= float(np.dot(used, time)) - 1e-9


def test_a_peak_of_half_the_day_is_reserved_only_where_a_day_costs_less_than_half_of_it_on_demand() -> None:
    """10 GPUs for half of the day, 2 for the rest. On demand at 5: a reserved one at 2 is cheaper than half of 5. At 3: it is not."""
    dear = cheapest_mix(terms(reserved=2, on_demand=5), np.array([2.0, 10.0]), HALF)
    assert (dear.reserved, dear.on_demand, dear.per_hour) == (10, 0, 20)
    cheap = cheapest_mix(terms(reserved=2, on_demand=3), np.array([2.0, 10.0]), HALF)
    assert (cheap.reserved, cheap.on_demand, cheap.per_hour) == (2, 4, 2 * 2 + 8 * 3 / 2)
    spot = cheapest_mix(terms(reserved=2, on_demand=3, spot=1, spot_share_max=0.5), np.array([2.0, 10.0]), HALF)
    assert (spot.reserved, spot.on_demand, spot.spot) == (1, 2, 3)
    assert spot.per_hour == 1 * 2 + (1 * 1 + 0) / 2 + (5 * 1 + 4 * 3) / 2


def test_terms_that_do_not_reach_have_no_price() -> None:
    assert cheapest_mix(terms(reserved=2, reserved_max=4), np.array([5.0]), np.ones(1)).per_hour == math.inf
    assert cheapest_mix(terms(spot=1, spot_share_max=0.5), np.array([4.0]), np.ones(1)).per_hour == math.inf


def test_no_whole_fleet_is_cheaper_per_gpu_than_one_that_follows_the_demand_exactly() -> None:
    prices, factors = terms(reserved=2, on_demand=3, spot=1, spot_share_max=0.3), np.array([0.25, 1.0])
    least = price_per_gpu(prices, factors, HALF)
    for gpus in (1, 3, 7, 40):
        assert cheapest_mix(prices, np.ceil(gpus * factors), HALF).per_hour >= gpus * least - 1e-9
