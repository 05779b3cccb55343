"""The formulation on paper: one golden LP file per constraint family, and what the solver is told and asked."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from pddplan.optimize import milp
from pddplan.optimize.milp import Limits, solve_cost, solve_goodput, solve_ratio
from pddplan.optimize.program import GrowCut, Market, Option, PairCut, PointCut, Program, Purchase, Resource, Row, UpCut
from pddplan.optimize.program import Path as Way
from pddplan.optimize.statement import cost_expression, state

GOLDEN = Path(__file__).parent / "golden"


def option(name, pool="P", loads=None, most=3, each=2.0, price=1.0, uses=None, bend=0.0, divisible=False):
    n = np.arange(1, most + 1)
    used = {resource: n * float(gpus) for resource, gpus in (uses or {}).items()}
    return Option(name, pool, loads or {"demand": 1.0}, n, n * each + bend * n * (n - 1), n * price, used, divisible)


def program(*options, **more):
    rows = more.pop("rows", (Row("demand", {"path": 5.0}),))
    markets = more.pop("markets", (Market("all", 5.0),))
    paths = more.pop("paths", (Way("path", "all"),))
    return Program(markets, paths, rows, options, **more)


FAMILIES = {
    "columns": program(option("linear"), option("bent", bend=0.5)),
    "keep": program(option("new"), option("old", price=9.0), keep=(("old",),)),
    "markets": program(
        option("a"),
        markets=(Market("all", 5.0, 0.5, 2.0, exclusive=True),),
        paths=(Way("path", "all"), Way("other", "all", 0.9)),
        rows=(Row("demand", {"path": 5.0, "other": 3.0}),),
    ),
    "parts": program(
        option("a", loads={"here": 1.0}),
        option("b", loads={"there": 1.0}),
        option("c", pool="MD"),
        markets=(Market("all", 5.0, 1.0, 1.0, exclusive=True, parts=2, part_min=0.02),),
        paths=(Way("path", "all"), Way("other", "all"), Way("third", "all")),
        rows=(Row("demand", {"path": 5.0, "other": 5.0}), Row("here", {"path": 5.0}), Row("there", {"other": 3.0, "third": 3.0})),
    ),
    "needed": program(
        option("a", loads={"here": 1.0}),
        option("b", pool="Q", loads={"there": 1.0}),
        option("old", pool="Q", loads={"there": 1.0}),
        markets=(Market("all", 5.0, 1.0, 1.0, exclusive=True),),
        paths=(Way("path", "all"), Way("other", "all")),
        rows=(Row("here", {"path": 5.0}), Row("there", {"other": 3.0})),
        keep=(("old",),),
        idle=frozenset({"old"}),
    ),
    "alike": program(
        option("a"),
        markets=(Market("one", 5.0, 0.5, 1.0), Market("two", 3.0, 0.5, 1.0)),
        paths=(Way("path", "one"), Way("second", "two")),
        rows=(Row("demand", {"path": 5.0, "second": 3.0}),),
        one_scale=True,
    ),
    "shared": program(option("a", loads={"short": 0.5, "long": 1.0}), rows=(Row("short", {"path": 1.0}), Row("long", {"path": 2.0}))),
    "resources": program(option("a", uses={"stock": 8}), resources=(Resource("stock", 16.0),)),
    "pools": program(option("a"), option("b"), option("c", pool="MD"), max_options={"P": 1}),
    "terms": program(
        option("fleet", most=1, each=9.0, price=0.0, uses={"night": 2, "day": 6}),
        purchases=(Purchase("gpus", ("night", "day"), (0.5, 0.5), 1.0, 5.0, 2.5, 1.5, 0.5),),
    ),
    "budget": program(option("a"), budget_usd_per_h=2.0),
    "cuts": program(
        option("a"),
        option("b", pool="MD"),
        cuts=(GrowCut({"a": 2}), PointCut({"a": 3, "b": 1}), PairCut(("a", "b")), UpCut({"a": 2, "b": 2})),
    ),
}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_lp_of_each_constraint_family_is_as_written_down(family, tmp_path):
    model = state(FAMILIES[family])
    model.problem.setObjective(cost_expression(model))
    written = tmp_path / f"{family}.lp"
    model.problem.writeLP(str(written))
    golden = GOLDEN / f"{family}.lp"
    assert written.read_text() == golden.read_text(), f"if the change is meant: cp {written} {golden}"


def test_names_that_an_lp_file_cannot_hold_stay_unique():
    model = state(program(option("H100 [all]"), option("H100 {all}"), option("H100 (all)")))
    names = [v.name for v in model.problem.variables()]
    assert len(names) == len(set(names))


def test_every_constraint_family_has_its_golden_file():
    assert {path.stem for path in GOLDEN.glob("*.lp")} == set(FAMILIES)


@pytest.mark.parametrize("spot", [None, 0.9])
@pytest.mark.parametrize("reserved_max", [None, 3])
def test_buying_by_term_is_as_cheap_as_trying_every_reservation(spot, reserved_max):
    used, share = [2, 7, 4], [0.5, 0.3, 0.2]
    purchase = Purchase("gpus", ("x", "y", "z"), tuple(share), 1.0, reserved_max, 2.5, spot, 0.5)
    fleet = Option(
        "fleet", "fleet", {"demand": 1.0}, np.array([1]), np.array([9.0]), np.array([0.0]),
        {name: np.array([float(gpus)]) for name, gpus in zip("xyz", used, strict=True)},
    )  # fmt: skip
    found = solve_cost(program(fleet, purchases=(purchase,)))

    def by_use(gpus, reserved):
        over = max(gpus - reserved, 0)
        on_spot = min(over, gpus // 2) if spot is not None else 0
        return on_spot * (spot or 0.0) + (over - on_spot) * 2.5

    reservations = range((reserved_max or max(used)) + 1)
    expected = min(r + sum(w * by_use(g, r) for g, w in zip(used, share, strict=True)) for r in reservations)
    assert found.objective == pytest.approx(expected)


def test_a_time_limit_returns_the_incumbent_with_its_gap_or_says_that_there_is_none():
    rng = np.random.default_rng(7)
    sizes = rng.integers(20, 90, 60)
    options = [option(f"o{i}", pool=f"p{i}", most=4, each=float(s), price=float(s + rng.integers(0, 9))) for i, s in enumerate(sizes)]
    hard = program(*options, rows=(Row("demand", {"path": float(sizes.sum())}),))
    best = solve_cost(hard, Limits(gap=0.05))
    assert best.gap <= 0.05
    assert best.bound <= best.objective
    assert best.status == ("optimal" if best.gap == 0 else "feasible")


def test_the_certificate_of_the_ratio_holds_when_the_solver_stops_early():
    options = [option(f"o{i}", pool=f"p{i}", each=1.0 + 0.1 * i, price=1.0 + 0.13 * i) for i in range(12)]
    market = (Market("all", 5.0, 0.2, 3.0),)
    exact = solve_ratio(program(*options, markets=market))
    rough = solve_ratio(program(*options, markets=market), Limits(gap=0.2))
    assert rough.objective <= exact.objective * (1 + 1e-9) <= rough.bound * (1 + 1e-9)
    assert rough.bound == pytest.approx(rough.objective + rough.ratio_bound_step)


def test_a_plan_of_no_cost_has_no_ratio():
    with pytest.raises(ValueError, match="cost"):
        solve_ratio(program(option("free", price=0.0)))


def test_most_goodput_comes_at_the_least_cost_that_gives_it():
    cheap, dear = option("cheap", price=1.0, most=2), option("dear", pool="Q", price=5.0, most=2)
    found = solve_goodput(program(cheap, dear, markets=(Market("all", 5.0, 0.0, 0.8),)))
    assert found.objective == pytest.approx(4.0)
    assert found.counts == {"cheap": 2}


def test_large_programs_are_relaxed_first_and_agree_with_the_exact_answer(monkeypatch):
    options = [option(f"o{i}", pool="P", most=12, each=1.0 + 0.05 * i, price=1.0 + 0.06 * i, bend=0.003) for i in range(8)]
    large = program(*options, rows=(Row("demand", {"path": 23.0}),))
    exact = solve_cost(large)
    monkeypatch.setattr(milp, "LARGE", 10)
    relaxed = solve_cost(large, Limits(gap=0.01))
    assert relaxed.bound <= exact.objective * (1 + 1e-9)
    assert exact.objective <= relaxed.objective * (1 + 1e-9)
    assert relaxed.gap <= 0.01


def test_solutions_satisfy_the_capacity_they_report():
    for combination in itertools.product((1.0, 2.5), (0.0, 0.2)):
        each, bend = combination
        built = option("a", each=each, bend=bend, most=6)
        found = solve_cost(program(built))
        count = found.counts["a"]
        assert built.capacity[count - 1] >= 5.0
        assert count == 1 or built.capacity[count - 2] < 5.0
