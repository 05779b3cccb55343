"""Laws that hold for every model, format and mapping."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pddplan.model import load_model, model_names, with_weights
from pddplan.model.flops import flops_per_token, pairs, prefill_flops
from pddplan.model.kv_cache import kv_cache
from pddplan.model.parallel import check, legal_parallels, valid_tp
from pddplan.model.quantization import FORMATS
from pddplan.model.spec import Parallel
from pddplan.model.weights import weight_bytes, weight_bytes_of_stages, weight_bytes_per_gpu

MODELS = st.sampled_from(model_names())
DIVERSE = (
    "Llama-3.1-8B", "DeepSeek-V3", "zai-org/GLM-5.2", "deepseek-ai/DeepSeek-V4-Flash", "openai/gpt-oss-20b", "Qwen/Qwen3.5-35B-A3B",
    "moonshotai/Kimi-K3", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "google/gemma-4-26B-A4B", "MiniMaxAI/MiniMax-M3",
)  # fmt: skip
TOKENS = st.integers(0, 2_000_000)


@given(name=MODELS, tokens=TOKENS, more=st.integers(0, 100_000))
@settings(max_examples=150, deadline=None)
def test_more_tokens_never_need_less_and_grow_by_the_marginal(name, tokens, more):
    cache = kv_cache(load_model(name))
    here, there = (float(cache.bytes_resident(count)) for count in (tokens, tokens + more))
    assert there >= here
    if tokens > 0:
        assert there - here <= more * float(cache.bytes_marginal(tokens)) * (1 + 1e-9) + 1e-3
        assert there - here >= more * cache.slope * (1 - 1e-9) - 1e-3


@pytest.mark.parametrize("name", model_names())
def test_kv_is_positive_and_never_grows_with_tensor_parallelism(name):
    model = load_model(name)
    cache = kv_cache(model)
    slopes = []
    for tp in valid_tp(model):
        parallel = Parallel(tp, moe_tp=tp if any(layer.ffn.experts for layer in model.layers) else 1)
        one = float(cache.per_gpu(parallel).bytes_resident(8192))
        assert one > 0
        assert one * tp >= float(cache.bytes_resident(8192)) * (1 - 1e-12)
        slopes.append(one)
    assert slopes == sorted(slopes, reverse=True)


@pytest.mark.parametrize("name", DIVERSE)
def test_the_gpus_together_never_hold_less_than_the_whole(name):
    model = load_model(name)
    cache = kv_cache(model)
    for parallel in legal_parallels(model, None, 16):
        assert parallel.gpus * float(cache.per_gpu(parallel).bytes_resident(20_000)) >= float(cache.bytes_resident(20_000)) * (1 - 1e-12)
        stages = weight_bytes_of_stages(model, parallel)
        assert parallel.tp * parallel.dp * sum(stages) >= weight_bytes(model) * (1 - 1e-12)
        assert weight_bytes_per_gpu(model, parallel) <= weight_bytes(model) + 1e-6


@pytest.mark.parametrize("name", model_names())
def test_doubling_a_plain_dtype_doubles_the_growth_exactly(name):
    model = load_model(name)
    if any(layer.attention.indexer or layer.attention.shared_kv for layer in model.layers):
        return
    assert kv_cache(model, "bf16").slope == 2 * kv_cache(model, "fp8").slope
    assert kv_cache(model, "fp8").slope == 2 * kv_cache(model, "int4").slope
    assert kv_cache(model, "bf16").constant == kv_cache(model, "fp8").constant


@given(name=MODELS, budget=st.floats(1e6, 1e12), requests=st.integers(1, 64))
@settings(max_examples=80, deadline=None)
def test_the_tokens_of_a_budget_are_the_most_that_fit(name, budget, requests):
    cache = kv_cache(load_model(name))
    tokens = cache.tokens_in(budget, requests)
    assert tokens == 0 or requests * float(cache.bytes_resident(tokens)) <= budget * (1 + 1e-12)
    assert requests * float(cache.bytes_resident(tokens + 1)) > budget * (1 - 1e-12)


@given(name=MODELS, total=st.integers(1, 500_000), share=st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_a_transfer_is_never_more_than_the_cache_and_grows_with_its_tail(name, total, share):
    cache = kv_cache(load_model(name))
    new = int(share * total)
    sent = float(cache.transfer_bytes(new, total))
    assert sent <= float(cache.bytes_resident(total)) * (1 + 1e-12)
    assert sent <= float(cache.transfer_bytes(total, total))
    assert float(cache.transfer_bytes(0, total)) == 0


@given(name=MODELS)
@settings(max_examples=60, deadline=None)
def test_arrays_and_single_values_agree(name):
    cache = kv_cache(load_model(name))
    tokens = np.array([[0, 1, 127], [128, 5000, 1_000_000]])
    together = cache.bytes_resident(tokens)
    assert together.shape == tokens.shape
    assert together.ravel().tolist() == [float(cache.bytes_resident(int(count))) for count in tokens.ravel()]


@given(new=st.integers(1, 3000), cached=st.integers(0, 3000), limit=st.one_of(st.none(), st.integers(1, 4000)))
@settings(max_examples=100, deadline=None)
def test_pairs_are_those_counted_one_by_one(new, cached, limit):
    seen = np.arange(cached + 1, cached + new + 1)
    counted = (seen if limit is None else np.minimum(seen, limit)).sum()
    assert float(pairs(new, cached, limit)) == pytest.approx(counted)


@pytest.mark.parametrize("name", DIVERSE)
def test_prefill_in_two_parts_is_prefill_in_one(name):
    model = load_model(name)
    whole = float(prefill_flops(model, 9000, 0))
    parts = float(prefill_flops(model, 4000, 0)) + float(prefill_flops(model, 5000, 4000))
    head = 2 * (model.lm_head or model.embedding).params
    assert parts - head == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("name", DIVERSE)
def test_flops_never_fall_with_context(name):
    found = flops_per_token(load_model(name), np.array([1, 100, 10_000, 1_000_000]))
    assert np.all(np.diff(found) >= 0)


def test_flops_of_a_dense_model_are_twice_its_matrices():
    model = load_model("Llama-3.1-8B")
    matrices = 8_030_261_248 - 128_256 * 4096 - 65 * 4096
    assert float(flops_per_token(model, 1)) == pytest.approx(2 * matrices + 32 * 2 * 32 * 256, rel=1e-12)
    assert float(flops_per_token(model, 1001) - flops_per_token(model, 1)) == 1000 * 32 * 2 * 32 * 256


@given(name=MODELS, fewer=st.sampled_from(["int4", "nvfp4", "mxfp4", "fp8"]))
@settings(max_examples=60, deadline=None)
def test_narrower_weights_are_lighter(name, fewer):
    model = with_weights(load_model(name), "bf16")
    assert weight_bytes(with_weights(model, fewer)) < weight_bytes(model)
    assert fewer in FORMATS


@given(name=MODELS, tp=st.integers(1, 70), pp=st.integers(1, 130), dp=st.integers(1, 9), ep=st.integers(1, 70), cut=st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_a_check_never_crashes_and_its_advice_is_true(name, tp, pp, dp, ep, cut):
    model = load_model(name)
    for reason in check(model, Parallel(tp, pp, dp, ep, cut)):
        assert reason.value not in reason.valid
        assert reason.detail
