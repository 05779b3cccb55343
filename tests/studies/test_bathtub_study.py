"""The bathtub of a whole scenario, as its JSON says it."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from pddplan.api import load_scenario
from pddplan.economics.benefit_curve import Classification, Valley
from pddplan.errors import InputError
from pddplan.pdd.context import PlanContext
from pddplan.pdd.fixed_plan import fixed_decision
from pddplan.pdd.money import token_prices
from pddplan.report.bathtub import bathtub_document, bathtub_lines, bathtub_page
from pddplan.report.document import Figure, Table
from pddplan.report.html import render
from pddplan.report.json import json_text
from pddplan.studies.bathtub import BathtubStudy, bathtub

SCENARIO = """\
name: bathtub
model: {name: deepseek-ai/DeepSeek-V4-Pro, kv_format: nominal}
engine: sglang
sites:
  A: {chips: [{chip: h100-sxm, price: 2.00 USD/h}]}
workload:
  rate: 1 req/s
  rows: 200
  classes:
    agent:
      input_tokens: 64k
      output_tokens: 1000
      hit_rate: {buckets: {0-90: 30 %, 90-100: 70 %}}
      sla: {ttft: {limit: 60 s}, tpot: {limit: 80 ms}}
plan:
  pools:
    - {site: A, role: P, chip: h100-sxm, instances: 2, tp: 8, dp: 4, ep: 32}
    - {site: A, role: MD, chip: h100-sxm, instances: 1, tp: 1, dp: 32, ep: 32}
