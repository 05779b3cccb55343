"""How requests of a trace arrive: rate over time, burstiness, and what the clock's ticks hide."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pddplan.workload.demand import DemandProfile

FloatArray = NDArray[np.float64]
WINDOWS_S = (1.0, 10.0, 60.0, 600.0, 3600.0)
_LEAST_WINDOWS = 20
_MOST_WINDOWS = 1_000_000


@dataclass(frozen=True)
class Dispersion:
    """Variance over mean of the arrivals in windows of ``window_s`` (1 for Poisson). under_tick: the clock is too coarse for it."""

    window_s: float
    index: float
    under_tick: bool


@dataclass(frozen=True)
class Arrivals:
    """gap_cv: coefficient of variation of gaps. tick_s: step of the clock (0: none seen). scv: see ``arrival_scv``."""

    span_s: float
    rate_per_s: float
    gap_cv: float
    tick_s: float
    dispersion: tuple[Dispersion, ...]
    scv: float

    @property
    def coarse(self) -> bool:
        """Whether several requests share one tick of the clock on average, so that gaps say nothing."""
        return self.tick_s * self.rate_per_s > 0.5


def clock_tick(time_s: FloatArray) -> float:
    """Step of a coarse clock, 0 where none shows: some arrivals coincide and 95 % of the other gaps are multiples (to 2 %)."""
    gaps = np.diff(time_s)
    positive = gaps[gaps > 0]
    if positive.size == 0 or positive.size > 0.98 * gaps.size:
        return 0.0
    tick = float(np.median(positive[positive < 1.5 * positive.min()]))
    multiples = positive / tick
    return tick if float(np.mean(np.abs(multiples - np.rint(multiples)) < 0.02)) >= 0.95 else 0.0


def index_of_dispersion(time_s: FloatArray, window_s: float) -> float:
    """Variance over mean of the counts in whole windows from the first arrival on."""
    windows = int((time_s[-1] - time_s[0]) / window_s)
    if windows < 2:
        return math.nan
    place = ((time_s - time_s[0]) / window_s).astype(np.int64)
    counts = np.unique(place[place < windows], return_counts=True)[1].astype(np.float64)
    mean = counts.sum() / windows
    return float((counts @ counts) / windows / mean - mean) if mean > 0 else math.nan


def measure_arrivals(time_s: FloatArray) -> Arrivals | None:
    """Rate and burstiness of arrivals at ``time_s``, shape (requests,), rising; None when they span no time.

    scv is what a queue of gaps should use: the squared coefficient of variation of gaps, or, where ticks of the clock hide the
    gaps, the index of dispersion over the shortest window of several ticks (equal to it for a renewal process over long windows).
    """
    span = float(time_s[-1] - time_s[0]) if time_s.size else 0.0
    if span <= 0:
        return None
    gaps = np.diff(time_s)
    rate = gaps.size / span
    tick = clock_tick(time_s)
    gap_cv = float(gaps.std() / gaps.mean())
    dispersion = tuple(
        Dispersion(window, index_of_dispersion(time_s, window), window < 2 * tick)
        for window in WINDOWS_S
        if span / window >= _LEAST_WINDOWS
    )
    scv = gap_cv**2
    if tick * rate > 0.5:
        window = 10 * tick
        scv = index_of_dispersion(time_s, window) if span / window >= _LEAST_WINDOWS else 1.0
    return Arrivals(span, rate, gap_cv, tick, dispersion, scv)


def demand_profile(time_s: FloatArray, window_s: float, sizing_quantile: float = 1.0) -> DemandProfile:
    """Rate in windows of ``window_s`` over its mean, from arrivals that rise; the last window is left out unless it is whole.

    Raises ValueError when there are fewer than two whole windows, or more than a million.
    """
    windows = int((time_s[-1] - time_s[0]) / window_s)
    if windows > _MOST_WINDOWS:
        raise ValueError(f"the trace spans {time_s[-1] - time_s[0]:g} s, over a million windows of {window_s:g} s")
    if windows < 2:
        raise ValueError(f"the trace spans {time_s[-1] - time_s[0]:g} s, under two windows of {window_s:g} s")
    place = ((time_s - time_s[0]) / window_s).astype(np.int64)
    counts = np.bincount(place[place < windows], minlength=windows).astype(np.float64)
    return DemandProfile(counts / counts.mean(), window_s, sizing_quantile)
