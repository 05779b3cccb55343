"""A plan for several futures, held against evaluating it in scenarios where each future is written down, and against trying all counts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from pddplan.api import load_scenario
from pddplan.errors import InfeasibleError, InputError
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Decision
from pddplan.pipeline import plan
from pddplan.report.document import Figure
from pddplan.report.html import render
from pddplan.report.planning_page import robust_document, robust_headline, robust_page, robust_table
from pddplan.scenario.schema import Scenario
from pddplan.studies.robust import Future, RobustPlan, futures, robust_plan

GRID = futures((1.0, 1.5), (1.0, 1.3))


@pytest.fixture(scope="module")
def found(two_rooms: Scenario) -> RobustPlan:
    return robust_plan(two_rooms, GRID)


def written(scenario: Scenario, future: Future) -> Scenario:
    """The scenario with the future's traffic in its text: 4 req/s that miss half of their prompts."""
    return load_scenario(
        scenario, [f"workload.rate={4 * future.demand} req/s", f"workload.classes.c.hit_rate={1 - 0.5 * future.uncached}"]
    )


def counted(decision: Decision, pools: tuple[int, ...], circuits: int) -> Decision:
    sized = tuple(replace(pool, instances=n) for pool, n in zip(decision.pools, pools, strict=True))
    return replace(decision, pools=sized, links=tuple(replace(link, circuits=circuits) for link in decision.links))


def test_the_plan_meets_every_limit_where_each_future_is_written_down(found: RobustPlan, two_rooms: Scenario) -> None:
    for result in found.results:
        judged = evaluate(PlanContext.from_scenario(written(two_rooms, result.future)), found.decision)
        assert judged.feasible
        assert judged.metrics.ttft_p99_s == pytest.approx(result.robust.metrics.ttft_p99_s, rel=1e-6)
        assert judged.metrics.cost_usd_per_h == pytest.approx(found.cost_usd_per_h)


@pytest.mark.slow
def test_each_futures_own_plan_is_what_a_plain_search_finds_for_it(found: RobustPlan, two_rooms: Scenario) -> None:
    for result in found.results:
        alone = plan(written(two_rooms, result.future), explain=False).evaluation
        assert result.own is not None
        assert result.own.metrics.cost_usd_per_h == pytest.approx(alone.metrics.cost_usd_per_h, rel=5e-3)
        assert result.own.metrics.cost_usd_per_h <= found.cost_usd_per_h * (1 + 1e-9)


def test_no_smaller_counts_of_its_configurations_hold_in_every_future(found: RobustPlan, two_rooms: Scenario) -> None:
    contexts = [PlanContext.from_scenario(written(two_rooms, future)) for future in GRID]
    pools = [pool.instances for pool in found.decision.pools]
    (link,) = found.decision.links
    for counts in itertools.product(*(range(max(n - 1, 1), n + 1) for n in pools), range(max(link.circuits - 1, 1), link.circuits + 1)):
        smaller = counted(found.decision, counts[:-1], counts[-1])
        judged = [evaluate(context, smaller) for context in contexts]
        if judged[0].metrics.cost_usd_per_h < found.cost_usd_per_h * (1 - 1e-9):
            assert not all(evaluation.feasible for evaluation in judged), counts


def test_the_price_of_robustness_is_over_the_plan_that_knows_only_today(found: RobustPlan, two_rooms: Scenario) -> None:
    today = plan(two_rooms, explain=False).evaluation
    assert found.price_of_robustness == pytest.approx(found.cost_usd_per_h / today.metrics.cost_usd_per_h - 1, abs=5e-3)
    assert found.price_of_robustness > 0
    failing = [f.name for f in GRID if not evaluate(PlanContext.from_scenario(written(two_rooms, f)), found.nominal.decision).feasible]
    assert list(found.nominal_fails) == failing != []


def test_worst_and_expected_bcr_are_those_of_the_futures(two_rooms: Scenario) -> None:
    chosen = (Future("calm", 0.9), Future("busy", 0.1, demand=1.5))
    found = robust_plan(two_rooms, chosen)
    bcr = [evaluate(PlanContext.from_scenario(written(two_rooms, future)), found.decision).metrics.bcr for future in chosen]
    assert found.expected_bcr == pytest.approx(0.9 * bcr[0] + 0.1 * bcr[1])
    assert found.worst_bcr == pytest.approx(min(bcr))


