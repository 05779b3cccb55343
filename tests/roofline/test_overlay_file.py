"""Engine overlays as files: the shipped ones, a calibration read back, and every way in which a file can be wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from pddplan.api import evaluate, load_scenario
from pddplan.errors import InputError
from pddplan.hardware import load_chip
from pddplan.model.catalog import load_model
from pddplan.model.spec import Parallel
from pddplan.pdd.context import PlanContext
from pddplan.pdd.fixed_plan import fixed_decision
from pddplan.report.catalogue import translator
from pddplan.report.document import Table
from pddplan.report.sections.accuracy import section
from pddplan.roofline.overlay import Overlay
from pddplan.roofline.overlay_file import ENGINES, LAWS, base_engine, generation, load_overlay, overlay_path, read_overlay
from pddplan.stages.calibration import calibrate
from pddplan.stages.roofline import roofline_instance
from pddplan.stages.serving import estimate_closed

SERVERS = Path(__file__).parents[2] / "benchmarks" / "data" / "servers.csv.gz"
HOPPER, BLACKWELL = load_chip("h100-sxm"), load_chip("b200")


def overlay(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_shipped_overlay_reads_as_any_yaml_reader_has_it(engine: str) -> None:
    assert read_overlay(engine) == yaml.safe_load(overlay_path(engine).read_text(encoding="utf-8"))
    assert base_engine(engine) == engine


@pytest.mark.parametrize("name", ["TensorRT-LLM", "tensorrt_llm", "TRT", " trtllm "])
def test_an_engine_has_several_names(name: str) -> None:
    assert overlay_path(name) == overlay_path("trtllm")


def test_a_generation_is_told_by_whose_kernels_a_chip_has() -> None:
    assert [generation(load_chip(name)) for name in ("h200-sxm", "a100-sxm", "h20-96", "b200", "gb300")] == [
        "hopper", "hopper", "hopper", "blackwell", "blackwell",
    ]  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("chip", [HOPPER, BLACKWELL], ids=lambda chip: chip.slug)
@pytest.mark.parametrize("law", LAWS)
def test_constants_are_those_of_all_then_of_the_chip_then_of_the_law(engine: str, chip, law: str) -> None:
    constants = read_overlay(engine)["constants"]
    found = load_overlay(engine, chip, law)
    for name in Overlay.names():
        expected = getattr(Overlay(), name)
        for group in ("all", generation(chip), law):
            expected = constants.get(group, {}).get(name, expected)
        assert getattr(found, name) == expected, name


def test_a_group_named_as_a_chip_goes_before_all_others(tmp_path: Path) -> None:
    groups = f"all: {{step_s: 1}}, hopper: {{step_s: 2}}, random: {{step_s: 3}}, {HOPPER.slug}: {{step_s: 4}}"
    assert load_overlay(overlay(tmp_path, f"constants: {{{groups}}}"), HOPPER).step_s == 4.0


def test_a_calibration_written_and_read_back_is_the_engine_it_was_fitted_to_times_its_factors(tmp_path: Path) -> None:
    servers = pd.read_csv(SERVERS)
    rows = servers[(servers.engine == "vllm") & (servers.family == "Kimi-K2.5") & (servers["mode"] == "agg")].iloc[:24].copy()
    rows["measured_tpot_ms"] *= 1.3
    fitted = calibrate(rows, group_by="isl", source="runs.csv")
    mine = overlay(tmp_path, yaml.safe_dump(dict(fitted.overlay), sort_keys=False, allow_unicode=True))
    assert read_overlay(mine) == fitted.overlay
    assert base_engine(mine) == "vllm"
    for law in LAWS:
        before, after = load_overlay("vllm", BLACKWELL, law), load_overlay(mine, BLACKWELL, law)
        for name in Overlay.names():
            written = any(name in values for values in fitted.overlay["constants"].values())
            factor = fitted.refinement.factors.get(name, 1.0) if written else 1.0
            assert getattr(after, name) == pytest.approx(getattr(before, name) * factor, rel=1e-4), name
    tables = [block for block in section([mine], translator("en")).blocks if isinstance(block, Table)]
    medians = {row[1]: row[2] for table in tables for row in table.rows}
    assert medians == {m.upper(): pytest.approx(fitted.held_out[m]["median"], abs=0.006) for m in ("tpot", "ttft")}


def test_an_overlay_that_is_written_again_is_read_again(tmp_path: Path) -> None:
    mine = overlay(tmp_path, "constants: {all: {step_s: 0.001}}")
    assert load_overlay(mine, HOPPER).step_s == 0.001
    overlay(tmp_path, "constants: {all: {step_s: 0.00025}}")
    assert load_overlay(mine, HOPPER).step_s == 0.00025


def test_a_slower_step_of_an_overlay_is_felt_in_full_by_every_token(tmp_path: Path) -> None:
    """1 ms more per step is 1 ms more TPOT, and one more step before the first token."""
    shipped = dict(read_overlay("vllm"))
    constants = {**shipped["constants"], "all": {**shipped["constants"]["all"], "step_s": shipped["constants"]["all"]["step_s"] + 1e-3}}
    mine = overlay(tmp_path, yaml.safe_dump({**shipped, "constants": constants}))
    found = []
    for engine in ("vllm", mine):
        instance = roofline_instance(load_model("Qwen/Qwen3-32B"), HOPPER, engine, Parallel(tp=4))
        found.append(estimate_closed(instance, 1000, 200, 1))
    assert found[1].step_s - found[0].step_s == pytest.approx(1e-3, rel=1e-6)
    assert found[1].tpot_s - found[0].tpot_s == pytest.approx(1e-3, rel=1e-3)
    assert found[1].band == found[0].band


def test_uniform_popularity_is_infinite_and_nothing_else_may_be(tmp_path: Path) -> None:
    mine = overlay(tmp_path, "constants: {all: {popularity: .inf}}")
    assert np.isinf(load_overlay(mine, HOPPER).popularity)
    with pytest.raises(InputError, match="step_s"):
        read_overlay(overlay(tmp_path, "constants: {all: {step_s: .inf}}"))


WRONG = {
    "constants: {all: {stepp_s: 1}}": "constants.all.stepp_s",
    "constants: {all: {step_s: -1}}": "constants.all.step_s",
    "constants: {all: {step_s: .nan}}": "constants.all.step_s",
    "constants: {all: {step_s: true}}": "constants.all.step_s",
    "constants: {all: {step_s: fast}}": "constants.all.step_s",
    "constants: {all: 3}": "constants.all",
    "constants: [1, 2]": "constants",
    "engine: vllm": "constants",
    "engine: tgi\nconstants: {}": "engine",
    "engine: [vllm]\nconstants: {}": "engine",
    "constants: {}\nbands: 3": "bands",
    "constants: {}\nbands: {hopper: {low: {tpot: [1.2, 0.9]}}}": "bands.hopper.low.tpot",
    "constants: {}\nbands: {hopper: {low: {tpot: 3}}}": "bands.hopper.low.tpot",
    "constants: {}\nbands: {hopper: {low: [1]}}": "bands.hopper.low",
    "constants: {a: 1, a: 2}": "twice",
    "constants: {all: {step_s: !!python/object/apply:os.getcwd []}}": "tags",
    "- 1": "not keys",
    "": "empty",
    "constants: {": "mine.yaml",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_overlay_is_refused_at_its_place(text: str, tmp_path: Path) -> None:
    mine = overlay(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_overlay(mine, HOPPER)
    assert WRONG[text] in str(caught.value)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    mine = overlay(tmp_path, "engine: tgi\nconstants:\n  all: {stepp_s: 1}\n  hopper: {layer_s: -2}\nbands: {hopper: {high: {ttft: [0]}}}")
    with pytest.raises(InputError) as caught:
        read_overlay(mine)
    assert [problem.place.removeprefix(mine) for problem in caught.value.problems] == [
        ":1 engine", ":3 constants.all.stepp_s", ":4 constants.hopper.layer_s", ":5 bands.hopper.high.ttft",
    ]  # fmt: skip


def test_bytes_that_are_no_text_and_files_that_are_not_there_are_input_errors(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    with pytest.raises(InputError, match="calibration overlay"):
        read_overlay(str(path))
    path.write_bytes(b"constants: {all: {step_s: \xff}}")
    with pytest.raises(InputError, match="UTF-8"):
        read_overlay(str(path))
    with pytest.raises(InputError, match="engine"):
        read_overlay(str(tmp_path / "folder.yaml"))


@pytest.mark.parametrize("where", ["deployment", "chip"])
def test_a_scenario_finds_its_overlay_beside_itself_from_any_folder(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its chip files, configs and traces."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    overlay(home, "engine: vllm\nconstants: {all: {step_s: 0.01}}")
    engine, chip = ("engine: mine.yaml\n", "") if where == "deployment" else ("", ", engine: mine.yaml")
    (home / "scenario.yaml").write_text(
        f"model: {{name: Qwen/Qwen3-32B-FP8}}\n{engine}"
        f"sites: {{A: {{chips: [{{chip: h100-sxm, price: 2 USD/h{chip}}}]}}}}\n"
        "workload: {rate: 1 req/s, rows: 100, classes: {c: {input_tokens: 1k, output_tokens: 100}}}\n"
        "plan: {pools: [{site: A, role: AGG, chip: h100-sxm, instances: 1, tp: 2}]}\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(elsewhere)
    scenario = load_scenario(home / "scenario.yaml")
    context = PlanContext.from_scenario(scenario)
    configuration = fixed_decision(context).pools[0].configuration
    assert context.instance(configuration, context.settings("main")).overlay.step_s == 0.01
    assert evaluate(scenario).evaluation.stable


@pytest.mark.parametrize("name", ["kernels", "vlm", "fits"])
def test_a_name_that_is_no_engine_is_told_with_the_engines(name: str) -> None:
    with pytest.raises(InputError, match="one of vllm, sglang, trtllm, generic"):
        read_overlay(name)
