"""estimate, backtest and calibrate from the command line."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml

from pddplan.cli import run

SERVERS = Path(__file__).parents[2] / "benchmarks" / "data" / "servers.csv.gz"
ONE = ["--model", "Qwen/Qwen3-32B", "--chip", "h100-sxm", "--tp", "4", "--isl", "4k", "--osl", "500"]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    table = pd.read_csv(SERVERS)
    table[(table.engine == "vllm") & (table.family == "Kimi-K2.5") & (table["mode"] == "agg")].iloc[:24].to_csv(path, index=False)
    return path


def _json(capsys):
    return json.loads(capsys.readouterr().out)


def test_one_server_in_a_closed_loop(capsys):
    assert run(["estimate", *ONE, "--concurrency", "32", "--json", "-"]) == 0
    found = _json(capsys)
    shares = sum(part["share"] for part in found["decode_step"])
    assert shares == pytest.approx(1.0)
    assert all(part["binding"] for part in found["decode_step"] + found["prefill"])
    low, high = found["band"]["tpot_s"]
    assert low < found["metrics"]["tpot_s"] < high
    assert found["kv"]["limit_requests"] > 32


def test_one_server_under_poisson_arrivals_waits_longer_when_more_come(capsys):
    ttft = []
    for rate in ("0.5", "1.5", "2.5"):
        assert run(["estimate", *ONE, "--rate", rate, "--json", "-"]) == 0
        ttft.append(_json(capsys)["metrics"]["ttft_s"])
    assert ttft == sorted(ttft)


def test_a_server_that_cannot_keep_up_says_so(capsys):
    assert run(["estimate", *ONE, "--rate", "500"]) == 0
    shown = capsys.readouterr()
    assert "Unstable" in shown.out
    assert "unstable: 500 requests/s arrive" in shown.err


def test_missing_options_are_all_named(capsys):
    assert run(["estimate", "--model", "Qwen/Qwen3-32B"]) == 2
    error = capsys.readouterr().err
    assert all(option in error for option in ("--chip", "--isl", "--osl", "--concurrency"))


def test_speculation_needs_a_measured_acceptance_length(capsys):
    assert run(["estimate", *ONE, "--concurrency", "8", "--draft-tokens", "2"]) == 2
    assert "--acceptance-length" in capsys.readouterr().err


def test_weights_that_do_not_fit_are_refused(capsys):
    assert (
        run(
            [
                "estimate",
                "--model",
                "deepseek-ai/DeepSeek-V3",
                "--chip",
                "h200-sxm",
                "--tp",
                "2",
                "--isl",
                "1k",
                "--osl",
                "1k",
                "--rate",
                "1",
            ]
        )
        == 2
    )
    assert "does not fit" in capsys.readouterr().err


def test_a_table_in_and_a_table_out(tmp_path, rows):
    out = tmp_path / "pred.csv"
    assert run(["estimate", str(rows), "--out", str(out)]) == 0
    found = pd.read_csv(out)
    assert list(found.columns) == ["row", "ttft_ms", "tpot_ms", "output_tok_s_per_gpu", "basis", "warning"]
    assert len(found) == 24
    assert run(["estimate", str(rows), "--out", str(out)]) == 2  # no overwriting without --force


def test_backtest_writes_a_page_and_its_numbers(tmp_path, rows, capsys):
    page = tmp_path / "page.html"
    assert run(["backtest", str(rows), "--report", str(page), "--json", "-"]) == 0
    errors = _json(capsys)["errors"]
    assert set(errors) == {"overall", "engine", "chip", "model", "requests in flight"}
    assert errors["overall"][0]["coverage"] == 1.0
    assert "<svg" in page.read_text() or "plotly" in page.read_text()


def test_calibrate_writes_an_overlay_that_estimate_takes_as_engine(tmp_path, rows, capsys):
    overlay = tmp_path / "mine.yaml"
    assert run(["calibrate", str(rows), "-o", str(overlay), "--json", "-"]) == 0
    found = _json(capsys)
    assert set(found["errors_percent"]) == {"shipped", "calibrated", "leave_one_group_out"}
    assert yaml.safe_load(overlay.read_text())["engine"] == "vllm"
    assert run(["estimate", *ONE, "--engine", str(overlay), "--concurrency", "8", "--json", "-"]) == 0
    assert _json(capsys)["server"]["engine"] == str(overlay)


def test_one_output_token_has_no_tpot(capsys):
    single = [*ONE[:-1], "1"]
    for load in (["--concurrency", "4"], ["--rate", "0.5"]):
        assert run(["estimate", *single, *load, "--json", "-"]) == 0
        found = _json(capsys)
        assert found["metrics"]["tpot_s"] is None
        assert found["band"]["tpot_s"] == [None, None]
        assert found["metrics"]["ttft_s"] > 0
        assert found["metrics"]["requests_per_s"] > 0
        assert any("not defined" in warning for warning in found["warnings"])
    assert run(["estimate", *single, "--concurrency", "4"]) == 0
    shown = capsys.readouterr().out
    assert "TPOT not defined" in shown
    assert "Unstable" not in shown


def test_a_row_of_one_output_token_is_answered_with_an_empty_tpot(tmp_path, rows, capsys):
    table = pd.read_csv(rows).iloc[:3].assign(osl=[1, 1, 200], measured_tpot_ms=[float("nan"), 9.0, 9.0])
    path = tmp_path / "one.csv"
    table.to_csv(path, index=False)
    assert run(["estimate", str(path), "--out", str(tmp_path / "out.csv")]) == 0
    found = pd.read_csv(tmp_path / "out.csv")
    assert list(found["tpot_ms"].isna()) == [True, False, False]
    assert found["ttft_ms"].notna().all()
    assert (found["basis"] != "none").all()
    assert list(found["warning"].fillna("").str.contains("not defined")) == [True, True, False]


def test_numbers_print_as_people_read_them(capsys):
    for load in (["--concurrency", "4000"], ["--rate", "5000"], ["--concurrency", "1"]):
        assert run(["estimate", *ONE, *load]) == 0
        shown = capsys.readouterr().out
        assert not re.search(r"\d(e\+?\d|\d{3}%)", shown), shown
        assert re.search(r"\(\d+(\.\d+)? GB, \d+(\.\d+)? (MB|GB) each\)", shown), shown


def test_a_rate_may_carry_its_unit(capsys):
    found = []
    for rate in ("1", "1 req/s", "60 req/min"):
        assert run(["estimate", *ONE, "--rate", rate, "--json", "-"]) == 0
        found.append(_json(capsys))
    assert found[0] == found[1] == found[2]


def test_wrong_values_are_reported_under_their_option(capsys):
    for option, value, expected in (("--rate", "0", "1 req/s"), ("--precision", "fp3", "fp8"), ("--kv-dtype", "fp3", "bf16")):
        load = [] if option == "--rate" else ["--concurrency", "4"]
        assert run(["estimate", *ONE, *load, option, value]) == 2
        error = capsys.readouterr().err
        assert f"error: {option}: " in error
        assert expected in error
        assert "1024" not in error


@pytest.mark.parametrize("name", ["rows.yaml", "rows.csv"])
def test_a_file_that_is_no_table_gives_one_line(tmp_path, name, capsys):
    path = tmp_path / name
    path.write_text("name: x\nmodel:\n  name: Qwen/Qwen3-32B\nsites: {A: {chips: [a, b, c]}}\n")
    assert run(["estimate", str(path)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_requests_longer_than_the_model_reads_are_doubted(tmp_path, rows, capsys):
    long = [*ONE[:-3], "60k", *ONE[-2:]]
    assert run(["estimate", *long, "--concurrency", "4"]) == 0
    assert "exceeds the 40,960 positions of Qwen/Qwen3-32B" in " ".join(capsys.readouterr().err.split())
    assert run(["estimate", *ONE, "--concurrency", "4"]) == 0
    assert "positions" not in capsys.readouterr().err
    path = tmp_path / "long.csv"
    pd.read_csv(rows).iloc[:2].assign(isl=[1000, 900_000]).to_csv(path, index=False)
    assert run(["estimate", str(path), "--out", str(tmp_path / "out.csv")]) == 0
    assert list(pd.read_csv(tmp_path / "out.csv")["warning"].fillna("").str.contains("positions of the model")) == [False, True]
