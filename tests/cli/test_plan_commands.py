"""optimize and evaluate: JSON of the contract, the same on a second run, and readable as a scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from plan_schema import PLAN

from pddplan.cli import run
from pddplan.scenario.load import load_scenario, shipped_scenarios

Capture = pytest.CaptureFixture[str]


def plan_of(args: list[str], capsys: Capture) -> dict[str, Any]:
    assert run([*args, "--json", "-"]) == 0, capsys.readouterr().err
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, PLAN)
    return document


@pytest.fixture(scope="module")
def minimal_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JSON of the minimal scenario's plan, in a folder of its own."""
    file = tmp_path_factory.mktemp("plans") / "plan 一.json"
    assert run(["optimize", "01-minimal", "--json", str(file)]) == 0
    return file


def check_consistency(plan: dict[str, Any]) -> None:
    metrics = plan["metrics"]
    assert metrics["gpus"] == sum(pool["gpus"] for pool in plan["pools"])
    assert all(pool["gpus"] == pool["instances"] * pool["gpus_per_instance"] for pool in plan["pools"])
    assert metrics["bcr"] == pytest.approx(metrics["goodput_rps"] / metrics["cost_usd_per_h"])
    assert metrics["cost_usd_per_h"] == pytest.approx(sum(part["cost_usd_per_h"] for part in (*plan["pools"], *plan["links"])))
    if metrics["ttft_p99_s"] is not None:
        assert metrics["ttft_p50_s"] <= metrics["ttft_p90_s"] <= metrics["ttft_p99_s"]
    assert sum(pipeline["share"] for pipeline in plan["pipelines"]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", ["01-minimal", pytest.param("pdd-reference", marks=pytest.mark.slow)])
def test_a_plan_is_the_contract_and_the_same_bytes_again(name: str, tmp_path: Path, capsys: Capture) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file in files:
        assert run(["optimize", name, "--json", str(file)]) == 0, capsys.readouterr().err
    assert files[0].read_bytes() == files[1].read_bytes()
    plan = json.loads(files[0].read_text(encoding="utf-8"))
    jsonschema.validate(plan, PLAN)
    check_consistency(plan)
    assert plan["scenario"]["digest"] == load_scenario(name).digest
    assert {baseline["name"] for baseline in plan["baselines"]} == {
        "aggregated",
        "one_room_one_chip",
        "one_room_mixed",
        "two_rooms_no_hiding",
    }


def test_a_plan_file_is_a_scenario_whose_evaluation_agrees(minimal_plan: Path, capsys: Capture) -> None:
    found = json.loads(minimal_plan.read_text(encoding="utf-8"))
    again = plan_of(["evaluate", str(minimal_plan)], capsys)
    assert again["status"] == "evaluated"
    for key in ("goodput_rps", "cost_usd_per_h", "gpus", "ttft_p99_s", "tpot_p99_s"):
        assert again["metrics"][key] == pytest.approx(found["metrics"][key], rel=1e-9)


def test_cases_stand_side_by_side_relative_to_the_first(minimal_plan: Path, capsys: Capture) -> None:
    args = ["evaluate", str(minimal_plan), "--vs", "workload.rate=5 req/s", "--vs", "workload.rate=5 req/s; sites.A.chips[0].price=4 USD/h"]
    document = plan_of(args, capsys)
    half, dear = document["compared"]
    assert half["relative"]["cost_usd_per_h"] == pytest.approx(0)
    assert half["metrics"]["goodput_rps"] <= 5
    assert dear["relative"]["cost_usd_per_h"] == pytest.approx(1)
    assert run(args) == 0
    assert "(+100.0 %)" in capsys.readouterr().out


def test_the_published_cost_table_comes_out_of_counts_and_prices(capsys: Capture) -> None:
    """88 A against 43 A + 32 B and a line worth 0.355 A: cost -7.1 / -3.5 %, BCR +37.5 / +32.4 %, goodput 9.0 -> 11.5 (+27.8 %)."""
    document = plan_of(["evaluate", "pdd-88-vs-43-32"], capsys)
    cheap, dear = document["compared"]
    assert [round(100 * case["relative"]["cost_usd_per_h"], 1) for case in (cheap, dear)] == [-7.1, -3.5]
    assert [round(100 * case["relative"]["bcr"], 1) for case in (cheap, dear)] == [37.5, 32.4]
    assert [document["metrics"]["goodput_rps"], cheap["metrics"]["goodput_rps"]] == pytest.approx([9.0, 11.5])
    assert round(100 * cheap["relative"]["goodput_rps"], 1) == 27.8
    assert [document["metrics"]["gpus"], cheap["metrics"]["gpus"]] == [88, 75]
    assert cheap["metrics"]["rld_token_share"] == pytest.approx(0.062, abs=0.01)


def test_an_impossible_sla_is_exit_3_with_the_constraint_and_a_remedy(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "none.json"
    args = ["optimize", "01-minimal", "--set", "workload.classes.chat.sla.ttft.p99=50 ms", "--json", str(file)]
    assert run(args) == 3
    err = capsys.readouterr().err
    assert "ttft" in err
    assert "would help" in err
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["status"] == "infeasible"
    assert document["relaxations"]


def test_a_model_that_fits_nowhere_is_exit_3_and_blames_memory(capsys: Capture) -> None:
    args = [
        "optimize",
        "01-minimal",
        "--set",
        "model.name=deepseek-ai/DeepSeek-V3",
        "--set",
        "sites.A.chips=[{chip: l40s, stock: 2, price: 1 USD/h}]",
    ]
    assert run(args) == 3
    assert "memory" in capsys.readouterr().err


def test_evaluating_a_scenario_without_counts_says_what_is_missing(capsys: Capture) -> None:
    assert run(["evaluate", "01-minimal"]) == 2
    assert "plan" in capsys.readouterr().err


def test_a_chip_without_a_price_is_an_error_that_names_its_line(tmp_path: Path, capsys: Capture) -> None:
    text = shipped_scenarios()["01-minimal"].read_text(encoding="utf-8").replace(", price: 2.00 USD/h", "")
    file = tmp_path / "unpriced.yaml"
    file.write_text(text, encoding="utf-8")
    assert run(["optimize", str(file)]) == 2
    err = capsys.readouterr().err
    assert f"{file}:8 sites.A.chips[0]" in err
    assert "price" in err


def test_the_console_answer_begins_with_the_decision(capsys: Capture) -> None:
    assert run(["optimize", "01-minimal"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Qwen3-32B chat in one room: ")
    assert "h100-sxm" in lines[0]
    assert any("BCR" in line for line in lines[:4])
    assert max(len(line) for line in lines) <= 100
