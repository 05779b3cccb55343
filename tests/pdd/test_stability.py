"""Session feedback: its published check values, the runaway of P-RLD, and what the planner refuses."""

from dataclasses import replace

import numpy as np
import pytest
from pdd_plans import LineStage, configuration, context, mix, two_rooms

from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Pool
from pddplan.pdd.stability import feedback, is_stable, stability, stale_share, stale_turns_without_healing


def busy(output=40.0, changes=None, rate=60.0, seed=1, batch_max=256.0):
    u = np.sort(np.minimum(np.random.default_rng(seed).lognormal(6.5, 1.3, 1000), 10000))
    stages = {"RLD": LineStage(batch_max=batch_max)}
    return context(mix(u, output, rate), stages, changes=changes)


PLAN = two_rooms(p=20, rld=1, md=20, circuits=40, threshold_s=0.4)


@pytest.mark.parametrize(("turns", "share"), [(5, 0.54), (20, 0.85), (60, 0.95)])
def test_without_healing_most_turns_are_soon_stale(turns, share):
    """Entering at 0.25 a turn: 54, 85 and 95 % of the turns of sessions of 5, 20 and 60 turns."""
    assert stale_turns_without_healing(0.25, turns) == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize(("p", "share"), [(0.3, 0.05), (0.7, 0.10), (0.9, 0.26)])
def test_with_healing_the_stale_share_settles(p, share):
    assert stale_share(0.035, p) == pytest.approx(share, abs=0.005)


def test_the_settled_share_is_the_fixed_point_of_the_two_state_chain():
    s, p = 0.1, 0.6
    x = 0.0
    for _ in range(500):
        x = (1 - x) * s + x * p
    assert stale_share(s, p) == pytest.approx(x)


def test_nothing_stale_enters_nothing_stays():
    assert stale_share(0.0, 0.5) == 0.0
    assert stale_turns_without_healing(0.0, 10) == 0.0
    assert stale_share(0.2, 1.0) == 1.0


class TestTrajectories:
    def test_p_rld_runs_away_and_pdd_does_not(self):
        small = busy(batch_max=60.0)
        found = stability(small, replace(PLAN, settings=replace(PLAN.settings, relay_threshold_s=0.4)))
        runaway, plain, filtered = found.trajectories
        assert runaway.overload_turn is not None
        assert plain.bounded
        assert filtered.bounded
        assert np.all(np.diff(runaway.stale_share) >= -0.02)
        assert runaway.md_hit_rate[-1] < 0.1 < filtered.md_hit_rate[-1]

    def test_p_rld_follows_the_closed_form_of_a_stale_session_that_never_heals(self):
        found = stability(busy(), PLAN).trajectories[0]
        q = found.local_share[0]
        k = np.arange(found.stale_share.size)
        assert found.stale_share[:6] == pytest.approx(1 - (1 - q) ** k[:6], abs=0.05)

    def test_with_the_filter_the_stale_share_settles_near_the_closed_form(self):
        own = feedback(busy(), PLAN)
        settled = stability(busy(), PLAN).trajectories[2].stale_share[20:].mean()
        assert settled == pytest.approx(own.stale_share, rel=0.15)
        assert own.stale_share == pytest.approx(float(stale_share(own.fresh_local_share, own.stale_local_share)), rel=1e-6)

    def test_the_population_is_the_same_on_every_run(self):
        one, two = stability(busy(), PLAN), stability(busy(), PLAN)
        assert np.array_equal(one.trajectories[0].rld_utilisation, two.trajectories[0].rld_utilisation)


class TestVerdict:
    def test_the_evaluation_refuses_a_policy_that_runs_away(self):
        ends_there = busy(changes={"policy.relayed_end": "rld"}, batch_max=60.0)
        found = evaluate(ends_there, PLAN)
        assert all(pool.utilisation < 1.0 for pool in found.pools)
        assert not found.stable
        assert any("session feedback" in v.constraint for v in found.violations)
        assert not is_stable(ends_there, PLAN)

    def test_the_same_plan_that_ends_at_md_is_accepted(self):
        found = evaluate(busy(batch_max=60.0), PLAN)
        assert found.stable
        assert found.feedback.bounded

    def test_the_largest_local_share_is_where_the_relay_is_full(self):
        found = feedback(busy(batch_max=60.0), PLAN)
        assert found.fresh_local_share < found.largest_local_share <= 1.0

    def test_a_plan_without_a_relay_has_no_feedback(self):
        plain = two_rooms(rld=0, threshold_s=None, p=20, md=20, circuits=40)
        assert feedback(busy(), plain) is None
        assert stability(busy(), plain) is None
        assert is_stable(busy(), plain)

    def test_a_relay_that_no_request_reaches_has_no_feedback(self):
        """Requests of more than 20k uncached tokens go to the room without MD and its relay; here none is longer than 10k."""
        local = Pool(configuration("P", "B"), 20)
        unused = replace(PLAN, pools=(*PLAN.pools, local), settings=replace(PLAN.settings, p_threshold_tokens=20_000.0))
        assert feedback(busy(), unused) is None
        assert evaluate(busy(), unused).stable

    def test_without_the_filter_local_turns_leave_no_lag(self):
        found = feedback(busy(changes={"policy.singular": "none"}), PLAN)
        assert found.stale_local_share == pytest.approx(found.fresh_local_share, abs=1e-9)
