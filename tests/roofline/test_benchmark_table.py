"""Tables of benchmark rows: every row answered or given its reason, aliases and gaps tolerated, results of clients read."""

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from pddplan.errors import InputError
from pddplan.roofline.benchmark_files import read_benchmark
from pddplan.roofline.benchmark_table import read_benchmark_table
from pddplan.roofline.checkpoint import served_checkpoint
from pddplan.roofline.fit import STEP, Layout, Problem, wave_of
from pddplan.roofline.rows import fixed_lengths
from pddplan.stages.calibration import calibrate
from pddplan.stages.serving import backtest, estimate_table

SERVERS = Path(__file__).parents[2] / "benchmarks" / "data" / "servers.csv.gz"
ENGINE_FILES = Path(__file__).parents[2] / "hardware_profiles" / "engines"


@pytest.fixture(scope="module")
def servers():
    return pd.read_csv(SERVERS)


@pytest.fixture(scope="module")
def errors(servers):
    return {(row["mode"], row["metric"]): row for row in backtest(servers)["overall"]}


def test_shipped_constants_keep_their_errors_on_the_calibration_rows(errors):
    """In-sample limits a little above what was measured, so that a change of the model that costs accuracy fails here."""
    tpot, ttft = errors["agg", "tpot"], errors["agg", "ttft"]
    assert (tpot["median"] < 9, tpot["mean"] < 14, tpot["p90"] < 33, tpot["coverage"]) == (True, True, True, 1.0)
    assert (ttft["median"] < 24, ttft["mean"] < 32, ttft["p90"] < 70, ttft["coverage"]) == (True, True, True, 1.0)
    assert errors["disagg", "tpot"]["median"] < 13
    assert errors["disagg", "tpot"]["mean"] < 17


def test_at_most_eighty_constants_are_fitted():
    engines = ("vllm", "sglang", "trtllm")
    groups = {
        "engine": np.array(engines),
        "engine_generation": np.array([f"{engine}/{generation}" for engine in engines for generation in ("hopper", "blackwell")]),
        "wave": np.unique([wave_of(engine, law) for engine in engines for law in ("fixed", "random")]),
    }
    fitted = Layout.of(groups).constants()
    assert fitted <= 80
    for engine in (*engines, "generic"):
        stated = yaml.safe_load((ENGINE_FILES / f"{engine}.yaml").read_text())["fit"]["constants_in_all_engines"]
        assert stated == fitted


def test_derivatives_of_a_fit_on_the_rows_of_each_constant_are_those_on_all_rows(servers):
    """Oracle: forward differences of the whole residual vector."""
    table = read_benchmark_table(servers.iloc[::40])
    rows = [part for part, _ in table.parts()]
    layout = Layout.of({k: np.concatenate([r.groups[k] for r in rows]) for k in rows[0].groups})
    problem = Problem(rows, layout, 1.0)
    theta = np.linspace(-0.2, 0.2, len(layout.labels))
    base = problem.residuals(theta)
    moved = [problem.residuals(theta + STEP * unit) for unit in np.eye(len(theta))]
    np.testing.assert_allclose(problem.jacobian(theta), np.array([(m - base) / STEP for m in moved]).T, atol=1e-8)


def test_a_run_listed_under_both_laws_had_random_lengths(servers):
    """The calibration table lists runs of two model families twice, with one measurement, and their genuine fixed runs not at all."""
    fixed = servers[servers.length_law == "fixed"]
    held = fixed_lengths(servers)[servers.length_law == "fixed"]
    assert set(fixed.family[~held]) == {"Kimi-K2.5", "Qwen3.5-397B-A17B"}
    assert set(fixed.family[held]) >= {"Qwen3-32B", "Llama-3.1-8B"}
    assert not fixed_lengths(servers)[servers.length_law == "random"].any()
    assert fixed_lengths(fixed).all()


def test_a_hundred_thousand_rows_take_seconds(servers):
    rows = pd.concat([servers] * 27, ignore_index=True)
    start = time.process_time()
    predicted = estimate_table(rows)
    assert len(predicted) == len(rows)
    assert time.process_time() - start < len(rows) / 10_000


def test_unknown_columns_are_tolerated_and_missing_ones_have_defaults():
    table = pd.DataFrame(
        {"model": ["Qwen/Qwen3-32B"], "chip": ["H100 SXM"], "backend": ["vllm"], "isl": [1024], "osl": [128], "mood": ["good"], "tp": [4]}
    )
    predicted = estimate_table(table)
    assert list(predicted.columns) == ["row", "ttft_ms", "tpot_ms", "output_tok_s_per_gpu", "basis", "warning"]
    assert predicted.tpot_ms[0] > 0
    assert predicted.basis[0] == "measured"


def test_a_row_that_cannot_be_priced_says_why_and_the_others_are_answered():
    table = pd.DataFrame(
        {
            "row": ["good", "model", "chip", "length", "engine"],
            "model_path": ["Qwen/Qwen3-32B", "no/such-model", "Qwen/Qwen3-32B", "Qwen/Qwen3-32B", "Qwen/Qwen3-32B"],
            "system": ["h100_sxm", "h100_sxm", "abacus", "h100_sxm", "h100_sxm"],
            "engine": ["vllm", "vllm", "vllm", "vllm", "gears"],
            "isl": [1024, 1024, 1024, "many", 1024],
            "osl": 128,
        }
    )
    predicted = estimate_table(table).set_index("row")
    assert np.isfinite(predicted.tpot_ms["good"])
    assert predicted.tpot_ms.isna().sum() == 4
    for row, word in (("model", "no/such-model"), ("chip", "abacus"), ("length", "many"), ("engine", "gears")):
        assert word in predicted.warning[row]
        assert predicted.basis[row] == "none"


