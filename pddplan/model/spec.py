"""What a model is, once its config.json has been read: layers with an attention and an FFN kind, every matrix with its size.

Plain values only. Reading a config is model/config.py; KV size model/kv_cache.py; weights model/weights.py;
FLOPs model/flops.py; legality of a mapping model/parallel.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

AttentionKind = Literal["full", "window", "mla", "csa", "hca", "linear", "none"]
FfnKind = Literal["dense", "moe", "none"]
Shard = Literal["out", "in", "none", "experts"]
WeightGroup = Literal["attention", "dense_ffn", "shared_experts", "experts", "router", "embedding", "lm_head", "norm", "indexer"]
WEIGHT_GROUPS: tuple[WeightGroup, ...] = get_args(WeightGroup)


@dataclass(frozen=True)
class Gemm:
    """One weight matrix y = W x: ``out_features`` x ``in_features``.

    shard: how tensor parallelism cuts it ("out" columns, "in" rows, "none" replicated, "experts" by expert).
    group: decides its stored precision (ModelSpec.weight_bits).
    """

    name: str
    out_features: int
    in_features: int
    shard: Shard
    group: WeightGroup
    max_shards: int = 0  # cut at most this many ways, replicated beyond (key and value projections: KV heads); 0: no limit

    @property
    def params(self) -> int:
        return self.out_features * self.in_features


@dataclass(frozen=True)
class Indexer:
    """Sparse-attention indexer (DSA of DeepSeek-V3.2 and GLM-5, CSA of DeepSeek-V4): scores every key, keeps ``top_k``."""

    heads: int
    head_dim: int
    top_k: int  # tokens kept (for block-sparse attention: blocks x block size)
    owns_keys: bool = True  # False where a layer reuses the selection of another
    key_format: str = "fp8"  # fp8: 1 byte and a 4-byte scale per key; kv: the dtype of the cache beside it


@dataclass(frozen=True)
class LinearState:
    """Recurrent state of linear attention (GDN, KDA, Mamba2, Lightning): constant per request, no growth per token."""

    kind: str
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_channels: int = 0
    conv_steps: int = 0  # columns of the convolution's cache (kernel - 1)
    state_dtype_bytes: float = 4.0
    conv_dtype_bytes: float = 4.0
    conv_fused: bool = True  # one convolution over q, k, v kept with the state; False: KDA's three separate ones

    @property
    def state_bytes(self) -> float:
        """Recurrent matrices, with the convolution's cache where it is part of the same entry."""
        matrices = self.value_heads * self.key_dim * self.value_dim * self.state_dtype_bytes
        return matrices + (self.conv_bytes if self.conv_fused else 0.0)

    @property
    def conv_bytes(self) -> float:
        return self.conv_channels * self.conv_steps * self.conv_dtype_bytes


@dataclass(frozen=True)
class Attention:
    """Attention (or its substitute) of one layer. Fields that a kind does not use are 0 or None.

    full, window: ``kv_heads`` heads of ``qk_head_dim`` keys and ``v_head_dim`` values; ``window_tokens`` caps the span.
    mla: latent of ``kv_lora_rank`` + ``qk_rope_head_dim``; with ``indexer`` it is DSA.
    csa, hca: DeepSeek-V4, one entry per ``compress_ratio`` tokens and a window beside it.
    linear: ``state`` per request.
    """

    kind: AttentionKind
    heads: int = 0
    kv_heads: int = 0
    qk_head_dim: int = 0
    v_head_dim: int = 0
    window_tokens: int | None = None
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    compress_ratio: int = 1
    indexer: Indexer | None = None
    state: LinearState | None = None
    stores_kv: bool = True  # False where the layer reads another layer's cache
    shared_kv: bool = False  # one stored vector serves as key and value (DeepSeek-V4)
    gemms: tuple[Gemm, ...] = ()
    vector_params: int = 0  # norms, biases, sinks, convolution taps


@dataclass(frozen=True)
class Ffn:
    """Feed-forward part of one layer.

    dense: ``gemms``. moe: ``gemms`` are router and shared experts; each routed expert has ``expert_gemms``;
    ``top_k`` of ``experts`` serve a token. ``intermediate`` is the routed (moe) or dense inner width.
    """

    kind: FfnKind
    intermediate: int = 0
    experts: int = 0
    top_k: int = 0
    shared_intermediate: int = 0
    gemms: tuple[Gemm, ...] = ()
    expert_gemms: tuple[Gemm, ...] = ()
    vector_params: int = 0
    expert_vector_params: int = 0  # per routed expert (biases)


@dataclass(frozen=True)
class Layer:
    attention: Attention
    ffn: Ffn


@dataclass(frozen=True)
class ModelSpec:
    """A model as understood from its config.

    layers: in order, MTP layers excluded (``mtp_layers`` beside them). weight_bits: effective bits per weight of each group,
    scales included. native_kv_dtype: what the checkpoint asks for, or None. origin: each dimension's config key.
    """

    name: str
    architecture: str
    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    embedding: Gemm
    lm_head: Gemm | None  # None when tied to the embedding
    final_vector_params: int
    weight_bits: Mapping[WeightGroup, float]
    weight_dtype: Mapping[WeightGroup, str]  # compute family per group: bf16 | fp8 | fp8_block | nvfp4 | mxfp4 | int4 | int8
    max_position_embeddings: int | None = None
    native_kv_dtype: str | None = None
    kv_formats: tuple[str, ...] = ("bf16", "fp8", "int4", "nvfp4", "fp32")
    default_kv_format: str = "bf16"
    mtp_layers: tuple[Layer, ...] = ()
    mtp_params: int = 0
    mtp_bits: float = 16.0  # mean stored bits of the MTP layers' weights
    vision_params: int = 0
    fp8_block: tuple[int, int] | None = None  # (rows, columns) of a block-scaled FP8 checkpoint
    validated: bool = True  # False: unknown architecture, generic estimate
    origin: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def groups(self) -> tuple[tuple[int, Layer], ...]:
        """Distinct layers with their counts, in order of first appearance."""
        return self._groups

    @property
    def distinct_layers(self) -> tuple[Layer, ...]:
        return tuple(layer for _, layer in self._groups)

    @cached_property
    def _groups(self) -> tuple[tuple[int, Layer], ...]:
        counts: dict[int, int] = {}
        kept: dict[int, Layer] = {}
        for layer in self.layers:
            counts[id(layer)] = counts.get(id(layer), 0) + 1
            kept[id(layer)] = layer
        merged: dict[Layer, int] = {}
        for key, layer in kept.items():
            merged[layer] = merged.get(layer, 0) + counts[key]
        return tuple((count, layer) for layer, count in merged.items())


@dataclass(frozen=True)
class Parallel:
    """Parallel sizes of one instance. GPUs = tp x dp x pp.

    dp: attention data-parallel ranks inside the instance (each rank holds the attention of its own requests).
    moe_ep x moe_tp = tp x dp for MoE layers (experts are spread over moe_ep ranks, each cut moe_tp ways).
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    moe_ep: int = 1
    moe_tp: int = 1
    redundant_experts: int = 0

    @property
    def gpus(self) -> int:
        return self.tp * self.dp * self.pp
