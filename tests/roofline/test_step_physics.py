"""Physics of a step: bounds that no prediction beats, and directions that hold whatever the constants."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pddplan.errors import InputError
from pddplan.hardware import load_chip
from pddplan.model import load_model
from pddplan.model.flops import prefill_flops
from pddplan.model.spec import Parallel
from pddplan.model.weights import weight_bytes_per_gpu
from pddplan.roofline.closed_loop import closed_loop
from pddplan.roofline.speculation import tokens_per_step
from pddplan.roofline.step import distinct_experts, prefill_passes
from pddplan.stages.roofline import RooflineInstance, roofline_instance

CASES = [
    ("meta-llama/Llama-3.1-70B", Parallel(tp=8)),
    ("Qwen/Qwen3-32B-FP8", Parallel(tp=4)),
    ("deepseek-ai/DeepSeek-V3", Parallel(tp=8, moe_ep=8)),
    ("deepseek-ai/DeepSeek-V3", Parallel(tp=1, dp=16, moe_ep=16)),
    ("openai/gpt-oss-120b", Parallel(tp=8, moe_tp=8)),
    ("Qwen/Qwen3.5-397B-A17B", Parallel(tp=8, dp=2, moe_ep=16)),
    ("zai-org/GLM-5-FP8", Parallel(tp=8, dp=2, moe_ep=16)),
    ("deepseek-ai/DeepSeek-V4-Pro", Parallel(tp=8, dp=2, moe_ep=16)),
    ("XiaomiMiMo/MiMo-V2-Flash", Parallel(tp=8, moe_ep=8)),
]
CHIPS = ("h100-sxm", "h200-sxm", "b200", "gb300", "mi355x", "h20-141", "ascend-910c")
ENGINES = ("vllm", "sglang", "trtllm", "generic")


def _instance(case: int, chip: str, engine: str) -> RooflineInstance:
    name, parallel = CASES[case]
    return roofline_instance(load_model(name), load_chip(chip), engine, parallel, checked=False)


def _or_skip(case: int, chip: str, engine: str) -> RooflineInstance | None:
    try:
        return _instance(case, chip, engine)
    except InputError as error:
        if "does not fit" in str(error):
            return None
        raise


instances = st.builds(_or_skip, st.integers(0, len(CASES) - 1), st.sampled_from(CHIPS), st.sampled_from(ENGINES)).filter(bool)
batches = st.integers(1, 2048)
contexts = st.integers(1, 200_000)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_dense_step_is_never_faster_than_streaming_its_weights(engine):
    for case in (0, 1):
        instance = _instance(case, "h200-sxm", engine)
        floor = 0.97 * weight_bytes_per_gpu(instance.model, instance.parallel) / instance.chip.hbm_bytes_per_s.value
        assert instance.step_s(1, 1) > floor  # 0.97: the embedding is a lookup, not a stream


@settings(max_examples=60, deadline=None)
@given(instances, batches, contexts)
def test_no_component_of_a_step_beats_the_peaks_of_the_chip(instance, batch, context):
    time = instance.decode_breakdown(batch, context)
    terms = instance.terms
    rows = batch / (terms.dp * terms.pp)
    peak_gemm = np.maximum(terms.gemm_row_s * terms.gemm_compute_share * rows, terms.gemm_weight_s * terms.gemm_memory_share).sum()
    assert time.gemm_s >= peak_gemm
    active = distinct_experts(terms.moe_experts, terms.moe_top_k, batch, instance.overlay.popularity) / terms.ep
    assert time.experts_s >= (terms.moe_expert_s * terms.moe_memory_share * active).sum()


@settings(max_examples=60, deadline=None)
@given(instances, st.integers(1, 150_000), st.integers(0, 150_000))
def test_a_prefill_is_never_faster_than_its_flops_at_peak(instance, uncached, cached):
    widest = max(instance.chip.peak_flops[k].value for k in instance.chip.peak_flops if instance.chip.peak_flops[k].value)
    flops = float(prefill_flops(instance.model, uncached, cached))
    assert instance.prefill_occupancy_s(uncached, cached) >= 0.99 * flops / (widest * instance.gpus)


@settings(max_examples=60, deadline=None)
@given(instances, batches, contexts, st.floats(1.0, 8.0))
def test_more_bandwidth_is_never_slower(instance, batch, context, factor):
    chip = instance.chip
    wider = replace(chip, hbm_bytes_per_s=replace(chip.hbm_bytes_per_s, value=chip.hbm_bytes_per_s.value * factor))
    faster = roofline_instance(instance.model, wider, instance.engine, instance.parallel, checked=False)
    assert faster.step_s(batch, context) <= instance.step_s(batch, context) * (1 + 1e-9)
    assert faster.prefill_s(context, 0) <= instance.prefill_s(context, 0) * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(instances, batches, contexts, st.integers(1, 512), st.integers(1, 20_000))
def test_a_step_grows_with_batch_and_context_and_throughput_with_batch(instance, batch, context, more, longer):
    here = instance.step_s(batch, context)
    assert instance.step_s(batch + more, context) >= here
    assert instance.step_s(batch, context + longer) >= here
    assert (batch + more) / instance.step_s(batch + more, context) >= batch / here * (1 - 1e-9)


@settings(max_examples=40, deadline=None)
@given(instances, st.integers(1, 150_000), st.integers(1, 5_000), st.integers(0, 50_000))
@example(_or_skip(8, "h100-sxm", "vllm"), 4, 1, 125)
def test_prefill_grows_with_new_and_with_cached_tokens(instance, tokens, more, cached):
    assert instance.prefill_occupancy_s(tokens + more, cached) >= instance.prefill_occupancy_s(tokens, cached) * (1 - 1e-9)
    assert instance.prefill_s(tokens, cached + more) >= instance.prefill_s(tokens, cached) * (1 - 1e-9)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_closed_loop_tpot_grows_and_throughput_does_not_fall_with_requests_in_flight_below_the_kv_limit(case):
    instance = _or_skip(case, "h200-sxm", "vllm") or _instance(case, "gb300", "vllm")
    load = np.array([1.0, 2, 4, 8, 16, 32, 64, 128, 256])
    state = closed_loop(instance.terms, instance.overlay, 4096.0, 512.0, load, np.inf, 8192.0)
    assert np.all(np.diff(state.tpot_s) >= -1e-9)
    assert np.all(np.diff(load / (state.ttft_s + 512 * state.tpot_s)) >= -1e-9)


def test_companions_of_equal_length_delay_a_request_by_at_most_those_that_are_there():
    """With a convoy of 2 prefills, one request waits for nobody, three for one prefill on average, five and more for two."""
    instance = _instance(1, "h200-sxm", "vllm")
    quiet = replace(instance.overlay, burst=0.0, lag=0.0, convoy=0.0)
    load = np.array([1.0, 3.0, 5.0, 9.0])
    alone, together = (
        closed_loop(instance.terms, o, 1024.0, 4096.0, load, np.inf, 8192.0).ttft_s for o in (quiet, replace(quiet, convoy=2.0))
    )
    packed = prefill_passes(instance.terms, quiet, 1024.0, 0.0, 8192.0, packed=True, filled=False)[1]
    np.testing.assert_allclose(together - alone, np.array([0.0, 1.0, 2.0, 2.0]) * packed, rtol=0.02, atol=1e-6)


def test_polling_for_new_requests_delays_the_first_token_and_no_other():
    instance = _instance(1, "h200-sxm", "sglang")
    load = np.array([4.0, 15.0, 16.0, 64.0])
    plain, polled = (
        closed_loop(instance.terms, replace(instance.overlay, poll_steps=steps), 1024.0, 1024.0, load, np.inf, 8192.0)
        for steps in (0.0, 15.0)
    )
    np.testing.assert_allclose(polled.ttft_s - plain.ttft_s, np.array([5.0, 5.0, 15.0, 15.0]) * plain.step_s)
    np.testing.assert_array_equal(polled.tpot_s, plain.tpot_s)


def test_doubling_the_bandwidth_of_a_compute_bound_prefill_changes_little():
    h100, h200 = (_instance(0, chip, "vllm") for chip in ("h100-sxm", "h200-sxm"))
    assert 0.85 < h200.prefill_occupancy_s(8192, 0) / h100.prefill_occupancy_s(8192, 0) < 1.05


@given(st.integers(2, 512), st.integers(1, 16), st.integers(1, 10_000), st.floats(0.1, 100.0))
def test_distinct_experts_are_between_top_k_and_all_and_skew_makes_them_fewer(experts, top_k, tokens, popularity):
    k = min(top_k, experts)
    found = float(distinct_experts(experts, k, tokens, popularity))
    uniform = experts * (1 - (1 - k / experts) ** tokens)
    assert k - 1e-9 <= found <= experts + 1e-9
    assert found <= max(uniform, k) * 1.02


def test_many_tokens_with_uniform_popularity_touch_what_the_textbook_says():
    """E (1 - (1 - k/E)^n) (occupancy of n draws): 256 experts, 8 a token, 32 tokens: 163.3."""
    assert distinct_experts(256, 8, 32, 1e6) == pytest.approx(256 * (1 - np.exp(-8 * 32 / 256)), rel=1e-4)
    assert distinct_experts(256, 8, 32, 1e6) == pytest.approx(256 * (1 - (1 - 8 / 256) ** 32), rel=0.02)


def test_tokens_per_step_is_the_truncated_geometric_sum():
    assert tokens_per_step(0.8, 3) == pytest.approx(1 + 0.8 + 0.64 + 0.512)
    assert tokens_per_step(1.0, 3) == 4.0
    assert tokens_per_step(0.0, 3) == 1.0
