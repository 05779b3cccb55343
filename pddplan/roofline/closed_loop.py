"""A server under a benchmark client: a fixed number of requests in flight, each replaced when it ends.

Symbols: N requests resident, W time to first token, D decode time of a request, f = D / (D + W) the share that decodes,
s one prefill, O output tokens.
    D = O t_dec(N f) + c (1 - burst/2) f (N - 1) s   running requests wait for the others' prefills
    W = t1 + t_dec + handling + admission N + burst (N - 1)/2 p + min(convoy, (N - 1)/2) p + lag min(N s / (D + W), 2) s
    W >= 0.9 N p - D                                 the prefill side saturates
burst: a run of ten prompts per client starts with all of them at once, a tenth of its requests; an engine that prefills before it
decodes keeps requests of equal length in step, and every wave is such a start. convoy: elsewhere equal lengths keep together what
was admitted together. Where the scheduler polls for new requests every few steps, W grows by half of those.
p is a prefill packed with others (no launch floor of its own), s lies between p and a lone one: p + (s_alone - p) / k, with
k = 1 + N s / (D + W) prefills meeting in a pass.
A prefill that others wait for before they start (burst) does not interrupt them later: hence 1 - burst/2.
Past the KV limit C requests are resident, and the other N - C wait: W grows by (N / C - 1) (D + W).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pddplan.roofline.overlay import Overlay, as_float
from pddplan.roofline.speculation import speculative_step
from pddplan.roofline.step import prefill_latency, prefill_passes
from pddplan.roofline.terms import FloatArray, StepTerms

ITERATIONS = 6
SATURATION = 0.9
POLL_REQUESTS, POLL_FEW = 16, 1.0 / 3.0  # published recipes poll every 30 steps from 16 requests up, every 10 below


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
    draft: StepTerms | None = None,
    draft_tokens: ArrayLike = 0.0,
    tokens_per_step: ArrayLike = 1.0,
) -> LoopState:
    """Mean TTFT and TPOT at ``concurrency`` requests in flight per instance; ``kv_limit`` requests fit its memory."""
    isl, osl, n_total = as_float(input_tokens), np.maximum(as_float(output_tokens), 1.0), np.maximum(as_float(concurrency), 1.0)
    resident = np.minimum(n_total, np.maximum(as_float(kv_limit), 1.0))
    zero = np.zeros_like(isl)
    t1 = prefill_latency(terms, overlay, isl, zero, chunk_tokens)
    side_by_side = terms.pp * (1.0 + as_float(overlay.dp_prefill_overlap) * (terms.dp - 1.0))
    alone = prefill_passes(terms, overlay, isl, zero, chunk_tokens, packed=False, filled=False)[1] / side_by_side
    packed = prefill_passes(terms, overlay, isl, zero, chunk_tokens, packed=True, filled=False)[1] / side_by_side
    context = isl + osl / 2.0
    burst = np.minimum(as_float(overlay.burst), 2.0)
    handling = as_float(overlay.ttft_s) + as_float(overlay.admission_s) * resident + burst * (resident - 1.0) / 2.0 * packed
    handling = handling + np.minimum(as_float(overlay.convoy), (resident - 1.0) / 2.0) * packed
    others = as_float(overlay.interleave) * (1.0 - burst / 2.0) * (resident - 1.0)
    decoding = np.ones_like(isl)
    per_token = osl / as_float(tokens_per_step)
    together = np.ones_like(isl)
    for _ in range(ITERATIONS):
        step = speculative_step(terms, draft, overlay, np.maximum(resident * decoding, 1.0), context, draft_tokens)
        s = packed + (alone - packed) / together
        decode_s = per_token * step + others * decoding * s
        busy = np.minimum(together - 1.0, 2.0)
        queue = t1 + step + handling + as_float(overlay.lag) * busy * s
        ttft = np.maximum(queue, SATURATION * resident * packed - decode_s)
        decoding = 0.5 * decoding + 0.5 * decode_s / (decode_s + ttft)
        together = 1.0 + resident * s / (decode_s + ttft)
    tpot = decode_s / osl
    ttft = ttft + as_float(overlay.poll_steps) * np.where(n_total >= POLL_REQUESTS, 1.0, POLL_FEW) * step
    ttft = ttft + (n_total / resident - 1.0) * (decode_s + ttft)
    return LoopState(ttft, tpot, step, t1, resident * decoding, resident)
