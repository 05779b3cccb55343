"""The money of an evaluated plan."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pddplan.api import load_scenario
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.fixed_plan import fixed_decision
from pddplan.pdd.money import Money, money
from pddplan.pipeline import evaluate as evaluate_scenario
from pddplan.report.json import json_text, plan_document
from pddplan.report.money import money_document, money_lines

SPLIT = """plan={pools: [{site: A, role: P, chip: h100-sxm, instances: 40, profile: 1}, {site: A, role: RLD, chip: h100-sxm, instances: 3,
profile: 2}, {site: B, role: MD, chip: h200-sxm, instances: 32, profile: 0}], links: {A-B: 1}}""".replace("\n", " ")


def of(*overrides: str) -> tuple[Money, float]:
    scenario = load_scenario("pdd-88-vs-43-32", overrides)
    context = PlanContext.from_scenario(scenario)
    evaluation = evaluate(context, fixed_decision(context))
    found = money(context, evaluation)
    assert found is not None
    return found, evaluation.metrics.cost_usd_per_h


def test_the_bill_is_the_plans_cost_part_by_part() -> None:
    found, cost = of(SPLIT)
    assert found.bill.per_hour == pytest.approx(cost)
    assert found.bill.by_role() == pytest.approx({"P": 80.0, "RLD": 6.0, "MD": 76.8, "line": 0.71})
    assert found.bill.per_year == pytest.approx(cost * 8760)


def test_token_costs_add_up_to_the_bill_under_both_attributions() -> None:
    found, cost = of(SPLIT)
    assert found.by_role is not None
    assert found.by_role.per_hour(found.flow) == pytest.approx(cost)
    assert found.by_tokens.per_hour(found.flow) == pytest.approx(cost)
    assert found.flow.cached_per_s == pytest.approx(0.9 * found.flow.input_per_s)
    assert found.by_role.output == pytest.approx((6.0 + 76.8) / 3600 / found.flow.output_per_s * 1e6)


def test_a_pool_known_by_its_rate_alone_has_no_cost_by_role() -> None:
    found, cost = of()
    assert found.by_role is None
    assert found.by_tokens.per_hour(found.flow) == pytest.approx(cost)
    assert "unknown" in "\n".join(money_lines(found))


def test_power_hosts_and_caches_are_lines_of_their_own() -> None:
    tier = "sites.A.cache={dram: {capacity: 500 GB, bandwidth: 50 GB/s, price: 0.5 USD/GB/month}}"
    found, cost = of(SPLIT, "cost.electricity=0.08 USD/kWh", "cost.host=40000 USD", tier)
    groups = found.bill.by_group()
    assert set(groups) == {"chips", "energy", "hosts", "cache", "lines"}
    assert groups["cache"] == pytest.approx(43 * 250 / 730)
    assert found.bill.per_hour == pytest.approx(cost)


def test_the_published_price_of_the_model_tells_revenue_and_what_buying_costs() -> None:
    found, cost = of(SPLIT)
    assert found.business is not None
    revenue = (
        (found.flow.uncached_per_s * 0.435 + found.flow.cached_per_s * 0.003625 + found.flow.output_per_s * 0.87) * 3600 / 1e6
    )
    assert found.business.revenue_per_hour == pytest.approx(revenue)
    assert found.business.margin == pytest.approx(1 - cost / revenue)
    dear, _ = of(SPLIT, "token_prices={input: 4 USD/Mtok, cached: 0.4 USD/Mtok, output: 16 USD/Mtok}")
    assert dear.business is not None
    assert dear.business.margin is not None
    assert dear.business.margin > 0.8
    assert dear.business.buying_per_hour == pytest.approx(revenue)


def test_unknown_prices_stay_unknown() -> None:
    found, _ = of(
        SPLIT,
        "currency=EUR",
        "sites.A.chips[0].price=2 EUR/h",
        "sites.B.chips[0].price=2.4 EUR/h",
        "links.A-B.circuit_price=0 EUR/h",
    )
    assert found.business is None
    assert found.bill.currency == "EUR"
    assert found.bill.unknown == ("the price of line A-B",)
    document = json.loads(json_text(money_document(found)))
    assert document["revenue_per_hour"] is None


def test_money_is_counted_at_the_mean_of_the_day() -> None:
    even, _ = of(SPLIT)
    peaky, _ = of(
        SPLIT,
        "workload.demand={hourly: [0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1]}",
    )
    assert peaky.per_request == pytest.approx(even.per_request / 0.75)
    assert peaky.utilisation == pytest.approx(even.utilisation * 0.75)
    assert peaky.output.used == pytest.approx(even.output.used)


def test_text_says_margin_and_unknowns() -> None:
    found, _ = of(SPLIT)
    text = "\n".join(money_lines(found))
    for part in ("USD/h", "a year", "by role", "margin", "buying is cheaper below"):
        assert part in text
    blank = replace(found, business=None, prices=None, price_source="nobody says")
    assert "revenue unknown: nobody says" in "\n".join(money_lines(blank))


def test_a_plan_that_serves_nothing_has_no_money() -> None:
    scenario = load_scenario("pdd-88-vs-43-32", (SPLIT,))
    context = PlanContext.from_scenario(scenario)
    evaluation = evaluate(context, fixed_decision(context))
    idle = {name: replace(each, mix=replace(each.mix, rate_per_s=0.0)) for name, each in context.deployments.items()}
    assert money(context.with_deployments(idle), evaluation) is None


def test_an_unstable_plan_has_a_bill_but_no_cost_of_a_token() -> None:
    scenario = load_scenario("pdd-88-vs-43-32", (SPLIT, "workload.rate=500 req/s"))
    result = evaluate_scenario(scenario)
    assert not result.evaluation.stable
    document = json.loads(json_text(plan_document(result, scenario)))
    assert document["metrics"]["goodput_rps"] == 0
    assert document["metrics"]["usd_per_million_output_tokens"] is None
    bill = document["money"]
    assert bill["per_hour"] == pytest.approx(document["metrics"]["cost_usd_per_h"])
    assert all(cost is None for cost in bill["per_million_by_tokens"].values())
    absent = ("per_million_by_role", "per_million_output_allocated", "per_million_output_used", "per_request", "per_task", "margin")
    assert [name for name in absent if bill[name] is not None] == []
