"""The ladder of savings over a planner that sizes each role by its load."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pddplan.api import load_scenario
from pddplan.errors import InfeasibleError
from pddplan.model.spec import Parallel
from pddplan.optimize.result import Baseline, Objective, PlanResult
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Configuration, Decision, Evaluation, Pool, Role
from pddplan.report.html import render
from pddplan.report.savings import savings_document, savings_lines, savings_page
from pddplan.scenario.schema import Scenario
from pddplan.studies.savings import SavingsStudy, savings, with_speculation, without_hits, without_speculation

SCENARIO = """\
name: ladder
model: {name: deepseek-ai/DeepSeek-V4-Pro, kv_format: nominal}
sites:
  A:
    chips:
      - chip: h100-sxm
        price: 2.00 USD/h
        profiles:
          - {role: P, gpus: 8, prefill_s: {uncached: [1, 64k], seconds: [0.1, 4.1]}}
          - {role: MD, gpus: 8, step_s: {batch: [1, 64], seconds: [0.02, 0.03]}, batch_max: 64}
          - {role: AGG, gpus: 8, rate: {input: [64k], output: [1000], req_per_s: [[0.1]]}}
workload:
  rate: 2 req/s
  classes: {agent: {input_tokens: 64k, output_tokens: 1000, hit_rate: 90 %, sla: {ttft: {limit: 60 s}, tpot: {limit: 100 ms}}}}
"""


def pool(role: Role, profile: int, instances: int) -> Pool:
    return Pool(
        Configuration("main", "deepseek-ai/DeepSeek-V4-Pro", "A", role, "h100-sxm", "generic", Parallel(tp=8), 8, profile), instances
    )


def planned(scenario: Scenario, explain: bool) -> PlanResult:
    """Instances of each role at 60 % load; one room is all there is."""
    context = PlanContext.from_scenario(scenario)
    mix = context.deployments["main"].mix
    settings = context.settings("main")

    def solved(*pools: Pool) -> Evaluation:
        return evaluate(context, Decision(pools, (), settings))

    prefill_s = 0.1 + 4.0 * mix.mean(mix.uncached_tokens) / 64_000
    tokens = context.instance(pool("MD", 1, 1).configuration).tokens_per_step
    decode_s = 1000 * 0.03 / tokens / 64
    split = solved(pool("P", 0, math.ceil(2 * prefill_s / 0.6)), pool("MD", 1, math.ceil(2 * decode_s / 0.6)))
    aggregated = solved(pool("AGG", 2, math.ceil(2 / 0.1 / 0.8)))
    baselines = (
        Baseline("aggregated", "optimal", aggregated),
        Baseline("one_room_one_chip", "optimal", split),
        Baseline("one_room_mixed", "infeasible", None, "only one chip is in stock"),
    )
    objective = Objective("min-cost", split.metrics.cost_usd_per_h, split.metrics.cost_usd_per_h, "USD/h")
    return PlanResult(scenario.name, scenario.digest, "optimal", 0.0, objective, split, baselines)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    path: Path = tmp_path_factory.mktemp("savings") / "scenario.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return load_scenario(path)


@pytest.fixture(scope="module")
def study(scenario: Scenario) -> SavingsStudy:
    return savings(scenario, planned)


def factor(study: SavingsStudy, name: str) -> float:
    return next(rung.factor for rung in study.rungs if rung.name == name)


def test_factors_multiply_to_the_product_of_the_ends(study: SavingsStudy) -> None:
    assert math.prod(rung.factor for rung in study.rungs) == pytest.approx(study.product)
    assert study.product == pytest.approx(study.rungs[0].cost_per_million / study.rungs[-1].cost_per_million)


def test_a_free_ratio_never_costs_more_than_equal_sides(study: SavingsStudy) -> None:
    """14 P and 4 MD instances by load; equal sides need as many D as P."""
    assert factor(study, "free P:D ratio") >= 1.0
    equal = next(level.evaluation for level in study.levels if level.name == "PD split")
    assert equal is not None
    assert equal.feasible
    gpus = {each.configuration.role: each.gpus for each in equal.decision.pools}
    assert gpus["P"] == gpus["MD"]


def test_hits_save_prefill_and_speculation_saves_decode(study: SavingsStudy) -> None:
    assert factor(study, "prefix hits") > 2.0
    assert factor(study, "speculation") >= 1.0
    assert "tokens a step" in study.notes[0]


def test_a_rung_without_a_plan_says_why_and_is_left_out(study: SavingsStudy) -> None:
    document = savings_document(study)
    mixed = next(rung for rung in document["rungs"] if rung["name"] == "mixed chips")
    assert mixed["factor"] is None
    assert mixed["reason"] == "only one chip is in stock"
    assert "only one chip" in "\n".join(savings_lines(study))
    assert "waterfall" in render(savings_page(study, "ladder"))


def test_levers_change_only_what_they_name(scenario: Scenario) -> None:
    cold = PlanContext.from_scenario(without_hits(scenario)).deployments["main"].mix
    warm = PlanContext.from_scenario(scenario).deployments["main"].mix
    assert cold.mean(cold.uncached_tokens) == pytest.approx(64_000)
    assert cold.mean(cold.input_tokens) == warm.mean(warm.input_tokens)
    assert cold.rate_per_s == warm.rate_per_s
    fast, note = with_speculation(scenario, 1)
    assert fast is not None
    assert "deepseek-v4-pro-mtp:thinking_on" in note
    assert without_speculation(fast).digest == scenario.digest


def test_sessions_and_traces_lose_their_hits_too(scenario: Scenario) -> None:
    turns = {"turns": 10, "first_tokens": 4000, "growth_tokens": 2000, "output_tokens": 500}
    sessions = load_scenario(scenario, {"workload": {"rate": "2 req/s", "sessions": turns}})
    mix = PlanContext.from_scenario(without_hits(sessions)).deployments["main"].mix
    assert mix.mean(mix.uncached_tokens) == pytest.approx(mix.mean(mix.input_tokens), rel=0.01)


def test_a_model_nobody_measured_has_no_speculation_rung(scenario: Scenario) -> None:
    other = load_scenario(scenario, {"model": {"name": "Qwen/Qwen3-32B"}})
    assert with_speculation(other, 1)[0] is None
    assert with_speculation(scenario, 9)[0] is None


def test_stock_is_lifted_for_the_rungs_that_it_would_forbid(scenario: Scenario) -> None:
    few = load_scenario(scenario, {"sites.A.chips[0].stock": 64})

    def limited(asked: Scenario, explain: bool) -> PlanResult:
        result = planned(asked, explain)
        stock = asked.sites["A"].chips[0].stock
        if stock is not None and result.evaluation.metrics.gpus > stock:
            raise InfeasibleError("stock", "the demand does not fit")
        return result

    found = savings(few, limited)
    assert found.rungs[0].name == "aggregated"
    assert "as many chips as it takes" in found.notes[0]


def test_no_plan_at_all_is_infeasible(scenario: Scenario) -> None:
    def never(_: Scenario, explain: bool) -> PlanResult:
        raise InfeasibleError("memory", "nothing fits")

    with pytest.raises(InfeasibleError, match="nothing fits"):
        savings(scenario, never)
