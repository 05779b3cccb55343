"""Extend-decode handoff: how RLD's eager tokens become MD's, and what the user sees of it.

Token ids are sent, MD recomputes their KV: extend(n) = e0 + e1 n seconds on MD. One-shot sends all at once. Catch-up sends what there
is, RLD decodes on meanwhile, n_{i+1} = (extend(n_i) + RTT) / tau_R, until at most max(k, n_inf) are left, with
n_inf = (e0 + RTT) / (tau_R - e1); it diverges when e1 >= tau_R. Ship-KV sends the KV of the eager tokens instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pddplan.pdd.plan import Handoff

FloatArray = NDArray[np.float64]

CATCH_UP_THRESHOLD_TOKENS = 64.0
CATCH_UP_BATCHES_MAX = 12
SHIP_KV_COPY_S_PER_BYTE = 24.5e-3 / 4649e3
"""Memory copies of shipped KV: 24.5 ms for 4649 KB in the published micro-benchmark (measured)."""
TOKEN_ID_BYTES = 4.0


@dataclass(frozen=True)
class Extend:
    """extend(n) = base_s + per_token_s n, the time MD takes to recompute n ids; arrays of shape (atoms,) or scalars."""

    base_s: FloatArray
    per_token_s: FloatArray

    def __call__(self, tokens: FloatArray) -> FloatArray:
        return self.base_s + self.per_token_s * tokens


@dataclass(frozen=True)
class Outcome:
    """What the handoff of each atom does, shape (atoms,).

    stall_s: gap that the user sees between RLD's last token and MD's first, MD's queue not counted. extra_tokens: decoded on RLD while
    catching up. rld_extra_s: seconds RLD stays busy with the request after the transfer. extend_s: MD seconds spent recomputing.
    first_extend_s: of them for the first, largest batch. batches: handoff batches. line_bytes: sent for the handoff.
    """

    stall_s: FloatArray
    extra_tokens: FloatArray
    rld_extra_s: FloatArray
    extend_s: FloatArray
    first_extend_s: FloatArray
    batches: FloatArray
    line_bytes: FloatArray


def resolve(mode: Handoff, rld_utilisation: float, catch_up_below: float) -> Literal["one-shot", "catch-up", "ship-kv"]:
    """What ``auto`` means at an RLD load: catch up below ``catch_up_below``, free RLD at once above it."""
    if mode == "auto":
        return "catch-up" if rld_utilisation < catch_up_below else "one-shot"
    return mode


def one_shot(eager_tokens: FloatArray, extend: Extend, rtt_s: float) -> Outcome:
    """All ids in one batch: stall = RTT/2 + extend(n)."""
    busy = extend(eager_tokens)
    zero = np.zeros_like(eager_tokens)
    return Outcome(rtt_s / 2.0 + busy, zero, zero, busy, busy, zero + 1.0, eager_tokens * TOKEN_ID_BYTES)


def ship_kv(kv_bytes: FloatArray, flow_bytes_per_s: FloatArray, step_s: float, rtt_s: float) -> Outcome:
    """The KV of the eager tokens crosses the line: stall = RTT/2 + bytes / rate + copies + the first decode step; nothing is recomputed."""
    zero = np.zeros_like(kv_bytes)
    stall = rtt_s / 2.0 + kv_bytes / flow_bytes_per_s + kv_bytes * SHIP_KV_COPY_S_PER_BYTE + step_s
    return Outcome(stall, zero, zero, zero, zero, zero + 1.0, kv_bytes)


def catch_up_limit_tokens(extend: Extend, token_s: float, rtt_s: float) -> FloatArray:
    """n_inf, the batch size that catch-up converges to; inf where it diverges (e1 >= tau_R)."""
    gain = token_s - extend.per_token_s
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gain > 0.0, (extend.base_s + rtt_s) / gain, np.inf)


def catch_up(
    eager_tokens: FloatArray,
    remaining_tokens: FloatArray,
    extend: Extend,
    token_s: float,
    rtt_s: float,
    threshold_tokens: float = CATCH_UP_THRESHOLD_TOKENS,
) -> Outcome:
    """Batches while RLD decodes on, then a last batch of at most max(threshold, n_inf) ids.

    ``remaining_tokens``: of the answer after the eager ones; RLD never decodes past it. Where catch-up diverges it is one-shot.
    """
    limit = np.maximum(threshold_tokens, catch_up_limit_tokens(extend, token_s, rtt_s) * 1.01)
    batch = np.array(eager_tokens, dtype=np.float64)
    left = np.array(remaining_tokens, dtype=np.float64)
    extra, busy_rld, busy_md, batches = (np.zeros_like(batch) for _ in range(4))
    for _ in range(CATCH_UP_BATCHES_MAX):
        going = (batch > limit) & (left > 0.0)
        if not going.any():
            break
        taken = np.where(going, extend(batch), 0.0)
        duration = np.where(going, taken + rtt_s, 0.0)
        produced = np.minimum(duration / token_s, left)
        extra += produced
        left -= produced
        busy_rld += np.minimum(duration, produced * token_s)
        busy_md += taken
        batches += going
        batch = np.where(going, produced, batch)
    ended = left <= 0.0
    last = np.where(ended, 0.0, extend(batch))
    stall = np.where(ended, 0.0, rtt_s / 2.0 + last)
    return Outcome(
        stall, extra, busy_rld, busy_md + last, extend(eager_tokens), batches + ~ended, (eager_tokens + extra) * TOKEN_ID_BYTES
    )
