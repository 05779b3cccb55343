"""What the planner asks of one instance, whether its times come from the roofline or from a measured profile.

Every array argument broadcasts; every method is a pure function of its arguments.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


class PrefillStage(Protocol):
    """Prefill side of one instance (role P)."""

    @property
    def gpus(self) -> int: ...

    def prefill_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
        """Seconds from start of service to the first token for one request alone: chunks in sequence, tail, cached-KV load."""
        ...

    def prefill_occupancy_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
        """Seconds of the instance's capacity the request uses at high load (tails packed where the engine can): <= prefill_s."""
        ...


class DecodeStage(Protocol):
    """Decode side of one instance (roles RLD, MD).

    ``batch`` is requests running in the whole instance, ``context_tokens`` their mean resident context.
    """

    @property
    def gpus(self) -> int: ...

    @property
    def tokens_per_step(self) -> float:
        """1 without speculation, the mean number of accepted tokens per step with it."""
        ...

    @property
    def batch_max(self) -> float:
        """Engine's cap on running requests of the instance."""
        ...

    def step_s(self, batch: ArrayLike, context_tokens: ArrayLike) -> FloatArray:
        """Seconds of one decode step."""
        ...

    def extend_s(self, new_tokens: ArrayLike, context_tokens: ArrayLike) -> FloatArray:
        """Seconds to recompute the KV of ``new_tokens`` ids on top of ``context_tokens`` (extend-decode handoff)."""
        ...

    def kv_capacity_bytes(self) -> float:
        """Bytes of the instance's memory left for KV after weights, activations and reserves (whole instance)."""
        ...

    def kv_resident_bytes(self, tokens: ArrayLike) -> FloatArray:
        """Bytes that one request of ``tokens`` context occupies in the whole instance (replication under TP counted)."""
        ...


class AggregatedStage(PrefillStage, DecodeStage, Protocol):
    """Aggregated serving (role AGG): both phases on the same instance."""


class KvTransfer(Protocol):
    """Bytes that leave P for a request."""

    def transfer_bytes(self, new_tokens: ArrayLike, total_tokens: ArrayLike) -> FloatArray:
        """Bytes of the KV of the last ``new_tokens`` of ``total_tokens``, with per-request state and windows once."""
        ...
