"""What a replay leaves behind: the latencies of the measured requests, and the loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

PIPELINES = ("P-MD", "P-RLD-MD", "local", "P-RLD", "AGG")


@dataclass(frozen=True)
class Records:
    """What happened to the measured requests of one deployment, shape (requests,); inf where a request never got there.

    pipeline: index into PIPELINES. relay_tokens: output tokens that RLD emitted.
    """

    deployment: str
    class_index: NDArray[np.int64]
    ttft_s: FloatArray
    e2e_s: FloatArray
    stall_s: FloatArray
    output_tokens: FloatArray
    pipeline: NDArray[np.int64]
    relay_tokens: FloatArray

    @property
    def tpot_s(self) -> FloatArray:
        """(last token - first) / (O - 1); NaN for answers of one token."""
        with np.errstate(invalid="ignore", divide="ignore"):
            pace = (self.e2e_s - self.ttft_s) / (self.output_tokens - 1.0)
        return np.where(self.output_tokens > 1.0, np.where(np.isfinite(self.e2e_s), pace, np.inf), np.nan)


@dataclass(frozen=True)
class Run:
    """Records of every deployment, and loads: pools by index of the decision, lines by name (shares of capacity)."""

    records: tuple[Records, ...]
    pool_load: Mapping[int, float]
    line_load: Mapping[str, float]
    seconds: float


def longest_gaps(spans: Sequence[Sequence[tuple[Any, float, float]]]) -> FloatArray:
    """Longest step (or pass between steps) that each request sat through, shape (requests,).

    spans: of each request, (instance, first token, last token); an instance's ``gaps`` are (end, seconds) in order of time.
    """
    longest = np.zeros(len(spans))
    by_instance: dict[int, tuple[Any, list[tuple[int, float, float]]]] = {}
    for k, visits in enumerate(spans):
        for instance, begin, end in visits:
            by_instance.setdefault(id(instance), (instance, []))[1].append((k, begin, end))
    for instance, met in by_instance.values():
        ends = np.array([t for t, _ in instance.gaps])
        gaps = np.array([g for _, g in instance.gaps] + [0.0])
        which = np.array([k for k, _, _ in met])
        after = np.searchsorted(ends, np.array([b for _, b, _ in met]) + 1e-9)
        until = np.searchsorted(ends, np.array([e for _, _, e in met]) + 1e-9)
        some = until > after
        if some.any():
            pairs = np.stack([after[some], until[some]], axis=1).ravel()
            np.maximum.at(longest, which[some], np.maximum.reduceat(gaps, pairs)[::2])
    return longest
