"""Every stage of a plan stands under the roofline, and its parts add up to its time."""

import pytest

from pddplan import load_scenario
from pddplan.model.spec import Parallel
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Configuration, Decision, LinkPlan, Pool
from pddplan.pdd.roofline_position import roofline_positions


@pytest.fixture(scope="module")
def positions():
    context = PlanContext.from_scenario(load_scenario("pdd-reference", {"workload.rows": "100"}))
    wide = (("P", "A", "h100-sxm", Parallel(tp=8, dp=4, moe_ep=32)), ("MD", "B", "h200-sxm", Parallel(tp=4, dp=4, moe_ep=16)))
    model = context.deployments["main"].spec.name
    pools = tuple(
        Pool(Configuration("main", model, site, role, chip, "sglang", parallel, parallel.tp * parallel.dp), 1)
        for role, site, chip, parallel in wide
    )
    decision = Decision(pools, (LinkPlan("A-B", "A", "B", 1, 12.5e9),), context.settings("main"))
    return roofline_positions(context, evaluate(context, decision))


def test_each_serving_pool_has_the_phase_of_its_role(positions):
    assert [(p.pool.pool.configuration.role, p.phase) for p in positions] == [("P", "prefill"), ("MD", "decode")]


def test_no_kernel_beats_its_roof_and_shares_sum_to_one(positions):
    for position in positions:
        assert sum(c.share for c in position.components) == pytest.approx(1.0)
        kernels = [c for c in position.components if c.compute_s is not None and c.memory_s is not None]
        assert {c.name for c in kernels} == {"attention", "dense GEMM", "experts"}
        assert all(max(c.compute_s, c.memory_s) <= c.seconds * (1 + 1e-9) for c in kernels)


def test_prefill_is_bound_by_arithmetic_and_decode_by_memory(positions):
    prefill, decode = positions
    assert prefill.compute_s > prefill.memory_s
    assert decode.memory_s > decode.compute_s
