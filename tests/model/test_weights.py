"""Weight bytes: bits of each format with its scales, mixed checkpoints, shares of a GPU."""

from pathlib import Path

import pytest

from pddplan.errors import InputError
from pddplan.model import load_model, parse_config, with_weights
from pddplan.model.quantization import FORMATS, MXFP4, NVFP4, int4
from pddplan.model.spec import Parallel
from pddplan.model.weights import mtp_bytes, parameters, vision_bytes, weight_bytes, weight_bytes_of_stages, weight_bytes_per_gpu
from pddplan.units import GIB

TINY = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 1408, "vocab_size": 1000,
}  # fmt: skip
CONFIGS = Path(__file__).parent.parent / "data" / "configs"


def test_bytes_per_weight_of_block_formats():
    assert NVFP4.bits / 8 == 0.5625
    assert MXFP4.bits / 8 == 0.53125
    assert int4(128, True).bits == pytest.approx(4.15625)
    assert FORMATS["fp8"].bits == 8


def test_llama_70b_in_16_bits():
    size = weight_bytes(load_model("Llama-3.1-70B"))
    assert size / GIB == pytest.approx(131.42, abs=0.005)
    assert size / 1e9 == pytest.approx(141.1, abs=0.05)


def test_llama_8b_and_qwen3_32b_as_vllm_loads_them():
    assert weight_bytes(load_model("Llama-3.1-8B")) / GIB == pytest.approx(14.96, abs=0.005)
    assert weight_bytes(load_model("Qwen/Qwen3-32B")) / GIB == pytest.approx(61.02, abs=0.005)


def test_a_bf16_checkpoint_is_16_bits_a_parameter():
    model = load_model("Qwen/Qwen3.5-35B-A3B")
    assert 8 * weight_bytes(model) / parameters(model).total == 16.0


def test_total_not_active_parameters_occupy_memory():
    model = load_model(CONFIGS / "DeepSeek-VL2-small_config.json")
    whole = weight_bytes(model) + vision_bytes(model)
    assert 31e9 < whole < 33e9
    assert parameters(model).active < 3e9


# Sizes of the published repositories in GB (Hub file listings), MTP and vision included where they are stored; 2 % for other files.
REPOSITORIES = {
    "openai/gpt-oss-120b": 65.2,
    "openai/gpt-oss-20b": 13.8,
    "moonshotai/Kimi-K2.5": 595,
    "deepseek-ai/DeepSeek-V4-Flash": 160,
    "deepseek-ai/DeepSeek-V4-Pro": 865,
    "Qwen/Qwen3-235B-A22B-FP8": 236,
    "MiniMaxAI/MiniMax-M2.5": 230,
}


@pytest.mark.parametrize("name", sorted(REPOSITORIES))
def test_checkpoints_weigh_what_their_repository_does(name):
    model = load_model(name)
    stored = weight_bytes(model) + vision_bytes(model) + (0 if "MiniMax" in name else mtp_bytes(model))
    assert stored / 1e9 == pytest.approx(REPOSITORIES[name], rel=0.02)


def test_modules_that_a_checkpoint_excludes_stay_in_16_bits():
    kimi = load_model("moonshotai/Kimi-K2.5")
    assert (kimi.weight_dtype["attention"], kimi.weight_bits["attention"]) == ("bf16", 16)
    assert (kimi.weight_dtype["experts"], kimi.weight_bits["experts"]) == ("int4", 4.5)
    gemma = load_model("nvidia/Gemma-4-26B-A4B-NVFP4")
    assert (gemma.weight_dtype["experts"], gemma.weight_dtype["shared_experts"]) == ("nvfp4", "bf16")
    gpt = load_model("openai/gpt-oss-120b")
    assert (gpt.weight_bits["experts"], gpt.weight_bits["attention"], gpt.weight_bits["lm_head"]) == (4.25, 16, 16)


def test_partly_excluded_groups_have_the_mean_of_their_bits():
    """DeepSeek-V3.1-NVFP4: o_proj is NVFP4, the other projections 16-bit."""
    bits = load_model("nvidia/DeepSeek-V3.1-NVFP4").weight_bits["attention"]
    o_proj = 7168 * 128 * 128
    rest = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256
    assert bits == pytest.approx((4.5 * o_proj + 16 * rest) / (o_proj + rest))


def test_mixed_precision_lists_are_followed():
    qwen = load_model("nvidia/Qwen3.6-27B-NVFP4")
    assert qwen.weight_bits["dense_ffn"] == 4.5
    assert qwen.weight_bits["lm_head"] == 4.5
    assert 8 < qwen.weight_bits["attention"] < 8.2
    pro = load_model("nvidia/DeepSeek-V4-Pro-NVFP4")
    assert (pro.weight_dtype["experts"], pro.weight_dtype["attention"]) == ("nvfp4", "fp8_block")


