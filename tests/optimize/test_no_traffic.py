"""Nothing arrives: an empty plan or the floors that the scenario sets, without NaN or infinity."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pddplan.cli import run

SMALL = """\
name: small
model: {name: Qwen/Qwen3-32B}
engine: vllm
sites:
  A: {chips: [{chip: h100-sxm, stock: 16, price: 2.00 USD/h}]}
  B: {chips: [{chip: h200-sxm, stock: 16, price: 2.50 USD/h, roles: [MD]}]}
links:
  A-B: {between: [A, B], circuit: 100 Gbps, max_circuits: 4, rtt: 20 ms, price: 73 USD/Gbps/month}
workload:
  rate: 0
  classes: {chat: {input_tokens: 2k, output_tokens: 200, hit_rate: 50 %, sla: {ttft: {limit: 2 s}, tpot: 50 ms, attainment: 95 %}}}
"""
FLEET = "fleet: {pools: [{site: A, role: AGG, chip: h100-sxm, instances: 3, tp: 2}]"
Answer = Callable[..., dict[str, Any]]


@pytest.fixture
def answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Answer:
    """JSON of a command on the small scenario with more text."""

    def ask(extra: str = "", command: str = "optimize", *options: str) -> dict[str, Any]:
        path = tmp_path / "idle.yaml"
        path.write_text(SMALL + extra + "\n")
        assert run([command, str(path), *options, "--json", "-"]) == 0, capsys.readouterr().err
        text = capsys.readouterr().out
        assert "NaN" not in text
        assert "Infinity" not in text
        found: dict[str, Any] = json.loads(text)
        return found

    return ask


@pytest.mark.parametrize("objective", ["max-bcr", "min-cost", "max-goodput"])
def test_nothing_is_deployed_for_nothing(answer: Answer, objective: str) -> None:
    found = answer(f"objective: {objective}")
    assert found["status"] == "optimal"
    assert found["pools"] == []
    assert found["links"] == []
    metrics = found["metrics"]
    assert [metrics[name] for name in ("gpus", "cost_usd_per_h", "goodput_rps", "bcr")] == [0, 0, 0, 0]
    assert metrics["usd_per_million_output_tokens"] is None
    assert metrics["ttft_p99_s"] is None
    assert found["violations"] == []
    assert found["warnings"] == []


def test_the_least_circuits_stay(answer: Answer) -> None:
    found = answer("", "optimize", "--set", "links.A-B.min_circuits=2")
    assert [(link["name"], link["circuits"]) for link in found["links"]] == [("A-B", 2)]
    assert found["metrics"]["cost_usd_per_h"] == pytest.approx(20.0)
    assert found["pools"] == []


@pytest.mark.parametrize(("rest", "instances"), [("}", 3), (", keep: false}", 0), (", keep: false, change_max: 3}", 2)])
def test_the_fleet_stays_as_far_as_it_must(answer: Answer, rest: str, instances: int) -> None:
    found = answer(FLEET + rest)
    assert sum(pool["instances"] for pool in found["pools"]) == instances
    assert found["metrics"]["cost_usd_per_h"] == pytest.approx(instances * 2 * 2.0)


def test_spare_instances_stand_on_what_would_serve_a_lone_request_cheapest(answer: Answer) -> None:
    found = answer("search: {redundancy: 2}")
    assert {pool["instances"] for pool in found["pools"]} == {2}
    one = answer("search: {redundancy: 1}")
    assert found["metrics"]["cost_usd_per_h"] == pytest.approx(2 * one["metrics"]["cost_usd_per_h"])
    assert one["metrics"]["goodput_rps"] == 0


def test_spares_that_no_configuration_can_serve_with_are_infeasible(tmp_path: Path) -> None:
    path = tmp_path / "slow.yaml"
    path.write_text(SMALL.replace("limit: 2 s", "limit: 1 ms") + "search: {redundancy: 1}\n")
    assert run(["optimize", str(path)]) == 3


def test_a_given_plan_idles_at_its_full_cost(answer: Answer) -> None:
    pools = "{site: A, role: P, chip: h100-sxm, instances: 2, tp: 2}, {site: B, role: MD, chip: h200-sxm, instances: 1, tp: 2}"
    found = answer(f"plan: {{pools: [{pools}], links: {{A-B: 1}}}}", "evaluate")
    assert found["metrics"]["cost_usd_per_h"] == pytest.approx(4 * 2.0 + 2 * 2.5 + 10.0)
    assert found["metrics"]["goodput_rps"] == 0
    assert [pool["utilisation"] for pool in found["pools"]] == [0, 0]
    assert found["stable"]


def test_the_console_says_that_nothing_arrives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "idle.yaml"
    path.write_text(SMALL)
    assert run(["optimize", str(path)]) == 0
    assert capsys.readouterr().out == "small: nothing deployed\nOptimal. 0 USD/h; no requests arrive\n"


@pytest.mark.parametrize("command", ["pareto", "sensitivity", "robust"])
def test_studies_of_serving_want_traffic(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    path = tmp_path / "idle.yaml"
    path.write_text(SMALL)
    assert run([command, str(path)]) == 2
    assert "workload.rate: no request arrives" in capsys.readouterr().err


def test_a_model_without_traffic_gets_no_pools_beside_one_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    each = "{{model: {{name: Qwen/Qwen3-32B}}, workload: {{rate: {rate} req/s, classes: {{a: {{input_tokens: 1k, output_tokens: 50}}}}}}}}"
    two = f"deployments: {{busy: {each.format(rate=1)}, idle: {each.format(rate=0)}}}\n"
    path = tmp_path / "two.yaml"
    path.write_text(f"name: two\nsites: {{A: {{chips: [{{chip: h100-sxm, stock: 8, price: 2.00 USD/h}}]}}}}\n{two}")
    assert run(["optimize", str(path), "--json", "-"]) == 0, capsys.readouterr().err
    assert {pool["deployment"] for pool in json.loads(capsys.readouterr().out)["pools"]} == {"busy"}


def test_wrong_kv_formats_name_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kv.yaml"
    path.write_text(SMALL.replace("Qwen/Qwen3-32B}", "Qwen/Qwen3-32B, kv_format: fp3}"))
    assert run(["optimize", str(path)]) == 2
    assert "kv.yaml:2 model.kv_format: fp3" in capsys.readouterr().err
    each = "{model: {name: Qwen/Qwen3-32B, kv_format: fp3}, workload: {rate: 1 req/s, classes: {a: {input_tokens: 1k, output_tokens: 50}}}}"
    path.write_text(f"name: two\nsites: {{A: {{chips: [{{chip: h100-sxm, stock: 8, price: 2.00 USD/h}}]}}}}\ndeployments:\n  one: {each}\n")
    assert run(["optimize", str(path)]) == 2
    assert "kv.yaml:4 deployments.one.model.kv_format: fp3" in capsys.readouterr().err


def test_inputs_beyond_the_models_positions_are_doubted(answer: Answer) -> None:
    found = answer("", "optimize", "--set", "workload.classes.chat.input_tokens=200k")
    expected = "class chat: requests of up to 200,200 tokens exceed the 40,960 positions of Qwen/Qwen3-32B"
    assert expected in found["warnings"]


def test_an_empty_plan_is_read_back_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plan = tmp_path / "idle.yaml", tmp_path / "plan.json"
    path.write_text(SMALL)
    for circuits, code in ((1, 0), (0, 2)):
        least = ["--set", f"links.A-B.min_circuits={circuits}"]
        assert run(["optimize", str(path), *least, "--json", str(plan), "--force"]) == 0
        assert run(["evaluate", str(plan)]) == 0
        assert run(["report", str(plan), "-o", str(tmp_path / "plan.html"), "--force"]) == code
    capsys.readouterr()
    assert run(["explain", str(plan), "ttft_p99_s"]) == 0
    assert "no request arrives" in capsys.readouterr().out
    assert run(["export", str(plan), "-o", str(tmp_path / "plan.xlsx")]) == 2
    assert "workload.rate: no request arrives" in capsys.readouterr().err.replace("plan.json ", "")


def test_a_plan_without_pools_carries_no_traffic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.yaml"
    path.write_text(SMALL.replace("rate: 0", "rate: 1 req/s") + "plan: {pools: []}\n")
    assert run(["evaluate", str(path)]) == 2
    assert "plan.pools: no pools; at least one pool" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["stability", "savings"])
def test_studies_of_traffic_say_that_none_arrives(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    path = tmp_path / "idle.yaml"
    path.write_text(SMALL)
    assert run([command, str(path)]) == 2
    assert "workload.rate: no requests arrive" in capsys.readouterr().err
