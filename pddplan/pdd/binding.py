"""Which resource sets a stage's time: arithmetic, memory bandwidth, the interconnect, or launch overhead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pddplan.roofline.step import PrefillTime, StepTime
from pddplan.workload.mix import RequestMix

FloatArray = NDArray[np.float64]

NEAR_FULL = 0.8
"""Share of a batch's places from which the places bind rather than the pace."""


@runtime_checkable
class Explains(Protocol):
    """A stage that can say what its times are made of (the roofline's)."""

    def decode_breakdown(self, batch: FloatArray, context_tokens: FloatArray) -> StepTime: ...

    def prefill_breakdown(self, uncached_tokens: FloatArray, cached_tokens: FloatArray) -> PrefillTime: ...


def typical_prefill(mix: RequestMix) -> tuple[float, float]:
    """(uncached, cached) tokens of the request that a uncached token meets on average: what fills P's time."""
    work = mix.weight * mix.uncached_tokens
    total = float(work.sum())
    if total <= 0.0:
        return 0.0, mix.mean(mix.input_tokens)
    return float(work @ mix.uncached_tokens) / total, float(work @ (mix.input_tokens - mix.uncached_tokens)) / total


def typical_context(mix: RequestMix) -> float:
    """Mean context of a request halfway through its answer, tokens."""
    return mix.mean(mix.input_tokens + mix.output_tokens / 2.0)


def prefill_resource(stage: object, uncached_tokens: float, cached_tokens: float) -> str:
    """What binds the prefill of a typical request; ``measured profile`` for stages that only know their times."""
    if not isinstance(stage, Explains):
        return "measured profile"
    time = stage.prefill_breakdown(np.array([uncached_tokens]), np.array([cached_tokens]))
    return _largest(time.compute_s, time.memory_s, float(np.sum(time.collectives_s)), 0.0)


def decode_resource(stage: object, batch: float, context_tokens: float, batch_max: float, bound_by: str) -> str:
    """What binds decoding at a batch: the places (memory, engine's cap) when they are nearly taken, else what sets the step's length."""
    if batch >= NEAR_FULL * batch_max:
        return "kv memory" if bound_by == "memory" else "batch limit"
    if not isinstance(stage, Explains):
        return "measured profile"
    time = stage.decode_breakdown(np.array([max(batch, 1.0)]), np.array([context_tokens]))
    return _largest(time.compute_s, time.memory_s, float(np.sum(time.collectives_s)), float(np.sum(time.overhead_s)))


def _largest(compute_s: Mapping[str, FloatArray], memory_s: Mapping[str, FloatArray], collectives_s: float, overhead_s: float) -> str:
    compute = memory = 0.0
    for name, values in compute_s.items():
        arithmetic, traffic = float(np.sum(values)), float(np.sum(memory_s[name]))
        compute, memory = (compute + arithmetic, memory) if arithmetic >= traffic else (compute, memory + traffic)
    shares = {"compute": compute, "HBM bandwidth": memory, "interconnect": collectives_s, "launch overhead": overhead_s}
    return max(shares, key=lambda name: shares[name])
