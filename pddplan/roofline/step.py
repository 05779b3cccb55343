"""One forward pass on one instance: decode step and prefill pass, from ``StepTerms`` and an ``Overlay``.

Equations (02-model: section 3; per rank, layer counts inside the coefficients):
    dense GEMM   sum_g max( F_g (m + m_half), W_g + A_g m )
    experts      distinct A = E (1 - (1 + k T / (E a))^-a) / ep, rows R = T k / ep (1 + eps (1 - 1/ep)):
                 max( F (R + m_half A), W A + I R ) + permutation
    attention    max( n (span e + S/r x + state), n q (span p + S/r y) ), span = min(S / r, window)
    collectives  alpha + rows beta
Every function broadcasts its array arguments against the configuration axes of the terms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pddplan.roofline.overlay import Overlay, as_float
from pddplan.roofline.terms import FloatArray, StepTerms


@dataclass(frozen=True)
class StepTime:
    """Seconds of one pass by component, and how much of each the arithmetic alone and the memory traffic alone would take."""

    attention_s: FloatArray
    gemm_s: FloatArray
    experts_s: FloatArray
    collectives_s: FloatArray
    overhead_s: FloatArray
    compute_s: dict[str, FloatArray]
    memory_s: dict[str, FloatArray]

    @property
    def total_s(self) -> FloatArray:
        return self.attention_s + self.gemm_s + self.experts_s + self.collectives_s + self.overhead_s


@dataclass(frozen=True)
class _Part:
    time_s: FloatArray
    compute_s: FloatArray
    memory_s: FloatArray


def _total(values: FloatArray) -> FloatArray:
    """Sum over the term axis (a product with ones: several times faster than a reduction over a short axis)."""
    return np.asarray(values @ np.ones(values.shape[-1]))


def _roof(compute: FloatArray, memory: FloatArray, detail: bool) -> _Part:
    """Sum over the term axis of the larger of the two; ``detail`` also of each."""
    time = _total(np.maximum(compute, memory))
    return _Part(time, _total(compute), _total(memory)) if detail else _Part(time, time, time)


def _capped(factor: FloatArray, share: FloatArray) -> FloatArray:
    """A factor on a kernel's time, but not one that takes it beyond the chip's peak (``share``: what the kernel reaches of it)."""
    return np.maximum(factor[..., None], share)


def _gemm(terms: StepTerms, factor: FloatArray, rows: FloatArray, sequences: FloatArray, detail: bool) -> _Part:
    m = rows[..., None]
    body = _roof(
        terms.gemm_row_s * (m + terms.gemm_half_rows) * _capped(factor, terms.gemm_compute_share),
        (terms.gemm_weight_s + terms.gemm_io_s * m) * _capped(factor, terms.gemm_memory_share),
        detail,
    )
    head_c = terms.head_row_s * (sequences + terms.head_half_rows)
    head_m = terms.head_weight_s + terms.head_io_s * sequences
    return _Part(body.time_s + np.maximum(head_c, head_m), body.compute_s + head_c, body.memory_s + head_m)


def distinct_experts(experts: ArrayLike, top_k: ArrayLike, tokens: ArrayLike, popularity: ArrayLike) -> FloatArray:
    """Experts touched by ``tokens``: E (1 - (1 + k T / (E a))^-a), at least min(k, k T) (one token never repeats an expert)."""
    e, k, t, a = as_float(experts), as_float(top_k), as_float(tokens), as_float(popularity)
    skewed = -e * np.expm1(-a * np.log1p(k * t / (e * a)))
    return np.asarray(np.maximum(skewed, k * np.minimum(t, 1.0)))


def _experts(terms: StepTerms, overlay: Overlay, factor: FloatArray, tokens: FloatArray, rank_tokens: FloatArray, detail: bool) -> _Part:
    """``tokens`` of all attention-DP ranks together, ``rank_tokens`` of one."""
    t = tokens[..., None]
    ep = terms.ep[..., None]
    imbalance = 1.0 + (as_float(overlay.imbalance) * terms.balance)[..., None] * (1.0 - 1.0 / ep)
    rows = t * terms.moe_top_k / ep * imbalance
    active = distinct_experts(terms.moe_experts, terms.moe_top_k, t, as_float(overlay.popularity)[..., None]) / ep
    body = _roof(
        terms.moe_row_s * (rows + terms.moe_half_rows * active) * _capped(factor, terms.moe_compute_share),
        (terms.moe_expert_s * active + terms.moe_io_s * rows) * _capped(factor, terms.moe_memory_share),
        detail,
    )
    permute = factor * _total(terms.moe_permute_s * rows + terms.moe_token_s * rank_tokens[..., None])
    return _Part(body.time_s + permute, body.compute_s, body.memory_s + permute)


def _shown(terms: StepTerms, exchange: FloatArray, arithmetic: FloatArray) -> FloatArray:
    """What is left of the expert exchange when two half batches take turns: one computes while the other's tokens travel."""
    return np.asarray(exchange - terms.exchange_hidden * np.minimum(exchange, arithmetic))


