"""The front of cost against latency: nothing beats a point of it, and each is what a plain search finds under its ceiling."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from pddplan.api import load_scenario
from pddplan.errors import InfeasibleError
from pddplan.optimize.search import Effort, Search
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pipeline import plan
from pddplan.report.document import Figure
from pddplan.report.html import render
from pddplan.report.planning_page import fleet_text, pareto_document, pareto_headline, pareto_page, pareto_table
from pddplan.scenario.schema import Scenario
from pddplan.studies.pareto import LATENCIES, ParetoFront, pareto


@pytest.fixture(scope="module")
def front(two_rooms: Scenario) -> ParetoFront:
    return pareto(two_rooms, points=5)


def test_every_point_is_what_a_plain_search_finds_under_its_ceiling(front: ParetoFront, two_rooms: Scenario) -> None:
    assert len(front.points) >= 3
    assert front.points[0].ceiling is None
    for point in front.points:
        ceiling = [] if point.ceiling is None else [f"workload.classes.c.sla.ttft.p99={point.ceiling} s"]
        assert point.x == pytest.approx(plan(load_scenario(two_rooms, ceiling), explain=False).evaluation.metrics.cost_usd_per_h, rel=1e-3)


def test_the_whole_model_says_the_same_of_every_point(front: ParetoFront, two_rooms: Scenario) -> None:
    context = PlanContext.from_scenario(two_rooms)
    for point in front.points:
        metrics = evaluate(context, point.evaluation.decision).metrics
        assert (metrics.cost_usd_per_h, metrics.ttft_p99_s) == (point.x, point.y)


def test_no_plan_with_one_more_instance_or_circuit_lies_under_the_front(front: ParetoFront, two_rooms: Scenario) -> None:
    """Neighbours of the points, judged by the whole model: none is both cheaper and faster than a point."""
    context = PlanContext.from_scenario(two_rooms)
    for point in front.points:
        decision = point.evaluation.decision
        for i, pool in enumerate(decision.pools):
            for step in (-1, 1):
                if pool.instances + step < 1:
                    continue
                pools = [*decision.pools]
                pools[i] = replace(pool, instances=pool.instances + step)
                found = evaluate(context, replace(decision, pools=tuple(pools)))
                x, y = found.metrics.cost_usd_per_h, found.metrics.ttft_p99_s
                assert not found.feasible or not any(x < p.x * (1 - 1e-9) and y < p.y for p in front.points)


def test_a_latency_under_the_last_ceiling_has_no_plan(front: ParetoFront, two_rooms: Scenario) -> None:
    (note,) = front.notes
    limit = note.removeprefix("no plan reaches ttft_p99_s under ").removesuffix(" s")
    assert float(limit) < front.points[-1].y
    lower = load_scenario(two_rooms, [f"workload.classes.c.sla.ttft.p99={0.99 * float(limit)} s"])
    assert Search.of(PlanContext.from_scenario(lower), Effort()).run().best is None


@pytest.mark.slow
@pytest.mark.parametrize("y", LATENCIES)
@pytest.mark.parametrize("x", ["gpus", "usd_per_million_output_tokens"])
def test_every_pair_of_metrics_gives_a_falling_front_that_keeps_the_scenarios_limits(one_room: Scenario, x: str, y: str) -> None:
    points = pareto(one_room, x, y, 3).points
    assert all(a.x < b.x and a.y > b.y for a, b in pairwise(points))
    for point in points:
        assert point.evaluation.feasible
        assert point.ceiling is None or point.y <= point.ceiling
        assert (getattr(point.evaluation.metrics, x), getattr(point.evaluation.metrics, y)) == (point.x, point.y)


@pytest.mark.slow
def test_a_limit_of_the_scenario_is_the_highest_ceiling(one_room: Scenario) -> None:
    free, bound = pareto(one_room, points=2), pareto(load_scenario(one_room, ["workload.classes.c.sla.ttft.p99=0.5 s"]), points=2)
    assert free.points[0].y > 0.5 >= bound.points[0].y
    assert bound.points[0].x > free.points[0].x


@pytest.mark.slow
def test_a_scenario_without_a_plan_says_what_stands_in_the_way(one_room: Scenario) -> None:
    with pytest.raises(InfeasibleError):
        pareto(load_scenario(one_room, ["workload.rate=500 req/s"]))


def test_headline_table_and_document_tell_the_points(front: ParetoFront, two_rooms: Scenario) -> None:
    document = pareto_document(front, two_rooms)
    assert [(p["x"], p["y"], p["ceiling"]) for p in document["points"]] == [(p.x, p.y, p.ceiling) for p in front.points]
    assert [p["metrics"]["cost_usd_per_h"] for p in document["points"]] == pytest.approx([p.x for p in front.points])
    first, last = front.points[0], front.points[-1]
    assert f"{len(front.points)} plans" in pareto_headline(front)
    assert f"rises {100 * (last.x / first.x - 1):.3g}" in pareto_headline(front)
    rows = pareto_table(front).rows
    assert [row[:2] for row in rows] == [(p.x, p.y) for p in front.points]
    for row, point in zip(rows, front.points, strict=True):
        assert all(f"{pool.instances} x {pool.configuration.gpus_per_instance}" in str(row[-1]) for pool in point.evaluation.decision.pools)
        assert f"{point.evaluation.decision.links[0].circuits} circuit" in str(row[-1])


def test_a_front_of_one_point_is_called_best_on_both(front: ParetoFront) -> None:
    assert pareto_headline(replace(front, points=front.points[:1])).startswith("one plan is best on both: cost_usd_per_h")


def test_the_page_draws_every_point_and_names_every_plan(front: ParetoFront) -> None:
    page = pareto_page(front, "two rooms")
    (figure,) = [block for block in page.blocks() if isinstance(block, Figure)]
    assert list(zip(figure.traces[0]["x"], figure.traces[0]["y"], strict=True)) == [(p.x, p.y) for p in front.points]
    html = render(page)
    assert all(fleet_text(point.evaluation.decision) in html for point in front.points)
    assert front.notes[0] in html
