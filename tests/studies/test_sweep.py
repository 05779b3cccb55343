"""Sweeps: what is varied, what is drawn, and that a killed run goes on."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pddplan import load_scenario
from pddplan.errors import InputError
from pddplan.report.html import render
from pddplan.report.sweep_page import sweep_lines, sweep_page
from pddplan.studies import sweep as module
from pddplan.studies.sweep import Journal, grid, parse_vary, run_point, sample, sweep


@pytest.fixture(scope="module")
def scenario():
    return load_scenario("pdd-88-vs-43-32")


def test_lists_grids_and_units_are_read():
    assert parse_vary("links.A-B.circuit=10Gbps,25Gbps").choices == ("10Gbps", "25Gbps")
    assert parse_vary("workload.rate=1 req/s:3 req/s:3").choices == ("1req/s", "2req/s", "3req/s")
    assert parse_vary("search.tp=[1,2],[4]").choices == ("[1,2]", "[4]")
    assert parse_vary("workload.rate=1:3").law == ("uniform", (1.0, 3.0), "")


BAD = ["rate", "rate=", "rate=1:2:0", "rate=2:1", "rate=1:2:3:4", "rate=normal(1)", "rate=1 s:2 ms", "rate=x:2:3"]


@pytest.mark.parametrize("text", BAD)
def test_bad_ranges_say_what_is_accepted(text):
    with pytest.raises(InputError, match="--vary"):
        grid([parse_vary(text)]).__next__()


def test_a_grid_is_the_product_last_value_fastest():
    points = list(grid([parse_vary("a=1,2"), parse_vary("b=x,y")]))
    assert points == [{"a": "1", "b": "x"}, {"a": "1", "b": "y"}, {"a": "2", "b": "x"}, {"a": "2", "b": "y"}]


@pytest.mark.parametrize("method", ["sobol:256", "latin:256", "random:4000"])
def test_samples_follow_their_laws_and_are_the_same_each_time(method):
    varied = [parse_vary(text) for text in ("a=normal(10, 2)", "b=lognormal(5, 0.5)", "c=2 ms:6 ms", "d=triangular(0, 1, 4)")]
    points = list(sample(varied, method))
    assert points == list(sample(varied, method))
    drawn = {name: np.array([float(point[name].removesuffix("ms")) for point in points]) for name in "abcd"}
    assert np.mean(drawn["a"]) == pytest.approx(10, abs=0.15)
    assert np.std(drawn["a"]) == pytest.approx(2, rel=0.1)
    assert np.median(drawn["b"]) == pytest.approx(5, rel=0.06)
    assert np.mean(drawn["c"]) == pytest.approx(4, abs=0.1)
    assert np.mean(drawn["d"]) == pytest.approx(5 / 3, abs=0.08)
    assert points[0]["c"].endswith("ms")


@given(st.sampled_from(["sobol", "latin", "random"]), st.integers(1, 70))
def test_a_sample_has_as_many_points_as_asked(name, number):
    assert len(list(sample([parse_vary("a=1:2")], f"{name}:{number}"))) == number


def test_a_failing_point_is_a_row_and_not_an_end(scenario):
    row = run_point(scenario, {"workload.rate": "minus one"})
    assert row["status"] == "input"
    assert "workload.rate" in row["reason"]


def test_a_killed_sweep_goes_on_where_it_stopped(scenario, tmp_path, monkeypatch):
    points = list(grid([parse_vary("workload.rate=7 req/s,8 req/s,9 req/s")]))
    path = tmp_path / "out.csv.journal"
    calls = []
    run = module.run_point

    def dying(scenario, point):
        calls.append(point)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(scenario, point)

    monkeypatch.setattr(module, "run_point", dying)
    with pytest.raises(KeyboardInterrupt):
        sweep(scenario, points, Journal(path, "d"))
    assert len(path.read_text().splitlines()) == 1
    path.write_text(path.read_text() + '{"half a li')
    rows = sweep(scenario, points, Journal(path, "d"))
    assert len(calls) == 4
    assert rows == [run(scenario, point) for point in points]


def test_a_journal_of_another_scenario_is_refused(tmp_path):
    path = tmp_path / "j"
    path.write_text(json.dumps({"digest": "other", "key": "{}", "row": {}}) + "\n")
    with pytest.raises(InputError, match="another scenario"):
        Journal(path, "mine")


@pytest.mark.slow
def test_processes_give_the_same_rows(scenario, tmp_path):
    points = list(grid([parse_vary("workload.rate=7 req/s,8 req/s,9 req/s")]))
    assert sweep(scenario, points, Journal(tmp_path / "a", "d"), jobs=2) == sweep(scenario, points, Journal(tmp_path / "b", "d"))


def test_the_page_tells_how_often_the_service_levels_are_met(scenario, tmp_path):
    varied = [parse_vary("workload.rate=8 req/s,9.5 req/s")]
    rows = sweep(scenario, list(grid(varied)), Journal(tmp_path / "j", "d"))
    assert "service levels met at 50 % of the points" in list(sweep_lines(varied, rows))
    assert "How does BCR answer to workload.rate?" in render(sweep_page("x", varied, rows))
