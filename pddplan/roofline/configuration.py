"""Model x parallel sizes x chip x engine -> ``StepTerms``: every layer's work on one rank, priced by the kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from pddplan.hardware.dtypes import compute_dtype
from pddplan.hardware.types import Chip
from pddplan.model.kv_cache import KvTerm, kv_cache
from pddplan.model.spec import Attention, Ffn, Gemm, Layer, ModelSpec, Parallel, WeightGroup
from pddplan.roofline.kernels import AttentionKernel, KernelSet
from pddplan.roofline.terms import StepTerms

HIDDEN_STATE_BYTES = 2.0
DISPATCH_BYTES = 1.0  # fp8 activations to the experts, bf16 back
COMBINE_BYTES = 2.0
HOP_ALPHA_S = 10e-6
REDUNDANCY_GAIN = 16.0
"""Imbalance left with r redundant copies of E experts: 1 / (1 + 16 r / E), a third at DeepSeek's 32 of 256 (assumed)."""


@dataclass(frozen=True)
class _Matrix:
    """A GEMM of one rank: ``count`` times (n, k), stored as ``dtype`` at ``weight_bytes`` per weight."""

    n: float
    k: float
    dtype: str
    weight_bytes: float
    count: float


def _fused(gemms: Iterable[Gemm]) -> list[list[Gemm]]:
    """Matrices that engines run as one GEMM: the same input, cut and precision (q, k, v; gate and up)."""
    groups: dict[tuple[object, ...], list[Gemm]] = {}
    for g in gemms:
        key = (g.in_features, g.shard, g.group) if g.shard in ("out", "none") else (g.name, g.shard, g.group)
        groups.setdefault(key, []).append(g)
    return list(groups.values())


def _matrices(gemms: Sequence[Gemm], model: ModelSpec, tp: int, count: float) -> list[_Matrix]:
    out = []
    for group in _fused(gemms):
        n = k = 0.0
        for g in group:
            n += g.out_features / (min(tp, g.max_shards or tp) if g.shard == "out" else 1)
            k = g.in_features / (tp if g.shard == "in" else 1)
        first = group[0]
        out.append(_Matrix(n, k, model.weight_dtype[first.group], model.weight_bits[first.group] / 8.0, count))
    return out


def _activation_bytes(dtype: str) -> float:
    return {"fp8": 1.0, "fp8_block": 1.0, "int8": 1.0, "nvfp4": 0.5625}.get(dtype, 2.0)


def _gemm_fields(matrices: Sequence[_Matrix], kernels: KernelSet) -> dict[str, object]:
    row, half, weight, io, shares, launch = [], [], [], [], [], 0.0
    for m in matrices:
        kernel = kernels.gemm(m.dtype)
        row.append(m.count * 2.0 * m.n * m.k / kernel.flops_per_s)
        half.append(kernel.m_half)
        weight.append(m.count * m.n * m.k * m.weight_bytes / kernel.bytes_per_s)
        io.append(m.count * (_activation_bytes(m.dtype) * m.k + 2.0 * m.n) / kernel.bytes_per_s)
        shares.append((kernel.compute_share, kernel.memory_share))
        launch += m.count * kernel.t0_s
    return {
        "gemm_row_s": row,
        "gemm_half_rows": half,
        "gemm_weight_s": weight,
        "gemm_io_s": io,
        "gemm_compute_share": [c for c, _ in shares],
        "gemm_memory_share": [m for _, m in shares],
        "gemm_launch_s": launch,
    }


@dataclass(frozen=True)
class _Core:
    """Attention core of one kind on one rank; entries are of ``ratio`` tokens, at most ``window`` of them."""

    kernel: AttentionKernel
    prefill: AttentionKernel
    count: float
    window: float = inf
    ratio: float = 1.0
    entry_bytes: float = 0.0
    pair_flops: float = 0.0
    prefill_pair_flops: float = 0.0
    key_bytes: float = 0.0
    key_pair_s: float = 0.0
    state_bytes: float = 0.0
    token_flops: float = 0.0
    prefix_flops: float = 0.0
    prefix_flops_per_s: float = 1.0


@dataclass(frozen=True)
class _Cached:
    """What one layer caches: bytes per entry, per indexer key, and of state per request."""

    entry_bytes: float
    key_bytes: float
    state_bytes: float


