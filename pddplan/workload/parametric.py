"""Atoms of a class given by laws of its lengths and hit rates.

Points are a rank-1 lattice: every margin is cut into equally likely strata and each stratum has exactly one point,
so quantiles are exact to 1/rows and the result is deterministic. A Gaussian copula gives rank correlation, after which
each margin is put back on its strata by rank (Iman and Conover, Commun. Stat. B 11 (1982) 311).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pddplan.workload.laws import Fixed, QuantileLaw
from pddplan.workload.mix import ClassRows

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman correlations of input length, hit rate and output length."""

    input_hit: float = 0.0
    input_output: float = 0.0
    hit_output: float = 0.0

    def normal_factor(self) -> FloatArray:
        """Factor A, A A' = correlations of the copula's normals, r = 2 sin(pi rho / 6), shape (3, 3).

        Raises ValueError when the three correlations cannot hold together.
        """
        a, b, c = (2 * math.sin(math.pi * rho / 6) for rho in (self.input_hit, self.input_output, self.hit_output))
        values, vectors = np.linalg.eigh(np.array([[1, a, b], [a, 1, c], [b, c, 1]], dtype=np.float64))
        if values.min() < -1e-9:
            raise ValueError(
                f"rank correlations input-hit {self.input_hit:g}, input-output {self.input_output:g} and "
                f"hit-output {self.hit_output:g} contradict one another"
            )
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)


NO_HITS = Fixed(0.0)
INDEPENDENT = RankCorrelation()


@dataclass(frozen=True)
class ClassLaws:
    """Laws of one class. md_hit_rate None: MD holds what P holds; else both are drawn at the same level."""

    input_tokens: QuantileLaw
    output_tokens: QuantileLaw
    hit_rate: QuantileLaw = NO_HITS
    md_hit_rate: QuantileLaw | None = None
    correlation: RankCorrelation = INDEPENDENT
    turns_per_task: float = 1.0


@lru_cache(maxsize=32)
def lattice_generator(rows: int) -> tuple[int, int, int]:
    """Korobov generator (1, a, a^2 mod rows), coprime to ``rows``, with the least P2 error among 61 candidates.

    Source: Sloan and Joe, Lattice Methods for Multiple Integration, 1994, section 4.2.
    """
    index = np.arange(rows)
    best, best_error = (1, 1, 1), math.inf
    candidates = (a for a in range(max(2, int(0.618 * rows)), 2 * rows + 3) if math.gcd(a % rows, rows) == 1)
    for _, a in zip(range(61), candidates, strict=False):
        generator = (1, a % rows, a * a % rows)
        x = np.stack([index * z % rows for z in generator]) / rows
        error = float(np.mean(np.prod(1 + 2 * math.pi**2 * (x * x - x + 1 / 6), axis=0)))
        if error < best_error:
            best, best_error = generator, error
    return best


def stratified_levels(rows: int, correlation: RankCorrelation) -> FloatArray:
    """Levels for input, hit rate and output, shape (3, rows): each is a permutation of (i + 1/2) / rows."""
    lattice = np.arange(rows) * np.array(lattice_generator(rows))[:, None] % rows
    levels = (lattice + 0.5) / rows
    if correlation == INDEPENDENT:
        return np.asarray(levels, dtype=np.float64)
    normals = correlation.normal_factor() @ ndtri(levels)
    ranks = np.argsort(np.argsort(normals, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray((ranks + 0.5) / rows, dtype=np.float64)


def class_rows(laws: ClassLaws, rows: int) -> ClassRows:
    """At most ``rows`` atoms of the class (fewer where the laws leave less to vary), whole tokens.

    At least one token of every request is computed at P and one is emitted.
    Raises ValueError on contradicting correlations.
    """
    input_level, hit_level, output_level = stratified_levels(rows, laws.correlation)
    length = np.maximum(np.rint(laws.input_tokens.quantile(input_level)), 1.0)
    output = np.maximum(np.rint(laws.output_tokens.quantile(output_level)), 1.0)
    uncached = np.clip(np.rint((1 - laws.hit_rate.quantile(hit_level)) * length), 1.0, length)
    missing = uncached
    if laws.md_hit_rate is not None:
        missing = np.clip(np.rint((1 - laws.md_hit_rate.quantile(hit_level)) * length), 0.0, length)
    weight = np.full(rows, 1.0 / rows)
    return ClassRows(length, uncached, missing, output, weight, turns_per_task=laws.turns_per_task).merged()
