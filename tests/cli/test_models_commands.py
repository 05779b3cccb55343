"""pddplan models: JSON fields, refusals and their exit codes, the formula in the text."""

import json
from pathlib import Path

import pytest

from pddplan.cli import run
from pddplan.units import GIB, MIB

CONFIGS = Path(__file__).parent.parent / "data" / "configs"


def document(capsys, *args):
    code = run(["models", *args, "--json", "-"])
    out = capsys.readouterr().out
    assert code == 0
    return json.loads(out)


def test_show_has_the_fields_of_the_contract(capsys):
    found = document(capsys, "show", "DeepSeek-V3", "--context", "10000", "--concurrency", "2", "--tp", "8")
    assert found["kv"]["bytes_per_token"] == 70_272
    assert found["kv"]["bytes_per_request_constant"] == 0
    assert found["kv"]["bytes_per_token_per_gpu"] == 70_272
    assert found["kv"]["bytes_total"] / 2 / GIB == pytest.approx(0.65446, abs=5e-6)
    assert set(found["kv"]["parts"]) >= {"latent", "indexer", "window", "state"}
    assert found["weights"]["params"] == 671_026_419_200
    assert found["weights"]["params_active"] == 37_552_297_472
    assert found["weights"]["bytes_per_gpu"] * 8 > found["weights"]["bytes"]
    assert found["flops_per_token"] > 2 * 35e9
    assert found["origin"]["kv_lora_rank"] == "kv_lora_rank"
    assert found["notes"]


def test_show_of_deepseek_v4_in_the_source_s_format(capsys):
    found = document(capsys, "show", "deepseek-ai/DeepSeek-V4-Pro", "--context", "64k", "--concurrency", "80", "--kv-dtype", "nominal")
    kv = found["kv"]
    assert kv["bytes_total"] / 1e9 == pytest.approx(23.07, abs=0.005)
    assert kv["parts"]["latent"] + kv["parts"]["indexer"] == kv["bytes_per_token"] == 4444
    assert kv["parts"]["window"] + kv["parts"]["state"] == kv["bytes_per_request_constant"]
    assert found["flops_parts"]["linear"] / 1e9 == pytest.approx(95.7, abs=0.05)


def test_indexer_keys_count_in_the_growth_and_stand_apart(capsys):
    kv = document(capsys, "show", "zai-org/GLM-5.1", "--kv-dtype", "bf16")["kv"]
    assert kv["parts"]["latent"] == 89_856
    assert kv["bytes_per_token"] == 89_856 + kv["parts"]["indexer"]


def test_growth_is_marginal_at_the_context(capsys):
    inside = document(capsys, "show", "google/gemma-4-26B-A4B", "--context", "500")["kv"]
    beyond = document(capsys, "show", "google/gemma-4-26B-A4B", "--context", "131072")["kv"]
    assert (inside["bytes_per_token"], beyond["bytes_per_token"]) == (20_480 + 204_800, 20_480)
    assert beyond["bytes_total"] / 1e9 == pytest.approx(2.89, abs=0.005)
    assert beyond["bytes_total_page_unified"] > 10 * beyond["bytes_total"]


def test_state_is_the_constant_of_a_hybrid(capsys):
    kv = document(capsys, "show", "Qwen/Qwen3.5-27B", "--context", "262144", "--concurrency", "4")["kv"]
    assert kv["bytes_per_request_constant"] / MIB == 149.625
    assert kv["bytes_total"] / MIB == 4 * (16_384 + 149.625)


def test_pages_of_a_budget(capsys):
    shown = document(capsys, "show", "Llama-3.1-8B", "--kv-budget", "3.8125 GiB", "--context", "20000")["kv"]["budget"]
    assert (shown["pages"], shown["tokens"], shown["context_fits"]) == (1952, 31_232, True)
    refused = document(capsys, "show", "Llama-3.1-8B", "--kv-budget", "2.89 GiB", "--context", "29000")["kv"]["budget"]
    assert not refused["context_fits"]


def test_fit_says_verdict_shortfall_and_way_out(capsys):
    found = document(capsys, "fit", "DeepSeek-V3", "h100-sxm", "--tp", "2")
    fit = found["fit"]
    assert fit["verdict"] == "no"
    assert fit["shortfall_bytes"] == pytest.approx(fit["required_bytes"] - fit["available_bytes"])
    assert fit["smallest"]["memory_minimum_gpus"] == 10
    assert fit["smallest"]["mapping"]["tp"] == 16
    assert any("10 GPUs" in note and "tp 16" in note for note in found["notes"])


