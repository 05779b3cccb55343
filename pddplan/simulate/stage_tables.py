"""Stage times as look-ups that cost a microsecond: the only thing that the replay shares with the analytic side."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pddplan.errors import InputError
from pddplan.stages.protocol import DecodeStage, PrefillStage

FloatArray = NDArray[np.float64]

BATCH_POINTS = 64
CONTEXT_POINTS = 24
TOKEN_POINTS = 40
BATCH_LIMIT = 8192


@dataclass(frozen=True)
class Surface:
    """A function of two arguments, bilinear between the points of a grid and flat outside it."""

    x: list[float]
    y: list[float]
    values: list[list[float]]

    @classmethod
    def of(cls, function: Callable[[FloatArray, FloatArray], FloatArray], x: FloatArray, y: FloatArray) -> Surface:
        """Tabulate ``function`` on the grid of increasing ``x`` and ``y``."""
        table = np.asarray(function(*np.broadcast_arrays(x[:, None], y[None, :])), dtype=float)
        return cls(x.tolist(), y.tolist(), table.tolist())

    def __call__(self, x: float, y: float) -> float:
        i, u = _place(self.x, x)
        j, v = _place(self.y, y)
        row = self.values[i]
        low = row[j] + (row[j + 1] - row[j]) * v if v else row[j]
        if not u:
            return low
        row = self.values[i + 1]
        high = row[j] + (row[j + 1] - row[j]) * v if v else row[j]
        return low + (high - low) * u


def _place(points: list[float], at: float) -> tuple[int, float]:
    """Index of the point at or below ``at`` and the fraction of the way to the next; clipped to the grid."""
    if at <= points[0]:
        return 0, 0.0
    if at >= points[-1]:
        return len(points) - 1, 0.0
    i = bisect_right(points, at) - 1
    return i, (at - points[i]) / (points[i + 1] - points[i])


def _spread(low: float, high: float, points: int) -> FloatArray:
    return np.unique(np.geomspace(max(low, 1.0), max(high, low, 1.0), points))


@dataclass(frozen=True)
class DecodeTimes:
    """Times of one decode instance. memory_bytes: room for KV; places: most requests at once."""

    step: Surface
    extend: Surface | None
    tokens_per_step: float
    memory_bytes: float
    places: int

    @classmethod
    def of(
        cls, stage: DecodeStage, context_tokens: FloatArray, resident_bytes: FloatArray, cache_bytes: float, extends: bool
    ) -> DecodeTimes:
        """Tables of ``stage`` over the contexts that can occur, for requests that hold ``resident_bytes``.

        Raises InputError where a profile lacks a time that is asked for.
        """
        memory = stage.kv_capacity_bytes() - cache_bytes
        least = float(resident_bytes.min())
        fitting = memory / least if least > 0.0 else np.inf
        places = max(int(min(fitting + 1e-9, stage.batch_max, BATCH_LIMIT)), 0)
        contexts = _spread(float(context_tokens.min()), float(context_tokens.max()), CONTEXT_POINTS)
        batches = np.unique(np.round(_spread(1, max(places, 1), BATCH_POINTS)))
        extend = None
        if extends:
            extend = Surface.of(stage.extend_s, np.unique(np.round(_spread(1, 4096, CONTEXT_POINTS))), contexts)
        return cls(Surface.of(stage.step_s, batches, contexts), extend, stage.tokens_per_step, memory, places)


@dataclass(frozen=True)
class PrefillTimes:
    """Prefill of every request of a stream on one kind of instance, shape (requests,), and of one pass of m tokens.

    alone_s: GPU seconds of a lone request; shared_s: seconds of capacity it takes when packed; scale: alone over the mean context's.
    handling_s: seconds per request outside the GPU. ranks: requests whose chunks go side by side in a pass.
    """

    uncached: FloatArray
    alone_s: FloatArray
    shared_s: FloatArray
    scale: FloatArray
    pass_points: list[float]
    pass_s: list[float]
    handling_s: float
    chunk_tokens: float
    ranks: int
    packs: bool

    @classmethod
    def of(
        cls, stage: PrefillStage, uncached: FloatArray, cached: FloatArray, chunk_tokens: float, ranks: int, packs: bool
    ) -> PrefillTimes:
        """Times of ``stage`` for requests of ``uncached`` new tokens on ``cached`` ones."""
        handling = _handling_s(stage, float(np.mean(uncached)), float(np.mean(cached)))
        alone = np.maximum(np.asarray(stage.prefill_s(uncached, cached), dtype=float) - handling, 1e-9)
        shared = np.minimum(np.asarray(stage.prefill_occupancy_s(uncached, cached), dtype=float), alone)
        sizes = _spread(1.0, min(chunk_tokens, float(uncached.max())), TOKEN_POINTS)
        passes = np.asarray(stage.prefill_s(sizes, np.full(sizes.size, float(np.mean(cached)))), dtype=float) - handling
        passes = np.maximum(passes, 1e-9)
        whole = np.floor(uncached / chunk_tokens)
        tail = uncached - whole * chunk_tokens
        by_passes = whole * float(np.interp(chunk_tokens, sizes, passes)) + np.where(tail > 0, np.interp(tail, sizes, passes), 0.0)
        return cls(uncached, alone, shared, alone / by_passes, sizes.tolist(), passes.tolist(), handling, chunk_tokens, ranks, packs)

    def pass_of(self, tokens: float) -> float:
        """Seconds of a lone pass of ``tokens`` at the mean context."""
        i, part = _place(self.pass_points, tokens)
        return self.pass_s[i] + (self.pass_s[i + 1] - self.pass_s[i]) * part if part else self.pass_s[i]


def _handling_s(stage: PrefillStage, uncached: float, cached: float) -> float:
    """Request handling outside the GPU: what prefill_s holds beyond the same pass as an extend; 0 for profiles, which cannot tell."""
    extend = getattr(stage, "extend_s", None)
    if extend is None:
        return 0.0
    one, context = np.array([uncached]), np.array([cached])
    try:
        return max(float(np.asarray(stage.prefill_s(one, context) - extend(one, context))[0]), 0.0)
    except InputError:
        return 0.0
