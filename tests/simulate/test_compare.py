"""Predicted beside simulated, inside the planner's limits and at the edges of what a plan can carry."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from pddplan.api import load_scenario
from pddplan.cli import run
from pddplan.errors import InputError
from pddplan.simulate import simulate
from pddplan.simulate.compare import METRICS, Comparison, compare, quantile
from pddplan.simulate.document import comparison_document

from .conftest import SCENARIO, PlanMaker

PROMISED = ("ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "tpot_mean_s", "tpot_p99_s", "e2e_p50_s", "e2e_p99_s", "goodput_rps")


def assert_agrees(found: Comparison, tolerance: float = 0.15, metrics: tuple[str, ...] = PROMISED) -> None:
    """Each metric within ``tolerance``, or inside the interval over seeds where that is wider."""
    for name in metrics:
        low, high = found.interval[name]
        deviation = found.deviation[name]
        assert deviation is not None, name
        assert abs(deviation) <= tolerance or low <= found.predicted[name] <= high, (name, found.predicted[name], low, high)


def test_separate_pools_in_one_room_agree(one_room: PlanMaker) -> None:
    assert_agrees(compare(*one_room(4, 3), requests=6000))


def test_aggregated_pools_agree(one_room: PlanMaker) -> None:
    assert_agrees(compare(*one_room(0, 0, 5), requests=6000))


def test_two_rooms_with_a_relay_agree(two_rooms: PlanMaker) -> None:
    found = compare(*two_rooms(), requests=6000)
    assert_agrees(found)
    predicted = {p.name: p.share for p in found.evaluation.pipelines}
    assert found.pipelines["P-RLD-MD"] == pytest.approx(predicted["P-RLD-MD"], rel=0.2)
    assert found.line_load["A-B"] == pytest.approx(found.evaluation.links[0].utilisation, rel=0.15)
    assert found.simulated["rld_token_share"] == pytest.approx(found.predicted["rld_token_share"], rel=0.2)


@pytest.mark.slow
def test_prefill_at_95_per_cent_agrees(two_rooms: PlanMaker) -> None:
    found = compare(*two_rooms(24, 2, 24, 1, "workload.rate=11.4 req/s", "workload.classes.agent.hit_rate=90 %"), requests=30_000)
    assert found.evaluation.pools[0].utilisation == pytest.approx(0.95, abs=0.01)
    assert_agrees(found)


@pytest.mark.slow
def test_decode_at_95_per_cent_agrees(two_rooms: PlanMaker) -> None:
    found = compare(*two_rooms(22, 2, 17), requests=20_000)
    assert found.evaluation.pools[2].utilisation == pytest.approx(0.95, abs=0.02)
    assert_agrees(found)


@pytest.mark.slow
def test_a_line_at_95_per_cent_agrees(two_rooms: PlanMaker) -> None:
    found = compare(*two_rooms(22, 2, 24, 1, 'links.A-B.circuit="2 Gbps"'), requests=40_000)
    assert found.evaluation.links[0].utilisation > 0.9
    assert_agrees(found)


@pytest.mark.slow
def test_a_tight_pool_of_connections_agrees(two_rooms: PlanMaker) -> None:
    found = compare(*two_rooms(22, 2, 24, 1, "links.A-B.connections=5"), requests=40_000)
    assert_agrees(found)


@pytest.mark.slow
def test_bursts_of_cv_ten_agree(two_rooms: PlanMaker) -> None:
    """Arrival SCV 100: bursts so rare that both sides know the tail to about a quarter only."""
    found = compare(*two_rooms(22, 2, 24, 1, "workload.arrival_scv=100"), requests=100_000)
    assert_agrees(found, 0.25)


def test_a_saturated_line_is_unstable_on_both_sides(two_rooms: PlanMaker) -> None:
    """Without relay nothing spares the line: transfers take ever longer, the longer the run."""
    changes = ('links.A-B.circuit="1 Gbps"', "policy.relay_threshold=never", "links.A-B.connections=1000")
    short, long = (compare(*two_rooms(22, 0, 24, 1, *changes), requests=n, seeds=2) for n in (1000, 4000))
    assert not long.evaluation.stable
    assert long.predicted["e2e_p99_s"] == math.inf
    assert long.simulated["ttft_p90_s"] > 1.5 * short.simulated["ttft_p90_s"]
    assert long.deviation["e2e_p99_s"] is None
    assert any("unstable" in warning for warning in long.warnings)


def test_a_starved_pool_of_connections_is_unstable_on_both_sides(two_rooms: PlanMaker) -> None:
    changes = ("links.A-B.connections=2", "policy.relay_threshold=never")
    short, long = (compare(*two_rooms(22, 0, 24, 1, *changes), requests=n, seeds=2) for n in (1000, 4000))
    assert not long.evaluation.stable
    assert long.simulated["ttft_p50_s"] > 1.5 * short.simulated["ttft_p50_s"]


def test_document_has_every_metric_on_both_sides_with_its_interval(two_rooms: PlanMaker) -> None:
    context, decision = two_rooms()
    found = compare(context, decision, requests=800, seeds=2)
    document = json.loads(json.dumps(comparison_document(found, context.scenario)))
    for part in ("predicted", "simulated", "deviation", "interval", "miss"):
        assert set(METRICS) <= set(document[part])
    assert set(PROMISED) <= set(METRICS)
    for name in METRICS:
        low, high = document["interval"][name]["low"], document["interval"][name]["high"]
        assert low <= document["simulated"][name] <= high
        missed = document["miss"][name]
        deviation = document["deviation"][name]
        if deviation is not None:
            assert deviation == pytest.approx(document["predicted"][name] / document["simulated"][name] - 1)
            assert missed == (abs(deviation) > 0.15 and not low <= document["predicted"][name] <= high)
    assert (document["requests"], document["seed"], document["seeds"]) == (800, 1, 2)
    assert sum(p["simulated_share"] for p in document["pipelines"]) == pytest.approx(1.0)


def test_too_few_requests_are_refused(two_rooms: PlanMaker) -> None:
    with pytest.raises(InputError, match="requests"):
        compare(*two_rooms(), requests=50)


def test_quantile_of_weighted_values_and_of_none() -> None:
    assert quantile(np.array([3.0, 1.0, 2.0]), np.array([0.2, 0.5, 0.3]), 0.5) == 1.0
    assert quantile(np.array([3.0, 1.0, 2.0]), np.array([0.2, 0.5, 0.3]), 0.9) == 3.0
    assert quantile(np.empty(0), np.empty(0), 0.5) == 0.0


PLAN = """
plan:
  pools:
    - {site: A, role: P, chip: h100-sxm, instances: 22, profile: 0}
    - {site: A, role: RLD, chip: h100-sxm, instances: 2, profile: 1}
    - {site: B, role: MD, chip: h200-sxm, instances: 24, profile: 0}
  links: {A-B: 1}
