"""Parameters and bytes of a model's weights, whole and per GPU under a mapping.

bytes = sum over groups of parameters x bits / 8, bits per weight with scales (ModelSpec.weight_bits); norms, biases and other
vectors at 16 bits. MTP layers and the vision tower are apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pddplan.model.parallel import layers_of_stage, stages
from pddplan.model.spec import Gemm, Layer, ModelSpec, Parallel, WeightGroup

BITS_PER_BYTE = 8.0


@dataclass(frozen=True)
class Parameters:
    """total: all of the language model. active: those that one token uses (``active_without_embedding``: without its lookup)."""

    total: int
    active: int
    active_without_embedding: int
    by_group: Mapping[WeightGroup, int]


def parameters(model: ModelSpec) -> Parameters:
    by_group: dict[WeightGroup, int] = {}

    def add(group: WeightGroup, count: int) -> None:
        if count:
            by_group[group] = by_group.get(group, 0) + count

    idle = 0
    for times, layer in model.groups():
        for gemm in (*layer.attention.gemms, *layer.ffn.gemms):
            add(gemm.group, times * gemm.params)
        expert = sum(gemm.params for gemm in layer.ffn.expert_gemms)
        add("experts", times * layer.ffn.experts * expert)
        vectors = layer.ffn.experts * layer.ffn.expert_vector_params
        add("norm", times * (layer.attention.vector_params + layer.ffn.vector_params + vectors))
        idle += times * (layer.ffn.experts - layer.ffn.top_k) * (expert + layer.ffn.expert_vector_params)
    add("embedding", model.embedding.params)
    add("lm_head", model.lm_head.params if model.lm_head else 0)
    add("norm", model.final_vector_params)
    total = sum(by_group.values())
    lookup = model.embedding.params if model.lm_head else 0
    return Parameters(total, total - idle, total - idle - lookup, by_group)


def weight_bytes_by_group(model: ModelSpec) -> dict[WeightGroup, float]:
    """Bytes of each group, scales included."""
    return {group: count * model.weight_bits[group] / BITS_PER_BYTE for group, count in parameters(model).by_group.items()}


def weight_bytes(model: ModelSpec) -> float:
    """Bytes of the language model's weights (MTP and vision excluded)."""
    return sum(weight_bytes_by_group(model).values())


def mtp_bytes(model: ModelSpec) -> float:
    return model.mtp_params * model.mtp_bits / BITS_PER_BYTE


def vision_bytes(model: ModelSpec) -> float:
    """The vision tower at 16 bits (published checkpoints leave it unquantised)."""
    return model.vision_params * 2.0


def gemm_share(gemm: Gemm, tp: int) -> float:
    """Share of a matrix that one of ``tp`` ranks holds: split, or replicated where it cannot be split further."""
    if gemm.shard == "none":
        return 1.0
    ways = min(tp, gemm.max_shards) if gemm.max_shards else tp
    return 1.0 / ways


def _layer_bytes_per_gpu(model: ModelSpec, layer: Layer, parallel: Parallel) -> float:
    """Bytes of one layer on one GPU. Attention, router, dense and shared FFN are cut tp ways and repeated on each attention
    data-parallel rank; experts are spread over moe_ep ranks (redundant copies counted), each cut moe_tp ways."""
    bits = model.weight_bits
    stored = sum(
        gemm.params * bits[gemm.group] * gemm_share(gemm, parallel.tp) for gemm in (*layer.attention.gemms, *layer.ffn.gemms)
    )
    vectors = layer.attention.vector_params + layer.ffn.vector_params
    if layer.ffn.experts:
        local = -(-(layer.ffn.experts + parallel.redundant_experts) // parallel.moe_ep)
        expert = sum(gemm.params for gemm in layer.ffn.expert_gemms)
        stored += local * expert * bits["experts"] / parallel.moe_tp
        vectors += local * layer.ffn.expert_vector_params
    return (stored + vectors * bits["norm"]) / BITS_PER_BYTE


def weight_bytes_of_stages(model: ModelSpec, parallel: Parallel) -> tuple[float, ...]:
    """Bytes per GPU of each pipeline stage: the first holds the embedding, the last the head (and a tied copy)."""
    found = []
    count = stages(model, parallel)
    layer_bytes: dict[int, float] = {}
    for layer in model.layers:
        if id(layer) not in layer_bytes:
            layer_bytes[id(layer)] = _layer_bytes_per_gpu(model, layer, parallel)
    for stage in range(count):
        held = sum(layer_bytes[id(layer)] for layer in layers_of_stage(model, parallel, stage))
        if stage == 0:
            held += model.embedding.params * model.weight_bits["embedding"] / BITS_PER_BYTE / parallel.tp
        if stage == count - 1:
            head = model.lm_head or (model.embedding if count > 1 else None)
            if head is not None:
                held += head.params * model.weight_bits[head.group] / BITS_PER_BYTE / parallel.tp
            held += model.final_vector_params * model.weight_bits["norm"] / BITS_PER_BYTE
        found.append(held)
    return tuple(found)


def weight_bytes_per_gpu(model: ModelSpec, parallel: Parallel) -> float:
    """Bytes on a GPU of the fullest pipeline stage."""
    return max(weight_bytes_of_stages(model, parallel))
