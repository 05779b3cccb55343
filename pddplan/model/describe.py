"""What was understood of a model, as one document: layers, parameters, weights, KV, FLOPs, with the formula's numbers filled in."""

from __future__ import annotations

from typing import Any

from pddplan.model.flops import decode_flops_parts, head_flops_per_token
from pddplan.model.kv_cache import KvCache, kv_cache
from pddplan.model.parallel import experts_per_gpu, kv_head_counts, model_experts, stage_sizes, stages
from pddplan.model.spec import Attention, ModelSpec, Parallel
from pddplan.model.weights import mtp_bytes, parameters, vision_bytes, weight_bytes, weight_bytes_by_group, weight_bytes_of_stages

SCHEMA_VERSION = 1


def describe(
    model: ModelSpec,
    cache: KvCache,
    parallel: Parallel,
    *,
    context_tokens: float,
    concurrency: float = 1,
    budget_bytes: float | None = None,
    page_tokens: int = 1,
) -> dict[str, Any]:
    """The document of ``models show``; field names carry units. ``parallel`` must be legal."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "name": model.name,
        "architecture": model.architecture,
        "validated": model.validated,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_position_embeddings,
        "layers": layer_rows(model),
        "context_tokens": context_tokens,
        "concurrency": concurrency,
        "parallel": parallel_document(model, parallel),
        "kv": kv_document(model, cache, parallel, context_tokens, concurrency),
        "weights": weights_document(model, parallel),
        **flops_document(model, context_tokens),
        "formulas": list(formulas(model, cache)),
        "notes": notes(model, cache, parallel, context_tokens),
        "origin": dict(model.origin),
        "ignored": list(model.ignored),
    }
    if budget_bytes is not None:
        tokens = cache.tokens_in(budget_bytes, 1, page_tokens)
        document["kv"]["budget"] = {
            "bytes": budget_bytes, "page_tokens": page_tokens, "pages": tokens // page_tokens, "tokens": tokens,
            "requests_at_context": int(budget_bytes // max(float(cache.bytes_resident(context_tokens)), 1.0)),
            "context_fits": tokens >= context_tokens,
        }
    return document


def layer_rows(model: ModelSpec) -> list[dict[str, Any]]:
    """Distinct layers with their counts, attention and FFN kinds, and every dimension that is used."""
    rows = []
    for count, layer in model.groups():
        attention, ffn = layer.attention, layer.ffn
        row: dict[str, Any] = {"count": count, "attention": attention.kind, "ffn": ffn.kind}
        named = {
            "heads": attention.heads, "kv_heads": attention.kv_heads, "qk_head_dim": attention.qk_head_dim,
            "v_head_dim": attention.v_head_dim, "window_tokens": attention.window_tokens, "kv_lora_rank": attention.kv_lora_rank,
            "qk_rope_head_dim": attention.qk_rope_head_dim, "ffn_width": ffn.intermediate, "experts": ffn.experts,
            "experts_per_token": ffn.top_k, "shared_expert_width": ffn.shared_intermediate,
        }
        row |= {name: value for name, value in named.items() if value}
        if attention.compress_ratio > 1:
            row["compress_ratio"] = attention.compress_ratio
        if attention.indexer is not None:
            row["indexer"] = {
                "heads": attention.indexer.heads, "head_dim": attention.indexer.head_dim, "top_k": attention.indexer.top_k,
                "owns_keys": attention.indexer.owns_keys,
            }
        if attention.state is not None:
            state = attention.state
            row["state"] = {
                "kind": state.kind, "heads": state.value_heads, "key_dim": state.key_dim, "value_dim": state.value_dim,
                "convolution_channels": state.conv_channels, "convolution_steps": state.conv_steps,
                "bytes": state.state_bytes + (0.0 if state.conv_fused else state.conv_bytes),
            }
        if not attention.stores_kv:
            row["stores_kv"] = False
        rows.append(row)
    return rows


def parallel_document(model: ModelSpec, parallel: Parallel) -> dict[str, Any]:
    document = {
        "tp": parallel.tp, "pp": parallel.pp, "dp": parallel.dp, "ep": parallel.moe_ep, "moe_tp": parallel.moe_tp,
        "redundant_experts": parallel.redundant_experts, "gpus": parallel.gpus,
    }
    if model_experts(model):
        document["experts_per_gpu"] = experts_per_gpu(model, parallel)
    return document


def kv_document(
    model: ModelSpec, cache: KvCache, parallel: Parallel, context_tokens: float, concurrency: float
) -> dict[str, Any]:
    """KV of the asked requests. parts: latent and indexer in bytes/token, window and state in bytes/request at the context.

    ``bytes_per_request_constant`` is window + state; convolutions kept apart from the state (KDA) stand beside it in parts.convolution.
    """
    held = {part: float(amount) for part, amount in cache.part_bytes(context_tokens).items()}
    slopes = cache.part_slopes()
    whole = kv_cache(model, cache.format, unified_pages=True)
    one_gpu = cache.per_gpu(parallel)
    marginal = float(cache.bytes_marginal(context_tokens))
    fixed = float(cache.bytes_resident(context_tokens)) - marginal * context_tokens
    convolution = float(cache.part_bytes(max(context_tokens, 1.0))["convolution"])
    kept = float(cache.entries_bytes(context_tokens)) + cache.transferable_constant * (context_tokens > 0)
    unified = float(whole.entries_bytes(context_tokens)) + whole.transferable_constant * (context_tokens > 0)
    return {
        "format": cache.format,
        "formats": list(model.kv_formats),
        "bytes_per_token": marginal,
        "bytes_per_request_constant": (fixed if context_tokens > 0 else cache.constant) - convolution,
        "bytes_per_token_per_gpu": float(one_gpu.bytes_marginal(context_tokens)),
        "bytes_per_request": kept,
        "bytes_per_request_resident": float(cache.bytes_resident(context_tokens)),
        "bytes_per_request_per_gpu": float(one_gpu.bytes_resident(context_tokens)),
        "bytes_total": kept * concurrency,
        "bytes_total_resident": float(cache.bytes_resident(context_tokens)) * concurrency,
        "bytes_total_ideal_windows": kept * concurrency,
        "bytes_total_page_unified": unified * concurrency,
        "bytes_per_token_average": kept / context_tokens if context_tokens > 0 else 0.0,
        "parts": {
            "latent": slopes["latent"],
            "indexer": slopes["indexer"],
            "window": held["window"],
            "state": held["state"] + held["compressor"],
            "convolution": held["convolution"],
        },
        "parts_units": {
            "latent": "bytes/token", "indexer": "bytes/token", "window": "bytes/request at the context",
            "state": "bytes/request", "convolution": "bytes/request",
        },
        "parts_bytes_per_request": held,
        "windows": [{"tokens": tokens, "bytes_per_token": slope} for tokens, slope in cache.windows],
    }


def weights_document(model: ModelSpec, parallel: Parallel) -> dict[str, Any]:
    counted = parameters(model)
    by_group = weight_bytes_by_group(model)
    per_stage = weight_bytes_of_stages(model, parallel)
    return {
        "params": counted.total,
        "params_active": counted.active,
        "params_active_without_embedding": counted.active_without_embedding,
        "params_mtp": model.mtp_params,
        "params_vision": model.vision_params,
        "bytes": sum(by_group.values()),
        "bytes_per_gpu": max(per_stage),
        "bytes_per_gpu_of_stages": list(per_stage),
        "bytes_mtp": mtp_bytes(model),
        "bytes_vision": vision_bytes(model),
        "bits_per_param": 8.0 * sum(by_group.values()) / counted.total,
        "groups": [
            {
                "group": group, "params": counted.by_group[group], "bits": model.weight_bits[group],
                "dtype": model.weight_dtype[group], "bytes": amount,
            }
            for group, amount in by_group.items()
        ],
    }


def flops_document(model: ModelSpec, context_tokens: float) -> dict[str, Any]:
    parts = {name: float(value) for name, value in decode_flops_parts(model, context_tokens).items()}
    head = head_flops_per_token(model)
    return {
        "flops_per_token": sum(parts.values()),
        "flops_parts": {"linear": parts["linear"] - head, "head": head, "core": parts["core"], "indexer": parts["indexer"]},
    }


def notes(model: ModelSpec, cache: KvCache, parallel: Parallel, context_tokens: float) -> list[str]:
    """What a reader must know to trust or doubt the numbers."""
    found = list(model.notes)
    if cache.windows and float(kv_cache(model, cache.format, unified_pages=True).slope) > cache.slope:
        found.append(
            "sliding windows: bytes_total keeps at most the window in each windowed layer (ideal); bytes_total_page_unified is the "
            "upper bound of engines that give every layer the same pages"
        )
    if any(layer.attention.shared_kv and layer.attention.compress_ratio > 1 for layer in model.distinct_layers):
        found.append(
            "compressor buffers (float32, per running request) are in parts.state and in memory, not in bytes_total: they are rebuilt "
            "from the last tokens and never shipped"
        )
    states = [layer.attention.state for layer in model.distinct_layers if layer.attention.state]
    if any(not state.conv_fused and state.conv_bytes for state in states):
        found.append("parts.state is the recurrent matrices; the short convolutions' cache stands in parts.convolution")
    if "fp8_ds_mla" in model.kv_formats and cache.format == "fp8":
        found.append("fp8 counts one byte a value; vLLM and SGLang store fp8_ds_mla entries, with scales and bf16 RoPE dimensions")
    kinds = {layer.attention.kind for layer in model.distinct_layers}
    if parallel.tp > 1 and kinds & {"mla", "csa", "hca"}:
        found.append(f"the latent is whole on each of the {parallel.tp} tensor-parallel GPUs (attention DP would share it)")
    repeated = [kv for kv in kv_head_counts(model) if parallel.tp > kv]
    if repeated:
        found.append(f"tp {parallel.tp} exceeds {repeated[0]} KV heads: each is repeated on {parallel.tp // repeated[0]} GPUs")
    if model.max_position_embeddings and context_tokens > model.max_position_embeddings:
        found.append(f"context {context_tokens:,.0f} is beyond max_position_embeddings {model.max_position_embeddings:,}")
    if parallel.pp > 1:
        sizes = stage_sizes(len(model.layers), stages(model, parallel))
        bytes_of = weight_bytes_of_stages(model, parallel)
        worst = max(range(len(bytes_of)), key=lambda stage: bytes_of[stage])
        found.append(
            f"pipeline stages hold {', '.join(map(str, sizes))} layers; stage {worst + 1} is the fullest with "
            f"{bytes_of[worst] / 1e9:.2f} GB of weights per GPU, {max(bytes_of) / (sum(bytes_of) / len(bytes_of)) - 1:.1%} above the mean"
        )
    return found


def formulas(model: ModelSpec, cache: KvCache) -> tuple[str, ...]:
    """The KV and weight formulas with this model's numbers."""
    terms = [_kv_term(count, layer.attention, cache) for count, layer in _by_attention(model)]
    grown = [text for kind, text in terms if kind == "token" and text]
    fixed = [text for kind, text in terms if kind == "request" and text]
    fixed += [_window_text(tokens, slope) for tokens, slope in cache.windows]
    total = f"{cache.slope:,.6g}" if cache.slope < 1e4 else f"{cache.slope:,.2f}"
    lines = [f"KV per token = {' + '.join(grown) or '0'} = {total} B"]
    if fixed:
        lines.append(f"KV per request besides = {' + '.join(fixed)}")
    counted = parameters(model)
    parts = [
        f"{group} {count:,} x {model.weight_bits[group]:.4g} bit" for group, count in counted.by_group.items()
    ]
    lines.append(f"weights = ({' + '.join(parts)}) / 8 = {weight_bytes(model) / 1e9:,.2f} GB")
    return tuple(lines)


