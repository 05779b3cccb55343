"""The benefit over the hit rate by the full model: chip time of prefill and decode stages in place of a closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pddplan.economics.benefit_curve import TAIL, BenefitCurve
from pddplan.economics.tokens import TokenPrices
from pddplan.errors import InputError, Problem
from pddplan.stages.protocol import DecodeStage, PrefillStage
from pddplan.units import SECONDS_PER_HOUR

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class PrefillSide:
    """P under the plan's own chunking (``stage``) and with tails packed (``packed``; the same stage where they are already)."""

    stage: PrefillStage
    packed: PrefillStage
    price_per_gpu_h: float


@dataclass(frozen=True)
class DecodeSide:
    """MD with ``batch`` requests in the whole instance. cache_byte_s: bytes of history held in its memory per request/s of traffic, at each
    hit rate, shape of the hit rates; None where history lies elsewhere."""

    stage: DecodeStage
    batch: float
    price_per_gpu_h: float
    cache_byte_s: FloatArray | None = None


def largest_batch(stage: DecodeStage, context_tokens: float, tpot_limit_s: float | None = None, kv_share: float = 1.0) -> float:
    """Requests that an instance runs at once: its engine's cap, its KV memory, and the TPOT limit, whichever binds.

    kv_share: of the KV memory, for running requests. Raises InputError when not one request fits or meets the limit.
    """
    stage.step_s(1.0, context_tokens)  # a stage that tells no step time says so here
    resident = float(stage.kv_resident_bytes(context_tokens))
    memory = stage.kv_capacity_bytes() * kv_share / resident if resident > 0 else np.inf
    batch = np.floor(min(stage.batch_max, memory))
    if batch < 1:
        found = f"room for {memory:.2f} requests of {context_tokens:.0f} tokens"
        raise InputError(Problem("decode instance", found, "memory for at least one request", "more GPUs per instance"))
    if tpot_limit_s is None:
        return float(batch)
    candidates = np.unique(np.floor(np.geomspace(1, batch, 200)))
    tpot = stage.step_s(candidates, context_tokens) / stage.tokens_per_step
    within = candidates[tpot <= tpot_limit_s]
    if within.size == 0:
        found = f"one request alone takes {float(tpot[0]) * 1e3:.1f} ms a token"
        raise InputError(Problem("decode instance", found, f"at most {tpot_limit_s * 1e3:g} ms", "a looser TPOT limit"))
    return float(within[-1])


def model_curve(
    hit_rate: ArrayLike, input_tokens: float, output_tokens: float, prices: TokenPrices, prefill: PrefillSide, decode: DecodeSide
) -> BenefitCurve:
    """Curve of requests of one length over ``hit_rate``, shape (points,): GPU time at a free P:D ratio, TTFT without waiting.

    At least one token is computed, as engines do. Terms: ``prefill work`` (projections, experts and overheads of the uncached
    tokens), ``attention`` (uncached tokens to each other and to the cached ones), ``cache load`` (what even one token pays
    for its cached context), ``tail chunk`` (serial minus packed), ``decode``, ``cache memory`` (instances beyond those that decode
    needs, whose memory holds the history).
    """
    h = np.asarray(hit_rate, dtype=np.float64)
    uncached = np.maximum(np.round((1.0 - h) * input_tokens, 6), 1.0)  # (1 - h) L of whole chunks must not exceed them
    cached = input_tokens - uncached
    prefill_price = prefill.stage.gpus * prefill.price_per_gpu_h / SECONDS_PER_HOUR
    packed_s = prefill.packed.prefill_occupancy_s(uncached, cached)
    alone_s = prefill.packed.prefill_occupancy_s(uncached, 0.0)
    one = np.ones_like(h)
    load_s = np.clip(
        prefill.packed.prefill_occupancy_s(one, cached) - prefill.packed.prefill_occupancy_s(one, 0.0), 0.0, packed_s - alone_s
    )
    half = input_tokens / 2.0
    pair_s = _pair_s(prefill.packed, half)
    own_s = np.minimum(pair_s * uncached**2 / 2.0, alone_s)
    seconds = {
        "prefill work": alone_s - own_s,
        "attention": packed_s - alone_s - load_s + own_s,
        "cache load": load_s,
        TAIL: np.maximum(prefill.stage.prefill_occupancy_s(uncached, cached) - packed_s, 0.0),
    }
    decode_price = decode.stage.gpus * decode.price_per_gpu_h / SECONDS_PER_HOUR
    context = input_tokens + output_tokens / 2.0
    plain_s = np.full_like(h, _decode_s(decode, context, output_tokens))
    held_s = plain_s if decode.cache_byte_s is None else _with_history_s(decode, plain_s, input_tokens + output_tokens)
    terms = {name: value * prefill_price for name, value in seconds.items()}
    terms |= {"decode": plain_s * decode_price, "cache memory": np.maximum(held_s - plain_s, 0.0) * decode_price}
    gpu_s = np.sum(list(seconds.values()), axis=0) * prefill.stage.gpus + held_s * decode.stage.gpus
    ttft_s = prefill.stage.prefill_s(uncached, cached) + decode.stage.step_s(decode.batch, context)
    revenue = np.array([prices.per_request(input_tokens, float(x), output_tokens) for x in h])
    return BenefitCurve(h, revenue, terms, gpu_s, np.asarray(ttft_s, dtype=np.float64))


def _pair_s(stage: PrefillStage, half: float) -> float:
    """Seconds per token pair of attention: what ``half`` tokens pay more on ``half`` cached ones than one token does."""
    tokens, cached = np.array([half, half, 1.0, 1.0]), np.array([half, 0.0, half, 0.0])
    many_on, many, one_on, one = stage.prefill_occupancy_s(tokens, cached)
    return float(max((many_on - many) - (one_on - one), 0.0)) / half**2


def _decode_s(decode: DecodeSide, context_tokens: float, output_tokens: float) -> float:
    """Seconds of the whole instance per request: steps of the answer over the batch that shares each."""
    steps = output_tokens / decode.stage.tokens_per_step
    return float(steps * decode.stage.step_s(decode.batch, context_tokens) / decode.batch)


def _with_history_s(decode: DecodeSide, plain_s: FloatArray, tokens: float) -> FloatArray:
    """Instance-seconds per request whose memory also holds the history: max(D, D b kv / M + held / M), D of decode, M KV memory."""
    assert decode.cache_byte_s is not None
    memory = decode.stage.kv_capacity_bytes()
    running = decode.batch * float(decode.stage.kv_resident_bytes(tokens)) / memory
    return np.maximum(plain_s, plain_s * running + decode.cache_byte_s / memory)
