"""KV cache against measured and published sizes; each name says the fact, the comment its public source."""

from pathlib import Path

import numpy as np
import pytest

from pddplan.errors import InputError
from pddplan.model import load_model, parse_config, with_weights
from pddplan.model.kv_cache import kv_cache
from pddplan.model.spec import Parallel
from pddplan.model.weights import weight_bytes
from pddplan.units import GIB, MIB

CONFIGS = Path(__file__).parent.parent / "data" / "configs"


def local(name):
    return load_model(CONFIGS / f"{name}_config.json")


def growth(model, kv_format=None):
    return kv_cache(model, kv_format).slope


def test_llama_8b_pages_hold_the_tokens_of_the_engine_log():
    """vllm#10517: 3.81 GiB for KV, 16-token blocks."""
    cache = kv_cache(load_model("Llama-3.1-8B-Instruct"))
    assert cache.slope == 131_072
    assert cache.tokens_in(1952 * 16 * 131_072, page_tokens=16) == 31_232
    assert cache.tokens_in(3.82 * GIB, page_tokens=16) == pytest.approx(31_232, rel=0.003)
    assert pytest.approx(1.56, abs=0.005) == 31_232 / 20_000
    assert cache.tokens_in(1478 * 16 * 131_072, page_tokens=16) == 23_648 < 29_000


def test_llama_70b_at_128ki_is_exactly_40_gib():
    cache = kv_cache(load_model("meta-llama/Llama-3.1-70B"))
    assert cache.slope == 327_680
    assert float(cache.bytes_resident(131_072)) == 40 * GIB


def test_qwen3_32b_uses_its_own_head_dim_not_hidden_over_heads():
    assert growth(load_model("Qwen/Qwen3-32B")) == 262_144


def test_deepseek_v3_keeps_one_latent_per_token():
    cache = kv_cache(load_model("deepseek-ai/DeepSeek-R1"), "bf16")
    assert cache.slope == 70_272
    assert float(cache.bytes_resident(10_000)) / GIB == pytest.approx(0.65446, abs=5e-6)


def test_deepseek_v3_latent_in_four_bits():
    """gguf-parser-go#8."""
    assert float(kv_cache(load_model("DeepSeek-V3"), "int4").bytes_resident(65_536)) / GIB == pytest.approx(1.0723, abs=5e-5)


def test_qwen3_235b_splits_over_four_ranks_as_the_engine_log_says():
    """vllm#21348: 367,404 tokens in 8.23 + 8.23 GiB (logged as GB) on each of four ranks."""
    cache = kv_cache(load_model("Qwen/Qwen3-235B-A22B")).per_gpu(Parallel(4, moe_tp=4))
    assert cache.slope == 48_128
    assert float(cache.bytes_resident(367_404)) / GIB == pytest.approx(2 * 8.23, rel=0.002)


def test_gpt_oss_has_an_ideal_and_a_page_unified_size():
    """hf-mem pull request 70: 32 sequences of 8,192 tokens."""
    model = load_model("openai/gpt-oss-20b")
    assert 32 * float(kv_cache(model).bytes_resident(8192)) / GIB == pytest.approx(6.09, abs=0.005)
    assert 32 * float(kv_cache(model, unified_pages=True).bytes_resident(8192)) / GIB == pytest.approx(12.00, abs=0.005)


def test_gemma_4_windows_stop_growing():
    """ollama pull request 16958: totals in GB at 4k, 8k, 32k, 128k, with 512 tokens of batch slack and without."""
    model = load_model("google/gemma-4-26B-A4B")
    contexts = np.array([4096, 8192, 32_768, 131_072])
    assert growth(model) == 20_480
    assert kv_cache(model, window_slack_tokens=512).bytes_resident(contexts) / 1e9 == pytest.approx([0.40, 0.48, 0.99, 3.00], abs=0.006)
    assert kv_cache(model).bytes_resident(contexts) / 1e9 == pytest.approx([0.29, 0.38, 0.88, 2.89], abs=0.006)


