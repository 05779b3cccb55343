"""A server under a benchmark client: a fixed number of requests in flight, each replaced when it ends.

Symbols: N requests resident, W time to first token, D decode time of a request, f = D / (D + W) the share that decodes,
s one prefill, O output tokens.
    D = O t_dec(N f) + c f (N - 1) s            running requests wait for the others' prefills
    W = t1 + t_dec + handling + admission N + burst (N - 1)/2 s + lag s
    W >= 0.9 N s - D                            the prefill side saturates
Past the KV limit C requests are resident, and the other N - C wait: W grows by (N / C - 1) (D + W).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pddplan.roofline.overlay import Overlay, as_float
from pddplan.roofline.step import decode_step, prefill_latency, prefill_passes
from pddplan.roofline.terms import FloatArray, StepTerms

ITERATIONS = 8
SATURATION = 0.9


@dataclass(frozen=True)
class LoopState:
    """Steady state of a closed loop. All arrays of the rows' shape; ``resident`` is min(concurrency, KV limit)."""

    ttft_s: FloatArray
    tpot_s: FloatArray
    step_s: FloatArray
    prefill_s: FloatArray
    running: FloatArray
    resident: FloatArray


def closed_loop(
    terms: StepTerms,
    overlay: Overlay,
    input_tokens: ArrayLike,
    output_tokens: ArrayLike,
    concurrency: ArrayLike,
    kv_limit: ArrayLike,
    chunk_tokens: ArrayLike,
    *,
    tokens_per_step: ArrayLike = 1.0,
    queries: ArrayLike = 1.0,
) -> LoopState:
    """Mean TTFT and TPOT at ``concurrency`` requests in flight per instance; ``kv_limit`` requests fit its memory."""
    isl, osl, n_total = as_float(input_tokens), np.maximum(as_float(output_tokens), 1.0), np.maximum(as_float(concurrency), 1.0)
    resident = np.minimum(n_total, np.maximum(as_float(kv_limit), 1.0))
    zero = np.zeros_like(isl)
    t1 = prefill_latency(terms, overlay, isl, zero, chunk_tokens)
    _, alone = prefill_passes(terms, overlay, isl, zero, chunk_tokens, packed=False, filled=False)
    s = alone / terms.pp / (1.0 + as_float(overlay.dp_prefill_overlap) * (terms.dp - 1.0))
    context = isl + osl / 2.0
    handling = as_float(overlay.ttft_s) + as_float(overlay.admission_s) * resident
    waiting = (as_float(overlay.burst) * (resident - 1.0) / 2.0 + as_float(overlay.lag) * (resident > 1)) * s
    decoding = np.ones_like(isl)
    per_token = osl / as_float(tokens_per_step)
    for _ in range(ITERATIONS):
        step = decode_step(terms, overlay, np.maximum(resident * decoding, 1.0), context, queries).total_s
        decode_s = per_token * step + as_float(overlay.interleave) * decoding * (resident - 1.0) * s
        ttft = np.maximum(t1 + step + handling + waiting, SATURATION * resident * s - decode_s)
        decoding = 0.5 * decoding + 0.5 * decode_s / (decode_s + ttft)
    tpot = decode_s / osl
    ttft = ttft + (n_total / resident - 1.0) * (decode_s + ttft)
    return LoopState(ttft, tpot, step, t1, resident * decoding, resident)
