"""Reading configs: nested, missing, null, unknown; every dimension with its key, every missing one listed."""

import json
from pathlib import Path

import pytest

from pddplan.errors import InputError
from pddplan.model import load_model, model_names, parse_config
from pddplan.model.kv_cache import kv_cache
from pddplan.model.weights import parameters

CONFIGS = Path(__file__).parent.parent / "data" / "configs"
PLAIN = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512,
    "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1408, "vocab_size": 1000,
}  # fmt: skip


@pytest.mark.parametrize("section", ["text_config", "language_config", "llm_config"])
def test_dimensions_of_a_nested_section_are_used_and_say_where_they_stand(section):
    model = parse_config({"architectures": ["SomeVL"], "model_type": "some_vl", section: PLAIN, "vision_config": {"hidden_size": 9}}, "m")
    assert model.hidden_size == 512
    assert model.origin["hidden_size"] == f"{section}.hidden_size"
    assert kv_cache(model).slope == 4 * 2 * 2 * 64 * 2


def test_missing_dimensions_are_all_listed_with_the_keys_looked_for():
    with pytest.raises(InputError) as caught:
        parse_config({"architectures": ["X"], "model_type": "x", "text_config": {"hidden_size": 64}}, "m")
    text = str(caught.value)
    for key in ("num_hidden_layers", "n_layer", "num_attention_heads", "vocab_size", "text_config"):
        assert key in text
    assert len(caught.value.problems) >= 3


@pytest.mark.parametrize("value", [None, "absent"])
def test_missing_or_null_kv_heads_are_multi_head_attention_with_a_note(value):
    config = dict(PLAIN) | {"num_key_value_heads": None}
    if value == "absent":
        del config["num_key_value_heads"]
    model = parse_config(config, "m")
    assert kv_cache(model).slope == 4 * 2 * 8 * 64 * 2
    assert any("multi-head" in note for note in model.notes)


@pytest.mark.parametrize("value", [None, "absent"])
def test_missing_or_null_head_dim_is_derived_with_a_note(value):
    config = dict(PLAIN) | {"head_dim": None}
    if value == "absent":
        del config["head_dim"]
    assert any("head_dim is not in the config" in note for note in parse_config(config, "m").notes)


def test_head_dim_that_cannot_be_derived_is_an_error():
    with pytest.raises(InputError, match="head_dim"):
        parse_config(PLAIN | {"num_attention_heads": 7, "num_key_value_heads": 7}, "m")


def test_an_unknown_architecture_is_a_flagged_estimate():
    model = load_model(CONFIGS / "Unknown-13B_config.json")
    assert not model.validated
    assert any("unvalidated architecture FutureForCausalLM" in note for note in model.notes)
    assert parameters(model).total == pytest.approx(11.67e9, rel=0.001)


@pytest.mark.parametrize(
    ("extra", "place"),
    [
        ({"hidden_size": -4}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_attention_heads": "eight"}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types"),
        ({"layer_types": ["strange"] * 4}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 4}, "sliding_window"),
        ({"num_experts": 8}, "num_experts_per_tok"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"quantization_config": {"quant_method": "hqq-next"}}, "quantization_config"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"sliding_window": 64, "sliding_window_pattern": 0}, "sliding_window_pattern"),
        ({"sliding_window": 64, "sliding_window_pattern": ""}, "sliding_window_pattern"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings"),
    ],
)
def test_wrong_values_are_errors_that_name_the_key(extra, place):
    with pytest.raises(InputError, match=place):
        parse_config(PLAIN | extra, "m")


def test_mtp_layers_stand_beside_and_are_never_implied():
    model = load_model("DeepSeek-V3")
    assert len(model.layers) == 61
    assert len(model.mtp_layers) == 1
    assert model.mtp_params / 1e9 == pytest.approx(11.6, abs=0.1)
    assert any("speculation stays off" in note for note in model.notes)


def test_qwen_35b_body_mtp_and_vision_are_counted_apart():
    """inference-atlas pull request 153: 34.661 + 0.845 + 0.447 = 35.95 B."""
    model = load_model("Qwen/Qwen3.5-35B-A3B")
    parts = parameters(model).total / 1e9, model.mtp_params / 1e9, model.vision_params / 1e9
    assert parts == pytest.approx((34.661, 0.845, 0.447), abs=0.0006)
    assert sum(parts) == pytest.approx(35.95, abs=0.005)


