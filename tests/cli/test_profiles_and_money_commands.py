"""profiles, bathtub and savings from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pddplan.cli import run
from pddplan.hardware import load_chip

SHEET = [
    "--name=Lab 1", "--bf16=500 TFLOPS", "--fp8=none", "--hbm=64 GB", "--hbm-bandwidth=1.6 TB/s",
    "--scaleup=200 GB/s", "--domain=8", "--nic=200 Gbps", "--tdp=400 W", "--price=1.5 USD/h",
]  # fmt: skip

SPLIT = """plan={pools: [{site: A, role: P, chip: h100-sxm, instances: 2, tp: 8, dp: 4, ep: 32},
{site: B, role: MD, chip: h200-sxm, instances: 1, tp: 1, dp: 32, ep: 32}], links: {A-B: 1}}""".replace("\n", " ")


def test_every_group_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for group, expected in (("chips", "h20-96"), ("links", "metro-wave"), ("prices", "reference"), ("engines", "sglang")):
        assert run(["profiles", "list", group]) == 0
        assert expected in capsys.readouterr().out
    assert run(["profiles", "list", "engines", "--json", "-"]) == 0
    for engine in json.loads(capsys.readouterr().out)["engines"]:
        assert run(["validate", "01-minimal", "--set", f"engine={engine['name']}"]) == 0
    capsys.readouterr()
    assert run(["profiles", "list", "chips", "--json", "-"]) == 0
    chips = json.loads(capsys.readouterr().out)["chips"]
    assert next(chip for chip in chips if chip["name"] == "h100-pcie")["bf16_tflops"] == 756.5


def test_a_profile_shows_kind_date_and_source_of_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profiles", "show", "H20"]) == 0
    text = capsys.readouterr().out
    for part in ("h20-96", "148 TFLOP/s", "[secondary, ", "roofline", "ridge", "assumed"):
        assert part in text
    assert run(["profiles", "show", "beijing-shanghai", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["price_usd_per_gbps_month"]["value"] == 300
    assert run(["profiles", "show", "reference"]) == 0


def test_an_unknown_profile_exits_2_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profiles", "show", "h20-69"]) == 2
    assert "h20-96" in capsys.readouterr().err


def test_a_chip_page_holds_its_roofline(tmp_path: Path) -> None:
    page = tmp_path / "chip.html"
    assert run(["profiles", "show", "h100", "--report", str(page)]) == 0
    assert "roofline-figure" in page.read_text(encoding="utf-8")
    assert run(["profiles", "show", "metro-wave", "--report", str(tmp_path / "x.html")]) == 2


def test_an_added_chip_is_usable_by_its_path_and_never_overwritten_unasked(tmp_path: Path) -> None:
    path = str(tmp_path / "lab.yaml")
    assert run(["profiles", "add", path, *SHEET]) == 0
    assert load_chip(path).prices["rent_usd_h"].value == 1.5
    assert run(["profiles", "add", path, *SHEET]) == 2
    assert run(["profiles", "add", path, *SHEET, "--force"]) == 0
    assert run(["profiles", "show", path]) == 0


def test_wrong_sheets_exit_2_with_every_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lab.yaml"
    assert run(["profiles", "add", str(path), *SHEET[:1], "--bf16=500", "--fp8=maybe", *SHEET[3:]]) == 2
    told = capsys.readouterr().err
    assert "bf16" in told
    assert "fp8" in told
    assert not path.exists()
    assert run(["profiles", "add", str(tmp_path / "lab.txt"), *SHEET]) == 2


def test_bathtub_says_the_class_in_text_json_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "tub.html"
    common = ["bathtub", "pdd-reference", "--set", SPLIT, "--set", "workload.rows=200", "--price-ratio", "0.1"]
    assert run([*common, "--report", str(page), "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["class"] in ("rising", "falling", "valley", "sawtooth")
    assert document["token_prices"]["cached_ratio"] == pytest.approx(0.1)
    assert "Where does a higher hit rate lose money?" in page.read_text(encoding="utf-8")
    assert run([*common[:-1], "-1"]) == 2


def test_bathtub_misses_token_prices_before_it_plans(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(*_: object, **__: object) -> None:
        pytest.fail("it planned first")

    monkeypatch.setattr("pddplan.pipeline.plan", planned)
    assert run(["bathtub", "01-minimal"]) == 2
    assert "token_prices: the scenario has no token prices" in capsys.readouterr().err
