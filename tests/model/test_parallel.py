"""Validity of mappings: refusals that users met, with the values that would do."""

from dataclasses import replace
from pathlib import Path

import pytest

from pddplan.hardware import load_chip
from pddplan.model import load_model, parse_config, with_weights
from pddplan.model.fit import mapping
from pddplan.model.parallel import RULES, check, experts_per_gpu, legal_parallels, stage_sizes, valid_tp
from pddplan.model.spec import Parallel

CONFIGS = Path(__file__).parent.parent / "data" / "configs"


def local(name):
    return load_model(CONFIGS / f"{name}_config.json")


def reasons(model, parallel, rule, chip=None):
    return [reason for reason in check(model, parallel, chip) if reason.rule == rule]


@pytest.mark.parametrize("tp", [3, 8])
def test_52_heads_allow_their_divisors(tp):
    """vllm#2652, #414."""
    (reason,) = reasons(local("LLaMA-30B"), Parallel(tp), "heads")
    assert reason.valid == (1, 2, 4, 13, 26, 52)
    assert "52" in reason.detail


def test_28_heads_with_4_kv_heads_refuse_8():
    """vllm#11797: by heads 1, 2, 4, 7, 14, 28; with the KV-head rule 1, 2, 4, 28."""
    (reason,) = reasons(local("Qwen2.5-7B"), Parallel(8), "heads")
    assert "1, 2, 4, 7, 14, 28" in reason.detail
    assert reason.valid == (1, 2, 4, 28)
    (reason,) = reasons(local("Qwen2.5-7B"), Parallel(7), "kv_heads")
    assert reason.valid == (1, 2, 4, 28)


def test_fp8_blocks_forbid_cutting_qwen3_experts_by_eight():
    """vllm#17569: 1536 / 4 = 384 is whole blocks, 1536 / 8 = 192 is not; spread over 8 they stay whole."""
    model = load_model("Qwen/Qwen3-235B-A22B-FP8")
    assert not check(model, mapping(model, tp=4))
    (reason,) = check(model, mapping(model, tp=8))
    assert reason.rule == "fp8_block"
    assert "192" in reason.detail
    assert reason.valid == (1, 2, 4)
    assert not check(model, mapping(model, tp=8, ep=8))
    assert not check(load_model("Qwen/Qwen3-235B-A22B"), mapping(model, tp=8))


def test_deepseek_r1_in_fp8_stops_at_16():
    """sglang#3345: 18432 / 32 = 576; BF16 is not blocked by this rule."""
    model = load_model("DeepSeek-R1")
    assert not check(model, mapping(model, tp=16))
    found = reasons(model, mapping(model, tp=32), "fp8_block")
    assert any("18432 / 32 = 576" in reason.detail for reason in found)
    assert not check(with_weights(model, "bf16"), mapping(model, tp=32))


def test_256_experts_on_three_gpus_need_two_copies():
    """vllm#52435: 258 / 3 = 86; 64 heads refuse tp 3."""
    model = load_model("deepseek-ai/DeepSeek-V4-Flash")
    (reason,) = check(model, Parallel(1, dp=3, moe_ep=3))
    assert reason.rule == "experts"
    assert "2 redundant" in reason.detail
    assert "86" in reason.detail
    assert not check(model, Parallel(1, dp=3, moe_ep=3, redundant_experts=2))
    assert reasons(model, Parallel(3, moe_ep=3, redundant_experts=2), "heads")


@pytest.mark.parametrize(("ep", "each"), [(32, 9), (72, 4), (144, 2)])
def test_redundant_experts_of_deepseek_v3(ep, each):
    """sglang#6017: 256 + 32 experts."""
    parallel = Parallel(1, dp=ep, moe_ep=ep, redundant_experts=32)
    assert experts_per_gpu(load_model("DeepSeek-V3"), parallel) == each
    assert not check(load_model("DeepSeek-V3"), parallel)


def test_a_gpu_count_that_contradicts_the_sizes_names_both():
    (reason,) = check(load_model("Llama-3.1-8B"), Parallel(8), gpus=4)
    assert reason.rule == "gpus"
    assert "gpus 4" in reason.detail
    assert "tp 8" in reason.detail


