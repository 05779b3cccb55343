"""Fixed plans whose answer is known: definitions of the metrics, loads, and what must never happen."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pdd_plans import LineStage, PlainKv, aggregated, context, mix, one_room, two_rooms

from pddplan.api import load_scenario
from pddplan.errors import InputError
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Decision, LinkPlan, Pool

IDLE = 1e-4  # requests/s: nobody meets anybody


def spread_mix(rate=4.0, output=200.0, seed=1, rows=800):
    u = np.sort(np.minimum(np.random.default_rng(seed).lognormal(6.5, 1.3, rows), 10000))
    return mix(u, output, rate)


class TestDefinitions:
    def test_inclusive_tpot_is_whole_time_over_output_and_tpot_leaves_the_first_token_out(self):
        """TTFT 400 ms, 20 ms between tokens, 100 tokens: 23.8 ms inclusive (aiconfigurator PR#1141)."""
        stage = {"AGG": LineStage(prefill_s_per_token=4e-4, alpha_s=0.02, beta_s=0.0)}
        metrics = evaluate(context(mix(1000, 100, IDLE), stage), aggregated()).metrics
        assert metrics.ttft_p50_s == pytest.approx(0.4, rel=5e-3)
        assert metrics.tpot_mean_s == pytest.approx(0.020, rel=5e-3)
        assert metrics.tpot_inclusive_mean_s == pytest.approx(0.0238, rel=5e-3)

    def test_of_one_token_the_inclusive_tpot_is_the_ttft_and_the_tpot_limit_is_met(self):
        stage = {"AGG": LineStage(prefill_s_per_token=4e-4, alpha_s=1.0, beta_s=0.0)}
        found = evaluate(context(mix(1000, 1, IDLE), stage), aggregated())
        assert found.metrics.tpot_inclusive_mean_s == pytest.approx(0.4, rel=5e-3)
        assert found.metrics.p_good == pytest.approx(1.0)

    def test_an_output_of_no_token_is_an_input_error(self):
        with pytest.raises(InputError):
            PlanContext.from_scenario(load_scenario("pdd-reference", ["workload.classes.agent.output_tokens=0"]))

    def test_ttft_of_a_lone_request_is_prefill_transfer_and_first_step(self):
        requests, kv = mix(1000, 100, IDLE), PlainKv(per_token=70e3)
        found = evaluate(context(requests, kv=kv), two_rooms(threshold_s=None)).metrics
        wire_s = 1000 * 70e3 / 0.25e9 + 0.02
        assert found.ttft_p50_s == pytest.approx(0.1 + wire_s + 0.0201, rel=0.01)
        assert found.e2e_p50_s == pytest.approx(0.1 + wire_s + 100 * 0.0201, rel=0.01)

    def test_a_relayed_request_starts_at_rld_and_its_tpot_holds_the_stall(self):
        requests = mix(5000, 200, IDLE)
        found = evaluate(context(requests), two_rooms(threshold_s=0.5))
        x_s = 5000 * 70e3 / 0.25e9 + 0.02
        hop_s = 10000 * 70e3 / (8 * 50e9 * 0.8) + 1e-5
        eager = math.ceil((x_s - hop_s) / 0.0201)
        stall_s = 0.01 + 0.2 + 1e-4 * eager
        tpot = ((eager - 1) * 0.0201 + stall_s + (200 - eager - 1) * 0.0201) / 199
        assert found.metrics.ttft_p50_s == pytest.approx(0.5 + hop_s + 0.0201, rel=0.01)
        assert found.metrics.rld_token_share == pytest.approx(eager / 200, rel=1e-6)
        assert found.metrics.tpot_mean_s == pytest.approx(tpot, rel=0.01)
        assert found.metrics.stall_p99_s == pytest.approx(stall_s, rel=0.06)  # and half a step of MD's

    def test_an_answer_that_ends_before_its_transfer_is_local_and_stops_it(self):
        found = evaluate(context(mix(5000, 20, IDLE)), two_rooms(threshold_s=0.5))
        assert [p.name for p in found.pipelines] == ["local"]
        assert found.metrics.rld_token_share == pytest.approx(1.0)
        running_s = 20 * 0.0201 + found_hop_s() - 0.02
        assert found.links[0].bytes_per_s_mean == pytest.approx(IDLE * running_s * 0.25e9, rel=0.01)


def found_hop_s():
    return 10000 * 70e3 / (8 * 50e9 * 0.8) + 1e-5


class TestCosts:
    def test_cost_is_rent_of_chips_and_circuits_and_bcr_is_goodput_over_it(self):
        found = evaluate(context(spread_mix()), two_rooms(p=2, rld=1, md=3, circuits=2)).metrics
        circuits = 2 * 10 * 120 / 730
        assert found.cost_usd_per_h == pytest.approx(3 * 8 * 2 + 3 * 8 * 2.5 + circuits)
        assert found.bcr == pytest.approx(found.goodput_rps / found.cost_usd_per_h)
        assert found.goodput_rps == pytest.approx(4.0 * found.p_good)
        assert found.gpus == 48

    def test_output_tokens_per_million_follow_from_rate_and_cost(self):
        found = evaluate(context(mix(1000, 200, 4.0)), one_room()).metrics
        assert found.usd_per_million_output_tokens == pytest.approx(found.cost_usd_per_h / (4 * 200 * 3600 / 1e6))


class TestOverload:
    def test_an_overloaded_prefill_pool_is_unstable_while_decode_is_fine(self):
        """Load swings to where prefill cannot follow: 'unstable', not a few hundred ms (dynamo#10528)."""
        found = evaluate(context(mix(8000, 50, 24.0)), one_room(p=1, md=1))
        assert not found.stable
        assert found.metrics.goodput_rps == 0.0
        assert found.metrics.ttft_p50_s == math.inf
        assert found.pools[0].utilisation == pytest.approx(24 * 0.8)
        assert found.pools[1].utilisation < 1.0
        assert found.metrics.tpot_mean_s < 0.05
        assert any(v.constraint.startswith("load of P") for v in found.violations)

    def test_a_saturated_line_stops_direct_requests_only(self):
        found = evaluate(context(mix([100, 9000], 200, 8.0)), two_rooms(p=8, circuits=1, threshold_s=None))
        assert found.links[0].utilisation > 1.0
        assert not found.stable
        assert found.metrics.ttft_p99_s == math.inf

    def test_no_circuit_on_a_used_line_is_overload_not_an_error(self):
        assert not evaluate(context(spread_mix()), two_rooms(circuits=0)).stable

    def test_an_overloaded_md_pool_leaves_relayed_first_tokens_finite(self):
        tiny = {"MD": LineStage(batch_max=1)}
        found = evaluate(context(mix(5000, 200, 1.0), tiny), two_rooms(threshold_s=0.5, md=1))
        assert not found.stable
        assert found.metrics.ttft_p99_s < 10.0
        assert found.metrics.e2e_p50_s == math.inf

    def test_no_traffic_costs_the_same_and_gives_no_nan(self):
        made = context(mix(1000, 100, 0.0))
        found = evaluate(made, two_rooms())
        assert found.stable
        assert found.metrics.goodput_rps == 0.0
        assert found.metrics.bcr == 0.0
        assert all(pool.utilisation == 0.0 for pool in found.pools)

    def test_a_latency_that_no_replica_can_meet_is_missed_by_any_number(self):
        """A single request needs 2.1 s against 2.0: replicas do not share a prompt (dynamo PR#11624)."""
        made = context(mix(21000, 10, IDLE, total=21000), changes={"workload.classes.agent.sla.ttft": "{limit: 2 s, p99: 2 s}"})
        for instances in (1, 50):
            found = evaluate(made, one_room(p=instances, md=2))
            assert found.stable
            assert any("ttft.p99" in v.constraint for v in found.violations)


class TestShapesOfPlans:
    def test_a_room_without_a_line_to_md_is_an_input_error(self):
        decision = two_rooms()
        made = context(spread_mix())
        lonely = replace(made, lines={})
        with pytest.raises(InputError, match="no link joins"):
            evaluate(lonely, decision)

    def test_a_plan_without_md_is_an_input_error(self):
        decision = one_room()
        with pytest.raises(InputError, match="no MD pool"):
            evaluate(context(spread_mix()), replace(decision, pools=decision.pools[:1]))

    def test_an_idle_pool_of_no_instances_changes_nothing(self):
        decision, made = two_rooms(), context(spread_mix())
        more = Decision((*decision.pools, Pool(decision.pools[0].configuration, 0)), decision.links, decision.settings)
        assert evaluate(made, more).metrics == evaluate(made, decision).metrics

    def test_a_prefill_to_decode_ratio_against_the_work_leaves_prefill_idle(self):
        """58 ms of prefill and 2.2 s of decode per request: one to one is the worst split (sglang-omni PR#1599)."""
        stages = {
            "P": LineStage(prefill_s_per_token=58e-6),
            "MD": LineStage(alpha_s=0.022, beta_s=0.0, batch_max=1.0),
        }
        made = context(mix(1000, 100, 0.4), stages, changes={"policy.queueing": "none"})
        even, fitting = evaluate(made, one_room(p=1, md=1)), evaluate(made, one_room(p=1, md=3))
        work = [pool.utilisation for pool in even.pools]
        assert work[0] / (work[0] + work[1]) == pytest.approx(0.026, abs=0.001)
        assert fitting.pools[1].utilisation == pytest.approx(work[1] / 3)

    def test_hits_discount_prefill_but_not_the_context_that_decode_holds(self):
        """8,000 in, half of it cached: 4,000 computed, 8,000 resident (dynamo PR#12564)."""

        class Remembers(LineStage):
            seen: list = []  # noqa: RUF012

            def kv_resident_bytes(self, tokens):
                Remembers.seen.append(np.max(tokens))
                return np.zeros(np.shape(tokens))

        stages = {"P": LineStage(prefill_s_per_token=1e-4), "MD": Remembers()}
        found = evaluate(context(mix(4000, 10, IDLE, total=8000), stages), one_room())
        assert found.metrics.ttft_p50_s == pytest.approx(0.4 + 0.0201 + 4000 * 70e3 / (8 * 50e9 * 0.8), rel=0.01)
        assert max(Remembers.seen) >= 8000

    def test_a_full_hit_still_computes_a_token(self):
        made = PlanContext.from_scenario(load_scenario("01-minimal", ["workload.classes.chat.hit_rate=1.0"]))
        assert made.deployments["main"].mix.uncached_tokens.min() >= 1.0


class TestSpeculation:
    def test_silence_on_speculation_leaves_it_off_and_says_so(self):
        made = PlanContext.from_scenario(load_scenario("pdd-reference"))
        assert made.deployments["main"].speculation is None
        assert any("MTP" in warning for warning in made.warnings)

    def test_speculation_without_acceptance_is_an_input_error(self):
        with pytest.raises(InputError, match="acceptance"):
            PlanContext.from_scenario(load_scenario("pdd-reference", ["model.speculation={draft_tokens: 1}"]))


class TestWithoutQueueing:
    def test_capacities_alone_give_bare_service_times(self):
        made = context(mix([1000, 3000], 100, 4.0), changes={"policy.queueing": "none"})
        found = evaluate(made, one_room(p=1, md=1))
        assert found.pools[0].utilisation == pytest.approx(4 * 0.2)
        law = found.laws["ttft"]
        step_s = 0.02 + 1e-4 * found.pools[1].batch_mean
        move_s = 70e3 / (8 * 50e9 * 0.8)
        assert law.quantile(0.25) == pytest.approx(0.1 + step_s + 1000 * move_s, rel=0.01)
        assert law.quantile(0.75) == pytest.approx(0.3 + step_s + 3000 * move_s, rel=0.01)

    def test_a_load_of_exactly_one_is_still_served(self):
        made = context(mix(1000, 100, 10.0), changes={"policy.queueing": "none"})
        assert evaluate(made, one_room(p=1, md=8)).stable


@st.composite
def plans(draw):
    seed, rate = draw(st.integers(0, 50)), draw(st.floats(0.05, 12.0))
    decision = two_rooms(
        p=draw(st.integers(1, 6)),
        rld=draw(st.integers(0, 3)),
        md=draw(st.integers(1, 6)),
        circuits=draw(st.integers(1, 4)),
        threshold_s=draw(st.sampled_from([None, 0.05, 0.3, 1.0, 3.0])),
        handoff=draw(st.sampled_from(["one-shot", "catch-up", "auto", "ship-kv"])),
    )
    return spread_mix(rate, draw(st.sampled_from([1.0, 30.0, 200.0, 900.0])), seed, 200), decision


class TestAlways:
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(plans())
    def test_percentiles_are_ordered_and_shares_are_shares(self, plan):
        requests, decision = plan
        found = evaluate(context(requests), decision)
        m = found.metrics
        assert m.ttft_p50_s <= m.ttft_p90_s <= m.ttft_p99_s
        assert m.e2e_p50_s <= m.e2e_p99_s
        assert m.ttft_p50_s <= m.e2e_p50_s * (1 + 2e-3)
        assert 0.0 <= m.p_good <= 1.0 + 1e-9
        assert 0.0 <= m.rld_token_share <= 1.0 + 1e-9
        assert m.goodput_rps <= requests.rate_per_s * (1 + 1e-9)
        assert m.bcr == pytest.approx(m.goodput_rps / m.cost_usd_per_h)
        assert sum(p.share for p in found.pipelines) == pytest.approx(1.0)
        assert all(pool.utilisation >= 0.0 for pool in found.pools)
        assert found.stable == all(v.limit != 1.0 for v in found.violations if v.constraint.startswith("load"))
        for law in found.laws.values():
            assert np.all(np.diff(law.cdf) >= 0.0)
            assert np.all(np.diff(law.seconds) > 0.0)
            assert law.cdf[-1] <= 1.0 + 1e-9

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(plans(), st.sampled_from([0, 2]))
    def test_one_more_instance_of_p_or_md_never_slows_the_first_token(self, plan, role):
        requests, decision = plan
        if not any(p.configuration.role == "RLD" for p in decision.pools) and role == 2:
            role = 1
        pools = list(decision.pools)
        pools[role] = Pool(pools[role].configuration, pools[role].instances + 1)
        made = context(requests)
        before, after = evaluate(made, decision), evaluate(made, replace(decision, pools=tuple(pools)))
        for q in (0.5, 0.9, 0.99):
            assert after.laws["ttft"].quantile(q) <= before.laws["ttft"].quantile(q) * 1.02

    @settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(plans())
    def test_one_more_circuit_never_slows_a_plan_without_a_relay(self, plan):
        requests, decision = plan
        plain = replace(decision, settings=replace(decision.settings, relay_threshold_s=None))
        wider = replace(plain, links=(LinkPlan("A-B", "A", "B", plain.links[0].circuits + 1, 1.25e9),))
        made = context(requests)
        before, after = evaluate(made, plain), evaluate(made, wider)
        for q in (0.5, 0.9, 0.99):
            assert after.laws["ttft"].quantile(q) <= before.laws["ttft"].quantile(q) * 1.02

    def test_hiding_the_transfer_never_slows_the_first_token(self):
        made = context(spread_mix())
        plain, hidden = evaluate(made, two_rooms(threshold_s=None)), evaluate(made, two_rooms(threshold_s=0.5))
        assert hidden.metrics.ttft_p99_s < 0.6 * plain.metrics.ttft_p99_s

    def test_halving_the_unit_of_time_halves_every_latency(self):
        slow = {r: LineStage() for r in ("P", "RLD", "MD")}
        fast = {
            r: LineStage(prefill_s_per_token=5e-5, alpha_s=0.01, beta_s=5e-5, extend_base_s=0.1, extend_s_per_token=5e-5)
            for r in slow
        }
        link = {
            "links.A-B.rtt": "10 ms",
            "links.A-B.per_flow": "4 Gbps",
            "links.A-B.circuit": "20 Gbps",
            "sites.A.fabric": "{per_gpu: 100 GB/s, latency: 5 us}",
        }
        one = evaluate(context(spread_mix(4.0), slow), two_rooms(threshold_s=0.5)).metrics
        decision = two_rooms(threshold_s=0.25)
        decision = replace(decision, links=(LinkPlan("A-B", "A", "B", 1, 2.5e9),))
        two = evaluate(context(spread_mix(8.0), fast, changes=link), decision).metrics
        for name in ("ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "tpot_mean_s", "e2e_p50_s", "stall_p99_s"):
            assert getattr(two, name) == pytest.approx(getattr(one, name) / 2, rel=0.01), name


class TestBrief:
    @pytest.mark.parametrize("decision", [two_rooms(threshold_s=0.5), one_room(), aggregated(), two_rooms(circuits=0)])
    def test_it_says_the_same_of_what_a_search_asks(self, decision):
        made = context(spread_mix())
        whole, brief = evaluate(made, decision), evaluate(made, decision, brief=True)
        assert (brief.stable, brief.violations) == (whole.stable, whole.violations)
        for name in ("goodput_rps", "cost_usd_per_h", "bcr", "ttft_p99_s", "tpot_p99_s"):
            assert getattr(brief.metrics, name) == getattr(whole.metrics, name)
        assert math.isnan(brief.metrics.e2e_p99_s)

    def test_an_sla_on_the_whole_answer_keeps_its_law(self):
        made = context(spread_mix(), changes={"workload.classes.agent.sla.e2e": "{p99: 1 s}"})
        assert any("e2e.p99" in v.constraint for v in evaluate(made, one_room(), brief=True).violations)


class TestTasks:
    def test_a_task_is_its_turns_one_after_another(self):
        requests = replace(spread_mix(), turns_per_task=(10.0,))
        found = evaluate(context(requests), one_room()).metrics
        assert found.task_p50_s == pytest.approx(10 * found.e2e_p50_s, rel=0.05)
        assert found.task_p50_s < found.task_p99_s < 10 * found.e2e_p99_s

    def test_turns_that_vary_spread_the_task(self):
        fixed = replace(spread_mix(), turns_per_task=(10.0,))
        varied = replace(fixed, task_turns=(np.array([1.0, 5.0, 24.0]),))
        one, many = evaluate(context(fixed), one_room()).metrics, evaluate(context(varied), one_room()).metrics
        assert many.task_p99_s > 2 * one.task_p99_s

    def test_a_ceiling_on_the_task_is_held(self):
        requests = replace(spread_mix(), turns_per_task=(10.0,))
        made = context(requests, changes={"workload.classes.agent.sla.task": "{p90: 10 s}"})
        assert any("task.p90" in v.constraint for v in evaluate(made, one_room(), brief=True).violations)
