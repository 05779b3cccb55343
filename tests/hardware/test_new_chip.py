"""A new chip from the numbers on its sheet, and the balance of chips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
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


REFUSED = {
    "name": {"name": " "},
    "bf16": {"bf16": "-1 TFLOPS"},
    "fp8": {"fp8": "yes"},
    "hbm": {"hbm": "0 GB"},
    "hbm_bandwidth": {"hbm_bandwidth": "3.35 TB"},
    "scaleup": {"scaleup": "0 GB/s"},
    "domain": {"domain": -8},
    "nic": {"nic": "400"},
    "tdp": {"tdp": "700 V"},
    "price": {"price": "2.5 USD/GB"},
    "kind": {"kind": "rumour"},
}


@pytest.mark.parametrize("place", REFUSED)
def test_each_option_is_refused_alone_under_its_own_name_with_an_example_that_is_accepted(place: str) -> None:
    with pytest.raises(InputError) as caught:
        chip_file_text(replace(SHEET, **REFUSED[place]))
    (problem,) = caught.value.problems
    assert problem.place == place
    example = int(problem.example) if place == "domain" else problem.example
    assert chip_file_text(replace(SHEET, **{place: example}))


SHEETS = st.builds(
    ChipSheet,
    name=st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1).filter(lambda text: text.strip()),
    bf16=st.integers(1, 10_000).map("{} TFLOPS".format),
    fp8=st.one_of(st.just("none"), st.integers(1, 20_000).map("{} TFLOPS".format)),
    hbm=st.integers(1, 1000).map("{} GB".format),
    hbm_bandwidth=st.integers(1, 50_000).map("{} GB/s".format),
    scaleup=st.integers(1, 5000).map("{} GB/s".format),
    domain=st.integers(1, 1000),
    nic=st.integers(1, 3200).map("{} Gbps".format),
    tdp=st.integers(1, 5000).map("{} W".format),
    price=st.one_of(st.just(""), st.integers(1, 100).map("{} USD/h".format), st.integers(1, 100_000).map("{} USD".format)),
    kind=st.sampled_from(["datasheet", "measured", "secondary", "assumed"]),
    source=st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1).filter(lambda text: text.strip()),
    date=st.sampled_from(["", "2026-11-30"]),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sheet=SHEETS)
def test_any_sheet_reads_back_number_by_number_with_its_source(sheet: ChipSheet, tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    path.write_text(chip_file_text(sheet), encoding="utf-8")
    chip = load_chip(str(path))

    def number(text: str) -> float:
        return float(text.split()[0])

    assert chip.name == sheet.name
    assert chip.peak_flops["bf16"].value == pytest.approx(number(sheet.bf16) * 1e12)
    assert ("fp8" in chip.peak_flops) == (sheet.fp8 != "none")
    read = {
        "hbm": (chip.hbm_bytes, 1e9), "hbm_bandwidth": (chip.hbm_bytes_per_s, 1e9), "scaleup": (chip.scaleup_bytes_per_s, 1e9),
        "nic": (chip.scaleout_bytes_per_s, 0.125e9), "tdp": (chip.tdp_w, 1.0),
    }  # fmt: skip
    for option, (found, unit) in read.items():
        assert found.value == pytest.approx(number(getattr(sheet, option)) * unit)
        assert (found.kind, found.source, found.date) == (sheet.kind, sheet.source, sheet.date)
    assert chip.scaleup_domain.value == sheet.domain
    if sheet.price:
        (name, price), *rest = chip.prices.items()
        assert (name, price.value, rest) == ("rent_usd_h" if "/h" in sheet.price else "purchase_usd", number(sheet.price), [])


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