"""


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    file = tmp_path / "planned.yaml"
    file.write_text(SCENARIO + PLAN, encoding="utf-8")
    return file


def test_command_writes_the_same_json_for_the_same_seed(planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for name in ("one.json", "two.json"):
        assert run(["simulate", str(planned), "--requests", "800", "--seed", "7", "--json", str(tmp_path / name)]) == 0
        texts.append((tmp_path / name).read_text(encoding="utf-8"))
    out = capsys.readouterr()
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["seed"] == 7
    assert "ttft_p99_s" in out.out


def test_command_keeps_stdout_for_the_json(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", str(planned), "--requests", "800", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 800


def test_command_takes_the_counts_of_a_plan(planned: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.yaml"
    bare.write_text(SCENARIO, encoding="utf-8")
    target = tmp_path / "out.json"
    assert run(["simulate", str(bare), "--plan", str(planned), "--requests", "800", "--json", str(target)]) == 0
    pools = json.loads(target.read_text(encoding="utf-8"))["pools"]
    assert [pool["instances"] for pool in pools] == [22, 2, 24]


def test_command_refuses_a_plan_without_counts(planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = tmp_path / "bare.yaml"
    bare.write_text(SCENARIO, encoding="utf-8")
    assert run(["simulate", str(planned), "--plan", str(bare), "--requests", "800"]) == 2
    assert "holds no counts" in capsys.readouterr().err


def test_a_trace_is_replayed_in_its_own_order_at_the_scenarios_rate(planned: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 1000 * i, "input_length": 8000 + 512 * (i % 7), "output_length": 200, "hash_ids": [*range(15), 1000 + i]}
        for i in range(900)
    ]
    trace.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    found = simulate(load_scenario(planned, ["workload.rate=3 req/s"]), requests=800, trace=trace)
    assert found.requests > 400
    assert found.simulated["ttft_p50_s"] == pytest.approx(found.predicted["ttft_p50_s"], rel=0.5)
