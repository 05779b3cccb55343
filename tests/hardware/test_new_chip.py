"""A new chip from the numbers on its sheet, and the balance of chips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pddplan.errors import InputError
from pddplan.hardware import load_chip
from pddplan.hardware.balance import attainable_flops, relative_balance, ridge_flop_per_byte
from pddplan.hardware.new_chip import ChipSheet, chip_file_text, doubts

SHEET = ChipSheet("昇 Chip: 1", "989 TFLOPS", "none", "80 GiB", "3.35 TB/s", "450 GB/s", 8, "400 Gbps", "700 W", "2.5 USD/h")


def test_the_written_file_reads_back_to_the_sheet(tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    path.write_text(chip_file_text(SHEET), encoding="utf-8")
    chip = load_chip(str(path))
    assert chip.name == "昇 Chip: 1"
    assert dict(chip.peak_flops.items()).keys() == {"bf16"}
    assert chip.hbm_bytes.value == 80 * 2**30
    assert chip.scaleout_bytes_per_s.value == 50e9
    assert chip.prices["rent_usd_h"].value == 2.5
    assert chip.efficiency_of == "a100_sxm"


def test_all_wrong_options_are_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        chip_file_text(replace(SHEET, bf16="989", hbm="80", domain=0, nic="fast"))
    assert {problem.place for problem in caught.value.problems} == {"bf16", "hbm", "domain", "nic"}


def test_gbps_and_gbytes_per_s_differ_by_eight(tmp_path: Path) -> None:
    """UNIT-03: the case of b and B decides."""
    for text, bytes_per_s in (("400 Gbps", 50e9), ("400 GB/s", 400e9), ("400 Gb/s", 50e9)):
        path = tmp_path / "new.yaml"
        path.write_text(chip_file_text(replace(SHEET, nic=text)), encoding="utf-8")
        assert load_chip(str(path)).scaleout_bytes_per_s.value == pytest.approx(bytes_per_s)


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_the_roofline_never_exceeds_either_roof(intensity: float) -> None:
    chip = load_chip("h20-96")
    flops = attainable_flops(chip, "bf16", intensity)
    assert flops <= 148e12
    assert flops <= intensity * 4e12 * (1 + 1e-12)
    assert (flops < 148e12) == (intensity < ridge_flop_per_byte(chip)["bf16"])


def test_h20_is_lopsided_against_h100() -> None:
    """A seventh of the compute at more bandwidth: a decode chip."""
    balance = relative_balance(load_chip("h20-96"), load_chip("h100-sxm"))
    assert balance["compute"] == pytest.approx(148 / 989)
    assert balance["memory bandwidth"] == pytest.approx(4000 / 3350)
    assert relative_balance(load_chip("h100"), load_chip("h100")) == dict.fromkeys(balance, 1.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bf16": "1979 tflops", "fp8": "989 TFLOPS"}, "sparsity"),
        ({"hbm_bandwidth": "400 PB/s"}, "400,000,000 GB/s"),
        ({"hbm_bandwidth": "33 Gbps"}, "4.125 GB/s"),
        ({"nic": "400 GB/s"}, "3,200 Gbit/s"),
        ({"scaleup": "9000 GB/s"}, "9,000 GB/s"),
    ],
)
def test_values_that_read_well_but_look_wrong_are_doubted(change: dict[str, str], said: str) -> None:
    assert any(said in doubt for doubt in doubts(replace(SHEET, **change)))  # type: ignore[arg-type]


def test_a_plausible_sheet_raises_no_doubt() -> None:
    assert doubts(SHEET) == ()
    assert doubts(replace(SHEET, scaleup="32 GB/s", hbm_bandwidth="864 GB/s")) == ()  # a PCIe board
