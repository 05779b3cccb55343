"""Fitting the overlay constants to measured servers: log-least-squares with shrinkage to priors.

theta = log(constant / prior), one entry per constant and group (engine, chip generation, length law). Residuals are
log(predicted / measured) of TPOT and of usable TTFT over their spread, soft-L1; each theta pulls back with
shrinkage x theta / spread. Leave-one-family-out error chooses the shrinkage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from pddplan.roofline.closed_loop import LoopState, closed_loop
from pddplan.roofline.disaggregated import disaggregated_loop
from pddplan.roofline.overlay import Overlay
from pddplan.roofline.terms import FloatArray, StepTerms

Scope = Literal["all", "engine", "engine_generation", "wave"]
OTHERS = "others"


@dataclass(frozen=True)
class Constant:
    """One overlay constant to fit: its prior, the spread of its logarithm and the groups it differs between.

    ``relative``: prior of a group over ``prior`` (``OTHERS``: of the groups not named; 1 unless given). A group at 0 has no such constant.
    """

    name: str
    prior: float
    spread: float
    scope: Scope
    relative: tuple[tuple[str, float], ...] = ()

    def share(self, group: str) -> float:
        """Prior of ``group`` over the common prior."""
        factors = dict(self.relative)
        return factors.get(group, factors.get(OTHERS, 1.0))


CONSTANTS: tuple[Constant, ...] = (
    Constant("moe_factor", 1.0, 0.2, "engine"),
    Constant("attention_factor", 1.0, 0.2, "engine"),
    Constant("reduce_factor", 1.0, 0.3, "engine"),
    Constant("prefill_factor", 1.0, 0.2, "engine"),
    Constant("layer_s", 12e-6, 0.5, "engine_generation"),
    Constant("moe_layer_factor", 1.3, 0.3, "all"),
    Constant("mla_layer_factor", 1.5, 0.3, "all"),
    Constant("linear_layer_factor", 1.5, 0.3, "all"),
    Constant("step_s", 0.6e-3, 0.5, "engine"),
    Constant("sequence_s", 15e-6, 0.5, "engine"),
    Constant("popularity", 0.6, 0.5, "all"),
    Constant("imbalance", 0.5, 0.2, "all"),
    Constant("cpu_layer_s", 0.6e-3, 0.7, "engine"),
    Constant("cpu_moe_factor", 1.0, 0.2, "all"),
    Constant("cpu_mla_factor", 2.5, 0.2, "all"),
    Constant("prefill_passes", 12.0, 0.3, "all"),
    Constant("dp_prefill_overlap", 0.62, 0.3, "all"),
    Constant("ttft_s", 30e-3, 0.7, "engine"),
    Constant("admission_s", 0.3e-3, 0.5, "all"),
    Constant("interleave", 0.9, 0.2, "engine"),
    Constant("burst", 0.1, 0.3, "wave", (("lockstep", 8.0), ("loose", 2.0))),
    Constant("convoy", 2.0, 0.3, "wave", (("convoy", 1.0), (OTHERS, 0.0))),
    Constant("lag", 0.5, 0.3, "all"),
    Constant("poll_steps", 15.0, 0.3, "engine_generation", (("sglang/blackwell", 1.0), (OTHERS, 0.0))),
    Constant("acceptance_length", 2.3, 0.2, "all"),
    Constant("sparse_layer_factor", 1.5, 0.3, "all"),
    Constant("shared_layer_factor", 1.4, 0.3, "all"),
    Constant("block_layer_factor", 1.0, 0.3, "engine"),
    Constant("disaggregated_ttft_s", 0.05, 0.7, "engine"),
    Constant("disaggregated_burst", 0.2, 0.7, "engine"),
)


@dataclass(frozen=True)
class Pools:
    """What disaggregated rows have besides: their prefill workers. ``BenchmarkRows.terms`` are then those of a decode worker."""

    prefill_terms: StepTerms
    prefill_workers: FloatArray
    decode_workers: FloatArray
    transfer_s: FloatArray


@dataclass(frozen=True)
class BenchmarkRows:
    """What the fit sees of each row, shape (rows,). ``groups``: engine, engine_generation, wave labels."""

    terms: StepTerms
    input_tokens: FloatArray
    output_tokens: FloatArray
    concurrency: FloatArray
    kv_limit: FloatArray
    chunk_tokens: FloatArray
    draft: StepTerms | None
    draft_tokens: FloatArray
    groups: Mapping[str, NDArray[np.str_]]
    tpot_s: FloatArray
    ttft_s: FloatArray  # NaN where not usable
    weight: FloatArray
    ttft_weight: FloatArray
    pools: Pools | None = None

    def take(self, index: NDArray[np.int64]) -> BenchmarkRows:
        """The rows ``index``."""
        named = ("terms", "draft", "groups", "pools")
        rows = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name not in named}
        pools = self.pools and Pools(
            self.pools.prefill_terms.take(index),
            self.pools.prefill_workers[index],
            self.pools.decode_workers[index],
            self.pools.transfer_s[index],
        )
        draft = None if self.draft is None else self.draft.take(index)
        return BenchmarkRows(
            terms=self.terms.take(index), draft=draft, groups={k: v[index] for k, v in self.groups.items()}, pools=pools, **rows
        )


COMMON = "all"
DEVIATION = 0.5  # spread of a group's deviation from the common value, as a share of the constant's own spread


def wave_of(engine: str, length_law: str) -> str:
    """How requests of a benchmark run keep together after the common start.

    An engine that prefills before it decodes (SGLang) lets all of a wave end together: ``lockstep`` at equal lengths, ``loose`` at random
    ones. Elsewhere equal lengths keep together what was admitted together (``convoy``); random ones go their own way (``spread``).
    """
    first = engine == "sglang"
    if length_law == "fixed":
        return "lockstep" if first else "convoy"
    return "loose" if first else "spread"


@dataclass(frozen=True)
class Members:
    """Rows that each theta touches, and the prior of every constant per row."""

    touched: tuple[slice | NDArray[np.bool_], ...]
    priors: Mapping[str, FloatArray]


@dataclass(frozen=True)
class Layout:
    """Which entry of theta each constant takes: ``labels`` are (constant, group).

    A constant that differs between groups has a common entry and a deviation per group, which shrinks towards it: a group with
    few rows, or none, keeps close to what the others share. The product of both is one shipped constant.
    """

    labels: tuple[tuple[Constant, str], ...]

    @staticmethod
    def of(groups: Mapping[str, NDArray[np.str_]], constants: Sequence[Constant] = CONSTANTS) -> Layout:
        own = {c: [] if c.scope == "all" else [g for g in sorted(set(groups[c.scope])) if c.share(g) > 0] for c in constants}
        return Layout(tuple((c, g) for c in constants for g in [COMMON, *own[c]]))

    @property
    def spread(self) -> FloatArray:
        """Prior standard deviation of each theta."""
        return np.array([c.spread * (1.0 if g == COMMON else DEVIATION) for c, g in self.labels])

    def constants(self) -> int:
        """Constants fitted: one per group, or one in all."""
        return sum(g != COMMON or c.scope == "all" for c, g in self.labels)

    def members(self, groups: Mapping[str, NDArray[np.str_]]) -> Members:
        """What theta means for rows with these group labels."""
        touched = tuple(slice(None) if group == COMMON else groups[constant.scope] == group for constant, group in self.labels)
        rows = len(groups["engine"])
        priors = {}
        for c, _ in self.labels:
            shares = np.ones(rows) if c.scope == "all" else np.array([c.share(str(g)) for g in groups[c.scope]])
            priors[c.name] = c.prior * shares
        return Members(touched, priors)

    def overlay(self, theta: FloatArray, members: Members) -> Overlay:
        """Constants per row; a group that theta does not cover keeps the common value."""
        logs = {name: np.zeros(len(prior)) for name, prior in members.priors.items()}
        for value, (constant, _), touched in zip(theta, self.labels, members.touched, strict=True):
            logs[constant.name][touched] += value
        return Overlay(**{name: members.priors[name] * np.exp(column) for name, column in logs.items()})


def predict(rows: BenchmarkRows, layout: Layout, theta: FloatArray) -> LoopState:
    """Closed-loop prediction of the rows under the constants ``theta``."""
    return predict_with(rows, layout.overlay(theta, layout.members(rows.groups)))


def predict_with(rows: BenchmarkRows, overlay: Overlay) -> LoopState:
    """Closed-loop prediction under constants given per row."""
    accepted = np.where(rows.draft_tokens > 0, np.minimum(overlay.acceptance_length, rows.draft_tokens + 1.0), 1.0)
    if rows.pools is None:
        return closed_loop(
            rows.terms, overlay, rows.input_tokens, rows.output_tokens, rows.concurrency, rows.kv_limit, rows.chunk_tokens,
            draft=rows.draft, draft_tokens=rows.draft_tokens, tokens_per_step=accepted,
        )  # fmt: skip
    return disaggregated_loop(
        rows.pools.prefill_terms, rows.terms, overlay, rows.input_tokens, rows.output_tokens, rows.concurrency,
        rows.pools.prefill_workers, rows.pools.decode_workers, rows.kv_limit, rows.pools.transfer_s, rows.chunk_tokens,
        draft=rows.draft, draft_tokens=rows.draft_tokens, tokens_per_step=accepted,
    )  # fmt: skip


TPOT_SPREAD = 0.10
TTFT_SPREAD = 0.25


def residuals_of(rows: BenchmarkRows, overlay: Overlay) -> FloatArray:
    """Weighted soft-L1 residuals of TPOT and TTFT, shape (2 x rows,); 0 where nothing was measured."""
    usable, timed = np.isfinite(rows.ttft_s), np.isfinite(rows.tpot_s)
    state = predict_with(rows, overlay)
    tpot = np.where(timed, np.log(state.tpot_s / np.where(timed, rows.tpot_s, 1.0)), 0.0) / TPOT_SPREAD * rows.weight
    ttft = np.where(usable, np.log(state.ttft_s / np.where(usable, rows.ttft_s, 1.0)), 0.0) / TTFT_SPREAD * rows.ttft_weight
    raw = np.concatenate([tpot, ttft])
    return np.asarray(np.sign(raw) * np.sqrt(2.0 * (np.sqrt(1.0 + raw**2) - 1.0)))


def fit(
    tables: Sequence[BenchmarkRows], layout: Layout, shrinkage: float, start: FloatArray | None = None, evaluations: int = 12
) -> FloatArray:
    """theta that minimises the shrunk soft-L1 loss on the rows of all ``tables`` together."""
    problem = Problem(tables, layout, shrinkage)
    first = np.zeros(len(layout.labels)) if start is None else start
    result = least_squares(problem.residuals, first, jac=problem.jacobian, method="trf", max_nfev=evaluations)
    return np.asarray(result.x)


STEP = 1e-4


class Problem:
    """Residuals of a fit, and their derivatives: a constant of a group is differentiated on the rows of that group alone."""

    def __init__(self, tables: Sequence[BenchmarkRows], layout: Layout, shrinkage: float) -> None:
        self.layout = layout
        self.pull = np.sqrt(shrinkage) / layout.spread
        self.tables = [(rows, layout.members(rows.groups)) for rows in tables]
        self.parts: dict[tuple[int, str, str], tuple[NDArray[np.int64], BenchmarkRows, Members]] = {}

    def residuals(self, theta: FloatArray) -> FloatArray:
        """Residuals of all tables, TPOT before TTFT in each, then the pull of every theta to its prior."""
        parts = [residuals_of(rows, self.layout.overlay(theta, members)) for rows, members in self.tables]
        return np.concatenate([*parts, self.pull * theta])

    def _part(self, table: int, label: int) -> tuple[NDArray[np.int64], BenchmarkRows, Members]:
        """Rows of a table that a theta touches: their positions, they themselves, and their members."""
        constant, group = self.layout.labels[label]
        key = (table, constant.scope, group) if group != COMMON else (table, COMMON, COMMON)
        if key not in self.parts:
            rows, members = self.tables[table]
            index = np.arange(len(rows.tpot_s))[members.touched[label]]
            own = rows if group == COMMON else rows.take(index)
            self.parts[key] = (index, own, self.layout.members(own.groups))
        return self.parts[key]

    def jacobian(self, theta: FloatArray) -> FloatArray:
        """Forward differences of the residuals, shape (residuals, thetas)."""
        base = self.residuals(theta)
        out = np.zeros((len(base), len(theta)))
        for label in range(len(theta)):
            moved = theta.copy()
            moved[label] += STEP
            first = 0
            for table, (rows, _) in enumerate(self.tables):
                count = len(rows.tpot_s)
                index, own, members = self._part(table, label)
                if len(index):
                    at = np.concatenate([first + index, first + count + index])
                    out[at, label] = (residuals_of(own, self.layout.overlay(moved, members)) - base[at]) / STEP
                first += 2 * count
            out[first + label, label] = self.pull[label]
        return out
