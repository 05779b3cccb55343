"""Does it fit: measured pools and failures of real servers, engines' meanings of their fraction, the way out."""

from pathlib import Path

import pytest

from pddplan.errors import InputError
from pddplan.hardware import load_chip
from pddplan.model import load_model
from pddplan.model.fit import mapping_for_gpus
from pddplan.model.kv_cache import kv_cache
from pddplan.model.memory import (
    ENGINES,
    Reserves,
    kv_pool_bytes,
    plain_parallel,
    smallest_fit,
    visible_bytes,
    waterfall,
)
from pddplan.model.parallel import check, legal_parallels
from pddplan.model.spec import Parallel
from pddplan.units import GIB, MIB

CONFIGS = Path(__file__).parent.parent / "data" / "configs"
H100 = 79.18 * GIB


def chip_bytes(name):
    return visible_bytes(load_chip(name).hbm_bytes.value)


def test_an_h100_has_the_bytes_that_nvidia_smi_prints():
    """modal-client pull request 2797: 81,559 MiB = 85.52 GB = 79.65 GiB; CUDA reports 79.18."""
    printed = load_chip("h100-sxm").hbm_bytes.value
    assert printed == 81_559 * MIB
    assert printed / 1e9 == pytest.approx(85.52, abs=0.005)
    assert printed / GIB == pytest.approx(79.65, abs=0.005)
    assert visible_bytes(printed) / GIB == pytest.approx(79.18, abs=0.01)


def test_the_pool_of_llama_8b_on_an_h100_is_the_measured_one():
    """llm-d-benchmark: 51.38 GiB at utilisation 0.9, 4.76 GiB of activations, about 420,900 tokens."""
    model = load_model("Llama-3.1-8B")
    found = waterfall(model, H100, Parallel(), context_tokens=16_000)
    assert found.weights / GIB == pytest.approx(14.99, rel=0.005)
    assert found.activations / GIB == pytest.approx(4.76, rel=0.005)
    assert found.kv_pool / GIB == pytest.approx(51.38, rel=0.001)
    assert kv_cache(model).tokens_in(found.kv_pool) == pytest.approx(420_900, rel=0.001)
    assert found.verdict == "fits"


@pytest.mark.parametrize(("tokens", "verdict", "needed"), [(16_000, "fits", 3.91), (32_000, "no", 7.81)])
def test_qwen3_32b_on_one_h100_holds_16k_but_not_32k(tokens, verdict, needed):
    """llm-d-benchmark: 4.45 GiB are left."""
    found = waterfall(load_model("Qwen/Qwen3-32B"), H100, Parallel(), context_tokens=tokens)
    assert found.kv_pool / GIB == pytest.approx(4.45, rel=0.01)
    assert found.kv_needed / GIB == pytest.approx(needed, abs=0.005)
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("chip", "gpus", "verdict"),
    [("h100-sxm", 8, "no"), ("h800-sxm", 8, "no"), ("h20-96", 8, "tight"), ("h200-sxm", 8, "fits"), ("h100-sxm", 16, "fits")],
)
def test_deepseek_v3_in_its_own_fp8(chip, gpus, verdict):
    """lmdeploy#2960, DeepSeek-V3#577: out of memory on eight 80 GB GPUs with a peak of at least 83 GB each."""
    model = load_model("DeepSeek-V3")
    found = waterfall(model, chip_bytes(chip), plain_parallel(model, gpus))
    assert found.verdict == verdict
    if gpus == 8:
        assert found.weights > 83e9
    if chip == "h20-96":
        assert 1e9 < found.kv_pool < 3e9


def test_llama_8b_on_an_rtx_3090_holds_20k_tokens_by_default_and_not_29k_in_what_the_log_left():
    """vllm#10517: 23.58 GiB visible; the log of a failing start shows 2.89 GiB for KV, of a working one 3.81."""
    model, capacity = load_model("Llama-3.1-8B"), chip_bytes("RTX 3090")
    assert capacity / GIB == pytest.approx(23.58, rel=0.005)
    by_default = waterfall(model, capacity, Parallel(), context_tokens=20_000)
    assert by_default.verdict == "fits"
    assert by_default.kv_needed / GIB == pytest.approx(20_000 * 131_072 / GIB)
    rest = 0.9 * capacity - by_default.weights - by_default.framework
    for left, tokens, verdict in ((3.81, 20_000, "fits"), (2.89, 29_000, "no")):
        own = Reserves(activation_bytes=rest - left * GIB)
        found = waterfall(model, capacity, Parallel(), context_tokens=tokens, reserves=own)
        assert found.kv_pool / GIB == pytest.approx(left)
        assert found.verdict == verdict


@pytest.mark.parametrize(("capacity_gib", "sequences"), [(23.5, 256), (47.5, 256), (79.18, 1024)])
def test_vllm_schedules_fewer_sequences_on_small_boards(capacity_gib, sequences):
    preset = ENGINES["vllm"].on(capacity_gib * GIB)
    assert preset.sampled_sequences == sequences
    assert ("under 70 GiB" in preset.source) == (sequences == 256)


def test_deepseek_v3_on_eight_a6000_is_short_by_a_stated_amount():
    """DeepSeek-V3#855: 384 GB of memory for 671 GB of weights."""
    model = load_model("DeepSeek-V3")
    found = waterfall(model, chip_bytes("A6000-48"), plain_parallel(model, 8))
    assert found.verdict == "no"
    assert found.shortfall == found.required - found.available > 30 * GIB


def test_a_workable_width_is_proposed():
    """inference-sim#624: by memory 10 H100, the next valid width is 16."""
    found = smallest_fit(load_model("DeepSeek-V3"), load_chip("h100-sxm"), H100)
    assert found.memory_minimum == 10
    assert found.parallel.tp == 16
    assert found.alternative.gpus == 16
    assert found.alternative.tp <= 8


