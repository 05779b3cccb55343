"""Rent, purchase, power, lines, caches and token costs against worked cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pddplan.economics.comparison import compare, split_fleet_bcr_gain
from pddplan.economics.cost import (
    Bill,
    CostLine,
    benefit_cost_ratio,
    cache_per_hour,
    capital_recovery_factor,
    circuit_per_hour,
    colocation_per_hour,
    egress_per_hour,
    energy_per_hour,
    hbm_cache_per_hour,
    purchase_per_hour,
)
from pddplan.economics.savings import Step, ladder
from pddplan.economics.tokens import (
    Business,
    TokenFlow,
    TokenPrices,
    allocated_and_used,
    per_million,
    per_request,
    token_costs,
)
from pddplan.errors import InputError


def test_capital_recovery_factor_of_the_textbook() -> None:
    """CRF(10 %, 4 years) = 0.31547 (Park, Contemporary Engineering Economics, table of A/P factors)."""
    assert capital_recovery_factor(0.10, 4) == pytest.approx(0.31547, abs=5e-6)
    assert capital_recovery_factor(0.0, 4) == 0.25
    assert capital_recovery_factor(1e-9, 4) == pytest.approx(0.25, rel=1e-6)


@given(st.one_of(st.just(0.0), st.floats(1e-9, 0.5)), st.floats(0.5, 10), st.floats(0, 0.9))
def test_the_annuity_pays_back_exactly_the_price(rate: float, years: float, residual: float) -> None:
    """Present value of the yearly payments plus that of the residual is the price."""
    yearly = purchase_per_hour(1000.0, years, rate, residual=residual) * 8760
    annuity_factor = 1 / capital_recovery_factor(rate, years)
    assert yearly * annuity_factor + residual * 1000 / (1 + rate) ** years == pytest.approx(1000, rel=1e-9)


def test_a_purchase_and_a_rent_of_equal_annuity_cost_the_same() -> None:
    rent = 2.0
    price = rent * 8760 / capital_recovery_factor(0.12, 5)
    assert purchase_per_hour(price, 5, 0.12) == pytest.approx(rent, rel=1e-12)


def test_published_hardware_only_costs_are_met() -> None:
    """computetape: a $30k chip at 70 % utilisation costs $1.64 over 3 years and $0.98 over 5, hardware only, no interest."""
    assert purchase_per_hour(30_000, 3, 0.0, utilisation=0.7) == pytest.approx(1.64, abs=0.01)
    assert purchase_per_hour(30_000, 5, 0.0, utilisation=0.7) == pytest.approx(0.98, abs=0.005)


def test_colocation_of_an_h100_is_31_cents() -> None:
    """$130 per kW-month at 1.73 kW all-in."""
    assert colocation_per_hour(1730, 130) == pytest.approx(0.31, abs=0.005)


def test_energy_is_watts_times_pue_times_tariff() -> None:
    assert energy_per_hour(700, 1.25, 0.08) == pytest.approx(0.07)
    assert energy_per_hour(700, 1.25, 0.08, load=0.5) == pytest.approx(0.035)


def test_a_gbps_month_of_egress_at_two_cents_is_6570_dollars() -> None:
    """$0.02/GB x 328,500 GB per Gbps-month."""
    assert egress_per_hour(125e6, 0.02) * 730 == pytest.approx(6570)
    assert circuit_per_hour(12.5e9, 120) * 730 == pytest.approx(12_000)


def test_cache_tiers_cost_by_size() -> None:
    assert cache_per_hour(1e12, 0.08) * 730 == pytest.approx(80)
    assert hbm_cache_per_hour(40e9, 80e9, 2.0) == 1.0


def test_maintenance_and_added_network_are_on_the_whole_capital() -> None:
    assert purchase_per_hour(8760.0, 1, 0.0, added_share=0.2, maintenance_share=0.03) == pytest.approx(1.2 * 1.03)


@pytest.mark.parametrize(("years", "rate"), [(0, 0.1), (-1, 0.1), (4, -0.1), (float("nan"), 0.1)])
def test_impossible_amortisation_is_an_input_error(years: float, rate: float) -> None:
    with pytest.raises(InputError):
        capital_recovery_factor(rate, years)


def test_a_bill_adds_up_by_group_role_and_period() -> None:
    bill = Bill((CostLine("a", "chips", 2.0, "P"), CostLine("b", "chips", 3.0, "MD"), CostLine("c", "lines", 1.0, "line")))
    assert bill.per_hour == 6.0
    assert bill.by_group() == {"chips": 5.0, "lines": 1.0}
    assert bill.by_role() == {"P": 2.0, "MD": 3.0, "line": 1.0}
    assert (bill.per_day, bill.per_month, bill.per_year) == (144.0, 4380.0, 52_560.0)


def test_two_dollars_an_hour_at_a_thousand_tokens_a_second() -> None:
    """COST-01."""
    assert per_million(2.0, 1000) == pytest.approx(0.5556, abs=5e-5)


def test_deepseeks_day_costs_87072_dollars() -> None:
    """COST-02: 226.75 nodes x 8 GPUs at $2/h."""
    assert Bill((CostLine("nodes", "chips", 226.75 * 8 * 2.0),)).per_day == 87_072


def test_output_cost_of_a_whole_fleet() -> None:
    """COST-05: 128 H200 at $2/h, 288k output tokens/s."""
    assert per_million(128 * 2.0, 288_000) == pytest.approx(0.247, abs=5e-4)


def test_api_bill_per_million_input_tokens() -> None:
    """COST-07: 0.14 / 0.55 / 2.19, 56.3 % hits, 168 output per 608 input."""
    prices = TokenPrices(miss=0.55, hit=0.14, output=2.19)
    assert prices.per_million_input(0.563, 168 / 608) == pytest.approx(0.924, abs=5e-4)


def test_hits_change_the_api_bill_but_not_the_bill_of_the_fleet() -> None:
    """COST-07: the chips cost what they cost; their cost per input token as a whole stays, only its parts move."""
    prices = TokenPrices(miss=0.55, hit=0.14, output=2.19)
    few, many = (TokenFlow.of_requests(10, 4000, hit, 1000) for hit in (0.1, 0.9))
    assert prices.revenue_per_hour(many) < prices.revenue_per_hour(few)
    bill = {"P": 100.0, "MD": 200.0}
    assert token_costs(bill, few).per_hour(few) == pytest.approx(token_costs(bill, many).per_hour(many)) == pytest.approx(300)


def test_a_fleet_at_30_percent_allocates_its_idle_time() -> None:
    """COST-09."""
    both = allocated_and_used(per_million(2.0, 300), 0.3)
    assert both.allocated == pytest.approx(both.used / 0.3)
    assert both.used == pytest.approx(per_million(2.0, 1000))
    for wrong in (0.0, 1.2, float("nan")):
        with pytest.raises(InputError):
            allocated_and_used(1.0, wrong)


bills = st.dictionaries(st.sampled_from(["P", "RLD", "MD", "AGG", "line", "cache"]), st.floats(0.01, 1e4), min_size=1)
rates = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
flows = st.builds(TokenFlow, rates, rates, st.floats(1, 1e6))


@given(bills, flows, st.sampled_from(["role", "tokens"]), st.floats(0, 1), st.floats(0, 1))
def test_attribution_loses_no_money(bill: dict[str, float], flow: TokenFlow, rule: str, cached: float, prefill: float) -> None:
    costs = token_costs(bill, flow, rule, cached_prefill_share=cached, aggregated_prefill_share=prefill)  # type: ignore[arg-type]
    assert costs.per_hour(flow) == pytest.approx(sum(bill.values()), rel=1e-9)


def test_by_role_prefill_pays_for_input_and_decode_for_output() -> None:
    flow = TokenFlow(uncached_per_s=1000, cached_per_s=9000, output_per_s=500)
    costs = token_costs({"P": 3.6, "MD": 7.2, "RLD": 0.36, "line": 0.36, "cache": 0.9}, flow)
    assert costs.uncached == pytest.approx((3.6 + 0.36) / 3.6)
    assert costs.cached == pytest.approx(0.9 / 3600 / 9000 * 1e6)
    assert costs.output == pytest.approx((7.2 + 0.36) / 3600 / 500 * 1e6)


def test_an_unknown_role_is_an_input_error() -> None:
    with pytest.raises(InputError, match="role D"):
        token_costs({"D": 1.0}, TokenFlow(1, 1, 1))


def test_nothing_served_has_no_price() -> None:
    for call in (lambda: per_million(1.0, 0.0), lambda: per_request(1.0, 0.0), lambda: token_costs({"P": 1.0}, TokenFlow(0, 0, 0))):
        with pytest.raises(InputError):
            call()


def test_an_agent_task_costs_its_turns() -> None:
    assert per_request(36.0, 10.0) == pytest.approx(0.001)
    assert per_request(36.0, 10.0, turns_per_task=40) == pytest.approx(0.04)


def test_margin_break_even_and_buying() -> None:
    business = Business(cost_per_hour=60.0, revenue_per_hour=100.0, buying_per_hour=80.0)
    assert business.margin == pytest.approx(0.4)
    assert business.break_even_utilisation == pytest.approx(0.6)
    assert business.serving_saves_per_hour == 20.0
    assert business.buy_instead_below == 0.75
    assert business.per_month().profit_per_hour == pytest.approx(40 * 730)
    unknown = Business(60.0, 0.0)
    assert (unknown.margin, unknown.break_even_utilisation, unknown.buy_instead_below) == (None, None, None)


@pytest.mark.parametrize(("price", "cost", "bcr"), [(1.2, -0.071, 0.375), (1.3, -0.035, 0.324)])
def test_the_published_cost_table(price: float, cost: float, bcr: float) -> None:
    """88 A at 9.0 requests/s against 43 A + 32 B + a line worth 0.355 A at 11.5."""
    change = compare(43 + 32 * price + 0.355, 11.5, 88.0, 9.0)
    assert round(change.cost, 3) == cost
    assert round(change.goodput, 3) == 0.278
    assert round(change.bcr, 3) == bcr


@pytest.mark.parametrize(("speed", "gain"), [(2.12, 0.32), (1.76, 0.20), (1.43, 0.07)])
def test_the_gain_falls_with_the_decode_speed_of_b(speed: float, gain: float) -> None:
    """43 A kept, B bought until it carries 93.8 % of the tokens of 11.5 requests/s at 0.159 x speed requests/s per chip."""
    chips_b = 11.5 * 0.938 / (0.159 * speed)
    assert compare(43 + chips_b * 1.3 + 0.355, 11.5, 88.0, 9.0).bcr == pytest.approx(gain, abs=0.01)


@pytest.mark.parametrize(("share", "gain"), [(0.645, 0.33), (0.5, 0.21), (0.35, 0.11), (0.2, 0.025)])
def test_the_gain_falls_with_decodes_share_of_cost(share: float, gain: float) -> None:
    found = split_fleet_bcr_gain(share, 2.12, 1.3, relay_token_share=0.062, prefill_growth=43 / 40)
    assert found == pytest.approx(gain, abs=0.005)


def test_no_cost_has_no_ratio() -> None:
    with pytest.raises(InputError):
        benefit_cost_ratio(1.0, 0.0)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=8))
def test_saving_factors_multiply_to_the_total(costs: list[float]) -> None:
    rungs = ladder([Step(str(i), cost) for i, cost in enumerate(costs)])
    product = 1.0
    for rung in rungs:
        product *= rung.factor
    assert product == pytest.approx(rungs[-1].cumulative, rel=1e-9)
    assert product == pytest.approx(costs[0] / costs[-1], rel=1e-9)


def test_a_step_without_a_cost_is_an_input_error() -> None:
    for steps in ([], [Step("a", 0.0)], [Step("a", 1.0), Step("b", float("inf"))]):
        with pytest.raises(InputError):
            ladder(steps)