def decode_step(
    terms: StepTerms, overlay: Overlay, batch: ArrayLike, context_tokens: ArrayLike, queries: ArrayLike = 1.0, *, detail: bool = False
) -> StepTime:
    """One decode step of ``batch`` requests in the instance (spread over dp ranks and pp microbatches).

    ``queries`` tokens per request go through the step (draft + 1 with speculation). ``detail`` fills compute_s and memory_s.
    Result: broadcast shape of the arguments.
    """
    sequences = as_float(batch) / (terms.dp * terms.pp)
    rows = sequences * as_float(queries)
    gemm = _gemm(terms, as_float(overlay.gemm_factor), rows, rows, detail)
    experts = _experts(terms, overlay, as_float(overlay.moe_factor), rows * terms.dp, rows, detail)
    s = as_float(context_tokens)[..., None]
    n, q = sequences[..., None], rows[..., None]
    entries = s / terms.attn_ratio
    span = np.minimum(entries, terms.attn_window)
    factor = as_float(overlay.attention_factor)
    attention = _roof(
        q * (span * terms.attn_pair_s + entries * terms.attn_key_pair_s + terms.attn_token_s) * _capped(factor, terms.attn_compute_share),
        n * (span * terms.attn_entry_s + entries * terms.attn_key_s + terms.attn_state_s) * _capped(factor, terms.attn_memory_share),
        detail,
    )
    launch = as_float(overlay.launch_fraction)
    reduce = (terms.reduce_alpha_s + terms.reduce_row_s * rows) * as_float(overlay.reduce_factor)
    exchange = _shown(terms, terms.exchange_alpha_s + terms.exchange_row_s * rows, attention.time_s + gemm.time_s + experts.time_s)
    layer_units = _layer_units(terms, overlay)
    return StepTime(
        attention_s=attention.time_s + launch * terms.attn_launch_s,
        gemm_s=gemm.time_s + launch * terms.gemm_launch_s,
        experts_s=experts.time_s + launch * terms.moe_launch_s,
        collectives_s=reduce + exchange + terms.hop_alpha_s + terms.hop_row_s * rows,
        overhead_s=as_float(overlay.layer_s) * layer_units + as_float(overlay.step_s) + as_float(overlay.sequence_s) * sequences,
        compute_s={"attention": attention.compute_s, "gemm": gemm.compute_s, "experts": experts.compute_s},
        memory_s={"attention": attention.memory_s, "gemm": gemm.memory_s, "experts": experts.memory_s},
    )


def _layer_units(terms: StepTerms, overlay: Overlay) -> FloatArray:
    return np.asarray(
        terms.layers
        + (as_float(overlay.moe_layer_factor) - 1.0) * terms.moe_layers
        + (as_float(overlay.mla_layer_factor) - 1.0) * terms.mla_layers
        + (as_float(overlay.linear_layer_factor) - 1.0) * terms.linear_layers
        + (as_float(overlay.sparse_layer_factor) - 1.0) * terms.sparse_layers
        + (as_float(overlay.block_layer_factor) - 1.0) * terms.block_layers
        + (as_float(overlay.shared_layer_factor) - 1.0) * terms.shared_layers
    )


