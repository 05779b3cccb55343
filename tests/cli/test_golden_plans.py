"""One plan per shipped scenario, kept: what is deployed to the last instance, its figures to 0.1 %.

A change that moves them on purpose writes them anew (PDDPLAN_WRITE_GOLDEN=1 python -m pytest tests/cli/test_golden_plans.py) and says in
the changelog which way and by how much.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pddplan import evaluate, load_scenario, optimize
from pddplan.optimize.result import PlanResult
from pddplan.scenario.load import shipped_scenarios

GOLDEN = Path(__file__).parent.parent / "golden" / "plans"
FIGURES = ("goodput_rps", "cost_usd_per_h", "bcr", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "tpot_mean_s", "tpot_p99_s", "e2e_p99_s",
           "rld_token_share", "line_gbps_needed")  # fmt: skip
QUICK = ("01-minimal", "pdd-88-vs-43-32")


def summary(result: PlanResult) -> dict[str, Any]:
    evaluation = result.evaluation
    metrics = asdict(evaluation.metrics)
    pools = [
        f"{p.instances} x {c.role} {c.chip} at {c.site}, tp {c.parallel.tp} pp {c.parallel.pp} dp {c.parallel.dp} ep {c.parallel.moe_ep}"
        + ("" if c.profile is None else f", profile {c.profile}")
        for p, c in ((p, p.configuration) for p in evaluation.decision.pools)
    ]
    links = {link.name: link.circuits for link in evaluation.decision.links}
    figures = {name: metrics[name] for name in FIGURES if math.isfinite(metrics[name])}
    return {"status": result.status, "pools": pools, "links": links, "gpus": metrics["gpus"], "figures": figures}


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in sorted(shipped_scenarios())])
def test_the_plan_of_a_shipped_scenario_stays(name: str) -> None:
    scenario = load_scenario(name)
    result = evaluate(scenario) if scenario.plan is not None else optimize(scenario)
    if result.search.timed_out:
        pytest.skip("the search ran out of time on this machine: its plan is not determined")
    found = summary(result)
    file = GOLDEN / f"{name}.json"
    if os.environ.get("PDDPLAN_WRITE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert found.pop("figures") == pytest.approx(kept.pop("figures"), rel=1e-3)
    assert found == kept
