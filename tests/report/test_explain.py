"""A metric explained: every metric has its formula, and the arithmetic written out gives the metric."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from report_plan import evaluated, result_of

from pddplan.api import load_scenario
from pddplan.cli import run
from pddplan.errors import InputError
from pddplan.optimize.result import PlanResult
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.fixed_plan import fixed_decision
from pddplan.pdd.plan import Metrics
from pddplan.report.explain import Explanation, explain

Planned = tuple[PlanContext, PlanResult]
METRICS = [field.name for field in fields(Metrics)]
ROOT = Path(__file__).parents[2]
ONE_ROOM = """\
name: one room
model: {name: Qwen/Qwen3-32B-FP8}
sites: {A: {chips: [{chip: h100-sxm, price: 2 USD/h}]}}
workload:
  rate: 6 req/s
  rows: 100
  classes: {c: {input_tokens: 4k, output_tokens: 300, hit_rate: 0.3, sla: {ttft: {limit: 3 s}}}}
plan: {pools: [{site: A, role: AGG, chip: h100-sxm, instances: 4, tp: 2}]}
"""


def computed(answer: Explanation) -> float:
    """What the left side of ``filled`` comes to, its operators written as people write them."""
    left = answer.filled.split(" = ")[0].replace(" x ", " * ").replace("tokens/s", "").replace("requests/s", "").replace(" %", "e-2")
    assert re.fullmatch(r"[\d.e+*/() -]+", left), left
    return float(eval(left))


@pytest.fixture(scope="module")
def one_room(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    path = tmp_path_factory.mktemp("one") / "scenario.yaml"
    path.write_text(ONE_ROOM, encoding="utf-8")
    context = PlanContext.from_scenario(load_scenario(path))
    return context, result_of(context, evaluate(context, fixed_decision(context)))


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_of_a_plan_is_explained_with_its_own_value(metric: str, planned: Planned, one_room: Planned) -> None:
    for context, result in (planned, one_room):
        answer = explain(context, result, metric)
        value = getattr(result.evaluation.metrics, metric)
        assert answer.value is value or answer.value == pytest.approx(value, nan_ok=True)
        assert answer.formula
        assert answer.filled
        assert (ROOT / answer.section).is_file()
        assert all(term.name and term.value and term.source for term in answer.terms)


@pytest.mark.parametrize("metric", ["cost_usd_per_h", "bcr", "goodput_rps", "usd_per_million_output_tokens", "gpus"])
def test_the_arithmetic_written_out_gives_the_metric(metric: str, planned: Planned, one_room: Planned) -> None:
    for context, result in (planned, one_room):
        assert computed(explain(context, result, metric)) == pytest.approx(getattr(result.evaluation.metrics, metric), rel=6e-3)


def test_a_latency_is_the_sum_of_what_happens_to_its_typical_request(planned: Planned) -> None:
    """Durations print with three digits, so their sum does too."""
    answer = explain(*planned, "ttft_p99_s")
    spans = [term for term in answer.terms if term.name != "request" and not term.name.startswith("load of")]
    scale = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
    total = sum(float(term.value.split()[0]) * scale[term.value.split()[1]] for term in spans)
    assert total == pytest.approx(planned[1].evaluation.metrics.ttft_p99_s, rel=0.1)
    assert any(term.source.startswith("roofline of h100-sxm") for term in spans)
    assert {"load of P", "load of RLD", "load of MD", "load of line A-B"} <= {term.name for term in answer.terms}


def test_a_plan_that_never_gets_there_says_so_and_a_plan_without_lines_needs_none(one_room: Planned) -> None:
    context, evaluation = evaluated({"workload.rate": "500 req/s"})
    assert not evaluation.stable
    flooded = explain(context, result_of(context, evaluation), "ttft_p50_s")
    assert flooded.filled == "the plan is unstable: this percentile is never reached"
    assert flooded.terms == ()
    assert explain(*one_room, "line_gbps_needed").terms == ()
    relay = explain(*one_room, "rld_token_share")
    assert relay.terms[0].value == "no relay"


def test_a_measured_instance_is_named_as_the_source_of_its_times() -> None:
    scenario = load_scenario("pdd-88-vs-43-32")
    context = PlanContext.from_scenario(scenario)
    result = result_of(context, evaluate(context, fixed_decision(context)))
    sources = {term.source for metric in ("ttft_p50_s", "tpot_mean_s") for term in explain(context, result, metric).terms}
    assert any(source.startswith("measured profile") for source in sources)


def test_what_is_not_defined_says_why(planned: Planned) -> None:
    context, result = planned
    metrics = replace(result.evaluation.metrics, usd_per_million_output_tokens=math.nan)
    starved = replace(result, evaluation=replace(result.evaluation, metrics=metrics))
    assert explain(context, starved, "usd_per_million_output_tokens").filled == "not defined: the plan does not carry the demand"


def test_an_unknown_metric_is_refused_with_the_nearest(planned: Planned) -> None:
    with pytest.raises(InputError) as caught:
        explain(*planned, "ttft_p99")
    (problem,) = caught.value.problems
    assert problem.example == "ttft_p99_s"
    assert all(metric in problem.accepted for metric in METRICS)


def test_the_command_prints_the_formula_and_the_json_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(ONE_ROOM, encoding="utf-8")
    assert run(["explain", str(path), "cost_usd_per_h"]) == 0
    shown = capsys.readouterr().out
    assert "cost_usd_per_h = 16" in shown
    assert "8 x 2 = 16 USD/h" in shown
    assert "docs/model/economics.md" in shown
    assert run(["explain", str(path), "cost_usd_per_h", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["value"] == 16.0
    assert document["filled"] in shown
    assert run(["explain", str(path), "beauty"]) == 2