def _cached(a: Attention, terms: Sequence[KvTerm]) -> _Cached:
    slope = max(
        (t.slope * (a.compress_ratio if t.window_tokens is None else 1) for t in terms if t.part in ("latent", "window")), default=0.0
    )
    key = sum(t.slope * a.compress_ratio for t in terms if t.part == "indexer")
    return _Cached(slope, key, sum(t.constant for t in terms if t.part in ("state", "convolution")))


def _cores(a: Attention, cached: _Cached, count: float, tp: int, kernels: KernelSet, kv_dtype: str) -> list[_Core]:
    """Attention cores of one layer kind, ``count`` times. A layer that reads another's cache still reads it."""
    heads = ceil(a.heads / tp)
    gqa, gqa_prefill = kernels.decode_attention(kv_dtype), kernels.prefill_attention("bf16")
    flops = 2.0 * heads * (a.qk_head_dim + a.v_head_dim)
    window = float(a.window_tokens) if a.window_tokens else inf
    if a.kind == "linear":
        state = 0.0 if a.state is None else a.state.value_heads * a.state.key_dim * a.state.value_dim
        return [_Core(gqa, gqa_prefill, count, 0.0, state_bytes=2.0 * cached.state_bytes / tp, token_flops=4.0 * state / tp)]
    if a.kind in ("csa", "hca"):
        kernel = kernels.mla_decode("fp8")
        near = _Core(kernel, kernel, count, window, 1.0, cached.entry_bytes, flops, flops)
        if a.indexer is not None:
            return [_selected(a, cached, count, kernel, flops, kernels), near]
        return [_Core(kernel, kernel, count, inf, float(a.compress_ratio), cached.entry_bytes, flops, flops), near]
    if a.kind == "mla":
        absorbed = 2.0 * heads * (2 * a.kv_lora_rank + a.qk_rope_head_dim)
        decode = kernels.mla_decode(kv_dtype)
        if a.indexer is not None:
            return [_selected(a, cached, count, decode, absorbed, kernels)]
        expand = 2.0 * heads * a.kv_lora_rank * (a.qk_nope_head_dim + a.v_head_dim)
        return [
            _Core(
                decode, kernels.mla_prefill(kv_dtype), count, entry_bytes=cached.entry_bytes, pair_flops=absorbed,
                prefill_pair_flops=flops, prefix_flops=expand, prefix_flops_per_s=kernels.gemm("bf16").flops_per_s,
            )
        ]  # fmt: skip
    if a.kind in ("full", "window"):
        share = max(1.0, a.kv_heads / tp) / a.kv_heads
        here = _Cached(cached.entry_bytes * share, cached.key_bytes, 0.0)
        if a.indexer is not None:
            return [_selected(a, here, count, gqa, flops, kernels)]
        return [_Core(gqa, gqa_prefill, count, window, 1.0, here.entry_bytes, flops, flops)]
    return []


def _selected(a: Attention, cached: _Cached, count: float, kernel: AttentionKernel, flops: float, kernels: KernelSet) -> _Core:
    """Sparse attention: the indexer scores every entry, the core reads its top k."""
    indexer = a.indexer
    assert indexer is not None
    scores = 2.0 * indexer.heads * indexer.head_dim / kernels.gemm("fp8").flops_per_s if indexer.owns_keys else 0.0
    return _Core(
        kernel, kernel, count, float(indexer.top_k), float(a.compress_ratio), cached.entry_bytes, flops, flops, cached.key_bytes, scores
    )


def _attention_fields(cores: Sequence[_Core], kernels: KernelSet) -> dict[str, object]:
    bandwidth = kernels.hbm_bytes_per_s
    return {
        "attn_window": [c.window for c in cores],
        "attn_ratio": [c.ratio for c in cores],
        "attn_entry_s": [c.count * c.entry_bytes / c.kernel.bytes_per_s for c in cores],
        "attn_pair_s": [c.count * c.pair_flops / c.kernel.flops_per_s for c in cores],
        "attn_key_s": [c.count * c.key_bytes / c.kernel.bytes_per_s for c in cores],
        "attn_key_pair_s": [c.count * c.key_pair_s for c in cores],
        "attn_state_s": [c.count * c.state_bytes / (0.8 * bandwidth) for c in cores],
        "attn_token_s": [c.count * c.token_flops / c.prefill.flops_per_s for c in cores],
        "attn_prefill_pair_s": [c.count * c.prefill_pair_flops / c.prefill.flops_per_s for c in cores],
        "attn_s_half": [c.prefill.s_half for c in cores],
        "attn_prefix_s": [c.count * c.prefix_flops / c.prefix_flops_per_s for c in cores],
        "attn_compute_share": [c.kernel.compute_share for c in cores],
        "attn_prefill_compute_share": [c.prefill.compute_share for c in cores],
        "attn_memory_share": [c.kernel.memory_share for c in cores],
        "attn_launch_s": sum(c.count * c.kernel.t0_s for c in cores),
        "attn_prefill_launch_s": sum(c.count * c.prefill.t0_s for c in cores),
    }