@pytest.mark.parametrize("name", ["Qwen/Qwen3.5-27B", "nvidia/Qwen3.6-27B-NVFP4"])
def test_gated_delta_layers_keep_a_constant_state(name):
    """lmstudio-bug-tracker#1862: 16,384 MiB of KV at 262,144 tokens and 149.625 MiB of float32 state a sequence."""
    cache = kv_cache(load_model(name), "bf16")
    assert cache.slope == 65_536
    assert cache.slope * 262_144 / MIB == 16_384
    assert cache.constant / MIB == 149.625
    assert 4 * cache.constant / MIB == 598.5
    assert float(cache.part_bytes(262_144)["state"]) / MIB == 149.625


def test_nemotron_h_reads_attention_head_dim_and_counts_its_ten_attention_layers():
    assert growth(load_model("nvidia/Nemotron-H-56B-Base-8K")) == 40_960


def test_kimi_k3_counts_its_last_layer():
    """full_attn_layers is 1-based: 24 latents, layer 93 among them; 69 layers of 96 x 128 x 128 float32 state, and three short
    convolutions a layer beside it."""
    cache = kv_cache(load_model("moonshotai/Kimi-K3"))
    assert cache.slope == 27_648
    parts = cache.part_bytes(1)
    assert float(parts["state"]) / MIB == 414
    assert float(parts["convolution"]) == 69 * 3 * 96 * 128 * 3 * 2


def test_glm_5_1_is_read_as_a_latent_with_indexer_keys_apart():
    slopes = kv_cache(load_model("zai-org/GLM-5.1"), "bf16").part_slopes()
    assert slopes["latent"] == 89_856
    assert slopes["indexer"] == 78 * 132


def test_shared_indexers_store_no_keys():
    """GLM-5.2: 21 of 78 layers have an indexer of their own."""
    assert kv_cache(load_model("zai-org/GLM-5.2")).part_slopes()["indexer"] == 21 * 132


def test_gpt2_and_multi_query_names():
    """mlxcel#927 and pull request 957, 8,192 tokens in 16 bits."""
    assert float(kv_cache(local("gpt2")).bytes_resident(8192)) == 301_989_888
    assert float(kv_cache(local("santacoder")).bytes_resident(8192)) == 100_663_296


def test_a_null_sliding_window_is_full_attention():
    assert growth(load_model("mistralai/Mixtral-8x7B-v0.1")) == 131_072


def test_halving_the_kv_dtype_doubles_the_tokens_and_leaves_weights_alone():
    model = load_model("meta-llama/Llama-3.1-70B")
    wide, narrow = kv_cache(model, "fp16"), kv_cache(model, "fp8")
    assert narrow.tokens_in(80 * GIB) == 2 * wide.tokens_in(80 * GIB)
    assert weight_bytes(with_weights(model, "fp8")) != weight_bytes(model)
    assert kv_cache(with_weights(model, "fp8")).slope == wide.slope


@pytest.mark.parametrize("tokens", [-1, np.array([5, -2])])
def test_negative_context_is_an_error_that_names_it(tokens):
    with pytest.raises(InputError, match="context"):
        kv_cache(load_model("DeepSeek-V3")).bytes_resident(tokens)


def test_zero_context_is_zero_bytes():
    for name in ("DeepSeek-V3", "deepseek-ai/DeepSeek-V4-Pro", "Qwen/Qwen3.5-27B", "openai/gpt-oss-20b"):
        assert float(kv_cache(load_model(name)).bytes_resident(0)) == 0


def test_latents_repeat_under_tensor_parallelism_but_not_under_attention_dp():
    cache = kv_cache(load_model("DeepSeek-V3"))
    assert cache.per_gpu(Parallel(8, moe_tp=8)).slope == 70_272
    assert cache.per_gpu(Parallel(1, dp=8, moe_ep=8)).slope == 70_272 / 8
    assert cache.per_gpu(Parallel(2, dp=4, moe_ep=8)).slope == 70_272 / 4