def _pairs(tokens: FloatArray, ratio: FloatArray, window: FloatArray) -> FloatArray:
    """Integral of min(x / ratio, window) over x from 0 to ``tokens``: (query, entry) pairs of a causal pass."""
    edge = np.minimum(tokens, ratio * window)
    beyond = np.where(np.isfinite(window), tokens - edge, 0.0)
    return np.asarray(edge**2 / (2.0 * ratio) + beyond * np.where(np.isfinite(window), window, 0.0))


MINIMUM_TILE_TOKENS = 1024.0  # a window under this runs at the speed of a span of this length, however little it has to see


def _prefill_attention(terms: StepTerms, factor: FloatArray, uncached: FloatArray, cached: FloatArray, passes: FloatArray) -> _Part:
    """Attention of ``uncached`` new tokens on ``cached``, in ``passes`` chunks; all layers, one request."""
    u, h, n = uncached[..., None], cached[..., None], passes[..., None]
    total = u + h
    pairs = _pairs(total, terms.attn_ratio, terms.attn_window) - _pairs(h, terms.attn_ratio, terms.attn_window)
    key_pairs = (total**2 - h**2) / (2.0 * terms.attn_ratio)
    widest = terms.attn_window * terms.attn_ratio
    span = np.where(widest < MINIMUM_TILE_TOKENS, MINIMUM_TILE_TOKENS, np.minimum(total, widest))
    prefix = n * h + u * np.maximum(n - 1.0, 0.0) / 2.0
    compute = (
        pairs * terms.attn_prefill_pair_s * (1.0 + terms.attn_s_half / np.maximum(span, 1.0))
        + key_pairs * terms.attn_key_pair_s
        + u * terms.attn_token_s
        + prefix * terms.attn_prefix_s
    )
    read = prefix + u
    entries = np.minimum(read / terms.attn_ratio, n * (terms.attn_window + u / n / terms.attn_ratio))
    memory = entries * terms.attn_entry_s + read / terms.attn_ratio * terms.attn_key_s + n * terms.attn_state_s
    return _roof(compute * _capped(factor, terms.attn_prefill_compute_share), memory * _capped(factor, terms.attn_memory_share), True)


@dataclass(frozen=True)
class PrefillTime:
    """Seconds of the passes of one request by component (all chunks), and GPU and CPU floors of the whole."""

    attention_s: FloatArray
    gemm_s: FloatArray
    experts_s: FloatArray
    collectives_s: FloatArray
    elementwise_s: FloatArray
    compute_s: dict[str, FloatArray]
    memory_s: dict[str, FloatArray]

    @property
    def gpu_s(self) -> FloatArray:
        return self.attention_s + self.gemm_s + self.experts_s + self.collectives_s + self.elementwise_s


def _linear(terms: StepTerms, overlay: Overlay, rows: FloatArray, tokens: FloatArray) -> dict[str, _Part]:
    """Everything of a pass of ``rows`` tokens per rank but attention; ``tokens`` of all ranks meet in the experts."""
    launch = as_float(overlay.launch_fraction)
    one = np.ones_like(rows)
    gemm = _gemm(terms, as_float(overlay.prefill_factor), rows, one, True)
    experts = _experts(terms, overlay, np.ones(()), tokens, rows, True)
    reduce = terms.reduce_alpha_s + terms.reduce_row_s * rows
    exchange = _shown(terms, terms.exchange_prefill_alpha_s + terms.exchange_prefill_row_s * rows, gemm.time_s + experts.time_s)
    collectives = reduce + exchange + terms.hop_alpha_s + terms.hop_row_s * rows
    passes = as_float(overlay.prefill_passes) * terms.pass_s * rows
    zero = np.zeros_like(rows)
    return {
        "gemm": _Part(gemm.time_s + launch * terms.gemm_launch_s, gemm.compute_s, gemm.memory_s),
        "experts": _Part(experts.time_s + launch * terms.moe_launch_s, experts.compute_s, experts.memory_s),
        "collectives": _Part(collectives * one, zero, zero),
        "elementwise": _Part(passes, zero, passes),
    }