def test_every_shipped_config_says_where_its_dimensions_come_from():
    for name in model_names():
        model = load_model(name)
        assert {"hidden_size", "vocab_size", "num_attention_heads", "num_hidden_layers"} <= set(model.origin)
        assert model.validated, name


def test_a_folder_a_file_and_a_hub_file_name_are_all_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(PLAIN), encoding="utf-8")
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}))
    assert load_model(tmp_path).weight_dtype["attention"] == "fp8"
    assert load_model(tmp_path / "config.json").name == tmp_path.name


@pytest.mark.parametrize("text", ["{", "[1]", "", "[" * 100_000])
def test_a_broken_file_is_one_line(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match="JSON"):
        load_model(path)


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(InputError, match="Qwen/Qwen3-32B"):
        load_model("Quen3-32B")
    with pytest.raises(InputError, match=r"No such file"):
        load_model("nowhere/config.json")


@pytest.mark.parametrize(
    ("name", "shipped"),
    [
        ("meta-llama/Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B"),
        ("Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"),
        ("Llama-3.1-8B-Instruct-FP8", "meta-llama/Meta-Llama-3.1-8B"),
        ("meta-llama/Llama-3.1-8B-Instruct-FP8", "meta-llama/Meta-Llama-3.1-8B"),
        ("zhipuai/GLM-5", "zai-org/GLM-5"),
        ("nvidia/Qwen3-32B-NVFP4", "Qwen/Qwen3-32B"),
        ("deepseek-v3", "deepseek-ai/DeepSeek-V3"),
        ("deepseek-ai--DeepSeek-R1", "deepseek-ai/DeepSeek-R1"),
        ("Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B-FP8"),
        ("gpt-oss-120b", "openai/gpt-oss-120b"),
        ("Kimi-K2.5", "moonshotai/Kimi-K2.5"),
    ],
)
def test_other_names_of_a_model_resolve(name, shipped):
    assert load_model(name).name == shipped


@pytest.mark.parametrize(
    ("name", "shipped", "attention", "experts"),
    [
        ("Llama-3.1-8B-Instruct-FP8", "meta-llama/Meta-Llama-3.1-8B", "fp8", "bf16"),
        ("meta-llama/Llama-3.1-405B-Instruct-FP8", "meta-llama/Meta-Llama-3.1-405B", "fp8", "bf16"),
        ("nvidia/Qwen3-32B-NVFP4", "Qwen/Qwen3-32B", "nvfp4", "bf16"),
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "meta-llama/Meta-Llama-3.1-8B", "int4", "bf16"),
        ("Qwen/Qwen3-30B-A3B-GPTQ-Int4", "Qwen/Qwen3-30B-A3B", "bf16", "int4"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen/Qwen3-235B-A22B", "fp8_block", "fp8_block"),
    ],
)
def test_a_copy_that_its_name_calls_quantised_is_never_sized_as_16_bits(name, shipped, attention, experts):
    model = load_model(name)
    assert model.name == shipped
    weights = "dense_ffn" if attention != "bf16" and experts == "bf16" else "experts"
    assert model.weight_dtype["attention"] == attention
    assert model.weight_dtype[weights] != "bf16"
    assert model.weight_dtype["router"] == "bf16"
    assert any("no config of" in note for note in model.notes)


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen3-32B-FP8", "nvidia/Llama-3.1-70B-Instruct-FP8", "DeepSeek-V3-FP8", "nvidia/DeepSeek-V3.1-NVFP4"]
)
def test_a_shipped_or_native_format_is_taken_as_published(name):
    assert not any("no config of" in note for note in load_model(name).notes)


@pytest.mark.parametrize(
    ("name", "shipped"),
    [
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mistralai/Mixtral-8x7B-v0.1"),
        ("Llama-3.3-70B-Instruct", "meta-llama/Meta-Llama-3.1-70B"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-ai/DeepSeek-V3"),
        ("deepseek-ai/DeepSeek-V3.1", "deepseek-ai/DeepSeek-V3"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B"),
        ("Kimi-K2-Instruct-0905", "moonshotai/Kimi-K2-Instruct"),
    ],
)
def test_dated_and_tuned_releases_of_the_same_sizes_resolve(name, shipped):
    assert load_model(name).name == shipped


def test_a_release_of_other_weights_does_not_pass_for_its_base():
    with pytest.raises(InputError, match="Kimi-K2"):
        load_model("Kimi-K2-Thinking")  # INT4 as published, the instruction tune FP8


def test_a_byte_order_mark_is_read_over(tmp_path):
    (tmp_path / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(PLAIN).encode())
    assert load_model(tmp_path).hidden_size == 512
