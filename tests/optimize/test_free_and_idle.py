"""Prices of 0, and a fleet of a deployment without traffic."""

from __future__ import annotations

import json
import math

import pytest

from pddplan.errors import InfeasibleError, InputError
from pddplan.pipeline import evaluate, plan
from pddplan.report.json import json_text, plan_document

BLOCK = """
    model: {name: meta-llama/Llama-3.1-8B}
    workload: {rate: RATE req/s, classes: {all: {input_tokens: 100, output_tokens: 100}}}
"""
PROFILE = "profiles: [{role: AGG, gpus: 1, rate: {input: [100], output: [100], req_per_s: [[1]]}}]"
TWO = f"""
name: one busy and one idle
sites: {{A: {{chips: [{{chip: h100-sxm, stock: 16, price: 2 USD/h, roles: [AGG], {PROFILE}}}]}}}}
deployments:
  idle:{BLOCK.replace("RATE", "0")}  busy:{BLOCK.replace("RATE", "3.9")}
objective: min-cost
"""
STANDING = {"site": "A", "role": "AGG", "chip": "h100-sxm", "profile": 0}


@pytest.fixture
def load(load):
    return lambda changes=None, text=TWO: load(text, changes)


def test_a_kept_fleet_of_an_idle_deployment_takes_its_stock_and_is_told(load):
    fleet = {"fleet": {"pools": [{**STANDING, "deployment": "idle", "instances": 10}]}}
    result = plan(load(fleet), explain=False)
    assert [(p.configuration.deployment, p.instances) for p in result.evaluation.decision.pools] == [("busy", 4)]
    assert any("no requests arrive for idle: 10 GPUs of its fleet stand idle, 20 USD/h" in text for text in result.evaluation.warnings)
    with pytest.raises(InfeasibleError):
        plan(load({**fleet, "deployments.busy.workload.rate": "6.9 req/s"}), explain=False)
    with pytest.raises(InfeasibleError):
        plan(load({**fleet, "budget": "27 USD/h"}), explain=False)
    free = {"fleet": {**fleet["fleet"], "keep": False}, "deployments.busy.workload.rate": "6.9 req/s"}
    assert plan(load(free), explain=False).evaluation.metrics.gpus == 7


def test_a_pool_without_a_name_belongs_to_the_first_deployment_of_the_scenario(load):
    result = plan(load({"fleet": {"pools": [{**STANDING, "instances": 2}]}}), explain=False)
    assert any("2 GPUs of its fleet stand idle" in text for text in result.evaluation.warnings)


def test_a_kept_fleet_larger_than_the_need_stays(load):
    result = plan(load({"fleet": {"pools": [{**STANDING, "deployment": "busy", "instances": 12}]}}), explain=False)
    assert result.evaluation.metrics.gpus == 12


@pytest.mark.parametrize("objective", ["max-bcr", "min-cost"])
def test_chips_that_all_cost_nothing_are_an_input_error_where_money_decides(load, objective):
    with pytest.raises(InputError) as caught:
        plan(load({"sites.A.chips[0].price": "0 USD/h", "objective": objective}))
    (problem,) = caught.value.problems
    assert problem.place == "sites.A.chips[0].price"
    assert "h100-sxm costs 0" in problem.found


def test_most_goodput_of_free_chips_is_planned_and_its_ratio_is_not_defined(load):
    scenario = load({"sites.A.chips[0].price": "0 USD/h", "objective": "max-goodput", "deployments.idle.workload.rate": "0.1 req/s"})
    result = plan(scenario)
    assert result.evaluation.metrics.goodput_rps == pytest.approx(16, rel=0.1)
    assert math.isnan(result.evaluation.metrics.bcr)
    document = json.loads(json_text(plan_document(result, scenario)))
    assert document["metrics"]["bcr"] is None
    fixed = {"plan": {"pools": [{**STANDING, "deployment": "busy", "instances": 5}]}, "sites.A.chips[0].price": "0 USD/h"}
    assert math.isnan(evaluate(load(fixed)).evaluation.metrics.bcr)


def test_one_free_chip_beside_a_priced_one_is_a_plan_of_least_cost(load):
    second = {"chip": "h200-sxm", "price": "0 USD/h", "stock": 2, "roles": ["AGG"], "profiles": [
        {"role": "AGG", "gpus": 1, "rate": {"input": [100], "output": [100], "req_per_s": [[1]]}}]}  # fmt: skip
    first = {"chip": "h100-sxm", "price": "2 USD/h", "roles": ["AGG"], "profiles": second["profiles"]}
    changes = {"sites.A.chips": [first, second], "search.configurations_per_role": 2}
    assert plan(load(changes), explain=False).evaluation.metrics.cost_usd_per_h == pytest.approx(4)
    with pytest.raises(InputError, match="h200-sxm costs 0"):
        plan(load({**changes, "objective": "max-bcr"}))
