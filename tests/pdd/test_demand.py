"""What a routing asks of each role agrees with the whole model."""

import math
from dataclasses import replace

import numpy as np
import pytest
from pdd_plans import context, two_rooms
from test_evaluate import spread_mix

from pddplan.pdd.demand import demand_shares
from pddplan.pdd.evaluate import evaluate

DECISION = two_rooms(threshold_s=0.5)


def demand(made, threshold_s=0.5):
    return demand_shares(made, "main", DECISION.settings, DECISION.links[0], [threshold_s], 0.0201)[0]


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
