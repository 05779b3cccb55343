"""A fixed plan of the reference scenario, evaluated once: what pages and workbooks are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pddplan import load_scenario
from pddplan.optimize.result import Baseline, Binding, Objective, PlanResult, Rejection, SeenPlan
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.fixed_plan import fixed_decision
from pddplan.pdd.plan import Evaluation

HOSTILE_NAME = '<script>alert("x")</script> 参考 =1+1'
PLAN = {
    "pools": [
        {"site": "A", "role": "P", "chip": "h100-sxm", "instances": 3, "tp": 8, "dp": 4},
        {"site": "A", "role": "RLD", "chip": "h100-sxm", "instances": 1, "tp": 8, "dp": 4},
        {"site": "B", "role": "MD", "chip": "h200-sxm", "instances": 8, "tp": 2, "dp": 8},
    ],
    "links": {"A-B": 1},
}
COMMAND = "pddplan report pdd-reference -o report.html"


def evaluated(changes: Mapping[str, Any] | None = None) -> tuple[PlanContext, Evaluation]:
    scenario = load_scenario("pdd-reference", {"plan": PLAN, "policy.relay_threshold": 0.2, **(changes or {})})
    context = PlanContext.from_scenario(scenario)
    return context, evaluate(context, fixed_decision(context))


def result_of(context: PlanContext, evaluation: Evaluation) -> PlanResult:
    metrics = evaluation.metrics
    one_room = replace(evaluation, metrics=replace(metrics, cost_usd_per_h=1.4 * metrics.cost_usd_per_h, bcr=metrics.bcr / 1.4))
    return PlanResult(
        scenario_name=context.scenario.name,
        scenario_digest=context.scenario.digest,
        status="evaluated",
        gap=0.0,
        objective=Objective("max-bcr", metrics.bcr, metrics.bcr, "req/s per USD/h"),
        evaluation=evaluation,
        baselines=(Baseline("one_room_one_chip", "optimal", one_room), Baseline("aggregated", "infeasible", None, "memory")),
        binding=(Binding("agent.sla.ttft.p99", 14.2, 15.0, "s", "100 ms", 0.001, 0.004),),
        seen=tuple(
            SeenPlan(
                evaluation.decision, metrics.cost_usd_per_h * cost, metrics.goodput_rps, metrics.ttft_p99_s * ttft, metrics.tpot_p99_s, True
            )
            for cost, ttft in ((1.0, 1.0), (1.2, 0.8), (1.3, 0.9), (1.5, 0.5))
        ),
        rejected=(Rejection("a100-80-sxm as MD", "TPOT P99", 0.081, 0.06, "s", "sla"),),
    )
