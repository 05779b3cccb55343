"""Fitting the overlay constants to measured servers: log-least-squares with shrinkage to priors.

theta = log(constant / prior), one entry per constant and group (engine, chip generation, length law). Residuals are
log(predicted / measured) of TPOT and of usable TTFT over their spread, soft-L1; each theta pulls back with
shrinkage x theta / spread. Leave-one-family-out error chooses the shrinkage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from pddplan.roofline.closed_loop import LoopState, closed_loop
from pddplan.roofline.overlay import Overlay
from pddplan.roofline.terms import FloatArray, StepTerms

Scope = Literal["all", "engine", "engine_generation", "engine_law"]


@dataclass(frozen=True)
class Constant:
    """One overlay constant to fit: its prior, the spread of its logarithm and the groups it differs between."""

    name: str
    prior: float
    spread: float
    scope: Scope


CONSTANTS: tuple[Constant, ...] = (
    Constant("moe_factor", 1.0, 0.2, "engine"),
    Constant("attention_factor", 1.0, 0.2, "engine"),
    Constant("reduce_factor", 1.0, 0.3, "engine"),
    Constant("prefill_factor", 1.0, 0.2, "engine"),
    Constant("layer_s", 12e-6, 0.5, "engine_generation"),
    Constant("moe_layer_factor", 2.0, 0.3, "engine"),
    Constant("mla_layer_factor", 1.5, 0.3, "all"),
    Constant("linear_layer_factor", 1.5, 0.3, "all"),
    Constant("step_s", 0.6e-3, 0.5, "engine"),
    Constant("sequence_s", 15e-6, 0.5, "engine"),
    Constant("popularity", 0.6, 0.5, "all"),
    Constant("imbalance", 0.5, 0.5, "all"),
    Constant("cpu_layer_s", 0.4e-3, 0.5, "engine"),
    Constant("cpu_moe_factor", 1.6, 0.3, "all"),
    Constant("cpu_mla_factor", 2.0, 0.3, "all"),
    Constant("prefill_passes", 12.0, 0.3, "engine"),
    Constant("dp_prefill_overlap", 0.62, 0.3, "all"),
    Constant("ttft_s", 25e-3, 0.5, "engine"),
    Constant("admission_s", 0.3e-3, 0.7, "engine"),
    Constant("interleave", 0.9, 0.2, "engine"),
    Constant("burst", 0.15, 0.7, "engine_law"),
    Constant("lag", 0.8, 0.7, "engine_law"),
)


@dataclass(frozen=True)
class FitRows:
    """What the fit sees of each row, shape (rows,). ``groups``: engine, engine_generation, engine_law labels."""

    terms: StepTerms
    input_tokens: FloatArray
    output_tokens: FloatArray
    concurrency: FloatArray
    kv_limit: FloatArray
    chunk_tokens: FloatArray
    groups: Mapping[str, NDArray[np.str_]]
    tpot_s: FloatArray
    ttft_s: FloatArray  # NaN where not usable
    weight: FloatArray

    def take(self, index: NDArray[np.int64]) -> FitRows:
        return FitRows(
            self.terms.take(index),
            *(getattr(self, n)[index] for n in ("input_tokens", "output_tokens", "concurrency", "kv_limit", "chunk_tokens")),
            {k: v[index] for k, v in self.groups.items()},
            *(getattr(self, n)[index] for n in ("tpot_s", "ttft_s", "weight")),
        )


@dataclass(frozen=True)
class Layout:
    """Which entry of theta each constant takes in each group: ``labels`` are (constant, group)."""

    labels: tuple[tuple[Constant, str], ...]

    @staticmethod
    def of(groups: Mapping[str, Sequence[str]], constants: Sequence[Constant] = CONSTANTS) -> Layout:
        return Layout(tuple((c, g) for c in constants for g in (["all"] if c.scope == "all" else sorted(set(groups[c.scope])))))

    def overlay(self, theta: FloatArray, groups: Mapping[str, NDArray[np.str_]]) -> Overlay:
        """Constants per row; a group that theta does not cover keeps the prior."""
        values: dict[str, FloatArray] = {}
        size = len(next(iter(groups.values())))
        for i, (constant, group) in enumerate(self.labels):
            column = values.setdefault(constant.name, np.full(size, constant.prior))
            mask = slice(None) if constant.scope == "all" else groups[constant.scope] == group
            column[mask] = constant.prior * np.exp(theta[i])
        return Overlay(**values)


def predict(rows: FitRows, layout: Layout, theta: FloatArray) -> LoopState:
    """Closed-loop prediction of the rows under the constants ``theta``."""
    return closed_loop(
        rows.terms, layout.overlay(theta, rows.groups), rows.input_tokens, rows.output_tokens, rows.concurrency, rows.kv_limit, rows.chunk_tokens
    )


TPOT_SPREAD = 0.10
TTFT_SPREAD = 0.25


def fit(rows: FitRows, layout: Layout, shrinkage: float, start: FloatArray | None = None, evaluations: int = 12) -> FloatArray:
    """theta that minimises the shrunk soft-L1 loss on ``rows``."""
    spread = np.array([constant.spread for constant, _ in layout.labels])
    usable = np.isfinite(rows.ttft_s)

    def residuals(theta: FloatArray) -> FloatArray:
        state = predict(rows, layout, theta)
        tpot = np.log(state.tpot_s / rows.tpot_s) / TPOT_SPREAD
        ttft = np.where(usable, np.log(state.ttft_s / np.where(usable, rows.ttft_s, 1.0)), 0.0) / TTFT_SPREAD
        raw = np.concatenate([tpot, ttft]) * np.tile(rows.weight, 2)
        soft = np.sign(raw) * np.sqrt(2.0 * (np.sqrt(1.0 + raw**2) - 1.0))
        return np.concatenate([soft, np.sqrt(shrinkage) * theta / spread])

    result = least_squares(residuals, np.zeros(len(layout.labels)) if start is None else start, method="trf", max_nfev=evaluations)
    return np.asarray(result.x)