def test_expert_sizes_must_multiply_to_the_ranks_and_have_a_default():
    model = load_model("DeepSeek-V3")
    (reason,) = reasons(model, Parallel(8, moe_ep=4, moe_tp=4), "moe_product")
    assert "tp 8 x dp 1 = 8" in reason.detail
    assert mapping(model, tp=8) == Parallel(8, moe_ep=1, moe_tp=8)
    assert mapping(model, tp=8, ep=4) == Parallel(8, moe_ep=4, moe_tp=2)
    assert mapping(model, dp=8) == Parallel(1, dp=8, moe_ep=8, moe_tp=1)
    assert reasons(model, mapping(model, tp=8, ep=3), "moe_product")


def test_a_latent_has_no_kv_heads_to_divide():
    """tt-xla pull request 5849; GLM-5 writes 64 KV heads, DeepSeek-V4 writes 1."""
    for name in ("DeepSeek-V3", "zai-org/GLM-5", "deepseek-ai/DeepSeek-V4-Pro"):
        assert not check(load_model(name), mapping(load_model(name), tp=8))


@pytest.mark.parametrize("field", ["tp", "pp", "dp", "moe_ep", "moe_tp"])
@pytest.mark.parametrize("value", [0, -2])
def test_sizes_below_one_are_refused_by_name(field, value):
    (reason,) = check(load_model("DeepSeek-V3"), replace(Parallel(), **{field: value}))
    assert (reason.rule, reason.parameter, reason.value) == ("sizes", field, value)


def test_dense_models_have_no_experts_to_spread():
    assert reasons(load_model("Llama-3.1-8B"), Parallel(2, moe_ep=2), "moe_product")


def test_more_stages_than_layers_are_refused_and_stages_are_even():
    assert reasons(load_model("Llama-3.1-8B"), Parallel(pp=33), "pipeline")
    assert stage_sizes(61, 4) == (15, 15, 16, 15)
    assert stage_sizes(62, 4) == (15, 16, 16, 15)
    assert sum(stage_sizes(93, 8)) == 93


def test_a_tensor_parallel_group_stays_in_its_domain():
    model, chip = load_model("DeepSeek-V3"), load_chip("h100-sxm")
    (reason,) = reasons(model, mapping(model, tp=16), "domain", chip)
    assert reason.valid == (1, 2, 4, 8)


def test_ffn_widths_are_divisible():
    config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8,
              "intermediate_size": 1004, "vocab_size": 100}  # fmt: skip
    (reason,) = check(parse_config(config, "m"), Parallel(8))
    assert reason.rule == "ffn_width"
    assert reason.valid == (1, 2, 4)


@pytest.mark.parametrize(
    "name", ["DeepSeek-V3", "Qwen/Qwen3-32B", "Qwen/Qwen3-235B-A22B-FP8", "openai/gpt-oss-120b", "Qwen/Qwen3.5-397B-A17B"]
)
def test_every_enumerated_mapping_is_legal_once_and_small_enough(name):
    model, chip = load_model(name), load_chip("h100-sxm")
    found = legal_parallels(model, chip, 32)
    assert len(found) == len(set(found)) > 3
    assert all(not check(model, parallel, chip) and parallel.gpus <= 32 for parallel in found)
    assert [parallel.gpus for parallel in found] == sorted(parallel.gpus for parallel in found)


def test_valid_widths_pass_and_all_others_fail():
    for name in ("Qwen/Qwen3-235B-A22B-FP8", "DeepSeek-R1", "MiniMaxAI/MiniMax-M2.5", "Qwen/Qwen3-30B-A3B-FP8", "openai/gpt-oss-20b"):
        model = load_model(name)
        valid = valid_tp(model)
        for tp in range(1, 65):
            assert (not check(model, mapping(model, tp=tp))) == (tp in valid), (name, tp)


def test_each_rule_has_a_name_and_a_sentence():
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(len(rule.text) > 20 for rule in RULES)


def test_the_message_of_a_refusal_has_place_number_and_way_out():
    (reason,) = check(load_model("Qwen/Qwen3-235B-A22B-FP8"), mapping(load_model("Qwen/Qwen3-235B-A22B-FP8"), tp=8))
    text = str(reason.problem)
    assert text.startswith("parallel.tp: 8: ")
    assert "valid tp: 1, 2, 4" in text