PLAIN = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512,
    "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1536, "vocab_size": 1000,
}  # fmt: skip
BLOCKS = {
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "int4", 4 + 20 / 128),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}, "int4", 4.5),
    "gptq 8 bit": ({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True}, "int8", 8),
    "block fp8": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", 8 + 32 / 16384),
    "fp8": ({"quant_method": "fp8"}, "fp8", 8),
    "nvfp4": ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, "nvfp4", 4.5),
    "compressed int8": (
        {"quant_method": "compressed-tensors", "ignore": ["lm_head"],
         "config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}}},
        "int8", 8,
    ),
    "compressed fp8": (
        {"quant_method": "compressed-tensors", "ignore": ["lm_head"],
         "config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}}},
        "fp8", 8,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_quantisation_blocks(name):
    block, dtype, bits = BLOCKS[name]
    model = parse_config(PLAIN | {"quantization_config": block}, "m")
    assert model.weight_dtype["attention"] == dtype
    assert model.weight_bits["dense_ffn"] == pytest.approx(bits)
    assert model.weight_bits["lm_head"] == model.weight_bits["embedding"] == 16


@pytest.mark.parametrize(
    ("block", "bits", "dtype"),
    [
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, 4.125, "int4"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}, 4.25, "mxfp4"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, 8.0, "fp8"),
        ({"quant_method": "exl2", "bits": 4.25}, 4.25, "int4"),
        ({"quant_method": "w8a8_fp8"}, 8.0, "fp8"),
        ({"quant_method": "fp8", "ignored_layers": ["model.layers.0.self_attn", "model.layers.1.self_attn"]}, 16.0, "bf16"),
        ({}, 16.0, "bf16"),
    ],
)
def test_further_blocks_that_engines_read(block, bits, dtype):
    model = parse_config(TINY | {"quantization_config": block}, "m")
    assert model.weight_bits["attention"] == bits
    assert model.weight_dtype["attention"] == dtype


@pytest.mark.parametrize("block", ["fp8", [], {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int2"}}}])
def test_a_block_of_the_wrong_kind_is_an_error(block):
    with pytest.raises(InputError, match="quantization_config"):
        parse_config(TINY | {"quantization_config": block}, "m")


def test_an_unknown_method_says_how_to_go_on():
    with pytest.raises(InputError, match="--weights"):
        parse_config(TINY | {"quantization_config": {"quant_method": "vptq"}}, "m")


def test_layers_excluded_by_name_count_in_their_share():
    block = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.0.mlp*", "re:.*self_attn.*"]}
    model = parse_config(PLAIN | {"quantization_config": block}, "m")
    assert model.weight_bits["attention"] == 16
    assert model.weight_bits["dense_ffn"] == pytest.approx((16 + 3 * 4.5) / 4)


def test_a_name_that_promises_quantisation_without_a_block_is_said():
    model = load_model("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4")
    assert any("16-bit" in note for note in model.notes)
    assert weight_bytes(with_weights(model, "nvfp4")) < 0.35 * weight_bytes(model)


def test_an_override_changes_linear_layers_only():
    model = with_weights(load_model("Qwen/Qwen3-32B"), "fp8")
    assert model.weight_bits["attention"] == 8
    assert model.weight_bits["embedding"] == 16
    assert with_weights(model, "checkpoint") is model
    assert 8 * weight_bytes(with_weights(load_model("DeepSeek-V3"), "bf16")) == 16 * parameters(load_model("DeepSeek-V3")).total
    with pytest.raises(InputError, match="nvfp4"):
        with_weights(model, "fp3")


def test_experts_are_spread_and_latent_projections_repeated():
    model = load_model("DeepSeek-V3")
    spread = weight_bytes_per_gpu(model, Parallel(1, dp=32, moe_ep=32, redundant_experts=32))
    cut = weight_bytes_per_gpu(model, Parallel(8, moe_tp=8))
    one = 58 * 3 * 7168 * 2048
    assert spread == pytest.approx(weight_bytes(model) - (256 - 9) * one * model.weight_bits["experts"] / 8)
    assert cut > weight_bytes(model) / 8


def test_qwen3_30b_on_four_ranks_as_infersim_counts():
    """InferSim README: 15.19 (GiB, printed as GB) a GPU with experts over 4 and attention repeated, embedding and head aside;
    it leaves out routers and norms."""
    model = load_model("Qwen/Qwen3-30B-A3B")
    ends = 2 * 151_936 * 2048 * 2
    assert (weight_bytes_per_gpu(model, Parallel(1, dp=4, moe_ep=4)) - ends) / GIB == pytest.approx(15.19, rel=0.002)


def test_the_worst_pipeline_stage_is_named():
    stages = weight_bytes_of_stages(load_model("Llama-3.1-70B"), Parallel(2, pp=3))
    assert len(stages) == 3
    assert max(stages) == weight_bytes_per_gpu(load_model("Llama-3.1-70B"), Parallel(2, pp=3))
    assert sum(stages) * 2 >= weight_bytes(load_model("Llama-3.1-70B"))
