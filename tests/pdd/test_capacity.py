"""Capacity of replica counts agrees with the whole model, and never falls with one more."""

import math
from dataclasses import replace

import numpy as np
import pytest
from pdd_plans import LineStage, aggregated, configuration, context, mix, one_room, two_rooms
from test_evaluate import spread_mix

from pddplan.pdd.capacity import StageBudget, demand_shares, line_capacity_bytes_per_s, pool_capacity
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import LinkPlan

COUNTS = np.arange(1, 17)
DECISION = two_rooms(threshold_s=0.5)


def demand(made, threshold_s=0.5):
    return demand_shares(made, "main", DECISION.settings, DECISION.links[0], [threshold_s], 0.0201)[0]


@pytest.mark.parametrize("role", ["P", "RLD", "MD", "AGG"])
@pytest.mark.parametrize("dispatch", ["cache_affinity", "central", "shortest_queue"])
def test_one_more_instance_never_carries_less(role, dispatch):
    made = context(spread_mix(), changes={"policy.dispatch": dispatch, "policy.decode_dispatch": dispatch})
    budget = StageBudget(wait_s=0.5, token_s=0.04)
    found = pool_capacity(made, configuration(role, "A"), COUNTS, DECISION.settings, budget, demand(made))
    assert np.all(np.diff(found) >= -1e-9)
    assert found[0] > 0.0


def test_pooled_prefill_carries_at_least_as_much_as_pinned():
    budget = StageBudget(wait_s=0.5)
    pinned, pooled = (
        pool_capacity(
            context(spread_mix(), changes={"policy.dispatch": d}),
            configuration("P", "A"),
            COUNTS,
            DECISION.settings,
            budget,
            demand(context(spread_mix())),
        )
        for d in ("cache_affinity", "central")
    )
    assert np.all(pooled[3:] > pinned[3:])


def test_prefill_at_its_capacity_waits_as_long_as_the_budget_says():
    made = context(spread_mix())
    rate = pool_capacity(made, configuration("P", "A"), 3, DECISION.settings, StageBudget(wait_s=0.5), demand(made))[0]
    requests = spread_mix(float(rate))
    same = replace(made, deployments={"main": replace(made.deployments["main"], mix=requests)})
    instant = {**same._stages}
    found = evaluate(replace(same, _stages=instant, _rows={}), one_room(p=3, md=30))
    share = rate * requests.mean(requests.uncached_tokens) * 1e-4 / 3
    assert found.pools[0].utilisation == pytest.approx(share, rel=1e-6)
    assert share < 0.95


def test_decode_at_its_capacity_has_the_token_time_of_the_budget():
    made = context(spread_mix(output=100.0))
    budget = StageBudget(token_s=0.0225)
    rate = pool_capacity(made, configuration("MD", "B"), 2, DECISION.settings, budget, demand(made, math.inf))[0]
    full = context(spread_mix(float(rate), output=100.0))
    found = evaluate(full, two_rooms(p=200, rld=0, md=2, circuits=100, threshold_s=None))
    assert found.metrics.tpot_p99_s == pytest.approx(0.0225, rel=0.02)


def test_compute_not_memory_sizes_the_pool():
    """50 req/s x 500 tokens at 2,500 tokens/s each: 10 instances by compute, 6 by the 440 GB in flight on 80 GB: 10 are needed."""

    class Measured(LineStage):
        def kv_capacity_bytes(self):
            return 80e9

        def kv_resident_bytes(self, tokens):
            return np.full(np.shape(tokens), 440e9 / 250)

    made = context(mix(1000, 500, 50.0), {"MD": Measured(alpha_s=0.0, beta_s=1 / 2500)}, changes={"policy.queueing": "none"})
    found = pool_capacity(
        made, configuration("MD", "B"), np.arange(1, 12), DECISION.settings, StageBudget(), demand(made, math.inf)
    )
    assert int(np.argmax(found >= 50.0 * (1 - 1e-9))) + 1 == 10


def test_demand_of_roles_adds_up():
    made = context(spread_mix())
    settings, link = DECISION.settings, DECISION.links[0]
    shares = demand_shares(made, "main", settings, link, [0.1, 0.5, 1.0, math.inf], 0.0201)
    mean_output = 200.0
    for one in shares:
        assert one.rld_tokens + one.md_tokens == pytest.approx(mean_output)
        assert one.rld_rate <= 1.0
        assert one.line_bytes <= one.line_bytes_without_md_cache
    assert np.all(np.diff([one.rld_rate for one in shares]) <= 0.0)
    assert shares[-1].rld_rate == 0.0


def test_demand_agrees_with_the_evaluated_plan():
    made = context(spread_mix())
    found, one = evaluate(made, DECISION), demand(made)
    relayed = sum(p.share for p in found.pipelines if p.name != "P-MD")
    assert relayed == pytest.approx(one.rld_rate, rel=0.1)
    assert found.metrics.rld_token_share == pytest.approx(one.rld_tokens / 200.0, rel=0.1)
    assert found.links[0].bytes_per_s_mean == pytest.approx(4.0 * one.line_bytes, rel=0.02)


def test_the_p_threshold_splits_the_rows():
    made = context(spread_mix())
    settings = replace(DECISION.settings, p_threshold_tokens=1000.0)
    one = demand_shares(made, "main", settings, DECISION.links[0], [1.0], 0.02)[0]
    mixed = made.deployments["main"].mix
    assert one.p_rate_remote == pytest.approx(float(mixed.weight @ (mixed.uncached_tokens > 1000)))
    assert one.p_rate_remote + one.p_rate_local == pytest.approx(1.0)


def test_a_line_carries_its_target_share_or_what_its_connections_can():
    made = context(spread_mix())
    assert line_capacity_bytes_per_s(made, LinkPlan("A-B", "A", "B", 2, 1.25e9)) == pytest.approx(0.8 * 2.5e9)
    few = context(spread_mix(), changes={"links.A-B.connections": "4"})
    assert line_capacity_bytes_per_s(few, LinkPlan("A-B", "A", "B", 2, 1.25e9)) == pytest.approx(0.8 * 4 * 0.25e9)


def test_aggregated_capacity_is_stable_and_more_is_not():
    made = context(spread_mix())
    rate = pool_capacity(made, configuration("AGG", "A"), 2, DECISION.settings, StageBudget(utilisation_max=1.0), demand(made))[0]
    assert evaluate(context(spread_mix(0.9 * float(rate))), aggregated(2)).stable
    assert not evaluate(context(spread_mix(1.4 * float(rate))), aggregated(2)).stable
