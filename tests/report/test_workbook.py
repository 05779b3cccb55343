"""The what-if workbook: stored values, live formulas, and LibreOffice as the independent recalculation."""

from __future__ import annotations

import io
import math
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_plan import COMMAND, HOSTILE_NAME, evaluated

from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Decision
from pddplan.report.formula import Live, floor, interpolated, maximum, minimum, neutralised, round_up, total, where
from pddplan.report.spreadsheet import workbook, workbook_source
from pddplan.studies.response import with_hit_rate, with_traffic

SHEETS = [
    "Read me", "Inputs", "Plan", "Full model", "Cost", "Capacity", "Bandwidth", "Latency", "Bathtub", "Sensitivity",
    "Assumptions", "Equations",
]


@pytest.fixture(scope="module")
def source(planned):
    return workbook_source(*planned, COMMAND)


@pytest.fixture(scope="module")
def data(source) -> bytes:
    return workbook(source)


def cells(book: Any) -> dict[str, Any]:
    """Value of every defined name."""
    found = {}
    for name, defined in book.defined_names.items():
        sheet, address = next(iter(defined.destinations))
        found[name] = book[sheet][address.replace("$", "")].value
    return found


def recalculated(data: bytes, folder: Path, changes: dict[str, float] | None = None) -> Any:
    """The workbook after LibreOffice has recalculated it, with named inputs changed."""
    book = openpyxl.load_workbook(io.BytesIO(data))
    for name, value in (changes or {}).items():
        sheet, address = next(iter(book.defined_names[name].destinations))
        book[sheet][address.replace("$", "")].value = value
    path = folder / "plan.xlsx"
    book.save(path)
    out = folder / "out"
    profile = f"-env:UserInstallation=file://{folder}/profile"
    command = ["soffice", profile, "--headless", "--convert-to", "xlsx", "--outdir", str(out), str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return openpyxl.load_workbook(out / "plan.xlsx", data_only=True)


def test_sheets_stand_in_the_order_of_a_reader(data):
    assert openpyxl.load_workbook(io.BytesIO(data)).sheetnames == SHEETS


def test_every_formula_has_its_value_stored(data):
    formulas, values = openpyxl.load_workbook(io.BytesIO(data)), openpyxl.load_workbook(io.BytesIO(data), data_only=True)
    count = 0
    for sheet in formulas:
        for row in sheet.iter_rows():
            for cell in row:
                if isinstance(cell.value, str) and cell.value.startswith("="):
                    count += 1
                    assert isinstance(values[sheet.title][cell.coordinate].value, int | float), (sheet.title, cell.coordinate)
    assert count > 300


def test_stored_numbers_are_those_of_the_evaluation(data, planned):
    stored = cells(openpyxl.load_workbook(io.BytesIO(data), data_only=True))
    metrics = planned[1].evaluation.metrics
    assert stored["cost_per_hour"] == pytest.approx(metrics.cost_usd_per_h, rel=1e-9)
    assert stored["bcr_value"] == pytest.approx(metrics.bcr, rel=1e-9)
    assert stored["goodput_rps"] == pytest.approx(metrics.goodput_rps, rel=1e-9)
    assert stored["cost_per_million_output"] == pytest.approx(metrics.usd_per_million_output_tokens, rel=1e-9)
    assert stored["line_1_needed_gbps"] == pytest.approx(metrics.line_gbps_needed, rel=1e-9)
    for i, pool in enumerate(planned[1].evaluation.pools):
        assert stored[f"pool_{i + 1}_load"] == pytest.approx(pool.utilisation, rel=1e-9)
    for name in ("ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "tpot_mean_s", "tpot_p99_s"):
        assert stored[name] == pytest.approx(getattr(metrics, name), rel=1e-9)


def test_no_user_text_becomes_a_formula(data):
    book = openpyxl.load_workbook(io.BytesIO(data))
    texts = [cell.value for sheet in book for row in sheet.iter_rows() for cell in row if isinstance(cell.value, str)]
    assert any(HOSTILE_NAME in text for text in texts)
    assert not any(text.startswith("=") and "alert" in text for text in texts)
    assert neutralised("=1+1") == "'=1+1"
    assert neutralised("@SUM(A1)") == "'@SUM(A1)"
    assert neutralised("plain") == "plain"


@pytest.mark.office
@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
class TestLibreOffice:
    def test_recalculates_every_formula_to_the_stored_value(self, data, tmp_path):
        formulas, stored = openpyxl.load_workbook(io.BytesIO(data)), openpyxl.load_workbook(io.BytesIO(data), data_only=True)
        other = recalculated(data, tmp_path)
        for sheet in formulas:
            for row in sheet.iter_rows():
                for cell in row:
                    if isinstance(cell.value, str) and cell.value.startswith("="):
                        mine, theirs = (book[sheet.title][cell.coordinate].value for book in (stored, other))
                        assert theirs == pytest.approx(mine, rel=1e-6, abs=1e-9), (sheet.title, cell.coordinate, cell.value)

    def test_prices_circuits_and_counts_follow_exactly(self, data, planned, tmp_path):
        prices = {"pool_1_price": 3.1, "pool_3_price": 2.9, "line_1_price": 300}
        changes = prices | {"line_1_circuits": 2, "pool_1_instances": 4, "pool_3_instances": 10}
        after = cells(recalculated(data, tmp_path, changes))
        context, _ = evaluated(
            {"sites.A.chips[0].price": "3.1 USD/h", "sites.B.chips[0].price": "2.9 USD/h", "links.A-B.price": "300 USD/Gbps/month"}
        )
        decision = planned[1].evaluation.decision
        pools = tuple(replace(pool, instances=n) for pool, n in zip(decision.pools, (4, 1, 10), strict=True))
        changed: Decision = replace(decision, pools=pools, links=(replace(decision.links[0], circuits=2),))
        truth = evaluate(context, changed)
        # the RLD pool costs its stated price: only P and MD prices were changed in the file
        rld = 32 * (3.1 - 2.0)
        assert after["cost_per_hour"] == pytest.approx(truth.metrics.cost_usd_per_h - rld, rel=1e-9)
        assert after["pool_1_load"] == pytest.approx(truth.pools[0].utilisation, rel=0.02)
        assert after["pool_3_load"] == pytest.approx(truth.pools[2].utilisation, rel=0.05)

    def test_premium_makes_other_rooms_dearer(self, data, planned, tmp_path):
        after = cells(recalculated(data, tmp_path, {"price_premium": 0.2}))
        evaluation = planned[1].evaluation
        there = sum(r.cost_usd_per_h for r in evaluation.pools if r.pool.configuration.site == "B")
        assert after["cost_per_hour"] == pytest.approx(evaluation.metrics.cost_usd_per_h + 0.2 * there, rel=1e-9)
        assert after["bcr_value"] == pytest.approx(evaluation.metrics.goodput_rps / after["cost_per_hour"], rel=1e-9)

    @pytest.mark.parametrize(
        ("change", "model"),
        [
            ({"demand_rps": 9.0}, lambda context, decision: evaluate(context, decision, 9.0 / 11.5)),
            ({"hit_rate": 0.965}, lambda context, decision: evaluate(with_hit_rate(context, 0.965), decision)),
            ({"output_tokens": 700.0}, lambda context, decision: evaluate(with_traffic(context, output_scale=0.7), decision)),
        ],
    )
    def test_traffic_changes_follow_the_full_model(self, data, planned, tmp_path, change, model):
        """One input off the grid points: loads within 3 %, line within 2 %, goodput within 5 % (linear between evaluations)."""
        after = cells(recalculated(data, tmp_path, change))
        truth = model(planned[0], planned[1].evaluation.decision)
        for i, pool in enumerate(truth.pools):
            if planned[1].evaluation.pools[i].utilisation > 0.05:
                assert after[f"pool_{i + 1}_load"] == pytest.approx(truth.pools[i].utilisation, rel=0.03), pool.pool.configuration.role
        assert after["line_1_mean_gbps"] == pytest.approx(truth.metrics.line_gbps_mean, rel=0.02)
        assert after["goodput_rps"] == pytest.approx(truth.metrics.goodput_rps, rel=0.05)

    def test_bathtub_follows_its_coefficients_exactly(self, data, source, tmp_path):
        changes = {"token_price_cached": 0.2, "attention_s_per_pair": 3e-9, "output_tokens": 500.0}
        book = recalculated(data, tmp_path, changes)
        form = source.bathtub
        fixed = form.fixed_s / form.output_tokens * 500.0
        changed = replace(form, prices=replace(form.prices, hit=0.2), attention_s_per_pair=3e-9, output_tokens=500.0, fixed_s=fixed)
        sheet = book["Bathtub"]
        rows = [row for row in sheet.iter_rows(values_only=True) if isinstance(row[0], int | float) and isinstance(row[4], int | float)]
        assert len(rows) == 51
        for hit_rate, revenue, _, _, benefit, *_ in rows:
            assert benefit == pytest.approx(float(changed.benefit(hit_rate)), rel=1e-6)
            assert revenue == pytest.approx(float(changed.revenue(hit_rate)), rel=1e-6)


numbers = st.floats(-1e3, 1e3, allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(numbers, numbers.filter(lambda x: abs(x) > 1e-3))
def test_a_live_value_is_what_its_text_says(x, y):
    a, b = Live.named("a", x), Live.named("b", y)
    functions = {"MAX": max, "MIN": min, "SUM": lambda *v: math.fsum(v), "IF": lambda c, p, q: p if c else q, "INT": math.floor}
    python = {"a": x, "b": y, **functions}
    for live in (a + b, a - b, a * b, 2 - a, 3 * b, maximum(a, b, 0), minimum(a, 1), total([a, b]), where(a, "<", b, a, b), floor(a), a**2):
        text = live.text.replace("^", "**")
        assert eval(text, {}, python) == pytest.approx(live.value, rel=1e-12, abs=1e-9)
    assert (a / b).value == x / y
    assert (a / Live.named("zero", 0.0)).value == 0.0


@given(st.floats(-5, 15), st.lists(st.floats(0, 10), min_size=2, max_size=6, unique=True), st.data())
def test_interpolation_holds_its_ends_and_is_linear_between(x, grid, data):
    grid = sorted(grid)
    if min(b - a for a, b in pairwise(grid)) < 1e-6:
        return
    values = data.draw(st.lists(st.floats(-10, 10), min_size=len(grid), max_size=len(grid)))
    live = interpolated(Live.named("x", x), [Live.of(g) for g in grid], [Live.of(v) for v in values], "g", "v")
    assert live.value == pytest.approx(float(np.interp(x, grid, values)), abs=1e-6)


def test_round_up_forgives_a_hair():
    assert round_up(Live.named("a", 2.0000000001)).value == 2.0
    assert round_up(Live.named("a", 2.1)).value == 3.0
