"""Refitting a shipped overlay to a user's own rows: factors on its constants, only those that the rows can tell apart.

theta_c = log(own / shipped constant). Posterior precision of theta is J'J + shrinkage / spread^2 (Gauss-Newton at the
start); a constant is identifiable where that narrows its spread to less than ``NARROWED`` of the prior's. The others stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from pddplan.roofline.fit import CONSTANTS, BenchmarkRows, Constant, predict_with, residuals_of
from pddplan.roofline.overlay import Overlay, as_float
from pddplan.roofline.terms import FloatArray

NARROWED = 0.7
STEP = 1e-3


@dataclass(frozen=True)
class Refinement:
    """``factors`` on the shipped constants; ``narrowing``: posterior over prior spread of every constant that was tried."""

    factors: dict[str, float]
    narrowing: dict[str, float]
    shrinkage: float


def scaled(base: Overlay, names: Sequence[str], theta: FloatArray) -> Overlay:
    """``base`` with the constants ``names`` multiplied by exp(theta)."""
    values = {name: getattr(base, name) for name in Overlay.names()}
    for name, value in zip(names, theta, strict=True):
        values[name] = as_float(values[name]) * np.exp(value)
    return Overlay(**values)


def _residuals(
    tables: Sequence[tuple[BenchmarkRows, Overlay]], constants: Sequence[Constant], theta: FloatArray, shrinkage: float
) -> FloatArray:
    names = [c.name for c in constants]
    parts = [residuals_of(rows, scaled(base, names, theta)) for rows, base in tables]
    spread = np.array([c.spread for c in constants])
    return np.concatenate([*parts, np.sqrt(shrinkage) * theta / spread])


def identifiable(tables: Sequence[tuple[BenchmarkRows, Overlay]], shrinkage: float = 1.0) -> dict[str, float]:
    """Posterior over prior spread of each constant, at the shipped values (1: the rows say nothing about it)."""
    zero = np.zeros(len(CONSTANTS))
    base = _residuals(tables, CONSTANTS, zero, shrinkage)
    jacobian = np.empty((len(base), len(CONSTANTS)))
    for i in range(len(CONSTANTS)):
        moved = zero.copy()
        moved[i] = STEP
        jacobian[:, i] = (_residuals(tables, CONSTANTS, moved, shrinkage) - base) / STEP
    covariance = np.linalg.inv(jacobian.T @ jacobian)
    prior = np.array([c.spread for c in CONSTANTS]) / np.sqrt(shrinkage)
    return {c.name: float(s) for c, s in zip(CONSTANTS, np.sqrt(np.diag(covariance)) / prior, strict=True)}


def refine(tables: Sequence[tuple[BenchmarkRows, Overlay]], shrinkage: float = 1.0) -> Refinement:
    """Factors of the identifiable constants that fit the rows best. Rows come with the shipped constants of each."""
    narrowing = identifiable(tables, shrinkage)
    chosen = [c for c in CONSTANTS if narrowing[c.name] < NARROWED]
    if not chosen:
        return Refinement({}, narrowing, shrinkage)

    def residuals(theta: FloatArray) -> FloatArray:
        return _residuals(tables, chosen, theta, shrinkage)

    result = least_squares(residuals, np.zeros(len(chosen)), method="trf", max_nfev=20)
    return Refinement({c.name: float(np.exp(x)) for c, x in zip(chosen, result.x, strict=True)}, narrowing, shrinkage)


def held_out(
    tables: Sequence[tuple[BenchmarkRows, Overlay]], groups: Sequence[NDArray[np.int64]], shrinkage: float = 1.0
) -> list[tuple[FloatArray, FloatArray]]:
    """(tpot_s, ttft_s) of every row, predicted by a refinement that has not seen the row's group."""
    out = [(np.empty(len(g)), np.empty(len(g))) for g in groups]
    for name in np.unique(np.concatenate(groups)):
        train = [
            (rows.take(np.flatnonzero(g != name)), base.take(np.flatnonzero(g != name)))
            for (rows, base), g in zip(tables, groups, strict=True)
        ]
        factors = refine([pair for pair in train if len(pair[0].tpot_s)], shrinkage).factors
        for (rows, base), g, (tpot, ttft) in zip(tables, groups, out, strict=True):
            index = np.flatnonzero(g == name)
            if len(index):
                own = scaled(base.take(index), list(factors), np.log(list(factors.values())))
                state = predict_with(rows.take(index), own)
                tpot[index], ttft[index] = state.tpot_s, state.ttft_s
    return out