def test_missing_required_columns_are_all_named_at_once():
    with pytest.raises(InputError) as caught:
        read_benchmark_table(pd.DataFrame({"isl": [1]}))
    assert {"model_path", "system", "engine", "osl"} == {p.place.split()[-1] for p in caught.value.problems}


@pytest.mark.parametrize(
    ("name", "precision", "expected"),
    [
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8", "fp8"),
        ("meta-llama/Llama-3.1-8B-Instruct", "bf16", "bf16"),
        ("Qwen/Qwen3-32B", "fp4", "nvfp4"),
        ("moonshotai/Kimi-K2.5", "int4", "int4"),
        ("deepseek-ai/DeepSeek-R1", "fp4", "nvfp4"),
        ("openai/gpt-oss-120b", "fp4", "mxfp4"),
    ],
)
def test_the_served_checkpoint_has_the_precision_of_the_row(name, precision, expected):
    model = served_checkpoint(name, precision)
    group = "experts" if any(layer.ffn.kind == "moe" for layer in model.layers) else "dense_ffn"
    assert model.weight_dtype[group] == expected


def test_calibration_moves_the_shipped_constants_towards_the_rows(servers):
    rows = servers[(servers.engine == "vllm") & (servers.family == "Kimi-K2.5") & (servers["mode"] == "agg")].copy()
    rows["measured_tpot_ms"] *= 1.3
    rows["measured_ttft_ms"] *= 1.3
    found = calibrate(rows, group_by="isl")
    assert found.after["tpot"]["median"] < 0.5 * found.before["tpot"]["median"]
    assert found.held_out["tpot"]["median"] < found.before["tpot"]["median"]
    assert set(found.refinement.factors) < set(found.refinement.narrowing)
    assert found.refinement.narrowing["disaggregated_ttft_s"] == pytest.approx(1.0)
    assert "disaggregated_ttft_s" not in found.refinement.factors


def test_an_overlay_is_an_engine(tmp_path, servers):
    rows = servers[(servers.engine == "vllm") & (servers.family == "Kimi-K2.5") & (servers["mode"] == "agg")].copy()
    rows["measured_tpot_ms"] *= 1.3
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(dict(calibrate(rows).overlay)))
    before = estimate_table(rows)
    after = estimate_table(rows.assign(engine=str(path)))
    assert (after.tpot_ms / before.tpot_ms).median() > 1.1


def test_calibration_refuses_two_engines_and_too_few_rows(servers):
    with pytest.raises(InputError, match="one engine"):
        calibrate(servers)
    with pytest.raises(InputError, match="at least 3 rows"):
        calibrate(servers.iloc[:2])


VLLM = {
    "backend": "vllm", "model_id": "Qwen/Qwen3-32B", "num_prompts": 100, "completed": 100, "max_concurrency": 16, "duration": 60.0,
    "total_input_tokens": 102400, "total_output_tokens": 12800, "mean_ttft_ms": 200.0, "mean_tpot_ms": 15.0, "request_throughput": 1.67,
}  # fmt: skip
SGLANG = {
    "backend": "sglang", "request_rate": 2.0, "max_concurrency": None, "completed": 100, "total_input_tokens": 102400,
    "total_output_tokens": 12800, "mean_ttft_ms": 200.0, "mean_tpot_ms": 15.0, "request_throughput": 2.0,
}  # fmt: skip
AIPERF = {
    "time_to_first_token": {"unit": "ms", "avg": 200.0}, "inter_token_latency": {"unit": "ms", "avg": 15.0},
    "input_sequence_length": {"avg": 1024}, "output_sequence_length": {"avg": 128},
    "input_config": {"loadgen": {"concurrency": 16}, "endpoint": {"model_names": ["Qwen/Qwen3-32B"]}},
}  # fmt: skip


@pytest.mark.parametrize(("result", "concurrency"), [(VLLM, 16), (SGLANG, 2.0 * (0.2 + 127 * 0.015)), (AIPERF, 16)])
def test_results_of_benchmark_clients_become_rows(tmp_path, result, concurrency):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result))
    defaults = {"model_path": "Qwen/Qwen3-32B", "system": "h100-sxm", "engine": "vllm", "tp_size": 4}
    row = read_benchmark(path, defaults).iloc[0]
    assert (row.isl, row.osl, row.measured_ttft_ms, row.measured_tpot_ms) == (1024, 128, 200.0, 15.0)
    assert row.concurrency == pytest.approx(concurrency)
    assert estimate_table(read_benchmark(path, defaults)).tpot_ms[0] > 0


def test_a_file_of_something_else_is_refused_with_its_name(tmp_path):
    path = tmp_path / "recipe.json"
    path.write_text('{"eggs": 3}')
    with pytest.raises(InputError, match=r"recipe\.json"):
        read_benchmark(path, {})