def _moe_fields(ffns: Sequence[tuple[float, Ffn]], model: ModelSpec, parallel: Parallel, kernels: KernelSet) -> dict[str, object]:
    names = ("experts", "top_k", "row_s", "half_rows", "expert_s", "io_s", "permute_s", "token_s", "compute_share", "memory_share")
    columns: dict[str, list[float]] = {f"moe_{name}": [] for name in names}
    launch = 0.0
    h = float(model.hidden_size)
    bytes_per_weight = model.weight_bits["experts"] / 8.0
    for count, ffn in ffns:
        kernel = kernels.moe(model.weight_dtype["experts"])
        params = sum(g.params for g in ffn.expert_gemms) / parallel.moe_tp
        inner = ffn.intermediate / parallel.moe_tp
        values = (
            float(ffn.experts),
            float(ffn.top_k),
            count * 2.0 * params / kernel.flops_per_s,
            kernel.m_half,
            count * params * bytes_per_weight / kernel.bytes_per_s,
            count * 4.0 * h / kernel.bytes_per_s,
            count * 6.0 * (h + inner) / kernel.activation_bytes_per_s,
            count * 4.0 * h / kernel.activation_bytes_per_s,
            kernel.compute_share,
            kernel.memory_share,
        )
        for name, value in zip(columns, values, strict=True):
            columns[name].append(value)
        launch += count * kernel.t0_s
    if not ffns:
        columns = {name: [1.0 if name == "moe_experts" else 0.0] for name in columns}
    return {**columns, "moe_launch_s": launch}


def _collective_fields(model: ModelSpec, parallel: Parallel, kernels: KernelSet, moe_layers: float, top_k: float) -> dict[str, object]:
    """Two all-reduces a layer under TP; under attention DP the experts are reached by dispatch and combine instead.

    Beyond the scale-up domain engines run two half batches in turns, so that the exchange hides behind arithmetic
    (DeepSeek's dual micro-batches, SGLang's two-batch overlap).
    """
    h = float(model.hidden_size)
    layers = float(len(model.layers))
    ffn_layers = sum(1.0 for layer in model.layers if layer.ffn.kind != "none")
    mixers = sum(1.0 for layer in model.layers if layer.attention.kind != "none")
    exchanged = moe_layers if parallel.dp > 1 else 0.0
    reduces = (mixers + ffn_layers - exchanged) if parallel.tp > 1 else 0.0
    reduce = kernels.all_reduce(parallel.tp)
    out: dict[str, object] = {
        "reduce_alpha_s": reduces * reduce.alpha_s,
        "reduce_row_s": reduces * h * HIDDEN_STATE_BYTES / reduce.bytes_per_s,
        "hop_alpha_s": (parallel.pp - 1) * HOP_ALPHA_S,
        "hop_row_s": (parallel.pp - 1) * h * HIDDEN_STATE_BYTES / _hop_rate(kernels, parallel),
    }
    ranks = parallel.tp * parallel.dp
    copies = min(top_k, float(ranks)) if parallel.moe_ep > 1 else float(ranks - 1)
    for suffix, low_latency in (("", True), ("_prefill", False)):
        alpha = row = 0.0
        if exchanged:
            dispatch, combine = kernels.expert_exchange(ranks, low_latency, copies)
            alpha = exchanged * (dispatch.alpha_s + combine.alpha_s)
            row = exchanged * copies * h * (DISPATCH_BYTES / dispatch.bytes_per_s + COMBINE_BYTES / combine.bytes_per_s)
        out[f"exchange{suffix}_alpha_s"] = alpha
        out[f"exchange{suffix}_row_s"] = row / parallel.tp
    out["exchange_hidden"] = 1.0 if exchanged and ranks > kernels.domain else 0.0
    out["layers"] = layers
    return out


def _hop_rate(kernels: KernelSet, parallel: Parallel) -> float:
    chip = kernels.chip
    inside = parallel.gpus <= int(chip.scaleup_domain.value or 1)
    rate = chip.scaleup_bytes_per_s.value if inside else chip.scaleout_bytes_per_s.value
    return float(rate or chip.scaleout_bytes_per_s.value or 25e9) * kernels.scale_out_efficiency