def test_kv_heads_repeat_beyond_their_number():
    cache = kv_cache(load_model("Qwen/Qwen3-235B-A22B"))
    assert cache.per_gpu(Parallel(8, moe_ep=8)).slope == cache.per_gpu(Parallel(4, moe_tp=4)).slope


def test_the_fullest_pipeline_stage_counts():
    """61 layers on 4 stages: 16 at most."""
    cache = kv_cache(load_model("DeepSeek-V3"))
    assert cache.per_gpu(Parallel(1, pp=4)).slope == 16 * 1152


def test_only_the_uncached_tail_travels_with_windows_and_state_once():
    cache = kv_cache(load_model("openai/gpt-oss-20b"))
    assert float(cache.transfer_bytes(100, 8192)) == 100 * cache.slope + cache.cap
    assert float(cache.transfer_bytes(0, 8192)) == 0
    assert float(cache.transfer_bytes(8192, 8192)) == float(cache.bytes_resident(8192))
    state = kv_cache(load_model("Qwen/Qwen3.5-27B"))
    assert float(state.transfer_bytes(10, 8192)) == 10 * state.slope + state.constant


def test_transfer_of_a_whole_prompt_is_its_cache():
    """8,192 tokens: 575.7 MB for DeepSeek-V3, 2.684 GB for Llama-3.1-70B."""
    assert float(kv_cache(load_model("DeepSeek-V3")).transfer_bytes(8192, 8192)) / 1e6 == pytest.approx(575.7, abs=0.05)
    assert float(kv_cache(load_model("Llama-3.1-70B")).transfer_bytes(8192, 8192)) / 1e9 == pytest.approx(2.684, abs=0.0005)


def test_a_format_the_model_does_not_allow_is_an_error_with_those_it_does():
    with pytest.raises(InputError, match="nominal"):
        kv_cache(load_model("DeepSeek-V4-Pro"), "q4_0")
    with pytest.raises(InputError, match="bf16"):
        kv_cache(load_model("Llama-3.1-8B"), "fp8_ds_mla")


def test_a_checkpoint_that_asks_for_an_fp8_cache_gets_it():
    model = load_model("nvidia/Llama-3.1-70B-Instruct-FP8")
    assert model.native_kv_dtype == "fp8"
    assert growth(model) == 163_840
    assert any("fp8" in note for note in model.notes)


# bytes/token beyond the window, windows (tokens, bytes/token) and state of further published architectures, from their papers.
FURTHER = {
    "Mistral-7B-v0.1": (0, ((4096, 131_072),), 0),
    "Gemma-2-9B": (21 * 2 * 8 * 256 * 2, ((4096, 21 * 2 * 8 * 256 * 2),), 0),
    "Gemma-3-27B": (10 * 2 * 16 * 128 * 2, ((1024, 52 * 2 * 16 * 128 * 2),), 0),
    "DeepSeek-V2-Lite": (27 * 576 * 2, (), 0),
    "Qwen3-Next-80B-A3B": (12 * 2 * 2 * 256 * 2, (), 36 * (32 * 128 * 128 + 8192 * 3) * 4),
    "Kimi-Linear-48B-A3B": (7 * 576 * 2, (), 20 * (32 * 128 * 128 * 4 + 3 * 4096 * 3 * 2)),
    "MiniMax-Text-01": (10 * 2 * 8 * 128 * 2, (), 70 * 64 * 128 * 128 * 4),
    "Jamba-v0.1": (4 * 2 * 8 * 128 * 2, (), 28 * (8192 * 16 * 4 + 8192 * 3 * 4)),
    "Falcon-7B": (32 * 2 * 64 * 2, (), 0),
    "GLM-4-9B": (40 * 2 * 2 * 128 * 2, (), 0),
    "Phi-2": (32 * 2 * 32 * 80 * 2, (), 0),
    "Qwen2.5-72B": (327_680, (), 0),
}