def test_fit_on_a_memory_size_in_place_of_a_chip(capsys):
    assert document(capsys, "fit", "DeepSeek-V3", "48GiB", "--gpus", "8")["fit"]["verdict"] == "no"
    assert document(capsys, "fit", str(CONFIGS / "DeepSeek-VL2-small_config.json"), "24 GB")["fit"]["verdict"] == "no"


@pytest.mark.parametrize(("engine", "pool"), [("trtllm", 54), ("vllm", 52)])
def test_fit_takes_the_user_s_own_reserves(capsys, engine, pool):
    weights = document(capsys, "show", "Llama-3.1-8B")["weights"]["bytes"]
    rest = f"{20 * GIB - weights:.0f} B"
    sizes = ["--memory-fraction", "0.9", "--activations", rest, "--graphs", "0 B", "--framework", "0 B"]
    fit = document(capsys, "fit", "Llama-3.1-8B", "80GiB", "--engine", engine, *sizes)["fit"]
    assert fit["kv_pool_bytes"] / GIB == pytest.approx(pool)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["show", "DeepSeek-V3", "--context", "-5"], "--context"),
        (["show", "DeepSeek-V3", "--context", "many"], "--context"),
        (["show", "DeepSeek-V3", "--concurrency", "0"], "--concurrency"),
        (["show", "DeepSeek-V3", "--tp", "0"], "tp"),
        (["show", "DeepSeek-V3", "--kv-dtype", "q8"], "bf16"),
        (["show", "DeepSeek-V33"], "DeepSeek-V3"),
        (["fit", "Llama-3.1-8B", "h100-sxm", "--gpus", "4", "--tp", "8"], "gpus 4"),
        (["fit", "Llama-3.1-8B", "h100-sxm", "--gpus", "0"], "--gpus"),
        (["fit", "Llama-3.1-8B", "h101"], "nearest: h100-sxm"),
        (["fit", "Llama-3.1-8B", "80 Gb"], "not a unit of a size"),
        (["fit", "Qwen/Qwen3-32B", "h100-sxm", "--gpus", "3"], "2 or 4"),
        (["fit", "Llama-3.1-8B", "h100-sxm", "--memory-fraction", "2"], "memory_fraction"),
        (["fit", str(CONFIGS / "LLaMA-30B_config.json"), "h100-sxm", "--tp", "8"], "1, 2, 4, 13, 26, 52"),
        (["fit", "Qwen/Qwen3-235B-A22B-FP8", "h100-sxm", "--tp", "8"], "192"),
        (["fit", "DeepSeek-V3", "h100-sxm", "--tp", "8", "--ep", "3"], "moe_ep"),
        (["show", "nowhere/config.json"], "No such file"),
    ],
)
def test_refusals_exit_2_and_name_the_field(capsys, args, said):
    assert run(["models", *args]) == 2
    assert said in capsys.readouterr().err


def test_an_illegal_mapping_is_json_too(capsys):
    assert run(["models", "fit", "Qwen/Qwen3-235B-A22B-FP8", "h100-sxm", "--tp", "8", "--json", "-"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["valid"] is False
    assert found["problems"][0]["place"] == "parallel.tp"


def test_the_text_fills_the_formula_with_numbers(capsys):
    assert run(["models", "show", "Llama-3.1-8B"]) == 0
    out = capsys.readouterr().out
    assert "32 layers x 8 KV heads x (128 + 128) x 2 B" in out
    assert "131,072" in out
    assert run(["models", "fit", "Llama-3.1-8B", "h100-sxm"]) == 0
    assert "fits" in capsys.readouterr().out


def test_list_finds_by_part_of_a_name(capsys):
    names = [row["name"] for row in document(capsys, "list", "gpt-oss")["models"]]
    assert names == ["openai/gpt-oss-120b", "openai/gpt-oss-20b"]


def test_repetition_under_tensor_parallelism_is_said(capsys):
    assert any("whole on each of the 8" in note for note in document(capsys, "show", "DeepSeek-V3", "--tp", "8")["notes"])
    assert any("4 KV heads" in note for note in document(capsys, "show", "Qwen/Qwen3-235B-A22B", "--tp", "8", "--ep", "8")["notes"])