def configuration_terms(model: ModelSpec, parallel: Parallel, kernels: KernelSet, kv_format: str) -> StepTerms:
    """Terms of one configuration: shapes (G,), (A,), (E,) and scalars. Legality is model/parallel.py's."""
    tp = parallel.tp
    matrices: list[_Matrix] = []
    cores: list[_Core] = []
    ffns: list[tuple[float, Ffn]] = []
    cache = kv_cache(model, kv_format)
    kv_dtype = "bf16" if cache.format in ("bf16", "fp32") else "fp8"
    for count, layer in model.groups():
        matrices += _matrices(layer.attention.gemms, model, tp, count)
        matrices += _matrices(layer.ffn.gemms, model, tp, count)
        cached = _cached(layer.attention, _terms_of(layer, model, cache.terms))
        cores += _cores(layer.attention, cached, count, tp, kernels, kv_dtype)
        if layer.ffn.kind == "moe":
            ffns.append((float(count), layer.ffn))
    moe_layers = sum(count for count, _ in ffns)
    top_k = max((float(f.top_k) for _, f in ffns), default=0.0)
    head = model.lm_head or model.embedding
    head_kernel = kernels.gemm(model.weight_dtype["lm_head"])
    n, k = head.out_features / tp, float(head.in_features)
    head_bytes = n * k * model.weight_bits["lm_head"] / 8.0
    scalars: dict[str, object] = {
        "head_row_s": 2.0 * n * k / head_kernel.flops_per_s,
        "head_half_rows": head_kernel.m_half,
        "head_weight_s": head_bytes / head_kernel.bytes_per_s,
        "head_io_s": (2.0 * k + 4.0 * n) / head_kernel.bytes_per_s,
        "pass_s": len(model.layers) * model.hidden_size * HIDDEN_STATE_BYTES / kernels.hbm_bytes_per_s,
        "moe_layers": moe_layers,
        "mla_layers": _count(model.layers, "mla", "csa", "hca"),
        "linear_layers": _count(model.layers, "linear"),
        "shared_layers": sum(layer.ffn.shared_intermediate > 0 for layer in model.layers),
        "block_layers": len(model.layers) if model.weight_dtype[_main_group(model)] == "fp8_block" else 0,
        "sparse_layers": sum(layer.attention.indexer is not None for layer in model.layers),
        "tp": tp,
        "dp": parallel.dp,
        "pp": parallel.pp,
        "ep": parallel.moe_ep,
        "balance": 1.0 / (1.0 + REDUNDANCY_GAIN * parallel.redundant_experts / max((f.experts for _, f in ffns), default=1)),
    }
    values = {
        **_gemm_fields(matrices, kernels),
        **_attention_fields(cores, kernels),
        **_moe_fields(ffns, model, parallel, kernels),
        **_collective_fields(model, parallel, kernels, moe_layers, top_k),
        **scalars,
    }
    return StepTerms(**{name: np.asarray(value, dtype=float) for name, value in values.items()})


def _terms_of(layer: Layer, model: ModelSpec, terms: Sequence[KvTerm]) -> list[KvTerm]:
    """Cache terms of a layer; of one that stores none, those of the nearest earlier layer of its kind."""
    index = model.layers.index(layer)
    while index > 0 and not model.layers[index].attention.stores_kv:
        index -= 1
        while index > 0 and model.layers[index].attention.kind != layer.attention.kind:
            index -= 1
    return [term for term in terms if term.layer == index]


def _main_group(model: ModelSpec) -> WeightGroup:
    return "experts" if any(layer.ffn.kind == "moe" for layer in model.layers) else "dense_ffn"


def _count(layers: Sequence[Layer], *kinds: str) -> int:
    return sum(layer.attention.kind in kinds for layer in layers)


def configuration_warnings(model: ModelSpec, chip: Chip) -> tuple[str, ...]:
    """What a reader must know of a price: formats the chip lacks, efficiencies of another chip, a model read generically."""
    groups: tuple[WeightGroup, ...] = ("attention", "experts", "dense_ffn")
    found = [compute_dtype(chip, model.weight_dtype[group])[1] for group in groups]
    if chip.efficiency_kind != "measured":
        found.append(f"{chip.name}: no kernel of this chip was measured; efficiencies are those of {chip.efficiency_of} (assumed)")
    if not model.validated:
        found.append(f"{model.name}: unvalidated architecture, a generic estimate")
    return tuple(dict.fromkeys(text for text in found if text))
