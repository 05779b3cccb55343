"""Chips paid by term over the day: worked by hand, and what the choice of chips makes of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from pddplan import api
from pddplan.optimize.baselines import one_room
from pddplan.optimize.purchase import by_the_hour
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.terms import paid
from pddplan.pipeline import evaluate as evaluate_fixed
from pddplan.pipeline import plan
from pddplan.report.json import plan_document
from pddplan.studies.sensitivity import with_prices

RATED = """
name: one request per second and GPU, on two chips
model: {name: meta-llama/Llama-3.1-8B}
sites:
  A:
    chips:
      - {chip: h100-sxm, prices: {reserved: 2 USD/h, on_demand: 5 USD/h}, roles: [AGG], profiles: [PROFILE]}
      - {chip: h200-sxm, prices: {on_demand: 3 USD/h}, roles: [AGG], profiles: [PROFILE]}
workload:
  rate: 9.9 req/s
  demand: {hourly: [0.2, 1.0]}
  classes: {all: {input_tokens: 100, output_tokens: 100}}
objective: min-cost
""".replace("PROFILE", "{role: AGG, gpus: 1, rate: {input: [100], output: [100], req_per_s: [[1]]}}")
ONE_CHIP = "".join(line for line in RATED.splitlines(keepends=True) if "h200" not in line)
FLAT, PEAK = {"workload.demand.hourly": [1.0, 1.0]}, {"workload.demand.hourly": [0.2, 1.0]}


@pytest.fixture
def rated(load):
    return lambda changes=None, text=RATED: load(text, changes)


def chips(result):
    found = {}
    for pool in result.evaluation.decision.pools:
        found[pool.configuration.chip] = found.get(pool.configuration.chip, 0) + pool.gpus
    return found


@pytest.mark.parametrize("objective", ["min-cost", "max-bcr"])
def test_a_peaky_day_flips_the_choice_from_cheap_reserved_to_cheap_on_demand(rated, objective):
    """Ten GPUs at the peak, two at night. H100: ten reserved cost 20, since half a day on demand (2.5) is dearer than a reserved day (2).
    H200: 2 x 3 at night, 10 x 3 by day, 18 on average. On a flat day 20 stands against 30."""
    flat, peaky = plan(rated({**FLAT, "objective": objective})), plan(rated({**PEAK, "objective": objective}))
    assert (chips(flat), flat.evaluation.metrics.cost_usd_per_h) == ({"h100-sxm": 10}, pytest.approx(20))
    assert (chips(peaky), peaky.evaluation.metrics.cost_usd_per_h) == ({"h200-sxm": 10}, pytest.approx(18))
    assert (flat.status, peaky.status) == ("optimal", "optimal")
    assert peaky.objective.bound == pytest.approx(peaky.objective.value)
    assert peaky.purchase == {"h200-sxm at A, on_demand GPUs": pytest.approx(6), "usd_per_h": pytest.approx(18)}


def test_cost_bcr_tokens_bill_and_baselines_all_state_the_blend(rated):
    scenario = rated({"sites.A.chips[0].prices.on_demand": "3 USD/h"}, ONE_CHIP)
    result = plan(scenario)
    m = result.evaluation.metrics
    assert m.cost_usd_per_h == pytest.approx(2 * 2 + 8 * 3 / 2)
    assert m.bcr == pytest.approx(9.9 / 16)
    assert m.usd_per_million_output_tokens == pytest.approx(16 / (0.6 * 9.9 * 100 * 3600) * 1e6)
    assert result.evaluation.pools[0].cost_usd_per_h == pytest.approx(16)
    assert result.money.bill.per_hour == pytest.approx(16)
    assert {line.name: line.per_hour for line in result.money.bill.lines} == {
        "2 x H100 SXM: rent, reserved": pytest.approx(4),
        "4 x H100 SXM: rent, on demand": pytest.approx(12),
    }
    assert result.money.utilisation == pytest.approx(0.99)
    alike = next(b for b in result.baselines if b.name == "aggregated")
    assert alike.evaluation.metrics.cost_usd_per_h == pytest.approx(16)
    (bought,) = plan_document(result, scenario)["purchases"]
    assert (bought["reserved_gpus"], bought["on_demand_gpus"], bought["gpus_in_use"]) == (2, 4, (2, 10))


def test_spot_is_capped_at_its_share_of_the_gpus_in_use_and_reservations_at_their_number(rated):
    """Half of two and of ten on spot at 1: 1 and 5. Of the rest one is reserved for 2, four more by day cost 3 each."""
    prices = {"reserved": "2 USD/h", "on_demand": "3 USD/h", "spot": "1 USD/h", "spot_share_max": 0.5}
    result = plan(rated({"sites.A.chips[0].prices": prices}, ONE_CHIP), explain=False)
    assert result.evaluation.metrics.cost_usd_per_h == pytest.approx(2 + (1 + 5 + 12) / 2)
    none = plan(rated({"sites.A.chips[0].prices": {**prices, "reserved_max": 0}}, ONE_CHIP), explain=False)
    assert none.evaluation.metrics.cost_usd_per_h == pytest.approx((1 + 3 + 5 + 15) / 2)


def test_reservations_that_end_and_nothing_beside_them_are_a_limit_of_their_own(rated):
    only = {"sites.A.chips[0].prices": {"reserved": "2 USD/h", "reserved_max": 4}, "search.configurations_per_role": 2}
    result = plan(rated({**only, **FLAT}), explain=False)
    assert chips(result) == {"h100-sxm": 4, "h200-sxm": 6}
    assert result.evaluation.metrics.cost_usd_per_h == pytest.approx(4 * 2 + 6 * 3)
    fixed = {"plan": {"pools": [{"site": "A", "role": "AGG", "chip": "h100-sxm", "instances": 10, "profile": 0}]}}
    short = evaluate_fixed(rated({**only, **FLAT, **fixed}))
    assert [v.constraint for v in short.evaluation.violations] == ["terms of h100-sxm at A"]
    assert math.isinf(short.evaluation.metrics.cost_usd_per_h)


def test_a_budget_holds_for_the_blend(rated):
    assert plan(rated({"budget": "18 USD/h"}), explain=False).evaluation.metrics.cost_usd_per_h == pytest.approx(18)
    most = plan(rated({"budget": "9 USD/h", "objective": "max-goodput"}), explain=False)
    assert most.evaluation.metrics.cost_usd_per_h <= 9 * (1 + 1e-9)
    assert chips(most) == {"h200-sxm": 5}


def test_two_deployments_whose_peaks_differ_share_reserved_gpus(rated):
    """Each has ten GPUs by its own day and two by its night: twelve at every hour, all of them reserved."""
    block = """
    model: {name: meta-llama/Llama-3.1-8B}
    workload: {rate: 9.9 req/s, demand: {hourly: HOURLY}, classes: {all: {input_tokens: 100, output_tokens: 100}}}
