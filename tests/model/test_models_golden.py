"""Every shipped model against the golden table, and parameter counts against what publishers state."""

from pathlib import Path

import pytest
from models_golden import read_table, row

from pddplan.model import load_model, model_names
from pddplan.model.weights import parameters

CONFIGS = Path(__file__).parent.parent / "data" / "configs"
GOLDEN = read_table()


def test_at_least_sixty_models_are_shipped_and_all_are_in_the_table():
    assert len(model_names()) >= 60
    assert set(model_names()) == set(GOLDEN)


@pytest.mark.parametrize("name", model_names())
def test_a_shipped_model_is_understood_as_before(name):
    assert row(name) == GOLDEN[name]


# Parameters of the published checkpoints as their model pages state them, tied matrices once, MTP and vision aside.
PUBLISHED = {
    "gpt2": 124_439_808,
    "santacoder": 1_124_886_528,
    "Qwen3-4B": 4_022_468_096,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-72B": 72_706_203_648,
    "LLaMA-30B": 32_528_943_616,
    "Llama-2-7B": 6_738_415_616,
    "Llama-2-70B": 68_976_648_192,
    "Llama-3.2-1B": 1_235_814_400,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Mistral-Small-24B": 23_572_403_200,
    "Phi-2": 2_779_683_840,
    "Phi-3-mini": 3_821_079_552,
    "Phi-4": 14_659_507_200,
    "Gemma-7B": 8_537_680_896,
    "Gemma-2-9B": 9_241_705_984,
    "Gemma-3-27B": 27_009_346_304,
    "DeepSeek-V2-Lite": 15_706_484_224,
    "DeepSeek-V2": 235_741_434_880,
    "Qwen1.5-MoE-A2.7B": 14_315_784_192,
    "Qwen3-Next-80B-A3B": 79_674_391_296,
    "Falcon-7B": 6_921_720_704,
    "StarCoder2-15B": 15_957_889_024,
    "Pythia-6.9B": 6_857_302_016,
    "OLMo-2-7B": 7_298_617_344,
    "GLM-4-9B": 9_399_951_360,
    "Jamba-v0.1": 51_570_323_328,
    "MiniMax-Text-01": 456_089_655_296,
    "Command-R": 34_980_831_232,
    "GLM-4.5-Air": 106_852_251_264,
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_parameters_from_the_config_alone_equal_the_published_count(name):
    assert parameters(load_model(CONFIGS / f"{name}_config.json")).total == PUBLISHED[name]


def test_llama_3_1_70b_has_its_published_parameters():
    assert parameters(load_model("meta-llama/Llama-3.1-70B")).total == 70_553_706_496


# Model cards: total with its rounding, and active parameters (billions). Cards differ in whether they count the input
# embedding and the output head as active, so the card must lie between the count with both and the one with neither.
CARDS = {
    "deepseek-ai/DeepSeek-V3": (671, 0.5, 37),
    "moonshotai/Kimi-K2-Instruct": (1000, 50, 32),
    "Qwen/Qwen3-30B-A3B": (30.5, 0.05, 3.3),
    "Qwen/Qwen3-235B-A22B": (235, 0.5, 22),
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": (480, 0.5, 35),
    "openai/gpt-oss-120b": (116.83, 0.005, 5.13),
    "openai/gpt-oss-20b": (20.91, 0.005, 3.61),
    "mistralai/Mixtral-8x7B-v0.1": (46.7, 0.05, 12.9),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": (400, 2, 17),
    "XiaomiMiMo/MiMo-V2-Flash": (309, 0.5, 15),
    "google/gemma-4-26B-A4B": (25.2, 0.05, 3.8),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31.6, 0.05, 3.2),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (120.6, 0.1, 12.7),
    "deepseek-ai/DeepSeek-V4-Pro": (1600, 50, 49),
    "deepseek-ai/DeepSeek-V4-Flash": (284, 0.5, 13),
    "zai-org/GLM-5": (744, 0.5, 40),
    "MiniMaxAI/MiniMax-M2.5": (229, 0.5, 10),
    "Qwen/Qwen3.5-397B-A17B": (397, 1, 17),
}


@pytest.mark.parametrize("name", sorted(CARDS))
def test_total_and_active_parameters_are_those_of_the_model_card(name):
    total, rounding, active = CARDS[name]
    model = load_model(name)
    counted = parameters(model)
    assert counted.total / 1e9 == pytest.approx(total, abs=rounding)
    ends = model.embedding.params + (model.lm_head.params if model.lm_head else 0)
    assert (counted.active - ends) / 1e9 - 0.05 <= active <= counted.active / 1e9 + 0.05


def test_gpt_oss_active_parameters_without_the_input_embedding_are_the_card_s():
    """The gpt-oss card counts 5.13 B and 3.61 B active parameters, the output head but not the input embedding."""
    assert parameters(load_model("openai/gpt-oss-120b")).active_without_embedding / 1e9 == pytest.approx(5.13, abs=0.01)
    assert parameters(load_model("openai/gpt-oss-20b")).active_without_embedding / 1e9 == pytest.approx(3.61, abs=0.01)
