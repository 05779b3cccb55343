"""Disaggregated serving under a benchmark client: prefill workers, KV transfer, decode workers; N requests in flight in all.

    D = O t_dec(N f / w_d),  f = D / (D + W)
    W = t1 + handling + transfer + t_dec + burst (N / w_p - 1)/2 p + lag min(rho, 2) p,  W >= N p / w_p - D
p is a prefill packed with others, w_p and w_d the workers, rho = N p / (w_p (D + W)) the load of the prefill side.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pddplan.roofline.closed_loop import ITERATIONS, LoopState
from pddplan.roofline.overlay import Overlay, as_float
from pddplan.roofline.speculation import speculative_step
from pddplan.roofline.step import prefill_latency, prefill_passes
from pddplan.roofline.terms import StepTerms


def disaggregated_loop(
    prefill_terms: StepTerms,
    decode_terms: StepTerms,
    overlay: Overlay,
    input_tokens: ArrayLike,
    output_tokens: ArrayLike,
    concurrency: ArrayLike,
    prefill_workers: ArrayLike,
    decode_workers: ArrayLike,
    kv_limit: ArrayLike,
    transfer_s: ArrayLike,
    chunk_tokens: ArrayLike,
    *,
    draft: StepTerms | None = None,
    draft_tokens: ArrayLike = 0.0,
    tokens_per_step: ArrayLike = 1.0,
) -> LoopState:
    """Mean TTFT and TPOT of ``concurrency`` requests over all workers; ``kv_limit`` requests fit one decode worker."""
    isl, osl = as_float(input_tokens), np.maximum(as_float(output_tokens), 1.0)
    n, w_p, w_d = as_float(concurrency), np.maximum(as_float(prefill_workers), 1.0), np.maximum(as_float(decode_workers), 1.0)
    zero = np.zeros_like(isl)
    t1 = prefill_latency(prefill_terms, overlay, isl, zero, chunk_tokens)
    packed = prefill_passes(prefill_terms, overlay, isl, zero, chunk_tokens, packed=True, filled=True)[1]
    packed = packed / (prefill_terms.pp * (1.0 + as_float(overlay.dp_prefill_overlap) * (prefill_terms.dp - 1.0)))
    per_worker = n / w_p
    fixed = as_float(overlay.ttft_s) + as_float(overlay.disaggregated_ttft_s) + as_float(overlay.admission_s) * per_worker
    wave = as_float(overlay.disaggregated_burst) * np.maximum(per_worker - 1.0, 0.0) / 2.0 * packed
    decoding = np.ones_like(isl)
    load = np.zeros_like(isl)
    for _ in range(ITERATIONS):
        running = np.maximum(np.minimum(n * decoding / w_d, as_float(kv_limit)), 1.0)
        step = speculative_step(decode_terms, draft, overlay, running, isl + osl / 2.0, draft_tokens)
        decode_s = osl / as_float(tokens_per_step) * step
        queue = t1 + fixed + as_float(transfer_s) + step + wave + as_float(overlay.lag) * np.minimum(load, 2.0) * packed
        ttft = np.maximum(queue, per_worker * packed - decode_s)
        decoding = 0.5 * decoding + 0.5 * decode_s / (decode_s + ttft)
        load = per_worker * packed / (decode_s + ttft)
    return LoopState(ttft, decode_s / osl, step, t1, running, np.minimum(n, as_float(kv_limit) * w_d))
