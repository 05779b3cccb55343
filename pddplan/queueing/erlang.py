"""Erlang B and C, for any real number of servers up to tens of thousands.

Sources: Erlang 1917; continuous extension 1/B(c, a) = a int_0^inf e^{-a x} (1 + x)^c dx (Jagerman 1974), which for the
Poisson law is B = p(c; a) / Q(c + 1, a), Q the regularised upper incomplete gamma function; C = B / (1 - rho (1 - B)).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincc, gammaln

from pddplan.errors import InputError, Problem

FloatArray = NDArray[np.float64]

_UNDERFLOW = 1e-200
_SERIES_TERMS = 20_000


def require_non_negative(**values: ArrayLike) -> None:
    """Raise InputError that names every argument holding a negative number or NaN."""
    problems = [
        Problem(name, f"{np.min(np.asarray(value, dtype=float))} is not a number of 0 or more", "0 or more", "1")
        for name, value in values.items()
        if not np.all(np.asarray(value, dtype=float) >= 0)
    ]
    if problems:
        raise InputError(problems)


def _inverse_series(c: FloatArray, a: FloatArray) -> FloatArray:
    """1/B = 1 + c/a + c (c - 1)/a^2 + ..., for offered load far above the servers, where it falls geometrically."""
    total, term = np.ones_like(a), np.ones_like(a)
    for k in range(_SERIES_TERMS):
        term = np.where(c - k > 0, term * (c - k) / a, 0.0)
        total += term
        if np.all(term <= 1e-17 * total):
            break
    return total


def erlang_b(servers: ArrayLike, offered: ArrayLike) -> FloatArray:
    """Probability that all ``servers`` are busy in a loss system offered ``offered`` Erlang; shapes broadcast."""
    require_non_negative(servers=servers, offered=offered)
    c, a = (np.array(x, dtype=float) for x in np.broadcast_arrays(servers, offered))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        some_served = gammaincc(c + 1.0, a)
        blocking = np.asarray(np.exp(c * np.log(a) - a - gammaln(c + 1.0)) / some_served)
    far = np.asarray(~(some_served > _UNDERFLOW))
    if far.any():
        blocking[far] = 1.0 / _inverse_series(c[far], a[far])
    return np.where(c == 0.0, 1.0, np.where(a == 0.0, 0.0, blocking))


def erlang_c(servers: ArrayLike, offered: ArrayLike) -> FloatArray:
    """Probability of waiting in M/M/c; 1 where the load is not below the servers (everyone waits, for ever)."""
    c, a = (np.array(x, dtype=float) for x in np.broadcast_arrays(servers, offered))
    blocking = erlang_b(c, a)
    with np.errstate(divide="ignore", invalid="ignore"):
        waiting = blocking / (1.0 - a / c * (1.0 - blocking))
    return np.where(a >= c, 1.0, np.where(a == 0.0, 0.0, waiting))
