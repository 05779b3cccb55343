"""The search of a box against trying every point, on random monotone oracles."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pddplan.optimize.box import Assessment, best_in_box

many = settings(max_examples=150, deadline=None, derandomize=True)


@st.composite
def oracles(draw):
    """(lower, upper, unit costs, assess): feasible where every weighted sum reaches its need, share rising to 1."""
    axes = draw(st.integers(1, 3))
    lower = tuple(draw(st.integers(0, 3)) for _ in range(axes))
    upper = tuple(low + draw(st.integers(0, 5)) for low in lower)
    costs = tuple(draw(st.integers(1, 9)) for _ in range(axes))
    needs = draw(st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=axes, max_size=axes), st.integers(0, 12)), max_size=3))
    pace = draw(st.sampled_from([0.0, 0.1, 1.0]))

    def assess(point):
        feasible = all(sum(w * x for w, x in zip(weights, point, strict=True)) >= need for weights, need in needs)
        return Assessment(feasible, 1.0 - 0.5 * math.exp(-pace * sum(point)))

    return lower, upper, costs, assess


def by_trying(lower, upper, worth, assess):
    points = itertools.product(*(range(a, b + 1) for a, b in zip(lower, upper, strict=True)))
    return max((worth(p, assess(p).share) for p in points if assess(p).feasible), default=None)


@many
@given(oracles(), st.booleans())
def test_the_box_search_finds_what_trying_every_point_finds(oracle, ratio):
    lower, upper, costs, assess = oracle

    def worth(point, share):
        cost = 1.0 + sum(c * x for c, x in zip(costs, point, strict=True))
        return share / cost if ratio else -cost

    expected = by_trying(lower, upper, worth, assess)
    found = best_in_box(lower, upper, worth, assess)
    assert found.complete
    if expected is None:
        assert found.best is None
    else:
        assert found.worth == pytest.approx(expected)
        near = best_in_box(lower, upper, worth, assess, slack=0.1)
        assert near.worth >= expected - 0.1 * abs(near.bound) - 1e-12
        assert near.bound >= expected - 1e-12
        few = best_in_box(lower, upper, worth, assess, calls=3)
        assert few.bound >= expected - 1e-12
        assert best_in_box(lower, upper, worth, assess, cutoff=expected).best is None