@pytest.mark.slow
def test_weights_move_the_expectation_and_never_the_plan(one_room: Scenario) -> None:
    plans = [robust_plan(one_room, (Future("calm", w), Future("busy", 1 - w, demand=1.4))) for w in (0.0, 0.5, 1.0)]
    assert len({found.decision for found in plans}) == 1
    busy, both, calm = (found.expected_bcr for found in plans)
    assert both == pytest.approx(0.5 * (busy + calm))
    assert plans[0].worst_bcr == min(busy, calm)


@pytest.mark.slow
def test_more_futures_never_make_it_cheaper(one_room: Scenario) -> None:
    costs = [robust_plan(one_room, futures((1.0, most), (1.0,))).cost_usd_per_h for most in (1.0, 1.5, 2.5)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


@pytest.mark.parametrize("future", [Future("x", 1.0, demand=0.0), Future("x", 1.0, uncached=-0.1), Future("x", 0.5)])
def test_a_future_without_traffic_or_with_half_a_weight_is_refused(one_room: Scenario, future: Future) -> None:
    with pytest.raises(InputError) as caught:
        robust_plan(one_room, (future,))
    assert [problem.place for problem in caught.value.problems] == ["futures"]


def test_a_future_that_nothing_serves_is_named(one_room: Scenario) -> None:
    with pytest.raises(InfeasibleError, match="demand x 100, uncached x 1"):
        robust_plan(one_room, futures((1.0, 100.0), (1.0,)))
    with pytest.raises(InfeasibleError, match="the scenario as it stands"):
        robust_plan(load_scenario(one_room, ["workload.rate=600 req/s"]), (Future("lull", 1.0, demand=0.01),))


@pytest.mark.slow
def test_stock_bounds_the_robust_plan_too(one_room: Scenario) -> None:
    """With the GPUs of the free robust plan in stock it stands; with one fewer a future has no plan, or none holds in all."""
    chosen = futures((1.0, 1.5), (1.0, 1.3))
    free = robust_plan(one_room, chosen)
    gpus = int(free.results[0].robust.metrics.gpus)
    assert robust_plan(load_scenario(one_room, [f"sites.A.chips[0].stock={gpus}"]), chosen).cost_usd_per_h == free.cost_usd_per_h
    with pytest.raises(InfeasibleError):
        robust_plan(load_scenario(one_room, [f"sites.A.chips[0].stock={gpus - 1}"]), chosen)


def test_headline_table_and_document_tell_the_futures(found: RobustPlan, two_rooms: Scenario) -> None:
    document = robust_document(found, two_rooms)
    assert [case["name"] for case in document["futures"]] == [future.name for future in GRID]
    assert sum(case["weight"] for case in document["futures"]) == pytest.approx(1.0)
    assert document["price_of_robustness"] == found.price_of_robustness
    assert document["nominal_fails"] == list(found.nominal_fails)
    headline = robust_headline(found)
    assert all(f"{pool.instances} x {pool.configuration.gpus_per_instance}" in headline for pool in found.decision.pools)
    assert f"misses a limit in {len(found.nominal_fails)} of {len(GRID)} futures" in headline
    assert "misses" not in robust_headline(replace(found, nominal_fails=()))
    for row, result in zip(robust_table(found).rows, found.results, strict=True):
        assert row[0] == result.future.name
        assert row[3:] == (result.robust.metrics.bcr, result.robust.metrics.ttft_p99_s, 100 * result.robust.metrics.p_good)


def test_the_page_sets_the_robust_plan_beside_each_futures_own(found: RobustPlan) -> None:
    page = robust_page(found, "two rooms")
    (figure,) = [block for block in page.blocks() if isinstance(block, Figure)]
    own, robust = (trace["y"] for trace in figure.traces)
    assert robust == [result.robust.metrics.bcr for result in found.results]
    assert all(best >= held * (1 - 1e-9) for best, held in zip(own, robust, strict=True))
    html = render(page)
    assert all(name in html for name in found.nominal_fails)
    assert robust_headline(found) in html
