"""The tornado: every bar against planning a scenario in which the moved input is written down."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pddplan.api import load_scenario
from pddplan.errors import InfeasibleError
from pddplan.optimize.search import Effort, Search
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.report.document import Figure
from pddplan.report.html import render
from pddplan.report.planning_page import sensitivity_document, sensitivity_headline, sensitivity_page, sensitivity_table
from pddplan.scenario.schema import Scenario
from pddplan.studies.sensitivity import Sensitivity, drivers, kept_swings, sensitivity, with_prices

SPREAD = 0.25
WRITTEN = {
    "price of h100-sxm": lambda f: [f"sites.A.chips[0].price={2 * f} USD/h"],
    "price of h20-96": lambda f: [f"sites.B.chips[0].price={1 * f} USD/h"],
    "price of lines": lambda f: [f"links.A-B.price={20 * f} USD/Gbps/month"],
    "line bandwidth": lambda f: [f"links.A-B.usable={0.72 * f}"],
    "demand": lambda f: [f"workload.rate={4 * f} req/s"],
    "uncached tokens (miss rate)": lambda f: [f"workload.classes.c.hit_rate={1 - 0.5 * f}"],
    "output length": lambda f: [f"workload.classes.c.output_tokens={300 * f:g}"],
}


@pytest.fixture(scope="module")
def scenario(two_rooms: Scenario) -> Scenario:
    return load_scenario(two_rooms, ["links.A-B.usable=0.72"])


@pytest.fixture(scope="module")
def study(scenario: Scenario) -> Sensitivity:
    return sensitivity(scenario, SPREAD)


def test_every_driver_of_the_scenario_has_a_bar(study: Sensitivity) -> None:
    assert {swing.driver for swing in study.swings} == set(WRITTEN)


@pytest.mark.parametrize("driver", WRITTEN)
def test_a_bar_is_what_planning_the_written_scenario_gives(driver: str, study: Sensitivity, scenario: Scenario) -> None:
    swing = next(swing for swing in study.swings if swing.driver == driver)
    for factor, replanned, kept in zip((1 - SPREAD, 1 + SPREAD), swing.replanned, swing.kept, strict=True):
        context = PlanContext.from_scenario(load_scenario(scenario, WRITTEN[driver](factor)))
        best = Search.of(context, Effort()).run().best
        assert best is not None
        assert replanned == pytest.approx(best.evaluation.metrics.cost_usd_per_h, rel=5e-3)
        same = evaluate(context, study.evaluation.decision)
        assert kept == (pytest.approx(same.metrics.cost_usd_per_h) if same.feasible else None)


def test_planning_again_is_never_worse_than_keeping_the_plan(study: Sensitivity) -> None:
    for swing in study.swings:
        for replanned, kept in zip(swing.replanned, swing.kept, strict=True):
            assert kept is None or (replanned is not None and replanned <= kept * (1 + 1e-9))


@pytest.mark.slow
def test_an_input_without_which_there_is_no_plan_has_the_widest_bar(one_room: Scenario) -> None:
    study = sensitivity(load_scenario(one_room, ["sites.A.chips[0].stock=3"]), 0.9)
    first = study.swings[0]
    assert None in first.replanned
    assert first.span == math.inf
    row = next(row for row in sensitivity_table(study).rows if row[0] == first.driver)
    assert row[2] == "no plan"
    assert row[4] == "misses a limit"


def test_without_hits_there_is_no_miss_rate_and_without_lines_no_line_to_move(one_room: Scenario) -> None:
    cold = PlanContext.from_scenario(load_scenario(one_room, ["workload.classes.c.hit_rate=0"]))
    assert set(drivers(cold)) == {"price of h100-sxm", "demand", "output length"}


def test_one_chips_price_leaves_the_others_alone(scenario: Scenario) -> None:
    context = PlanContext.from_scenario(scenario)
    assert with_prices(context, 3.0, "h20-96").prices_usd_h == {("A", "h100-sxm"): 2.0, ("B", "h20-96"): 3.0}
    assert with_prices(context, 3.0).prices_usd_h == {("A", "h100-sxm"): 6.0, ("B", "h20-96"): 3.0}


def test_a_kept_plan_at_both_ends_is_what_the_whole_model_says(study: Sensitivity, scenario: Scenario) -> None:
    kept = {swing.driver: swing for swing in kept_swings(PlanContext.from_scenario(scenario), study.evaluation.decision, spread=SPREAD)}
    for swing in study.swings:
        for evaluation, value in zip(kept[swing.driver].evaluations, swing.kept, strict=True):
            assert evaluation.feasible == (value is not None)
            assert value is None or evaluation.metrics.cost_usd_per_h == pytest.approx(value)


@pytest.mark.slow
def test_a_scenario_without_a_plan_has_no_tornado(one_room: Scenario) -> None:
    with pytest.raises(InfeasibleError):
        sensitivity(load_scenario(one_room, ["workload.rate=500 req/s"]))


def test_headline_table_and_document_tell_the_bars(study: Sensitivity, scenario: Scenario) -> None:
    document = sensitivity_document(study, scenario)
    assert [swing["driver"] for swing in document["swings"]] == [swing.driver for swing in study.swings]
    assert document["base"] == study.base == document["metrics"]["cost_usd_per_h"]
    assert sensitivity_headline(study).endswith(f"it moves most with {study.swings[0].driver}")
    for row, swing in zip(sensitivity_table(study).rows, study.swings, strict=True):
        low, high = swing.replanned
        assert row[:3] == (swing.driver, f"{100 * (low / study.base - 1):+.1f} %", f"{100 * (high / study.base - 1):+.1f} %")
        assert (row[4] == "misses a limit") == (swing.kept[1] is None)
    unmet = replace(study, swings=(replace(study.swings[0], replanned=(None, None)), *study.swings[1:]))
    assert sensitivity_table(unmet).rows[0][1:3] == ("no plan", "no plan")


def test_the_page_draws_a_bar_for_every_end_that_has_a_plan(study: Sensitivity) -> None:
    ends = [(replace(study.swings[0], replanned=(None, study.swings[0].replanned[1]))), *study.swings[1:]]
    page = sensitivity_page(replace(study, swings=tuple(ends)), "two rooms")
    (figure,) = [block for block in page.blocks() if isinstance(block, Figure)]
    low, high = figure.traces
    assert low["x"] == [swing.driver for swing in study.swings[1:]]
    assert high["x"] == [swing.driver for swing in study.swings]
    assert high["y"] == pytest.approx([100 * (swing.replanned[1] / study.base - 1) for swing in study.swings])
    html = render(page)
    assert "no plan" in html
    assert all(driver in html for driver in WRITTEN)
