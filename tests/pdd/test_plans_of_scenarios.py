"""Plans that scenarios fix, the published cost table, several P pools, history at MD, and colocated relays."""

import math
from dataclasses import replace

import numpy as np
import pytest
from pdd_plans import LineStage, configuration, context, mix, two_rooms
from test_evaluate import spread_mix

from pddplan.api import load_scenario
from pddplan.errors import InputError
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.fixed_plan import fixed_decision
from pddplan.pdd.md_cache import md_history
from pddplan.pdd.plan import Decision, Pool, Settings, Way
from pddplan.workload.hit_curve import HitCurve


def judged(source, overrides=()):
    made = PlanContext.from_scenario(load_scenario(source, overrides))
    return evaluate(made, fixed_decision(made))


class TestPublishedCostTable:
    """88 A in one room against 43 A + 32 B and a line: costs and BCR from counts and prices."""

    @pytest.mark.parametrize(
        ("variant", "cost", "bcr"), [("43 A + 32 B at 1.2 A", -0.071, 0.375), ("43 A + 32 B at 1.3 A", -0.035, 0.324)]
    )
    def test_cost_falls_and_bcr_rises_as_published(self, variant, cost, bcr):
        scenario = load_scenario("pdd-88-vs-43-32")
        base = judged(scenario).metrics
        pdd = judged(scenario, dict(scenario.variants[variant])).metrics
        assert pdd.cost_usd_per_h / base.cost_usd_per_h - 1 == pytest.approx(cost, abs=0.0005)
        assert pdd.bcr / base.bcr - 1 == pytest.approx(bcr, abs=0.0006)
        assert pdd.goodput_rps / base.goodput_rps - 1 == pytest.approx(0.278, abs=0.0005)

    def test_relay_decode_of_three_gpus_carries_its_share_of_tokens(self):
        scenario = load_scenario("pdd-88-vs-43-32")
        pdd = judged(scenario, dict(scenario.variants["43 A + 32 B at 1.2 A"]))
        relay = next(p for p in pdd.pools if p.pool.configuration.role == "RLD")
        assert pdd.stable
        assert pdd.metrics.rld_token_share == pytest.approx(0.062, abs=0.006)
        assert 0.8 < relay.utilisation < 1.0


class TestFixedPlans:
    PLAN = (
        "plan={pools: [{site: A, role: P, chip: h100-sxm, instances: 2, tp: 8, dp: 3}, "
        "{site: B, role: MD, chip: h200-sxm, instances: 3, tp: 8, dp: 2}], links: {A-B: 1}}"
    )

    def test_a_plan_of_counts_is_evaluated_as_it_stands(self):
        found = judged("pdd-reference", [self.PLAN])
        assert [(p.pool.configuration.role, p.pool.gpus) for p in found.pools] == [("P", 48), ("MD", 48)]
        assert found.pools[0].pool.configuration.parallel.moe_ep == 24

    def test_an_open_relay_threshold_is_chosen_by_the_whole_model(self):
        plan = self.PLAN.replace("{site: B,", "{site: A, role: RLD, chip: h100-sxm, instances: 1, tp: 8, dp: 3}, {site: B,")
        free = judged("pdd-reference", [plan, "links.A-B.per_flow=0.1 Gbps"])
        never = judged("pdd-reference", [plan, "links.A-B.per_flow=0.1 Gbps", "policy.relay_threshold=never"])
        assert free.decision.settings.relay_threshold_s is not None
        assert free.metrics.ttft_p99_s < never.metrics.ttft_p99_s

    def test_a_scenario_without_a_plan_says_so(self):
        made = PlanContext.from_scenario(load_scenario("pdd-reference"))
        with pytest.raises(InputError, match="fixes no counts"):
            fixed_decision(made)

    def test_a_chip_that_the_site_lacks_is_named(self):
        with pytest.raises(InputError, match=r"(?i)h200"):
            judged("pdd-reference", [self.PLAN.replace("site: B", "site: A")])


class TestSeveralPrefillPools:
    def decision(self, threshold):
        pools = (Pool(configuration("P", "A"), 2), Pool(configuration("P", "B"), 2), Pool(configuration("MD", "B"), 3))
        settings = Settings(None, "one-shot", 8192, True, p_threshold_tokens=threshold)
        return Decision(pools, two_rooms().links, settings)

    def test_long_requests_go_to_the_remote_room_and_only_they_use_the_line(self):
        requests = mix([500.0, 5000.0], weight=[0.8, 0.2])
        found = evaluate(context(requests), self.decision(1000.0))
        assert found.pools[0].utilisation == pytest.approx(0.2 * 0.5 / 2)
        assert found.pools[1].utilisation == pytest.approx(0.8 * 0.05 / 2)
        assert found.links[0].bytes_per_s_mean == pytest.approx(0.2 * 5000 * 70e3)

    def test_without_a_threshold_pools_share_by_speed(self):
        stages = {"P": LineStage()}
        made = context(mix([1000.0]), stages)
        fast = LineStage(prefill_s_per_token=5e-5)
        made._stages[configuration("P", "A"), 8192, True] = fast
        found = evaluate(made, self.decision(None))
        assert found.pools[0].utilisation == pytest.approx(found.pools[1].utilisation)
        assert found.links[0].bytes_per_s_mean == pytest.approx(2 / 3 * 1000 * 70e3)


