"""A plan's neighbours: the plan itself and a few more instances of one pool at a time."""

import pytest

from pddplan import load_scenario
from pddplan.model.spec import Parallel
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Configuration, Decision, Pool
from pddplan.studies.neighbours import neighbours


def test_more_instances_cost_what_they_cost_and_never_wait_longer():
    context = PlanContext.from_scenario(load_scenario("01-minimal"))
    site, chip = next(iter(context.stocks))
    model = context.deployments["main"].spec.name
    pool = Pool(Configuration("main", model, site, "AGG", chip, "vllm", Parallel(tp=4), 4), 4)
    decision = Decision((pool,), (), context.settings("main"))
    evaluation = evaluate(context, decision)
    own, one, two = neighbours(context, evaluation)
    metrics = evaluation.metrics
    assert (own.decision, own.cost_usd_per_h, own.ttft_p99_s) == (decision, metrics.cost_usd_per_h, metrics.ttft_p99_s)
    assert [plan.decision.pools[0].instances for plan in (own, one, two)] == [4, 5, 6]
    assert one.cost_usd_per_h - own.cost_usd_per_h == pytest.approx(4 * context.prices_usd_h[site, chip])
    assert own.ttft_p99_s >= one.ttft_p99_s >= two.ttft_p99_s
