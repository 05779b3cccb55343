"""Transfers: line caps, overlap, RDMA, against arithmetic and published rates."""

import math

import numpy as np
import pytest
from pdd_plans import context, mix, one_room, two_rooms

from pddplan.api import load_scenario
from pddplan.model.catalog import load_model
from pddplan.model.kv_cache import kv_cache
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.flows import rdma_s
from pddplan.pdd.laws import exponential_nodes
from pddplan.pdd.line import Line
from pddplan.pdd.plan import LinkPlan
from pddplan.pdd.transfer import line_state, visible_transfer_s
from pddplan.queueing.processor_sharing import line


def spec(**changes):
    link = {"links.A-B." + key: value for key, value in changes.items()}
    scenario = load_scenario("pdd-reference", link)
    return Line.from_link("A-B", scenario.links["A-B"])


PLAN = LinkPlan("A-B", "A", "B", 1, 12.5e9)


class TestCaps:
    def test_the_window_over_the_round_trip_caps_a_flow(self):
        """64 MB: 17 Gbit/s at 30 ms (TCP window bound)."""
        found = spec(per_flow=None, window="64 MB", rtt="30 ms")
        assert found.flow_bytes_per_s * 8 / 1e9 == pytest.approx(17.07, abs=0.01)

    def test_streams_multiply_the_window(self):
        assert spec(per_flow=None, window="64 MB", rtt="30 ms", streams=4).flow_bytes_per_s == pytest.approx(4 * 64e6 / 0.03)

    def test_loss_caps_a_flow_by_the_formula_of_mathis_raised_to_cubic(self):
        """Reno at 30 ms, MSS 8948 and 1e-6: 2.9 Gbit/s; CUBIC two to five times that."""
        gbps = spec(per_flow=None, loss="0.0001 %", rtt="30 ms").flow_bytes_per_s * 8 / 1e9
        assert 2 * 2.9 < gbps < 5 * 2.92

    def test_the_lowest_cap_rules(self):
        assert spec(per_flow="5 Gbps", window="64 MB", rtt="30 ms").flow_bytes_per_s == pytest.approx(5e9 / 8)

    def test_circuits_and_usable_share_make_the_line(self):
        assert spec(usable=0.9).rate_cap_bytes_per_s(LinkPlan("A-B", "A", "B", 3, 12.5e9)) == pytest.approx(0.9 * 3 * 12.5e9)


class TestLineState:
    SIZES, WEIGHT = np.array([1e8, 3e8]), np.array([0.5, 0.5])

    def test_an_empty_line_runs_every_transfer_at_the_cap(self):
        state = line_state(spec(per_flow="5 Gbps"), PLAN, 0.0, self.SIZES, self.WEIGHT)
        assert state.wire_s(self.SIZES)[:, 0] == pytest.approx(self.SIZES / 0.625e9)

    def test_mean_time_is_the_exact_mean_of_capped_processor_sharing(self):
        line_spec = spec(per_flow="20 Gbps", connections=100000)
        capacity = line_spec.rate_cap_bytes_per_s(PLAN)
        rate = 0.8 * capacity / 2e8
        state = line_state(line_spec, PLAN, rate, self.SIZES, self.WEIGHT)
        exact = line(rate, self.SIZES, self.WEIGHT, capacity, 2.5e9).seconds_per_byte_mean
        assert state.utilisation == pytest.approx(0.8)
        assert state.wire_s(self.SIZES) @ state.probability == pytest.approx(exact * self.SIZES, rel=0.03)

    def test_a_saturated_line_is_unstable(self):
        assert not line_state(spec(), PLAN, 1e3, self.SIZES, self.WEIGHT).stable

    def test_a_starved_pool_of_connections_is_unstable_though_the_line_is_idle(self):
        narrow = spec(per_flow="1 Gbps", connections=2)
        assert not line_state(narrow, PLAN, 2.0, self.SIZES, self.WEIGHT).stable

    def test_a_busy_pool_makes_some_wait_and_weights_stay_a_law(self):
        narrow = spec(per_flow="1 Gbps", connections=4)
        state = line_state(narrow, PLAN, 0.8 * 4 * 0.125e9 / 2e8, self.SIZES, self.WEIGHT)
        assert state.stable
        assert state.wait_s.max() > 0.0
        assert state.probability.sum() == pytest.approx(1.0)

    def test_spread_of_flow_rates_keeps_the_load_and_lengthens_the_tail(self):
        plain = line_state(spec(per_flow="1 Gbps"), PLAN, 1.0, self.SIZES, self.WEIGHT)
        spread = line_state(spec(per_flow="1 Gbps", per_flow_sigma=1.0), PLAN, 1.0, self.SIZES, self.WEIGHT)
        assert spread.utilisation == pytest.approx(plain.utilisation)
        assert spread.wire_s(self.SIZES).max() > 2 * plain.wire_s(self.SIZES).max()