"""


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> PlanContext:
    path = tmp_path_factory.mktemp("bathtub") / "scenario.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return PlanContext.from_scenario(load_scenario(path))


def study(context: PlanContext, ratio: float | None = None, *overrides: str, plan_points: int = 0) -> BathtubStudy:
    if overrides:
        context = PlanContext.from_scenario(load_scenario(context.scenario, overrides))
    prices = token_prices(context, None, ratio)
    return bathtub(context, fixed_decision(context), prices=prices, plan_points=plan_points)


@pytest.mark.parametrize("ratio", [0.01, 0.10, 0.25])
def test_agent_traffic_on_v4_pro_with_packed_tails_has_no_valley(context: PlanContext, ratio: float) -> None:
    found = study(context, ratio)
    assert found.found.shape in ("rising", "falling")
    assert found.singular == ()


def test_serial_tails_of_the_same_traffic_make_a_sawtooth(context: PlanContext) -> None:
    found = study(context, 0.1, "policy.tail_packing=false")
    assert found.found.shape == "sawtooth"
    hits = [point.hit_rate for point in found.singular]
    assert hits == pytest.approx([1 - (k * 8192 + 1) / 64_000 for k in range(7, 0, -1)])
    assert found.advice[-1].text.startswith(("packing", "chunks"))


def test_the_closed_form_follows_the_full_model(context: PlanContext) -> None:
    found = study(context, 0.1)
    closed = found.closed.benefit(found.curve.hit_rate)
    assert closed == pytest.approx(found.curve.benefit, rel=0.01)


def test_the_json_has_the_agreed_fields(context: PlanContext) -> None:
    document = json.loads(json_text(bathtub_document(study(context, 0.1, plan_points=2))))
    assert {"curve", "class", "valley", "singular_points", "advice"} <= document.keys()
    assert {"hit_rate", "benefit", "throughput", "revenue", "ttft_s", "bcr"} <= document["curve"][0].keys()
    assert set(document["valley"]) == {"present", "bottom_hit_rate", "left_edge", "right_edge", "depth"}
    assert (document["curve"][0]["hit_rate"], document["curve"][-1]["hit_rate"]) == (0, 1)
    served = [point["goodput_rps"] for point in document["plan_curve"]]
    assert served[0] < served[1]
    assert sum(document["traffic"]["bin_shares"]) == pytest.approx(1)


def test_revenue_is_what_the_provider_bills(context: PlanContext) -> None:
    found = study(context, 0.5)
    miss, output = 0.435, 0.87
    assert found.curve.revenue[0] == pytest.approx((64_000 * miss + 1000 * output) / 1e6)
    assert found.curve.revenue[-1] == pytest.approx((64_000 * miss * 0.5 + 1000 * output) / 1e6)


def test_text_and_page_say_the_class(context: PlanContext) -> None:
    found = study(context, 0.1)
    assert found.found.shape in next(bathtub_lines(found))
    page = render(bathtub_page(found, "bathtub"))
    assert found.found.shape in page
    assert "Where on the curve is this traffic?" in page


def test_scenario_prices_come_before_published_ones_and_none_is_an_error(context: PlanContext) -> None:
    stated = study(context, None, "token_prices={input: 0.55 USD/Mtok, cached: 0.14 USD/Mtok, output: 2.19 USD/Mtok}")
    assert stated.prices.miss == pytest.approx(0.55)
    assert stated.price_source == "token_prices of the scenario"
    with pytest.raises(InputError, match="token_prices"):
        study(
            context,
            None,
            "model.name=Qwen/Qwen3-32B",
            "model.kv_format=bf16",
            "plan.pools[0].dp=1",
            "plan.pools[1].dp=1",
            "plan.pools[1].tp=8",
        )
    free = study(context, 0.0)
    assert free.curve.revenue[-1] == pytest.approx(1000 * 0.87 / 1e6)
    with pytest.raises(InputError, match="over 0"):
        study(context, None, "token_prices={input: 0 USD/Mtok, output: 1 USD/Mtok}")
    with pytest.raises(InputError, match="price ratio"):
        token_prices(context, None, float("nan"))


def test_a_plan_that_decodes_nothing_is_an_input_error(context: PlanContext) -> None:
    decision = fixed_decision(context)
    with pytest.raises(InputError, match="MD"):
        bathtub(context, type(decision)(decision.pools[:1], (), decision.settings), plan_points=0)


def test_history_that_agents_leave_in_decode_memory_is_a_cost_of_its_own(context: PlanContext) -> None:
    def sessions(think_s: float) -> BathtubStudy:
        turns = f"{{turns: 20, first_tokens: 4k, growth_tokens: 4k, output_tokens: 800, think_time: {{mean: {think_s} s}}}}"
        return study(context, 0.1, f"workload={{rate: 20 req/s, rows: 200, sessions: {turns}, sla: {{tpot: {{limit: 80 ms}}}}}}")

    brief, long = sessions(30), sessions(3000)
    assert brief.curve.terms["cache memory"][0] == 0
    assert long.curve.terms["cache memory"][-1] > brief.curve.terms["cache memory"][-1]
    needed = [each.advice[0].numbers.get("bytes") for each in (brief, long)]
    assert isinstance(needed[0], float)
    assert "GB of cache" in brief.advice[0].text


def figures(found: BathtubStudy) -> dict[str, Figure]:
    return {block.id: block for block in bathtub_page(found, "x").blocks() if isinstance(block, Figure)}


def test_the_text_has_a_line_for_every_tenth_of_the_hit_rate_and_names_the_teeth(context: PlanContext) -> None:
    found = study(context, 0.1, "policy.tail_packing=false", plan_points=2)
    lines = list(bathtub_lines(found))
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines if re.match(r"\s+\d+%  ", line)]
    assert [row[0] for row in rows] == [f"{10 * i}%" for i in range(10)]
    at = [int(np.argmin(np.abs(found.curve.hit_rate - i / 10))) for i in range(10)]
    assert [float(row[1]) for row in rows] == pytest.approx(found.curve.benefit[at] / found.curve.benefit[0], rel=6e-3)
    assert sum(float(row[4].removesuffix(" %")) for row in rows) == pytest.approx(100, abs=2)
    for row in rows:
        assert sum(float(share) for share in re.findall(r"([\d.]+) %", row[5])) == pytest.approx(100, abs=3)
    text = "\n".join(lines)
    worst = max(found.singular, key=lambda point: point.loss)
    assert f"at {worst.hit_rate:.1%}" in text
    assert all(f"every request at {point.hit_rate:.0%}" in text for point in found.plan_curve)
    assert all(each.text in text for each in found.advice)
    tables = [block for block in bathtub_page(found, "x").blocks() if isinstance(block, Table) and block.id == "singular"]
    assert [row[0] for row in tables[0].rows] == pytest.approx([100 * point.hit_rate for point in found.singular])
    assert [trace["name"] for trace in figures(found)["service"].traces] == ["a request alone", "this plan, P50", "this plan, P99"]


@pytest.mark.parametrize(("right", "last"), [(0.95, 0.95), (None, 1.0)])
def test_a_valley_is_told_in_text_json_and_page_with_the_traffic_that_lies_in_it(
    context: PlanContext, right: float | None, last: float
) -> None:
    found = study(context, 0.1)
    valley = Valley(bottom=0.8, left_edge=0.25, right_edge=right, depth=0.7)
    found = replace(found, found=Classification("valley", "attention", valley, "valley"))
    inside = found.traffic.share_between(0.25, 1.01 if right is None else right)
    document = bathtub_document(found)
    edges = {"left_edge": 0.25, "right_edge": right}
    assert document["valley"] == {"present": True, "bottom_hit_rate": 0.8, "depth": 0.7, **edges}
    assert document["traffic"]["share_in_valley"] == inside > 0
    told = next(line for line in bathtub_lines(found) if "bottom at" in line)
    assert "bottom at 80.0%" in told
    assert ("it never comes back" if right is None else "back at 95.0%") in told
    (band,) = [shape for shape in figures(found)["benefit"].layout["shapes"] if shape["type"] == "rect"]
    assert (band["x0"], band["x1"]) == (0.25, last)
    assert f"{100 * inside:.3g}" in figures(found)["traffic"].summary
    shallow = replace(found, found=replace(found.found, shape="rising", underlying="rising"))
    assert bathtub_document(shallow)["traffic"]["share_in_valley"] == 0.0
    assert "too shallow" in "\n".join(bathtub_lines(shallow))
    assert all(shape["type"] != "rect" for shape in figures(shallow)["benefit"].layout["shapes"])
