"""What an engine adds to its kernels: launch floors, CPU time, scheduling. Constants fitted on measured servers."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Overlay:
    """Engine constants; each a number, or an array over rows or configurations. ``*_factor`` multiply, ``*_s`` are seconds.

    launch_fraction: share of a kernel's measured floor that is left under CUDA graphs.
    gemm_factor, moe_factor, attention_factor, reduce_factor: kernel time in the server over the micro-benchmark's, decode.
    prefill_factor: the same in prefill, of dense GEMMs and attention. No factor takes a kernel beyond the chip's peak.
    layer_s, step_s, sequence_s: decode overhead per layer, per step, per sequence of a step; moe_layer_factor,
    mla_layer_factor, linear_layer_factor, sparse_layer_factor (with an indexer),
    shared_layer_factor (with shared experts), block_layer_factor (of block-scaled fp8 weights): multiples of layer_s for such layers.
    popularity: shape a of skewed expert popularity (infinity is uniform); imbalance: excess rows eps of the busiest expert rank.
    cpu_layer_s: CPU launch time per layer of a prefill pass; cpu_moe_factor, cpu_mla_factor: multiples for such layers.
    prefill_passes: passes of the hidden state over memory per layer (norms, quantisation, activations) in prefill.
    dp_prefill_overlap: share of a rank's prefill that the other attention-DP ranks can use (1: ideal).
    ttft_s: request handling outside the GPU; admission_s: seconds per request in flight.
    interleave: prefills that a running request waits for, as a multiple of its share.
    Closed loop of a benchmark client only: burst: share of the requests that start in a wave of all; convoy: prefills of companions
    that a request waits for (requests of equal length end together); lag: wait per load of the prefill side, in prefills;
    poll_steps: decode steps until the scheduler looks for new requests, at 16 or more in flight (a third below).
    disaggregated_ttft_s, disaggregated_burst: handing over between workers, and the first wave at the prefill workers.
    acceptance_length: tokens per step of benchmark rows that speculated without saying how well.
    """

    launch_fraction: ArrayLike = 0.4
    gemm_factor: ArrayLike = 1.0
    moe_factor: ArrayLike = 1.0
    attention_factor: ArrayLike = 1.0
    reduce_factor: ArrayLike = 1.0
    prefill_factor: ArrayLike = 1.0
    layer_s: ArrayLike = 12e-6
    moe_layer_factor: ArrayLike = 2.4
    mla_layer_factor: ArrayLike = 1.5
    linear_layer_factor: ArrayLike = 1.5
    step_s: ArrayLike = 0.6e-3
    sequence_s: ArrayLike = 15e-6
    popularity: ArrayLike = 0.6
    imbalance: ArrayLike = 0.5
    cpu_layer_s: ArrayLike = 0.4e-3
    cpu_moe_factor: ArrayLike = 1.6
    cpu_mla_factor: ArrayLike = 2.0
    prefill_passes: ArrayLike = 12.0
    dp_prefill_overlap: ArrayLike = 0.62
    ttft_s: ArrayLike = 25e-3
    admission_s: ArrayLike = 0.3e-3
    interleave: ArrayLike = 0.9
    burst: ArrayLike = 0.1
    lag: ArrayLike = 0.5
    convoy: ArrayLike = 0.0
    poll_steps: ArrayLike = 0.0
    acceptance_length: ArrayLike = 2.2
    sparse_layer_factor: ArrayLike = 1.5
    block_layer_factor: ArrayLike = 1.0
    disaggregated_ttft_s: ArrayLike = 0.05
    disaggregated_burst: ArrayLike = 0.1
    shared_layer_factor: ArrayLike = 1.4

    @staticmethod
    def names() -> tuple[str, ...]:
        """Names of the constants."""
        return tuple(f.name for f in fields(Overlay))

    def take(self, index: ArrayLike) -> Overlay:
        """Constants of the rows ``index`` where they are arrays."""
        return Overlay(**{n: v[np.asarray(index)] if isinstance(v := getattr(self, n), np.ndarray) and v.ndim else v for n in self.names()})


def as_float(value: ArrayLike) -> NDArray[np.float64]:
    """Constant as an array of floats."""
    return np.asarray(value, dtype=float)