class TestPublishedRates:
    def test_mooncake_moves_forty_gib_at_its_measured_rates(self):
        """40 GiB (Llama-3-70B, 128k) in 0.494 s at 87 GB/s and 0.226 s at 190 GB/s."""
        for share, seconds, gbytes in ((0.87, 0.494, 100), (0.475, 0.226, 400)):
            made = context(
                mix(1000), changes={"sites.A.fabric": f"{{per_gpu: {gbytes / 8} GB/s, usable: {share}, latency: 0 s}}"}
            )
            p, md = one_room().pools
            assert rdma_s(made, p, md, np.array([40 * 2.0**30]))[0] == pytest.approx(seconds, abs=0.001)

    @pytest.mark.parametrize(
        ("model", "megabytes", "fast_ms", "slow_ms"),
        [("deepseek-ai/DeepSeek-V3", 575.7, 11.5, 46.1), ("meta-llama/Meta-Llama-3.1-70B", 2684.0, 53.7, 214.7)],
    )
    def test_the_kv_of_8192_tokens_at_line_rate(self, model, megabytes, fast_ms, slow_ms):
        size = kv_cache(load_model(model), "bf16").transfer_bytes(np.array([8192.0]), np.array([8192.0]))
        assert size[0] / 1e6 == pytest.approx(megabytes, abs=0.5)
        for gbps, expected in ((400, fast_ms), (100, slow_ms)):
            line_spec = spec(per_flow=None, usable=1.0)
            state = line_state(line_spec, LinkPlan("A-B", "A", "B", 1, gbps * 1e9 / 8), 0.0, size, np.ones(1))
            assert state.wire_s(size)[0, 0] * 1e3 == pytest.approx(expected, abs=0.1)


class TestOverlap:
    X, S, U = np.array([4.0]), np.array([3.0]), np.array([40000.0])

    def test_without_overlap_all_of_it_is_seen(self):
        assert visible_transfer_s(self.X, self.S, self.U, "none", 60, 8192) == pytest.approx(4.0)

    def test_layer_by_layer_all_but_the_last_layer_can_leave_during_prefill(self):
        assert visible_transfer_s(self.X, self.S, self.U, "layer", 60, 8192) == pytest.approx(4.0 - 3.0 * 59 / 60)

    def test_the_last_piece_can_never_be_hidden(self):
        assert visible_transfer_s(self.X, np.array([100.0]), self.U, "layer", 60, 8192) == pytest.approx(4.0 / 60)
        assert visible_transfer_s(self.X, np.array([100.0]), self.U, "chunk", 60, 8192) == pytest.approx(4.0 / 5)

    def test_a_prompt_of_one_chunk_cannot_overlap_by_chunks(self):
        assert visible_transfer_s(self.X, self.S, np.array([100.0]), "chunk", 60, 8192) == pytest.approx(4.0)

    def test_overlap_shortens_the_first_token_of_a_plan(self):
        plain = evaluate(context(mix(5000, 100, 0.1)), two_rooms(threshold_s=None)).metrics.ttft_p50_s
        over = evaluate(
            context(mix(5000, 100, 0.1), changes={"policy.overlap": "layer"}), two_rooms(threshold_s=None)
        ).metrics.ttft_p50_s
        assert over == pytest.approx(plain - 0.5 * 63 / 64, rel=0.02)


def test_exponential_slices_have_the_mean_of_the_law():
    assert exponential_nodes(8).mean() == pytest.approx(1.0)
    assert exponential_nodes(1)[0] == pytest.approx(1.0)
    assert np.all(np.diff(exponential_nodes(8)) > 0)
    assert math.isfinite(exponential_nodes(64)[-1])