@pytest.mark.parametrize("name", sorted(FURTHER))
def test_other_families_by_hand(name):
    slope, windows, constant = FURTHER[name]
    cache = kv_cache(local(name))
    assert (cache.slope, cache.windows, cache.constant) == (slope, windows, constant)


def test_mimo_v2_flash_has_keys_wider_than_values_and_other_heads_in_its_windows():
    cache = kv_cache(load_model("XiaomiMiMo/MiMo-V2-Flash"))
    assert cache.slope == 9 * 4 * (192 + 128) * 2
    assert cache.windows == ((128, 39 * 8 * (192 + 128) * 2),)


def test_llama_4_attends_in_chunks_but_every_fourth_layer():
    cache = kv_cache(load_model("meta-llama/Llama-4-Scout-17B-16E-Instruct"))
    assert cache.slope == 12 * 4096
    assert cache.windows == ((8192, 36 * 4096),)
    assert float(cache.bytes_marginal(100)) == 48 * 4096


def test_searched_blocks_without_attention_keep_nothing():
    cache = kv_cache(load_model("nvidia/Llama-3_3-Nemotron-Super-49B-v1"))
    assert cache.slope == 49 * 2 * 8 * 128 * 2


def test_nemotron_3_ultra_reads_its_list_of_blocks():
    model = load_model("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16")
    assert len(model.layers) == 108
    assert growth(model) == 12 * 2 * 2 * 128 * 2


BASE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 8, "hidden_size": 1024,
    "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 2816, "vocab_size": 32000,
}  # fmt: skip
ONE_LAYER = 4 * 2 * 128 * 2
ENCODINGS = {
    "layer_types": ({"layer_types": ["sliding_attention", "full_attention"] * 4, "sliding_window": 256}, 4, 4),
    "pattern number": ({"sliding_window_pattern": 4, "sliding_window": 256}, 2, 6),
    "pattern text": ({"sliding_window_pattern": "LLLG", "sliding_window": 256}, 2, 6),
    "hybrid list": ({"hybrid_layer_pattern": [0, 1, 1, 1] * 2, "sliding_window": 256}, 2, 6),
    "null": ({"sliding_window": None}, 8, 0),
    "switched off": ({"sliding_window": 256, "use_sliding_window": False}, 8, 0),
    "upper layers": ({"sliding_window": 256, "use_sliding_window": True, "max_window_layers": 6}, 6, 2),
    "all": ({"sliding_window": 256}, 0, 8),
    "chunks": ({"attention_chunk_size": 256, "no_rope_layers": [1, 1, 1, 0] * 2}, 2, 6),
}


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_every_encoding_of_sliding_windows(name):
    extra, full, windowed = ENCODINGS[name]
    cache = kv_cache(parse_config(BASE | extra, "m"))
    assert cache.slope == full * ONE_LAYER
    assert cache.windows == (((256, windowed * ONE_LAYER),) if windowed else ())


def test_layers_that_read_another_layer_s_cache_store_nothing():
    assert growth(parse_config(BASE | {"num_kv_shared_layers": 3}, "m")) == 5 * ONE_LAYER
    assert growth(parse_config(BASE | {"use_cla": True, "cla_share_factor": 2}, "m")) == 4 * ONE_LAYER


def test_attention_and_mamba_side_by_side_have_both():
    extra = {"model_type": "falcon_h1", "mamba_d_ssm": 1024, "mamba_n_heads": 16, "mamba_d_head": 64, "mamba_d_state": 128,
             "mamba_n_groups": 1, "mamba_d_conv": 4}  # fmt: skip
    cache = kv_cache(parse_config(BASE | extra, "m"))
    assert cache.slope == 8 * ONE_LAYER
    assert cache.constant == 8 * (16 * 64 * 128 + (1024 + 256) * 3) * 4
