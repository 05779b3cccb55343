"""Erlang B and C against tables and against their own recursions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pddplan.errors import InputError
from pddplan.queueing.erlang import erlang_b, erlang_c


def exact_erlang_b(servers: int, offered: Fraction) -> Fraction:
    """B(c) = a B(c - 1) / (c + a B(c - 1)) in rational numbers (Cooper 1981, section 3.3)."""
    blocking = Fraction(1)
    for c in range(1, servers + 1):
        blocking = offered * blocking / (c + offered * blocking)
    return blocking


def test_erlang_c_of_two_servers_at_one_erlang_is_a_third() -> None:
    assert float(erlang_c(2, 1.0)) == pytest.approx(1 / 3, rel=1e-14)


@pytest.mark.parametrize(
    ("servers", "offered", "blocking"), [(5, 1.36, 0.01), (10, 4.46, 0.01), (20, 12.03, 0.01), (50, 37.90, 0.01), (100, 84.06, 0.01)]
)
def test_erlang_b_reproduces_the_traffic_tables_at_one_per_cent(servers: int, offered: float, blocking: float) -> None:
    """Published loads (Erlang B table, e.g. Cooper 1981 appendix) carry two decimals, hence 1 %."""
    assert float(erlang_b(servers, offered)) == pytest.approx(blocking, rel=0.01)


@pytest.mark.parametrize(("servers", "offered"), [(1, 0.5), (3, 2.9), (40, 60.0), (200, 190.0), (120, 20000.0), (7, 1e-3)])
def test_erlang_b_equals_the_exact_rational_recursion(servers: int, offered: float) -> None:
    assert float(erlang_b(servers, offered)) == pytest.approx(float(exact_erlang_b(servers, Fraction(offered))), rel=1e-10)


def test_thousands_of_servers_stay_finite_and_near_the_heavy_traffic_limit() -> None:
    """Halfin and Whitt 1981: with c = a + beta sqrt(a), C tends to 1 / (1 + beta Phi(beta) / phi(beta)); beta = 1."""
    offered = 10_000.0
    limit = 1.0 / (1.0 + 0.8413447460685429 / 0.24197072451914337)
    assert float(erlang_c(offered + np.sqrt(offered), offered)) == pytest.approx(limit, rel=0.01)


def test_non_integer_servers_lie_between_their_neighbours_and_follow_the_same_recursion() -> None:
    a = 7.3
    c = np.array([9.0, 9.4, 10.0])
    assert np.all(np.diff(erlang_c(c, a)) < 0)
    previous = erlang_b(8.4, a)
    assert float(erlang_b(9.4, a)) == pytest.approx(float(a * previous / (9.4 + a * previous)), rel=1e-12)


def test_empty_and_overloaded_systems_answer_zero_and_one() -> None:
    assert float(erlang_c(4, 0.0)) == 0.0
    assert float(erlang_c(4, 4.0)) == 1.0
    assert float(erlang_b(0, 3.0)) == 1.0


def test_a_negative_load_is_named() -> None:
    with pytest.raises(InputError, match="offered"):
        erlang_b(3, -1.0)


@given(st.integers(1, 2000), st.floats(0.01, 0.999))
def test_another_server_never_raises_the_probability_of_waiting(servers: int, utilisation: float) -> None:
    offered = servers * utilisation
    waiting = erlang_c([servers, servers + 1], offered)
    assert 0.0 <= waiting[1] <= waiting[0] <= 1.0