def test_total_parameters_must_fit_not_active_ones():
    """DeepSeek-VL2#79: 16 B parameters, 2.8 B active, 24 GB."""
    assert waterfall(load_model(CONFIGS / "DeepSeek-VL2-small_config.json"), 24e9, Parallel()).verdict == "no"


@pytest.mark.parametrize(("engine", "pool"), [("trtllm", 54), ("vllm", 52), ("sglang", 52)])
def test_memory_fractions_mean_what_their_engine_means(engine, pool):
    """aiconfigurator#1159: 80 GiB, 20 GiB of it not KV, fraction 0.9."""
    assert kv_pool_bytes(ENGINES[engine].fraction_of, 0.9, 80 * GIB, 20 * GIB) / GIB == pytest.approx(pool)


@pytest.mark.parametrize(("engine", "pool"), [("trtllm", 54), ("vllm", 52), ("sglang", 52)])
def test_the_waterfall_uses_the_engine_s_meaning(engine, pool):
    model = load_model("Llama-3.1-8B")
    weights = waterfall(model, 80 * GIB, Parallel()).weights
    rest = 20 * GIB - weights
    own = Reserves(0.9, rest, 0.0, 0.0) if engine != "sglang" else Reserves(0.9, 0.0, 0.0, 0.0)
    found = waterfall(model, 80 * GIB, Parallel(), engine=engine, reserves=own)
    static = 0 if engine != "sglang" else rest
    assert (found.kv_pool - static) / GIB == pytest.approx(pool)


def test_a_small_fraction_is_refused_with_both_numbers():
    """gpustack#2118: Qwen3-4B with a fraction of 0.1."""
    model = load_model(CONFIGS / "Qwen3-4B_config.json")
    found = waterfall(model, 24 * GIB, Parallel(), reserves=Reserves(memory_fraction=0.1))
    assert found.verdict == "no"
    assert f"{found.available / GIB:.2f} GiB" in found.why
    assert found.available == pytest.approx(2.4 * GIB)


def test_sglang_activations_must_fit_beside_its_fraction():
    model = load_model("Llama-3.1-8B")
    roomy = waterfall(model, 80 * GIB, Parallel(), engine="sglang")
    full = waterfall(model, 80 * GIB, Parallel(), engine="sglang", reserves=Reserves(memory_fraction=1.0))
    assert full.kv_pool == pytest.approx(80 * GIB - full.weights - full.activations - full.graphs - full.framework)
    assert full.kv_pool - roomy.kv_pool < 0.12 * 80 * GIB


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"reserves": Reserves(memory_fraction=1.5)}, "memory_fraction"),
        ({"reserves": Reserves(memory_fraction=0.0)}, "memory_fraction"),
        ({"concurrency": 0}, "concurrency"),
        ({"context_tokens": -1}, "context"),
        ({"engine": "tgi"}, "engine"),
    ],
)
def test_wrong_questions_are_errors_that_name_the_field(asked, named):
    with pytest.raises(InputError, match=named):
        waterfall(load_model("Llama-3.1-8B"), H100, Parallel(), **asked)


def test_the_lines_of_the_waterfall_add_up():
    found = waterfall(load_model("Llama-3.1-70B"), H100, Parallel(4), context_tokens=8192, concurrency=10)
    assert found.required == pytest.approx(found.weights + found.activations + found.framework + found.kv_needed)
    assert found.available == pytest.approx(0.9 * H100)
    assert found.kv_needed == pytest.approx(10 * 8192 * 327_680 / 4)


def test_requests_are_dealt_out_over_attention_ranks():
    model = load_model("DeepSeek-V3")
    nine = waterfall(model, 141 * GIB, Parallel(1, dp=8, moe_ep=8), concurrency=9)
    sixteen = waterfall(model, 141 * GIB, Parallel(1, dp=8, moe_ep=8), concurrency=16)
    assert nine.kv_needed == sixteen.kv_needed == pytest.approx(2 * 4096 * 70_272)


@pytest.mark.parametrize(
    ("name", "gpus"), [("Llama-3.1-70B", 4), ("DeepSeek-V3", 16), ("Qwen/Qwen3-235B-A22B-FP8", 8), ("Qwen/Qwen3-32B", 6)]
)
def test_a_mapping_for_a_number_of_gpus_is_legal_and_uses_them_all(name, gpus):
    model, chip = load_model(name), load_chip("h100-sxm")
    found = mapping_for_gpus(model, chip, gpus, lambda option: True)
    if found is None:
        assert gpus == 6
    else:
        assert found.gpus == gpus
        assert not check(model, found, chip)


@pytest.mark.parametrize(("name", "gpus"), [("deepseek-ai/DeepSeek-V4-Pro", 24), ("sgl-project/DeepSeek-V4-Pro-FP8", 40)])
def test_the_smallest_instances_of_deepseek_v4_pro_with_attention_dp(name, gpus):
    """24 H100 with fp4 experts, 40 with fp8."""
    model, chip = load_model(name), load_chip("h100-sxm")
    spread = [option for option in legal_parallels(model, chip, 64) if option.tp == option.pp == 1]
    assert next(option.gpus for option in spread if waterfall(model, H100, option).verdict != "no") == gpus


def test_a_vision_tower_takes_memory():
    model = load_model("Qwen/Qwen3.5-27B")
    found = waterfall(model, H100, Parallel(2))
    assert found.vision == pytest.approx(model.vision_params * 2 / 2)
    assert found.required == pytest.approx(found.weights + found.vision + found.activations + found.framework + found.kv_needed)