class TestHistoryAtMd:
    CURVE = HitCurve(np.array([0.0, 1e6, 4e6]), np.array([0.0, 0.6, 0.9]))

    @staticmethod
    def made(**settings):
        class Roomy(LineStage):
            def kv_capacity_bytes(self):
                return 256 * 10200 * 70e3

            def kv_resident_bytes(self, tokens):
                return 70e3 * np.asarray(tokens, dtype=float)

        requests = replace(mix([1000.0], rate=1.0), md_curves=(TestHistoryAtMd.CURVE,))
        return context(requests, {"MD": Roomy()}), two_rooms(threshold_s=None, md=1, **settings)

    def test_a_smaller_cache_loses_whole_sessions(self):
        made, decision = self.made(md_cache_bytes=1e6 * 70e3)
        history = md_history(made, decision, made.deployments["main"], [decision.pools[-1]])
        assert history.capacity_tokens == pytest.approx(1e6)
        assert history.hit_rate == pytest.approx(0.6)
        assert sorted(history.mix.md_missing_tokens) == [1000.0, 10000.0]

    def test_what_is_lost_crosses_the_line(self):
        whole, plain = self.made()
        small, split = self.made(md_cache_bytes=1e6 * 70e3)
        kept, lost = evaluate(whole, plain), evaluate(small, split)
        assert lost.links[0].bytes_per_s_mean / kept.links[0].bytes_per_s_mean == pytest.approx(0.4 / 0.1)

    def test_history_takes_room_from_running_requests(self):
        whole, plain = self.made()
        small, split = self.made(md_cache_bytes=1e6 * 70e3)
        before, after = evaluate(whole, plain).pools[-1].batch_max, evaluate(small, split).pools[-1].batch_max
        assert before - after == pytest.approx(1e6 / 10100, abs=4)

    def test_a_tier_behind_hbm_holds_history_but_must_be_loaded(self):
        requests = replace(mix([1000.0], rate=0.1), md_curves=(self.CURVE,))
        tier = {"sites.B.cache": "{dram: {capacity: 1 TB, bandwidth: 0.05 GB/s}}", "policy.md_cache": "{tier: dram}"}
        slow = evaluate(context(requests, changes=tier), two_rooms(threshold_s=None))
        load_s = 9000 * 70e3 / (8 * 0.05e9)
        assert slow.metrics.ttft_p50_s == pytest.approx(0.1 + load_s + 0.02, rel=0.03)

    def test_without_a_curve_or_a_split_the_mix_stands(self):
        made = context(mix([1000.0]))
        decision = two_rooms()
        history = md_history(made, decision, made.deployments["main"], [decision.pools[-1]])
        assert history.mix is made.deployments["main"].mix
        assert history.capacity_tokens == math.inf


class TestColocatedRelay:
    def test_relays_on_prefill_chips_need_no_pool_and_slow_prefill(self):
        requests = spread_mix()
        apart = evaluate(context(requests), two_rooms(threshold_s=0.5))
        together = evaluate(context(requests, changes={"policy.rld": "colocated"}), two_rooms(rld=0, threshold_s=0.5))
        assert together.metrics.gpus == apart.metrics.gpus - 8
        assert any(p.name == "P-RLD-MD" for p in together.pipelines)
        assert together.pools[0].utilisation > apart.pools[0].utilisation
        assert together.metrics.ttft_p99_s > apart.metrics.ttft_p99_s
        assert together.metrics.tpot_p99_s > apart.metrics.tpot_p99_s


class TestMixedServing:
    def test_aggregated_pools_leave_the_rest_to_separate_ones(self):
        requests = mix([1000.0], rate=2.0)
        base = two_rooms(p=1, rld=0, md=1, threshold_s=None)
        apart = tuple(range(len(base.pools)))
        ways = (Way((len(apart),), (0.25,)), Way(apart, (0.75,)))
        decision = replace(base, pools=(*base.pools, Pool(configuration("AGG", "A"), 1)), ways=ways)
        found = evaluate(context(requests), decision)
        assert {p.name: round(p.share, 6) for p in found.pipelines} == {"P-MD": 0.75, "AGG": 0.25}
        assert found.pools[0].utilisation == pytest.approx(0.75 * 2 * 0.1)

    def test_without_a_stated_split_capacity_decides(self):
        requests = mix([1000.0], rate=2.0)
        base = two_rooms(p=1, rld=0, md=1, threshold_s=None)
        decision = replace(base, pools=(*base.pools, Pool(configuration("AGG", "A"), 1)))
        found = evaluate(context(requests), decision)
        assert sum(p.share for p in found.pipelines) == pytest.approx(1.0)
        assert 0.2 < next(p.share for p in found.pipelines if p.name == "AGG") < 0.6
