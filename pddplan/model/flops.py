"""FLOPs of a transformer pass: linear parts from the matrices, attention cores from pairs of query and key.

A matrix costs 2 x parameters a token; a query-key pair costs 2 heads (d_qk + d_v). For u new tokens on h cached, a full
layer has u h + u (u + 1) / 2 pairs, a layer limited to k keys at most k per query (exact, not the u^2 / 2 approximation).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pddplan.model.spec import Attention, Layer, ModelSpec

FloatArray = NDArray[np.float64]


def layer_linear_flops(layer: Layer) -> float:
    """FLOPs a token in the matrices of one layer, top_k experts counted."""
    fixed = sum(gemm.params for gemm in (*layer.attention.gemms, *layer.ffn.gemms))
    return 2.0 * (fixed + layer.ffn.top_k * sum(gemm.params for gemm in layer.ffn.expert_gemms))


def linear_flops_per_token(model: ModelSpec) -> float:
    """FLOPs a token in all layers' matrices (output head apart: ``head_flops_per_token``)."""
    return sum(count * layer_linear_flops(layer) for count, layer in model.groups())


def head_flops_per_token(model: ModelSpec) -> float:
    """FLOPs of the output head for each token whose logits are wanted (every decoded one, the last of a prompt)."""
    return 2.0 * (model.lm_head or model.embedding).params


def pairs(new_tokens: ArrayLike, cached_tokens: ArrayLike, limit: float | None = None, stride: float = 1.0) -> FloatArray:
    """Query-key pairs of ``new_tokens`` causal queries on ``cached_tokens``: each sees every ``stride``-th of the tokens up to
    itself, at most ``limit`` of those. Shapes broadcast."""
    u, h = np.asarray(new_tokens, dtype=np.float64), np.asarray(cached_tokens, dtype=np.float64)
    everything = (u * h + u * (u + 1.0) / 2.0) / stride
    if limit is None:
        return np.asarray(everything)
    growing = np.clip(limit * stride - h, 0.0, u)
    before = (growing * h + growing * (growing + 1.0) / 2.0) / stride
    return np.asarray(before + (u - growing) * limit)


def attention_core_flops(attention: Attention, new_tokens: ArrayLike, cached_tokens: ArrayLike, *, absorbed: bool = False) -> FloatArray:
    """FLOPs of scores and weighted sums of one layer (indexer apart).

    absorbed: MLA as decoded, on the latent itself (rank + rope for scores, rank for values) in place of expanded heads.
    """
    u, h = np.asarray(new_tokens, dtype=np.float64), np.asarray(cached_tokens, dtype=np.float64)
    if attention.kind == "none":
        return np.zeros(np.broadcast_shapes(u.shape, h.shape))
    if attention.kind == "linear":
        state = attention.state
        size = 0 if state is None else state.value_heads * state.key_dim * state.value_dim
        return np.asarray(4.0 * size * u + 0.0 * h)
    per_pair = 2.0 * attention.heads * (attention.qk_head_dim + attention.v_head_dim)
    if attention.kind == "mla":
        if absorbed:
            per_pair = 2.0 * attention.heads * (2 * attention.kv_lora_rank + attention.qk_rope_head_dim)
        return per_pair * pairs(u, h, attention.indexer.top_k if attention.indexer else None)
    if attention.kind in ("csa", "hca"):
        chosen = attention.indexer.top_k if attention.indexer else None
        entries = pairs(u, h, chosen, attention.compress_ratio)
        return per_pair * (entries + pairs(u, h, attention.window_tokens))
    limit = attention.indexer.top_k if attention.indexer else attention.window_tokens
    return per_pair * pairs(u, h, limit)


def indexer_flops(attention: Attention, new_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
    """FLOPs of scoring every (compressed) key with the indexer's heads; 0 where the layer reuses another's choice."""
    indexer = attention.indexer
    if indexer is None or not indexer.owns_keys:
        return np.zeros(np.broadcast_shapes(np.shape(new_tokens), np.shape(cached_tokens)))
    return 2.0 * indexer.heads * indexer.head_dim * pairs(new_tokens, cached_tokens, None, attention.compress_ratio)


def prefill_flops(model: ModelSpec, new_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
    """FLOPs of ``new_tokens`` on top of ``cached_tokens``: linear layers, attention cores, indexers, one output row."""
    u = np.asarray(new_tokens, dtype=np.float64)
    total = linear_flops_per_token(model) * u + head_flops_per_token(model) * (u > 0)
    for count, layer in model.groups():
        total = total + count * (
            attention_core_flops(layer.attention, u, cached_tokens) + indexer_flops(layer.attention, u, cached_tokens)
        )
    return np.asarray(total, dtype=np.float64)


def decode_flops_parts(model: ModelSpec, context_tokens: ArrayLike) -> dict[str, FloatArray]:
    """FLOPs of one decoded token on ``context_tokens``: linear (with head), core, indexer."""
    context = np.asarray(context_tokens, dtype=np.float64)
    before = np.maximum(context - 1.0, 0.0)
    core, indexer = np.zeros(context.shape), np.zeros(context.shape)
    for count, layer in model.groups():
        core = core + count * attention_core_flops(layer.attention, 1.0, before, absorbed=True)
        indexer = indexer + count * indexer_flops(layer.attention, 1.0, before)
    linear = np.full(context.shape, linear_flops_per_token(model) + head_flops_per_token(model))
    return {"linear": linear, "core": core, "indexer": indexer}


def flops_per_token(model: ModelSpec, context_tokens: ArrayLike) -> FloatArray:
    """FLOPs of decoding one token at ``context_tokens`` (itself included)."""
    parts = decode_flops_parts(model, context_tokens)
    return np.asarray(parts["linear"] + parts["core"] + parts["indexer"], dtype=np.float64)
