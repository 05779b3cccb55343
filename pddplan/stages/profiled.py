"""Profiled instances: measured tables in place of the roofline, behind the protocols of stages/protocol.py.

A table is interpolated linearly or by a not-a-knot cubic spline. Below its first point it is continued with the end
slope, never under
0; far above its last point it is an error, because nobody measured there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline

from pddplan.errors import InputError, Problem

FloatArray = NDArray[np.float64]
Interpolation = Literal["linear", "cubic"]
REACH_ABOVE = 1.25  # a table answers up to this multiple of its last point


@dataclass(frozen=True)
class Table:
    """A measured curve: ``values`` over increasing ``points``, shape (points,). ``place`` names it in errors.

    Raises InputError for unequal lengths, points that do not increase, negative or non-finite numbers, or too few
    points for a cubic.
    """

    points: tuple[float, ...]
    values: tuple[float, ...]
    interpolation: Interpolation = "linear"
    place: str = "profile"
    unit: str = "tokens"

    def __post_init__(self) -> None:
        numbers = np.array([*self.points, *self.values], dtype=float)
        if len(self.points) != len(self.values) or not self.points:
            found = f"{len(self.points)} points and {len(self.values)} values"
            raise InputError(
                Problem(self.place, found, "one value per point, at least one", "[1k, 8k] with [0.4, 0.7]")
            )
        if not np.all(np.isfinite(numbers)) or np.any(numbers < 0):
            raise InputError(
                Problem(
                    self.place,
                    f"{numbers[~(np.isfinite(numbers) & (numbers >= 0))][0]}",
                    "finite numbers of at least 0",
                )
            )
        if np.any(np.diff(self.points) <= 0):
            raise InputError(
                Problem(self.place, f"points {list(self.points)}", "points that increase", "[1k, 8k, 32k]")
            )
        if self.interpolation == "cubic" and len(self.points) < 4:
            raise InputError(
                Problem(
                    self.place, f"{len(self.points)} points", "at least 4 points for cubic", "interpolation: linear"
                )
            )

    @cached_property
    def _spline(self) -> CubicSpline:
        return CubicSpline(self.points, self.values, bc_type="not-a-knot")

    def __call__(self, at: ArrayLike) -> FloatArray:
        """Interpolated values, same shape as ``at``; raises InputError above REACH_ABOVE times the last point."""
        x = np.asarray(at, dtype=float)
        first, last = self.points[0], self.points[-1]
        if x.size and float(np.max(x)) > last * REACH_ABOVE and len(self.points) > 1:
            found = f"{float(np.max(x)):,.0f} {self.unit} asked of a table measured up to {last:,.0f}"
            raise InputError(
                Problem(self.place, found, "points that cover the workload", f"add a point at {float(np.max(x)):,.0f}")
            )
        if len(self.points) == 1:
            return np.full(x.shape, self.values[0])
        inside = np.clip(x, first, last)
        if self.interpolation == "cubic":
            values = np.asarray(self._spline(inside), dtype=float)
            low_slope, high_slope = (float(slope) for slope in self._spline([first, last], 1))
        else:
            values = np.interp(inside, self.points, self.values)
            low_slope = (self.values[1] - self.values[0]) / (self.points[1] - first)
            high_slope = (self.values[-1] - self.values[-2]) / (last - self.points[-2])
        values = values + low_slope * np.minimum(x - first, 0.0) + high_slope * np.maximum(x - last, 0.0)
        return np.asarray(np.maximum(values, 0.0))


@dataclass(frozen=True)
class ProfiledPrefill:
    """Role P from measured prefill times (and KV sizes) over the uncached length. Implements PrefillStage and
    KvTransfer.
    """

    gpus: int
    seconds: Table
    kv_bytes: Table | None = None

    def prefill_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
        """Seconds of one request alone; the measured table is over the uncached length, so ``cached_tokens`` only sets
        the shape.
        """
        return self.seconds(np.broadcast_arrays(np.asarray(uncached_tokens, dtype=float), np.asarray(cached_tokens))[0])

    def prefill_occupancy_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
        """A profile knows no packing: the same as prefill_s."""
        return self.prefill_s(uncached_tokens, cached_tokens)

    def transfer_bytes(self, new_tokens: ArrayLike, total_tokens: ArrayLike) -> FloatArray:
        """Bytes of the KV of ``new_tokens`` as measured; raises InputError when the profile has no kv_bytes."""
        if self.kv_bytes is None:
            raise InputError(
                Problem(
                    self.seconds.place,
                    "no kv_bytes",
                    "KV sizes, since this plan moves KV",
                    "kv_bytes: {uncached: [...], bytes: [...]}",
                )
            )
        return self.kv_bytes(np.broadcast_arrays(np.asarray(new_tokens, dtype=float), np.asarray(total_tokens))[0])


@dataclass(frozen=True)
class ProfiledDecode:
    """Roles MD and RLD from measured step times over the running batch of the whole instance. Implements DecodeStage.

    batch_max caps the batch; memory is not modelled beside it (a profile was measured, so it fitted).
    extend: seconds of an extend-decode over its new tokens.
    """

    gpus: int
    step: Table
    batch_max: float
    tokens_per_step: float = 1.0
    extend: Table | None = None

    def step_s(self, batch: ArrayLike, context_tokens: ArrayLike) -> FloatArray:
        """Seconds of one step; the context is that of the measurement, whatever ``context_tokens`` says."""
        return self.step(np.broadcast_arrays(np.asarray(batch, dtype=float), np.asarray(context_tokens))[0])

    def extend_s(self, new_tokens: ArrayLike, context_tokens: ArrayLike) -> FloatArray:
        """Seconds to recompute ``new_tokens``; raises InputError when the profile has no extend_s."""
        if self.extend is None:
            accepted = "extend_s, since this plan hands token ids from RLD to MD"
            raise InputError(
                Problem(self.step.place, "no extend_s", accepted, "extend_s: {tokens: [1, 100], seconds: [0.2, 0.305]}")
            )
        return self.extend(np.broadcast_arrays(np.asarray(new_tokens, dtype=float), np.asarray(context_tokens))[0])

    def kv_capacity_bytes(self) -> float:
        """Not a limit of a profile: infinite."""
        return float("inf")

    def kv_resident_bytes(self, tokens: ArrayLike) -> FloatArray:
        """0 for each request: batch_max is the profile's limit."""
        return np.zeros(np.shape(np.asarray(tokens)))


