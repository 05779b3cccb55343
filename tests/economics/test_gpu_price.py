"""The hourly price of one chip under a scenario's cost section."""

from __future__ import annotations

import pytest

from pddplan.economics.cost import capital_recovery_factor
from pddplan.economics.gpu_price import gpu_price
from pddplan.errors import InputError
from pddplan.hardware import load_chip
from pddplan.scenario.schema import ChipStock, Cost, Site

H100 = load_chip("h100-sxm")


def price(
    stock: dict[str, object], cost: dict[str, object] | None = None, chip: str = "h100-sxm", currency: str = "USD", **site: object
) -> float:
    entry = ChipStock.model_validate({"chip": chip, **stock})
    room = Site.model_validate({"chips": [{"chip": chip}], **site})
    return gpu_price(load_chip(chip), entry, room, Cost.model_validate(cost or {}), "sites.A.chips[0]", currency).per_hour


def test_a_rent_is_the_price() -> None:
    assert price({"price": "2 USD/h"}) == 2.0
    assert price({"prices": {"reserved": "1.5 USD/h", "on_demand": "3 USD/h"}}) == 1.5


def test_a_purchase_and_a_rent_of_equal_annuity_give_equal_cost() -> None:
    bought = 2.0 * 8760 / capital_recovery_factor(0.12, 5)
    terms = {"basis": "purchase", "amortisation": "5 years", "cost_of_capital": "12 %"}
    assert price({"purchase": f"{bought!r} USD"}, terms) == pytest.approx(price({"price": "2 USD/h"}), rel=1e-12)


def test_power_room_hosts_and_nics_are_added_where_they_are_priced() -> None:
    cost = {"electricity": "0.08 USD/kWh", "pue": 1.25, "power_utilisation": 0.8, "colocation": "130 USD/kW/month"}
    cost |= {"host": "40000 USD", "nic": "1000 USD", "cost_of_capital": 0, "amortisation": "4 years"}
    energy, room = 0.7 * 0.8 * 1.25 * 0.08, 0.7 * 130 / 730
    assert price({"price": "2 USD/h"}, cost) == pytest.approx(2 + energy + room + (40_000 / 8 + 1000) / 4 / 8760)


def test_a_cache_tier_is_paid_for_by_every_gpu_of_its_site() -> None:
    tier = {
        "dram": {"capacity": "500 GB", "bandwidth": "50 GB/s", "price": "0.5 USD/GB/month"},
        "ssd": {"capacity": "1 TB", "bandwidth": "5 GB/s"},
    }
    assert price({"price": "2 USD/h"}, cache=tier) == pytest.approx(2 + 250 / 730)


def test_a_sites_own_tariff_and_pue_come_before_the_general_ones() -> None:
    here = price({"price": "2 USD/h"}, {"electricity": "0.08 USD/kWh"}, electricity="0.04 USD/kWh", pue=1.1)
    assert here == pytest.approx(2 + 0.7 * 0.8 * 1.1 * 0.04)


def test_a_profile_price_is_used_when_named() -> None:
    assert price({"price_source": "reserved_usd_h.high"}) == 2.35
    assert price({"price_source": "purchase_usd.low"}, {"cost_of_capital": 0}) == pytest.approx(25_000 / 4 / 8760)
    assert price({"price_source": "own_tco_neocloud"}) == 1.69


def test_yuan_become_dollars_at_the_price_books_rate() -> None:
    assert price({"price_source": "rental_cny_h.low"}, chip="h20-96") == pytest.approx(6 / 7.1)
    assert price({"price_source": "reserved_usd_h.low"}, currency="CNY") == pytest.approx(1.3 * 7.1)
    with pytest.raises(InputError, match="EUR"):
        price({"price_source": "reserved_usd_h.low"}, currency="EUR")


def test_a_chip_without_a_price_is_an_input_error_even_where_a_range_is_published() -> None:
    with pytest.raises(InputError, match="no default"):
        price({})
    with pytest.raises(InputError, match="range"):
        price({"price_source": "on_demand_usd_h"})
    with pytest.raises(InputError, match="purchase"):
        price({"price": "2 USD/h"}, {"basis": "purchase"})


def test_power_that_is_only_a_range_must_be_stated() -> None:
    with pytest.raises(InputError, match="power"):
        price({"price": "1 USD/h"}, {"electricity": "0.05 USD/kWh"}, chip="ascend-910c")
    assert (
        price(
            {"price": "1 USD/h", "power": "1 kW"}, {"electricity": "0.05 USD/kWh", "pue": 1.0, "power_utilisation": 1}, chip="ascend-910c"
        )
        == 1.05
    )
