"""Profiled instances: measured tables in place of the roofline, behind the protocols of stages/protocol.py.

A table is interpolated linearly or by a not-a-knot cubic spline. Below its first point it is continued with the end
slope, never under
0; far above its last point it is an error, because nobody measured there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pddplan.errors import InputError, Problem
from pddplan.scenario.instances import ProfiledInstance
from pddplan.stages.protocol import KvTransfer

if TYPE_CHECKING:
    from scipy.interpolate import CubicSpline

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
        from scipy.interpolate import CubicSpline  # a seventh of a second to import, and few tables are cubic

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
class RateGrid:
    """Role AGG from measured request rates over (input, output): the largest rate at which the instance meets its
    target.

    rates: shape (inputs, outputs), requests/s; 0 means that the instance cannot serve such requests. Between grid
    points the time per
    request (1 / rate) is interpolated bilinearly, since times add up over a mix of requests and rates do not; outside
    the grid the edge holds
    below and it is an error far above.
    """

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


@dataclass(frozen=True)
class ProfiledStage:
    """One measured instance in its role, behind PrefillStage, DecodeStage and KvTransfer.

    What a profile does not give raises InputError when it is asked for, naming the key to add. rate: role AGG as a
    grid of
    request rates, in place of times. batch_max caps the batch; memory limits it only where the profile states
    kv_capacity.
    """

    gpus: int
    place: str
    prefill: Table | None = None
    kv: Table | None = None
    step: Table | None = None
    extend: Table | None = None
    rate: RateGrid | None = None
    batch_max: float = float("inf")
    tokens_per_step: float = 1.0
    kv_capacity: float = float("inf")
    model_kv: KvTransfer | None = None

    def prefill_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
        """Seconds of one request alone. The table is over the uncached length; ``cached_tokens`` only sets the shape."""
        return self._read(self.prefill, "prefill_s", uncached_tokens, cached_tokens)

    def prefill_occupancy_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
        """A profile knows no packing: the same as prefill_s."""
        return self.prefill_s(uncached_tokens, cached_tokens)

    def transfer_bytes(self, new_tokens: ArrayLike, total_tokens: ArrayLike) -> FloatArray:
        """Bytes of the KV of ``new_tokens``: as measured, or the model's own where the profile has no kv_bytes."""
        if self.kv is None and self.model_kv is not None:
            return self.model_kv.transfer_bytes(new_tokens, total_tokens)
        return self._read(self.kv, "kv_bytes", new_tokens, total_tokens)

    def step_s(self, batch: ArrayLike, context_tokens: ArrayLike) -> FloatArray:
        """Seconds of one step of the whole instance; the context is that of the measurement."""
        return self._read(self.step, "step_s", batch, context_tokens)

    def extend_s(self, new_tokens: ArrayLike, context_tokens: ArrayLike) -> FloatArray:
        """Seconds to recompute ``new_tokens`` handed over as ids."""
        return self._read(self.extend, "extend_s", new_tokens, context_tokens)

    def kv_capacity_bytes(self) -> float:
        """Bytes for KV as the profile states them; infinite where it does not (it was measured, so it fitted)."""
        return self.kv_capacity

    def kv_resident_bytes(self, tokens: ArrayLike) -> FloatArray:
        """Bytes of one request's context by the model's KV format; 0 where the profile states no capacity."""
        size = np.asarray(tokens, dtype=float)
        if self.model_kv is None or self.kv_capacity == float("inf"):
            return np.zeros(size.shape)
        return self.model_kv.transfer_bytes(size, size)

    def _read(self, table: Table | None, key: str, at: ArrayLike, beside: ArrayLike) -> FloatArray:
        if table is None:
            accepted = f"{key}, which this plan asks for"
            raise InputError(Problem(self.place, f"the profile has no {key}", accepted, _EXAMPLES[key]))
        return table(np.broadcast_arrays(np.asarray(at, dtype=float), np.asarray(beside))[0])


_EXAMPLES = {
    "prefill_s": "prefill_s: {uncached: [1k, 8k], seconds: [0.44, 0.72]}",
    "kv_bytes": "kv_bytes: {uncached: [1k, 8k], bytes: [190 MiB, 309 MiB]}",
    "step_s": "step_s: {batch: [1, 20], seconds: [0.02, 0.025]}",
    "extend_s": "extend_s: {tokens: [1, 100], seconds: [0.2, 0.305]}",
}


def profiled_stage(
    profile: ProfiledInstance, place: str, model_kv: KvTransfer | None = None, tokens_per_step: float = 1.0
) -> ProfiledStage:
    """The stage of a scenario's profile; ``place`` names it in errors (``sites.A.chips[0].profiles[0]``). Raises
    InputError.
    """

    def table(points: tuple[float, ...], values: tuple[float, ...], key: str, unit: str) -> Table:
        return Table(points, values, profile.interpolation, f"{place}.{key}", unit)

    prefill, kv, step, extend, rate = (
        profile.prefill_s,
        profile.kv_bytes,
        profile.step_s,
        profile.extend_s,
        profile.rate,
    )
    batch_max = profile.batch_max or (step.batch[-1] if step else float("inf"))
    return ProfiledStage(
        gpus=profile.gpus,
        place=place,
        prefill=table(prefill.uncached, prefill.seconds, "prefill_s", "uncached tokens") if prefill else None,
        kv=table(kv.uncached, kv.bytes, "kv_bytes", "uncached tokens") if kv else None,
        step=table(step.batch, step.seconds, "step_s", "running requests") if step else None,
        extend=table(extend.tokens, extend.seconds, "extend_s", "tokens") if extend else None,
        rate=RateGrid(rate.input, rate.output, rate.req_per_s, f"{place}.rate") if rate else None,
        batch_max=batch_max,
        tokens_per_step=tokens_per_step,
        kv_capacity=profile.kv_capacity or float("inf"),
        model_kv=model_kv,
    )
