"""Plans of random small scenarios: invariants of their numbers, and optima that never fall when a limit is relaxed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pddplan.errors import InfeasibleError
from pddplan.optimize.result import PlanResult
from pddplan.pipeline import plan
from pddplan.scenario.schema import Scenario

pytestmark = pytest.mark.slow


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    chip = draw(st.sampled_from(["h100-sxm", "h200-sxm", "l40s", "mi300x"]))
    return {
        "model": {"name": draw(st.sampled_from(["Qwen/Qwen3-8B", "Qwen/Qwen3-32B"]))},
        "engine": draw(st.sampled_from(["vllm", "sglang"])),
        "sites": {"A": {"chips": [{"chip": chip, "stock": draw(st.sampled_from([16, 64])), "price": f"{draw(st.integers(1, 5))} USD/h"}]}},
        "workload": {
            "rate": f"{draw(st.sampled_from([0.5, 3, 8]))} req/s",
            "arrival_scv": draw(st.sampled_from([1.0, 4.0])),
            "rows": 200,
            "classes": {
                "c": {
                    "input_tokens": {"lognormal": {"p50": draw(st.sampled_from([300, 3000])), "p99": 20_000}},
                    "output_tokens": draw(st.sampled_from([50, 400])),
                    "hit_rate": draw(st.sampled_from([0.0, 0.5, 0.9])),
                    "sla": {"ttft": {"limit": "4 s"}, "tpot": "60 ms", "attainment": "90 %"},
                }
            },
        },
        "objective": draw(st.sampled_from(["max-bcr", "min-cost"])),
        "search": {"tp": [1, 2, 4], "time_limit": "20 s"},
    }


def planned(document: dict[str, Any]) -> PlanResult | None:
    try:
        return plan(Scenario.model_validate(document), explain=False)
    except InfeasibleError:
        return None


def value(document: dict[str, Any], result: PlanResult | None) -> float:
    """Larger is better; no plan is worst."""
    if result is None:
        return float("-inf")
    metrics = result.evaluation.metrics
    return metrics.bcr if document["objective"] == "max-bcr" else -metrics.cost_usd_per_h


RELAXED = ("ttft", "tpot", "attainment", "stock", "price")


def relaxed(document: dict[str, Any], what: str) -> dict[str, Any]:
    from copy import deepcopy

    other = deepcopy(document)
    service, stock = other["workload"]["classes"]["c"]["sla"], other["sites"]["A"]["chips"][0]
    if what == "ttft":
        service["ttft"] = {"limit": "8 s"}
    elif what == "tpot":
        service["tpot"] = "120 ms"
    elif what == "attainment":
        service["attainment"] = "80 %"
    elif what == "stock":
        stock["stock"] *= 2
    else:
        stock["price"] = f"{0.9 * int(stock['price'].split()[0])} USD/h"
    return other


@given(questions(), st.sampled_from(RELAXED))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_relaxing_a_limit_never_makes_the_best_plan_worse(document: dict[str, Any], what: str) -> None:
    tight, loose = planned(document), planned(relaxed(document, what))
    assume(tight is not None or loose is not None)
    gap = 0.0 if loose is None else loose.gap
    before, after = value(document, tight), value(document, loose)
    assert after >= before - (gap + 1e-9) * abs(before)


@given(questions())
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_numbers_of_a_plan_agree_with_each_other(document: dict[str, Any]) -> None:
    result = planned(document)
    assume(result is not None)
    assert result is not None
    evaluation, metrics = result.evaluation, result.evaluation.metrics
    assert evaluation.feasible
    assert evaluation.stable
    assert metrics.p_good >= 0.9 - 1e-9
    assert metrics.cost_usd_per_h == pytest.approx(sum(part.cost_usd_per_h for part in (*evaluation.pools, *evaluation.links)))
    assert metrics.bcr == pytest.approx(metrics.goodput_rps / metrics.cost_usd_per_h)
    assert 0 < metrics.ttft_p50_s <= metrics.ttft_p90_s <= metrics.ttft_p99_s
    assert 0 < metrics.tpot_mean_s <= metrics.tpot_p99_s * (1 + 1e-9)
    assert all(0 < pool.utilisation <= 1 for pool in evaluation.pools)
    assert metrics.gpus == sum(pool.pool.gpus for pool in evaluation.pools) <= document["sites"]["A"]["chips"][0]["stock"]
    assert 0 <= result.gap <= 1