"""
    head = RATED.split("workload:")[0].replace("model: {name: meta-llama/Llama-3.1-8B}\n", "")
    day, night = (block.replace("HOURLY", hours) for hours in ("[0.2, 1.0]", "[1.0, 0.2]"))
    text = f"{head}deployments:\n  day:{day}  night:{night}objective: min-cost\n"
    result = plan(rated(text=text), explain=False)
    assert chips(result) == {"h100-sxm": 20}
    assert result.evaluation.metrics.cost_usd_per_h == pytest.approx(24)


CHAT = """
name: chat over the day
model: {name: Qwen/Qwen3-32B-FP8}
engine: vllm
sites:
  A: {chips: [{chip: h100-sxm, stock: 64, prices: {reserved: 1.2 USD/h, on_demand: 2.5 USD/h}}]}
workload:
  rate: 30 req/s
  rows: 200
  demand: {hourly: [0.15, 0.4, 1.0]}
  classes:
    chat:
      input_tokens: {lognormal: {p50: 2k, p99: 16k, max: 32k}}
      output_tokens: 400
      sla: {ttft: {limit: 2 s, p99: 4 s}, tpot: {limit: 50 ms}, attainment: 95 %}
search: {tp: [1, 2]}
"""


def test_in_every_period_the_whole_model_meets_every_limit_with_what_is_paid_for(rated):
    scenario = rated(text=CHAT)
    result = plan(scenario, explain=False)
    context = PlanContext.from_scenario(scenario)
    (bought,) = result.evaluation.purchases
    assert bought.used[0] < bought.used[1] < bought.used[2] == result.evaluation.metrics.gpus
    at_least = evaluate(context, result.evaluation.decision)
    assert sum(paid(context, at_least.decision.pools)[0]) <= result.evaluation.metrics.cost_usd_per_h
    (pool,) = result.evaluation.decision.pools
    for gpus, factor in zip(bought.used, (0.15, 0.4, 1.0), strict=True):
        instances = int(gpus) // pool.configuration.gpus_per_instance
        decision = replace(result.evaluation.decision, pools=(replace(pool, instances=instances),))
        assert evaluate(context, decision, factor).feasible
    again = by_the_hour(context, at_least)
    assert again.metrics.cost_usd_per_h == pytest.approx(result.evaluation.metrics.cost_usd_per_h)


def test_prices_by_term_move_with_the_tornado_and_read_back(rated, tmp_path):
    scenario = rated()
    context = PlanContext.from_scenario(scenario)
    dearer = with_prices(context, 1.5, "h200-sxm")
    result = plan(scenario, explain=False)
    pools = result.evaluation.decision.pools
    assert sum(paid(dearer, pools)[0]) == pytest.approx(1.5 * sum(paid(context, pools)[0]))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_document(result, scenario)), encoding="utf-8")
    again = evaluate_fixed(api.load_scenario(path))
    assert again.evaluation.metrics.cost_usd_per_h == pytest.approx(18)


def test_a_chip_of_two_rooms_stands_once_in_the_one_room_of_the_baselines_with_both_reservations(rated):
    room = ONE_CHIP.split("  A:\n")[1].split("workload:")[0]
    text = ONE_CHIP.replace("workload:", f"  B:\n{room}workload:")
    prices = {f"sites.{site}.chips[0].prices.reserved_max": 3 for site in "AB"} | {f"sites.{site}.chips[0].stock": 6 for site in "AB"}
    scenario = rated({**prices, **FLAT}, text)
    (entry,) = one_room(PlanContext.from_scenario(scenario), None).scenario.sites["A"].chips
    assert (entry.stock, entry.prices.reserved_max) == (12, 6)


def test_the_report_states_what_is_paid_by_which_term(rated):
    from pddplan.report.catalogue import translator
    from pddplan.report.sections.money import section

    result = plan(rated(PEAK), explain=False)
    table = next(block for block in section(result, {}, translator("en")).blocks if getattr(block, "id", "") == "terms")
    assert table.rows == (("h200-sxm", "A", 0.0, pytest.approx(6.0), 0.0, 2.0, 10.0, pytest.approx(18.0)),)
