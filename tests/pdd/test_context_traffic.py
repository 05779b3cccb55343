"""A context with other traffic shares what traffic does not change, and nothing else."""

from __future__ import annotations

from pddplan import load_scenario
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.fixed_plan import fixed_decision
from pddplan.studies.response import with_hit_rate, with_traffic

PLAN = {
    "pools": [
        {"site": "A", "role": "P", "chip": "h100-sxm", "instances": 2, "tp": 8, "dp": 4},
        {"site": "B", "role": "MD", "chip": "h200-sxm", "instances": 3, "tp": 4, "dp": 4},
    ],
    "links": {"A-B": 1},
}


def test_an_evaluation_is_the_same_before_and_after_other_traffic_was_evaluated() -> None:
    scenario = load_scenario("pdd-reference", {"plan": PLAN, "links.A-B.per_flow": "5 Gbps"})
    fresh, used = PlanContext.from_scenario(scenario), PlanContext.from_scenario(scenario)
    decision = fixed_decision(fresh)
    for hit_rate in (0.0, 0.5, 0.99):
        evaluate(with_hit_rate(used, hit_rate), decision)
    assert evaluate(used, decision).metrics == evaluate(fresh, decision).metrics


def test_other_traffic_does_not_see_what_was_kept_for_the_first() -> None:
    scenario = load_scenario("pdd-reference", {"plan": PLAN, "links.A-B.per_flow": "5 Gbps"})
    fresh, used = PlanContext.from_scenario(scenario), PlanContext.from_scenario(scenario)
    decision = fixed_decision(fresh)
    evaluate(used, decision)
    heavy = evaluate(with_traffic(used, uncached_scale=2.0), decision).metrics
    assert heavy == evaluate(with_traffic(fresh, uncached_scale=2.0), decision).metrics
    assert heavy.ttft_p99_s > evaluate(fresh, decision).metrics.ttft_p99_s