def prefill_passes(
    terms: StepTerms, overlay: Overlay, uncached: ArrayLike, cached: ArrayLike, chunk_tokens: ArrayLike, *, packed: bool, filled: bool
) -> tuple[PrefillTime, FloatArray]:
    """GPU time by component of one request's prefill, and its total with the CPU launch floor.

    packed: the request's share of full chunks (tails ride with other requests), else whole chunks and a tail alone.
    filled: all attention-DP ranks prefill at once (high load), else the request has the instance for itself.
    """
    u, h = np.maximum(as_float(uncached), 1.0), as_float(cached)
    c = as_float(chunk_tokens)
    u, h, c = np.broadcast_arrays(u, h, c)
    ranks = terms.dp if filled else np.ones_like(terms.dp)
    cpu_s = as_float(overlay.cpu_layer_s) * (
        terms.layers
        + (as_float(overlay.cpu_moe_factor) - 1.0) * terms.moe_layers
        + (as_float(overlay.cpu_mla_factor) - 1.0) * terms.mla_layers
    )
    if packed:
        counts, sizes = [u / c], [c]
    else:
        whole = np.floor(u / c)
        tail = u - whole * c
        counts, sizes = [whole, np.where(tail > 0, 1.0, 0.0)], [c, np.maximum(tail, 1.0)]
    passes = np.maximum(sum(counts[1:], counts[0]), 1e-12)
    core = _prefill_attention(terms, as_float(overlay.prefill_factor), u, h, np.maximum(passes, 1.0))
    launches = as_float(overlay.launch_fraction) * terms.attn_prefill_launch_s * passes
    attention = core.time_s + launches
    total = np.zeros(())
    sums: dict[str, _Part] = {}
    for count, size in zip(counts, sizes, strict=True):
        parts = _linear(terms, overlay, size * np.ones_like(terms.dp), size * ranks)
        for name, part in parts.items():
            old = sums.get(name)
            scaled = _Part(count * part.time_s, count * part.compute_s, count * part.memory_s)
            sums[name] = (
                scaled
                if old is None
                else _Part(old.time_s + scaled.time_s, old.compute_s + scaled.compute_s, old.memory_s + scaled.memory_s)
            )
        share = np.where(packed, c, size) / u
        gpu = sum(part.time_s for part in parts.values()) + attention * share
        total = total + count * (gpu**4 + cpu_s**4) ** 0.25
    time = PrefillTime(
        attention_s=attention,
        gemm_s=sums["gemm"].time_s,
        experts_s=sums["experts"].time_s,
        collectives_s=sums["collectives"].time_s,
        elementwise_s=sums["elementwise"].time_s,
        compute_s={"attention": core.compute_s, "gemm": sums["gemm"].compute_s, "experts": sums["experts"].compute_s},
        memory_s={"attention": core.memory_s, "gemm": sums["gemm"].memory_s, "experts": sums["experts"].memory_s},
    )
    return time, np.asarray(total)


def prefill_latency(terms: StepTerms, overlay: Overlay, uncached: ArrayLike, cached: ArrayLike, chunk_tokens: ArrayLike) -> FloatArray:
    """Seconds of one lone request's prefill on an idle instance: chunks in sequence, tail alone, pipeline fill; no request handling."""
    _, total = prefill_passes(terms, overlay, uncached, cached, chunk_tokens, packed=False, filled=False)
    chunks = np.maximum(np.ceil(as_float(uncached) / as_float(chunk_tokens)), 1.0)
    return np.asarray(total / terms.pp * (1.0 + (terms.pp - 1.0) / chunks))


def prefill_occupancy(
    terms: StepTerms, overlay: Overlay, uncached: ArrayLike, cached: ArrayLike, chunk_tokens: ArrayLike, *, packed: bool = True
) -> FloatArray:
    """Seconds of the instance's capacity that a request's prefill takes at high load.

    Attention-DP ranks prefill side by side but wait for the slowest: their gain is 1 + overlap (dp - 1).
    """
    _, total = prefill_passes(terms, overlay, uncached, cached, chunk_tokens, packed=packed, filled=True)
    gain = 1.0 + as_float(overlay.dp_prefill_overlap) * (terms.dp - 1.0)
    return np.asarray(np.minimum(total / gain / terms.pp, prefill_latency(terms, overlay, uncached, cached, chunk_tokens)))
