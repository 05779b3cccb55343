"""The solver against an exhaustive search, on hundreds of random small programs; and what must hold whatever the program."""

from __future__ import annotations

import itertools
from dataclasses import replace

import brute_force
import pytest
from hypothesis import HealthCheck, assume, given, settings
from programs import programs

from pddplan.optimize.dominance import drop_dominated
from pddplan.optimize.milp import solve_cost, solve_goodput, solve_ratio
from pddplan.optimize.program import GrowCut, PairCut, PointCut, UpCut

many = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


deep = settings(many, max_examples=400)


def value(solution):
    return None if solution is None else solution.objective


def same(found, expected):
    return found is expected is None or (found is not None and expected is not None and found == pytest.approx(expected, rel=1e-6))


@many
@given(programs())
def test_least_cost_equals_brute_force(program):
    assert same(value(solve_cost(program)), brute_force.least_cost(program))


@many
@given(programs(scalable=True))
def test_most_goodput_equals_brute_force(program):
    assert same(value(solve_goodput(program)), brute_force.best_goodput(program))


@many
@given(programs(scalable=True))
def test_dinkelbach_equals_exhaustive_search(program):
    cheapest = solve_cost(program)
    assume(cheapest is None or cheapest.cost_usd_per_h > 0)
    solution = solve_ratio(program)
    assert same(value(solution), brute_force.best_ratio(program))
    if solution is not None:
        assert solution.bound >= solution.objective
        assert solution.gap < 1e-6


@many
@given(programs(scalable=True))
def test_dropping_dominated_columns_changes_no_optimum(program):
    fewer = drop_dominated(program)
    assert fewer.columns <= program.columns
    for solve in (solve_cost, solve_goodput):
        assert same(value(solve(fewer)), value(solve(program)))


@many
@given(programs(scalable=True))
def test_cuts_exclude_what_they_say_and_nothing_else(program):
    assume(all(rate > 0 for row in program.rows for rate in row.rates.values()))
    solution = solve_cost(program)
    assume(solution is not None and solution.counts)
    for cut in (GrowCut(solution.counts), PointCut(solution.counts), UpCut(solution.counts), PairCut(tuple(solution.counts))):
        with_cut = replace(program, cuts=(cut,))
        again = solve_cost(with_cut)
        assert same(value(again), brute_force.least_cost(with_cut))
        assert same(value(solve_cost(drop_dominated(with_cut))), value(again))
        assert again is None or again.objective >= solution.objective - 1e-9


@many
@given(programs())
def test_relaxing_anything_never_costs_more(program):
    solution = solve_cost(program)
    assume(solution is not None)
    looser = [
        replace(program, resources=tuple(replace(r, limit=r.limit + 1) for r in program.resources)),
        replace(program, max_options={}),
        replace(program, budget_usd_per_h=None),
        replace(program, rows=tuple(replace(r, rates={p: 0.9 * v for p, v in r.rates.items()}) for r in program.rows)),
        replace(program, options=tuple(replace(o, capacity=o.capacity * 1.1) for o in program.options)),
    ]
    for other in looser:
        assert solve_cost(other).objective <= solution.objective * (1 + 1e-9)


@many
@given(programs())
def test_a_division_that_may_leave_parts_empty_never_costs_more_than_fewer_parts(program):
    """Of a market whose parts have no least size, more of them are a relaxation: the further ones may carry nothing."""
    (market,) = program.markets
    assume(market.exclusive and len(program.paths) > 1)
    costs = []
    for parts in range(1, len(program.paths) + 1):
        solution = solve_cost(replace(program, markets=(replace(market, parts=parts, part_min=0.0),)))
        costs.append(float("inf") if solution is None else solution.objective)
    assert all(more <= fewer * (1 + 1e-9) for fewer, more in itertools.pairwise(costs))


@many
@given(programs(scalable=True))
def test_the_budget_is_a_hard_cap(program):
    capped = replace(program, budget_usd_per_h=10.0)
    for solve in (solve_cost, solve_goodput, solve_ratio):
        try:
            solution = solve(capped)
        except ValueError:
            continue
        if solution is not None:
            assert solution.cost_usd_per_h <= 10.0 + 1e-6


@many
@given(programs(scalable=True))
def test_scaling_prices_scales_the_cost_and_the_same_program_gives_the_same_plan(program):
    assume(program.budget_usd_per_h is None)
    dearer = replace(program, options=tuple(replace(o, cost_usd_per_h=o.cost_usd_per_h * 3) for o in program.options))
    first, again, scaled = solve_cost(program), solve_cost(program), solve_cost(dearer)
    assert first == again
    assert (first is None) == (scaled is None)
    if first is not None:
        assert scaled.objective == pytest.approx(3 * first.objective, rel=1e-6)


@pytest.mark.slow
@deep
@given(programs(scalable=True))
def test_all_three_objectives_equal_brute_force_on_hundreds_of_programs(program):
    assert same(value(solve_goodput(program)), brute_force.best_goodput(program))
    cheapest = solve_cost(program)
    assert same(value(cheapest), brute_force.least_cost(program))
    if cheapest is None or cheapest.cost_usd_per_h > 0:
        assert same(value(solve_ratio(program)), brute_force.best_ratio(program))
