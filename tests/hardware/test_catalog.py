"""Shipped profiles: what they say, where it comes from, and how names and files are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pddplan.errors import InputError
from pddplan.hardware import chip_price, compute_dtype, link_price, list_chips, list_links, load_chip, load_link, load_prices
from pddplan.hardware.link_file import read_link
from pddplan.hardware.nearest import MEASURED_CHIPS
from pddplan.model import load_model
from pddplan.model.parallel import check
from pddplan.model.spec import Parallel
from pddplan.units import GIB, TERA


def test_h100_memory_is_what_nvidia_smi_prints() -> None:
    """UNIT-01: 81,559 MiB = 85.52 GB = 79.65 GiB; never the 74.5 GiB of a decimal 80 GB."""
    hbm = load_chip("h100-sxm").hbm_bytes
    assert hbm.value == 81559 * 2**20
    assert hbm.value / 1e9 == pytest.approx(85.52, abs=0.005)
    assert hbm.value / GIB == pytest.approx(79.65, abs=0.005)
    assert hbm.kind == "measured"


@pytest.mark.parametrize(("name", "tflops"), [("h100-sxm", 989.0), ("h100-pcie", 756.5)])
def test_peaks_are_dense(name: str, tflops: float) -> None:
    """PERF-13: marketing prints 1,979 and 1,513 with sparsity."""
    assert load_chip(name).peak_flops["bf16"].value == tflops * TERA


@pytest.mark.parametrize("name", sorted(MEASURED_CHIPS))
def test_every_measured_chip_resolves_and_is_its_own_efficiency(name: str) -> None:
    chip = load_chip(name)
    assert (chip.efficiency_of, chip.efficiency_kind) == (name, "measured")


def test_chips_nobody_measured_say_that_their_efficiency_is_assumed() -> None:
    for chip in list_chips():
        assert chip.efficiency_of in MEASURED_CHIPS
        assert (chip.efficiency_kind == "measured") == (load_chip(chip.efficiency_of).slug == chip.slug)


def test_every_number_of_every_chip_has_a_source_and_a_date() -> None:
    assert len(list_chips()) == 67
    for chip in list_chips():
        rates = (chip.hbm_bytes, chip.hbm_bytes_per_s, chip.scaleup_bytes_per_s, chip.scaleup_domain, chip.scaleout_bytes_per_s)
        for number in (*rates, chip.tdp_w, *chip.peak_flops.values(), *chip.prices.values()):
            assert len(number.source) > 3, chip.slug
            assert number.source not in ("aic", "mem", "infx", "msm"), chip.slug
            assert number.date, chip.slug
        assert all(number.value for number in rates), chip.slug


def test_no_two_chips_or_lines_share_a_name() -> None:
    for profiles, load in ((list_chips(), load_chip), (list_links(), load_link)):
        for profile in profiles:
            for alias in (profile.slug, profile.name, *profile.aliases, profile.slug.upper(), profile.slug.replace("-", "_")):
                assert load(alias).slug == profile.slug, alias


@pytest.mark.parametrize(
    ("alias", "slug"),
    [
        ("H100 SXM", "h100-sxm"),
        ("H100", "h100-sxm"),
        ("b200_sxm", "b200"),
        ("910B", "ascend-910b"),
        ("昇腾910C", "ascend-910c"),
        ("H20", "h20-96"),
        ("A6000", "rtx-a6000"),
        ("RTX A6000 48GB", "rtx-a6000"),
        ("A100-40", "a100-40-sxm"),
        ("A100-80", "a100-80-sxm"),
        ("A100 PCIe 80 GB", "a100-80-pcie"),
        ("H800-80", "h800-sxm"),
        ("H20-96", "h20-96"),
        ("H20 141G", "h20-141"),
        ("B200-192", "b200"),
        ("b200 180 GB", "b200"),
        ("NVIDIA-H100-80GB-HBM3", "h100-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-40-sxm"),
        ("nvidia-geforce-rtx-3090", "rtx-3090"),
        ("rtx4090 24GB", "rtx-4090"),
        ("5090", "rtx-5090"),
        ("RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("A10 24GiB", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("Tesla T4", "t4"),
        ("Tesla-V100-SXM2-32GB", "v100-sxm2-32"),
        ("V100-SXM2-16GB", "v100-sxm2-16"),
        ("A40-48", "a40"),
        ("H100 NVL 94GB", "h100-nvl"),
        ("GH200", "gh200-96"),
        ("GH200-144", "gh200-144"),
        ("AMD Instinct MI300X 192GB", "mi300x"),
        ("910B-64G", "ascend-910b"),
    ],
)
def test_names_people_use_resolve(alias: str, slug: str) -> None:
    assert load_chip(alias).slug == slug


def test_an_unknown_chip_is_told_with_the_nearest_names() -> None:
    with pytest.raises(InputError) as caught:
        load_chip("h10-sxm")
    assert "h100-sxm" in caught.value.problems[0].accepted


@pytest.mark.parametrize(("name", "first"), [("h101", "h100-sxm"), ("rtx4090x", "rtx-4090"), ("mi308x", "mi300x")])
def test_nearest_names_are_the_ones_a_user_would_type(name: str, first: str) -> None:
    with pytest.raises(InputError, match=f"nearest: {first}.*profiles add"):
        load_chip(name)



@pytest.mark.parametrize("name", ["H100-64", "A100 120GB", "rtx 4090 48 GB"])
def test_a_memory_size_that_is_not_the_chips_is_told_with_its_own(name: str) -> None:
    with pytest.raises(InputError, match="GB; its size"):
        load_chip(name)


@pytest.mark.parametrize("name", ["", "NVIDIA", "80GB", "80", "nvidia hbm3", "GPU", " "])
def test_a_name_that_tells_no_chip_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="not a shipped chip"):
        load_chip(name)


@given(st.sampled_from([chip.slug for chip in list_chips()]), st.sampled_from(["NVIDIA {}", "{} GPU", "  {}", "{}_"]), st.booleans())
def test_the_makers_name_case_and_spaces_do_not_matter(slug: str, form: str, upper: bool) -> None:
    name = form.format(slug.replace("-", " "))
    assert load_chip(name.upper() if upper else name).slug == slug


def test_cards_without_a_switch_serve_tensor_parallel_inside_their_host() -> None:
    """Eight L40S run one model over PCIe, slowly; a second host is not part of the group."""
    model = load_model("Qwen/Qwen3-32B")
    for name in ("l40s", "rtx-pro-6000-server", "h100-pcie", "a10g"):
        assert not check(model, Parallel(tp=8), load_chip(name))
        assert [reason.rule for reason in check(model, Parallel(tp=16), load_chip(name))] == ["domain"]


def test_a_chip_older_than_bf16_computes_in_fp16_and_says_so() -> None:
    used, warning = compute_dtype(load_chip("t4"), "bf16")
    assert used == "fp16"
    assert warning is not None
    assert "no bf16" in warning
    assert compute_dtype(load_chip("v100"), "fp16") == ("fp16", None)


def test_a_chip_without_fp8_computes_in_the_next_wider_format_and_says_so() -> None:
    used, warning = compute_dtype(load_chip("a100-80-sxm"), "fp8_block")
    assert used == "bf16"
    assert warning is not None
    assert "no fp8" in warning
    assert compute_dtype(load_chip("h100-sxm"), "nvfp4")[0] == "fp8"
    assert compute_dtype(load_chip("b200"), "nvfp4") == ("fp4", None)
    assert compute_dtype(load_chip("a100-80-sxm"), "int4") == ("bf16", None)


def test_a_format_slower_than_a_wider_one_counts_as_missing() -> None:
    """B300 keeps 153.5 TFLOP/s of int8 beside 2,250 of bf16."""
    used, warning = compute_dtype(load_chip("b300"), "int8")
    assert used == "bf16"
    assert warning is not None


def test_an_unknown_format_is_an_input_error() -> None:
    with pytest.raises(InputError, match="fp7"):
        compute_dtype(load_chip("h100-sxm"), "fp7")


def test_a_price_range_is_no_price_until_a_point_of_it_is_named() -> None:
    chip = load_chip("h100-sxm")
    with pytest.raises(InputError, match=r"range, 1\.99 to 5"):
        chip_price(chip, "on_demand_usd_h")
    low, mid, high = (chip_price(chip, f"on_demand.{point}").amount for point in ("low", "mid", "high"))
    assert (low, mid, high) == (1.99, pytest.approx(3.495), 5.0)
    bought = chip_price(load_chip("h20-96"), "purchase_cny")
    assert (bought.amount, bought.currency, bought.basis) == (110000, "CNY", "purchase")


@pytest.mark.parametrize("source", ["spot_usd_h", "on_demand_usd_h.best", "purchase"])
def test_a_price_nobody_published_is_an_input_error(source: str) -> None:
    with pytest.raises(InputError):
        chip_price(load_chip("h20-96"), source)


def test_a_line_without_a_price_is_unknown_not_free() -> None:
    with pytest.raises(InputError, match="unknown"):
        link_price(load_link("us-west-asia"))
    assert link_price(load_link("beijing-shanghai")).value == 300
    assert link_price(load_link("china-metro-wave"), "high").value == 85


def test_api_prices_keep_hit_miss_and_output_apart() -> None:
    price = load_prices().api_tokens["deepseek-v4-pro"]
    assert (price.hit_usd_per_million.value, price.miss_usd_per_million.value, price.output_usd_per_million.value) == (
        0.003625,
        0.435,
        0.87,
    )
    assert price.hit_ratio == pytest.approx(1 / 120)


def test_unknown_price_books_are_told() -> None:
    with pytest.raises(InputError, match="reference"):
        load_prices("referense")


GOOD = """\
name: Lab Chip
peak_tflops: {bf16: 500, fp8: 1000}
hbm_bytes: 100e9
hbm_gbyte_per_s: 3000
scaleup_gbyte_per_s_per_dir: 200
scaleup_domain: 8
scaleout_gbit_per_s: 400
"""


def test_a_users_own_chip_works_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "my chip.yaml").write_text(GOOD, encoding="utf-8")
    chip = load_chip("my chip.yaml", tmp_path)
    assert (chip.slug, chip.hbm_bytes.value, chip.peak_flops["fp8"].value) == ("my chip", 100e9, 1e15)
    assert (chip.hbm_bytes.kind, chip.efficiency_kind) == ("assumed", "assumed")


def test_all_faults_of_a_chip_file_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    bad = GOOD.replace("bf16: 500", "bf16: -1").replace("3000", ".inf").replace("scaleup_domain: 8", "scaleup_domain: 1.5")
    path = tmp_path / "bad.yaml"
    path.write_text(bad + "nic_speed: 3\nscaleup_domain: 8\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_chip(str(path))
    told = "\n".join(map(str, caught.value.problems))
    for part in ("bad.yaml:2", "bf16", "bad.yaml:4", "inf", "nic_speed", "scaleup_domain"):
        assert part in told


@pytest.mark.parametrize("text", ["", "- a\n", "name: [", "name: x\n"])
def test_what_is_no_chip_file_is_an_input_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError):
        load_chip(str(path))


WRONG = {
    "colour: red": "colour",
    "status: 3": "status",
    "vendor: ''": "vendor",
    "aliases: one": "aliases",
    "notes: [1]": "notes",
    "gpus_per_node: 0": "gpus_per_node",
    "gpus_per_node: true": "gpus_per_node",
    "prices: 3": "prices",
    "prices: {rent: 3}": "prices.rent",
    "tdp_w: [700]": "tdp_w",
    "tdp_w: {value: 700, source: sheet}": "tdp_w.kind",
    "tdp_w: {value: 700, kind: datasheet}": "tdp_w.source",
    "tdp_w: {value: 700, kind: rumour, source: sheet}": "tdp_w.kind",
    "tdp_w: {value: 700, kind: datasheet, source: sheet, note: [x]}": "tdp_w.note",
    "tdp_w: {value: 700, low: 600, kind: datasheet, source: sheet}": "tdp_w",
    "tdp_w: {value: 700, low: 800, high: 600, kind: datasheet, source: sheet}": "tdp_w",
    "tdp_w: {value: 700, kind: datasheet, source: sheet, colour: red}": "tdp_w.colour",
    "efficiency_of: a_better_one": "efficiency_of",
}


@pytest.mark.parametrize("line", WRONG)
def test_each_fault_of_a_chip_file_is_told_alone_at_its_place(tmp_path: Path, line: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"{GOOD}{line}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_chip(str(path))
    (problem,) = caught.value.problems
    assert problem.place == f"{path}:{GOOD.count(chr(10)) + 1} {WRONG[line]}"


def test_a_range_is_enough_where_no_value_is_needed_and_not_where_one_is(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    given = "{low: 600, high: 800, kind: datasheet, source: sheet}"
    path.write_text(f"{GOOD}prices: {{rent_usd_h: {given}}}\n", encoding="utf-8")
    rent = load_chip(str(path)).prices["rent_usd_h"]
    assert (rent.value, rent.low, rent.high) == (None, 600.0, 800.0)
    path.write_text(GOOD.replace("scaleup_domain: 8", f"scaleup_domain: {given}"), encoding="utf-8")
    with pytest.raises(InputError, match="no value"):
        load_chip(str(path))


def test_a_line_cannot_carry_more_than_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("name: x\ncircuit_gbit_per_s: 10\nusable: 1.2\n", encoding="utf-8")
    with pytest.raises(InputError, match="at most 1"):
        read_link(path)
    path.write_text("name: x\ncircuit_gbit_per_s: 10\nusable: 0.9\n", encoding="utf-8")
    assert read_link(path).circuit_bytes_per_s.value == 1.25e9


def test_a_missing_file_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        load_chip("nowhere.yaml")