def _by_attention(model: ModelSpec) -> list[tuple[int, Any]]:
    merged: dict[Attention, list[Any]] = {}
    for count, layer in model.groups():
        entry = merged.setdefault(layer.attention, [0, layer])
        entry[0] += count
    return [(count, layer) for count, layer in merged.values()]


def _window_text(tokens: float, slope: float) -> str:
    return f"window {tokens:,.0f} tokens x {slope:,.6g} B"


def _kv_term(count: int, attention: Attention, cache: KvCache) -> tuple[str, str]:
    """("token" | "request" | "", text) of what ``count`` layers with this attention keep."""
    layer = next((i for i, layer in enumerate(cache.model.layers) if layer.attention == attention), 0)
    slopes = [term for term in cache.terms if term.layer == layer and term.window_tokens is None and term.slope]
    if attention.state is not None:
        state = attention.state
        size = f"{state.value_heads} x {state.key_dim} x {state.value_dim} x {state.state_dtype_bytes:g} B"
        conv = f" + {state.conv_channels:,} x {state.conv_steps} x {state.conv_dtype_bytes:g} B" if state.conv_bytes else ""
        return "request", f"{count} {state.kind} layers x ({size}{conv})"
    if not slopes:
        return "", ""
    if attention.kind == "full":
        element = slopes[0].slope / (attention.kv_heads * (attention.qk_head_dim + attention.v_head_dim))
        key = f" + {slopes[1].slope:g} B index key" if len(slopes) > 1 else ""
        inner = f"{attention.kv_heads} KV heads x ({attention.qk_head_dim} + {attention.v_head_dim}) x {element:g} B{key}"
        return "token", f"{count} layers x ({inner})" if key else f"{count} layers x {inner}"
    if attention.kind == "mla":
        entry = f"({attention.kv_lora_rank} + {attention.qk_rope_head_dim}) latent = {slopes[0].slope:g} B"
        key = f" + {slopes[1].slope:g} B index key" if len(slopes) > 1 else ""
        return "token", f"{count} layers x [{entry}{key}]"
    ratio = attention.compress_ratio
    sizes = " + ".join(f"{term.slope * ratio:g}" for term in slopes)
    return "token", f"{count} {attention.kind.upper()} layers x ({sizes}) B / {ratio}"
