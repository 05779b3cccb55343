"""Aggregated serving against its closed form and its limits."""

import math

import pytest
from pdd_plans import LineStage, aggregated, context, mix

from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.fixed_plan import fixed_decision
from pddplan.scenario.load import load_scenario


def serve(requests, stage, instances=1, changes=None):
    return evaluate(context(requests, {"AGG": stage}, changes=changes), aggregated(instances))


def test_decode_is_slowed_by_the_share_that_prefill_takes():
    """tpot = tau / (1 - rho): the closed system's tpot = tau + (b / O) S at b = lambda O tpot."""
    found = serve(mix(1000, 100, 4.0), LineStage(alpha_s=0.02, beta_s=0.0))
    assert found.metrics.tpot_mean_s == pytest.approx(0.02 / (1 - 0.4), rel=0.01)
    b = 4.0 * 100 * found.metrics.tpot_mean_s
    assert found.metrics.tpot_mean_s == pytest.approx(0.02 + b / 100 * 0.1, rel=0.01)


def test_the_first_token_ends_prefill_and_no_decode_step_follows():
    found = serve(mix(1000, 100, 1e-4), LineStage())
    assert found.metrics.ttft_p50_s == pytest.approx(0.1, rel=0.01)


def test_short_answers_have_the_widest_tpot():
    """A prefill met during ten tokens weighs ten times as much as during a hundred."""
    short, long = (serve(mix(1000, o, 2.0), LineStage(alpha_s=0.02, beta_s=0.0)) for o in (10, 400))
    assert short.metrics.tpot_mean_s == pytest.approx(long.metrics.tpot_mean_s, rel=0.02)
    assert short.metrics.tpot_p99_s > 1.3 * long.metrics.tpot_p99_s


def test_the_worst_gap_is_a_step_behind_a_prefill_pass():
    found = serve(mix(1000, 400, 2.0), LineStage(alpha_s=0.02, beta_s=0.0))
    assert found.metrics.stall_p99_s == pytest.approx(0.1 + 0.02 / 0.8, rel=0.05)


def test_prefill_alone_can_overload_an_instance():
    found = serve(mix(1000, 10, 10.5), LineStage())
    assert not found.stable
    assert found.metrics.ttft_p50_s == math.inf
    assert found.metrics.goodput_rps == 0.0


def test_capacities_alone_have_no_waits_and_no_spread():
    found = serve(mix(1000, 100, 4.0), LineStage(beta_s=0.0), changes={"policy.queueing": "none"})
    assert found.laws["tpot"].quantile(0.99) == pytest.approx(found.laws["tpot"].quantile(0.5), rel=0.01)
    assert found.metrics.ttft_p99_s == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("rate", [16, 20, 24])
def test_the_load_of_an_overloaded_pool_grows_with_the_rate(rate: float) -> None:
    plan = "plan={pools: [{site: A, role: AGG, chip: h100-sxm, instances: 2, tp: 4}]}"
    at = [PlanContext.from_scenario(load_scenario("01-minimal", [plan, f"workload.rate={r} req/s"])) for r in (12, rate)]
    low, high = (evaluate(context, fixed_decision(context)).pools[0].utilisation for context in at)
    assert high > 1.0
    assert high == pytest.approx(low * rate / 12, rel=0.05)  # passes pack better under load


def test_arrivals_in_step_are_no_error() -> None:
    plan = "plan={pools: [{site: A, role: AGG, chip: h100-sxm, instances: 2, tp: 4}]}"
    context = PlanContext.from_scenario(load_scenario("01-minimal", [plan, "workload.arrival_scv=0"]))
    assert evaluate(context, fixed_decision(context)).feasible
