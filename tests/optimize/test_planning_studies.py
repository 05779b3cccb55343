"""Pareto front, sensitivity and robust plan on one small scenario."""

from __future__ import annotations

import json

import pytest

from pddplan import api
from pddplan.cli import main
from pddplan.errors import InputError
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.studies.pareto import pareto
from pddplan.studies.robust import Future, futures, robust_plan
from pddplan.studies.sensitivity import drivers, sensitivity

SMALL = """
name: small
model: {name: Qwen/Qwen3-32B-FP8}
sites: {A: {chips: [{chip: h100-sxm, stock: 24, price: 2 USD/h}]}}
workload:
  rate: 6 req/s
  rows: 200
  classes: {c: {input_tokens: 4k, output_tokens: 300, hit_rate: 0.3, sla: {ttft: {limit: 3 s}, tpot: {limit: 50 ms}, attainment: 95 %}}}
search: {tp: [1, 2]}
objective: min-cost
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def test_no_plan_of_the_front_beats_another_on_both(small):
    front = pareto(api.load_scenario(small), points=4)
    assert len(front.points) >= 2
    for cheap, fast in zip(front.points, front.points[1:], strict=False):
        assert cheap.x < fast.x
        assert cheap.y > fast.y
    assert all(point.evaluation.feasible for point in front.points)
    assert all(point.ceiling is None or point.y <= point.ceiling for point in front.points)


def test_metrics_that_cannot_be_traded_are_input_errors(small):
    with pytest.raises(InputError) as caught:
        pareto(api.load_scenario(small), x="happiness", y="colour", points=1)
    assert [problem.place for problem in caught.value.problems] == ["--x", "--y", "--points"]


def test_cost_moves_with_the_price_in_proportion_and_never_falls_with_demand(small):
    study = sensitivity(api.load_scenario(small), 0.25)
    swings = {swing.driver: swing for swing in study.swings}
    price = swings["price of h100-sxm"]
    assert price.replanned == pytest.approx((0.75 * study.base, 1.25 * study.base))
    low, high = swings["demand"].replanned
    assert low <= study.base * (1 + 1e-9) <= high * (1 + 1e-9)
    assert study.swings == tuple(sorted(study.swings, key=lambda swing: -swing.span))


def test_a_driver_at_factor_1_changes_nothing(small):
    context = PlanContext.from_scenario(api.load_scenario(small))
    decision = api.optimize(api.load_scenario(small)).evaluation.decision
    base = evaluate(context, decision).metrics
    for name, change in drivers(context).items():
        assert evaluate(change(context, 1.0), decision).metrics == base, name


def test_a_robust_plan_holds_in_every_future_and_costs_no_less_than_the_nominal_one(small):
    chosen = futures((0.8, 1.5), (1.0, 1.4))
    plan = robust_plan(api.load_scenario(small), chosen)
    assert all(result.robust.feasible for result in plan.results)
    assert plan.price_of_robustness >= 0
    dearest = max(result.own.metrics.cost_usd_per_h for result in plan.results)
    assert plan.cost_usd_per_h >= dearest * (1 - 1e-9)
    assert plan.worst_bcr <= plan.expected_bcr


def test_the_future_that_is_the_present_costs_nothing_extra(small):
    plan = robust_plan(api.load_scenario(small), (Future("as it stands", 1.0),))
    assert plan.price_of_robustness == pytest.approx(0.0)
    assert plan.nominal_fails == ()


def test_weights_must_sum_to_one(small):
    with pytest.raises(InputError, match="weights"):
        robust_plan(api.load_scenario(small), (Future("half", 0.5),))


@pytest.mark.parametrize("command", [["pareto", "--points", "2"], ["sensitivity"], ["robust", "--demand", "1,1.2", "--uncached", "1"]])
def test_each_command_writes_json_that_reads_back_and_a_page(command, small, tmp_path, monkeypatch):
    target, page = tmp_path / "out.json", tmp_path / "out.html"
    monkeypatch.setattr("sys.argv", ["pddplan", command[0], str(small), *command[1:], "--json", str(target), "--report", str(page)])
    with pytest.raises(SystemExit) as stopped:
        raise SystemExit(main())
    assert stopped.value.code in (0, None)
    assert json.loads(target.read_text())["scenario"]["name"] == "small"
    assert "small" in page.read_text(encoding="utf-8")