@dataclass(frozen=True)
class ProfiledRate:
    """Role AGG from measured request rates over (input, output): the largest rate at which the instance meets its
    target.

    rates: shape (inputs, outputs), requests/s; 0 means that the instance cannot serve such requests. Between grid
    points the time per
    request (1 / rate) is interpolated bilinearly, since times add up over a mix of requests and rates do not; outside
    the grid the edge holds
    below and it is an error far above.
    """

    gpus: int
    input_tokens: tuple[float, ...]
    output_tokens: tuple[float, ...]
    rates: tuple[tuple[float, ...], ...]
    place: str = "profile"
    _seconds: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shape = (len(self.input_tokens), len(self.output_tokens))
        if any(len(row) != shape[1] for row in self.rates) or len(self.rates) != shape[0] or 0 in shape:
            found = f"{len(self.rates)} rows of {[len(row) for row in self.rates]} rates"
            raise InputError(Problem(self.place, found, f"{shape[0]} rows (inputs) of {shape[1]} rates (outputs)"))
        rates = np.array(self.rates, dtype=float)
        if not np.all(np.isfinite(rates)) or np.any(rates < 0):
            raise InputError(
                Problem(
                    self.place, "a negative or non-finite rate", "requests/s of at least 0; 0 where it cannot serve"
                )
            )
        for name, axis in (("input", self.input_tokens), ("output", self.output_tokens)):
            if np.any(np.diff(axis) <= 0):
                raise InputError(Problem(self.place, f"{name} {list(axis)}", f"{name} lengths that increase"))
        with np.errstate(divide="ignore"):
            object.__setattr__(self, "_seconds", 1.0 / rates)

    def seconds_per_request(self, input_tokens: ArrayLike, output_tokens: ArrayLike) -> FloatArray:
        """Seconds of the instance's capacity that one request takes, inf where it cannot be served; shape of the
        broadcast arguments.
        """
        x, y = np.broadcast_arrays(np.asarray(input_tokens, dtype=float), np.asarray(output_tokens, dtype=float))
        i, a = self._cell(x, self.input_tokens, "input")
        j, b = self._cell(y, self.output_tokens, "output")
        total = np.zeros(x.shape)
        for di, dj, weight in ((0, 0, (1 - a) * (1 - b)), (1, 0, a * (1 - b)), (0, 1, (1 - a) * b), (1, 1, a * b)):
            rows, columns = (
                np.minimum(i + di, len(self.input_tokens) - 1),
                np.minimum(j + dj, len(self.output_tokens) - 1),
            )
            used = weight > 0
            total[used] += weight[used] * self._seconds[rows[used], columns[used]]
        return total

    def _cell(self, x: FloatArray, axis: Sequence[float], name: str) -> tuple[NDArray[np.int64], FloatArray]:
        """Index of the grid point at or below each x, and the fraction of the way to the next."""
        if x.size and float(np.max(x)) > axis[-1] * REACH_ABOVE:
            found = f"{name} of {float(np.max(x)):,.0f} tokens asked of rates measured up to {axis[-1]:,.0f}"
            raise InputError(
                Problem(self.place, found, "a grid that covers the workload", f"add {name} {float(np.max(x)):,.0f}")
            )
        grid = np.asarray(axis, dtype=float)
        inside = np.clip(x, grid[0], grid[-1])
        lower = np.clip(np.searchsorted(grid, inside, side="right") - 1, 0, max(len(grid) - 2, 0)).astype(np.int64)
        if len(grid) == 1:
            return lower, np.zeros(x.shape)
        return lower, (inside - grid[lower]) / (grid[lower + 1] - grid[lower])
