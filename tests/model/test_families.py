"""Families whose configs write their sizes in their own way: parameters as published, KV growth, windows and state by hand."""

import pytest

from pddplan.errors import InputError
from pddplan.model import parse_config
from pddplan.model.kv_cache import kv_cache
from pddplan.model.weights import parameters

MPT = {
    "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4, "vocab_size": 50432,
    "attn_config": {"attn_type": "multihead_attention"},
}  # fmt: skip
GEMMA_3N = {
    "model_type": "gemma3n_text", "hidden_size": 2048, "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2,
    "head_dim": 256, "intermediate_size": [16384] * 35, "vocab_size": 262400, "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 15, "sliding_window": 512, "altup_num_inputs": 4, "laurel_rank": 64,
    "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
}  # fmt: skip
# config, parameters (of the published checkpoint), bytes a token of growth (bf16), bytes a token inside windows
CASES = {
    "Qwen-7B: intermediate_size of gate and up together": (
        {
            "model_type": "qwen", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 22016,
            "vocab_size": 151936, "kv_channels": 128,
        },
        7_721_324_544, 524_288, 0,
    ),
    "Falcon-40B: two norms a block of the new decoder": (
        {
            "model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128, "num_hidden_layers": 60, "num_kv_heads": 8,
            "multi_query": True, "new_decoder_architecture": True, "vocab_size": 65024, "bias": False,
        },
        41_303_293_952, 122_880, 0,
    ),
    "Falcon-RW-1B: multi-head, with biases, blocks not parallel": (
        {
            "model_type": "falcon", "hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 24, "multi_query": False,
            "parallel_attn": False, "bias": True, "vocab_size": 50304,
        },
        1_311_625_216, 196_608, 0,
    ),
    "Command-R+: norms over all query and key heads": (
        {
            "model_type": "cohere", "hidden_size": 12288, "num_hidden_layers": 64, "num_attention_heads": 96, "num_key_value_heads": 8,
            "intermediate_size": 33792, "vocab_size": 256000, "use_qk_norm": True,
        },
        103_810_674_688, 262_144, 0,
    ),
    "OLMo: norms without weights": (
        {
            "model_type": "olmo", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            "intermediate_size": 11008, "vocab_size": 50304, "tie_word_embeddings": False,
        },
        6_888_095_744, 524_288, 0,
    ),
    "OPT-13B: two unused positions": (
        {
            "model_type": "opt", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "ffn_dim": 20480,
            "vocab_size": 50272, "max_position_embeddings": 2048,
        },
        12_853_473_280, 819_200, 0,
    ),
    "BLOOM-7B1: n_embed, a norm after the embedding": (
        {"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "num_attention_heads": 32, "vocab_size": 250880, "seq_length": 2048},
        7_069_016_064, 491_520, 0,
    ),
    "Mamba-2.8B: state alone": (
        {
            "model_type": "mamba", "hidden_size": 2560, "state_size": 16, "conv_kernel": 4, "expand": 2, "num_hidden_layers": 64,
            "time_step_rank": "auto", "vocab_size": 50280,
        },
        2_768_345_600, 0, 0,
    ),
    "Codestral-Mamba: Mamba2 alone": (
        {
            "model_type": "mamba2", "hidden_size": 4096, "state_size": 128, "conv_kernel": 4, "num_heads": 128, "head_dim": 64,
            "n_groups": 8, "num_hidden_layers": 64, "vocab_size": 32768, "tie_word_embeddings": False,
        },
        7_285_403_648, 0, 0,
    ),
    "LFM2-1.2B: width adjusted by the config's rule": (
        {
            "model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
            "vocab_size": 65536, "conv_L_cache": 3, "block_auto_adjust_ff_dim": True, "block_ff_dim": 12288, "block_multiple_of": 256,
            "block_ffn_dim_multiplier": 1.0,
            "layer_types": ["full_attention" if layer in (2, 5, 8, 10, 12, 14) else "conv" for layer in range(16)],
        },
        1_170_340_608, 12_288, 0,
    ),
    "DBRX: attn_config and ffn_config": (
        {
            "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352, "attn_config": {"kv_n_heads": 8},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        },
        131_596_523_520, 163_840, 0,
    ),
    "Kimi-Linear-48B: MLA in 7 of 27 layers, a bias per expert": (
        {
            "model_type": "kimi_linear", "hidden_size": 2304, "num_hidden_layers": 27, "num_attention_heads": 32, "head_dim": 72,
            "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1, "moe_intermediate_size": 1024,
            "intermediate_size": 9216, "first_k_dense_replace": 1, "vocab_size": 163840,
            "linear_attn_config": {
                "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
            },
        },
        49_122_681_728, 8_064, 0,
    ),
    "MPT-7B": (MPT, 6_649_286_656, 524_288, 0),
    "MPT with one KV head": (MPT | {"attn_config": {"attn_type": "multiquery_attention"}}, None, 16_384, 0),
    "Pixtral-12B: heads are the class default of a sub-config": (
        {
            "model_type": "llava",
            "text_config": {
                "model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 14336, "num_hidden_layers": 40,
                "num_key_value_heads": 8, "sliding_window": None, "vocab_size": 131072,
            },
        },
        12_247_782_400, 163_840, 0,
    ),
    "Mistral's own params.json": (
        {"dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 131072},
        12_247_782_400, 163_840, 0,
    ),
    "Gemma-3-4B: heads, KV heads, head_dim and vocabulary are class defaults": (
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
        },
        None, 5 * 4096, 29 * 4096,
    ),
    "Gemma-3n-E4B: the last 15 layers read others' caches": (GEMMA_3N, None, 4 * 2048, 16 * 2048),
    "MiniCPM3-4B: MLA without v_head_dim": (
        {
            "model_type": "minicpm3", "hidden_size": 2560, "num_hidden_layers": 62, "num_attention_heads": 40, "q_lora_rank": 768,
            "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "intermediate_size": 6400, "vocab_size": 73448,
        },
        None, 62 * 288 * 2, 0,
    ),
    "Llama-3.2-11B-Vision: 8 of 40 layers attend to the image": (
        {
            "model_type": "mllama",
            "text_config": {
                "model_type": "mllama_text_model", "hidden_size": 4096, "num_hidden_layers": 40, "num_attention_heads": 32,
                "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
                "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
            },
        },
        None, 32 * 4096, 0,
    ),
    "Step-3: one KV head by the name of num_attention_groups": (
        {
            "model_type": "step3_text", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64,
            "num_attention_groups": 1, "head_dim": 256, "share_q_dim": 2048, "intermediate_size": 18432, "moe_intermediate_size": 5120,
            "moe_num_experts": 48, "moe_top_k": 3, "share_expert_dim": 5120, "vocab_size": 128815,
            "moe_layers_enum": ",".join(map(str, range(4, 60))),
        },
        None, 61 * 1024, 0,
    ),
    "Phi-4-mini: a window of more than all positions is none": (
        {
            "model_type": "phi3", "hidden_size": 3072, "num_hidden_layers": 32, "num_attention_heads": 24, "num_key_value_heads": 8,
            "intermediate_size": 8192, "vocab_size": 200064, "tie_word_embeddings": True, "sliding_window": 262144,
            "max_position_embeddings": 131072,
        },
        3_836_021_760, 131_072, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_family_is_read_as_published(name):
    config, params, growth, window = CASES[name]
    model = parse_config(config, name)
    cache = kv_cache(model)
    assert cache.slope == growth
    assert sum(size for _, size in cache.windows) == window
    if params is not None:
        assert parameters(model).total == params


def test_class_defaults_are_said_and_only_fill_sub_configs():
    text = {"model_type": "mistral", "hidden_size": 512, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 1000}
    model = parse_config({"model_type": "llava", "text_config": text}, "m")
    assert model.origin["num_attention_heads"] == "default of mistral"
    assert any("num_attention_heads is absent: 32" in note for note in model.notes)
    with pytest.raises(InputError, match="num_attention_heads"):
        parse_config(text, "m")
    with pytest.raises(InputError, match="num_attention_heads"):
        parse_config({"model_type": "llava", "text_config": text | {"model_type": "llama"}}, "m")


def test_gemma_3n_counts_its_per_layer_embeddings():
    assert parameters(parse_config(GEMMA_3N, "E4B")).total == pytest.approx(6.87e9, rel=0.01)  # its model card, language part


def test_what_cross_attention_caches_is_said():
    config, _, _, _ = CASES["Llama-3.2-11B-Vision: 8 of 40 layers attend to the image"]
    notes = parse_config(config, "m").notes
    assert any("8 cross-attention layers" in note and "32,768 B" in note for note in notes)


def test_qwen3_next_state_is_what_llama_cpp_allocates():
    config = {
        "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2,
        "head_dim": 256, "intermediate_size": 5120, "vocab_size": 151936, "full_attention_interval": 4, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    }  # fmt: skip
    assert kv_cache(parse_config(config, "m")).constant == (72.0 + 3.375) * 2**20  # S 72.00 MiB and R 3.38 MiB a sequence, float32


def test_a_short_convolution_keeps_one_tap_less_than_its_length():
    config, _, _, _ = CASES["LFM2-1.2B: width adjusted by the config's rule"]
    assert kv_cache(parse_config(config, "m")).constant == 10 * 2048 * 2 * 2
