"""Layers of a model from its config: which attention and which FFN stand in each, in every encoding that is published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pddplan.model import attention_layers as attention
from pddplan.model import ffn_layers as ffn
from pddplan.model.architectures import Traits
from pddplan.model.geometry import LAYERS, POSITIONS, PURE_STATE, Geometry, read_geometry
from pddplan.model.reading import Keys
from pddplan.model.spec import Attention, Ffn, Indexer, Layer

NO_ATTENTION = Attention("none")
NO_FFN = Ffn("none")
FULL = frozenset({"full_attention", "full", "attention", "global", "global_attention", "deepseek_sparse_attention", "*"})
WINDOW = frozenset({"sliding_attention", "sliding_window", "chunked_attention", "local", "local_attention", "swa"})
LINEAR = frozenset({"linear_attention", "mamba", "mamba2", "conv", "kda", "lightning", "gated_deltanet", "gdn"})
WINDOW_SIZE = ("sliding_window", "sliding_window_size", "window_size", "attention_window_size", "attention_chunk_size")
OTHER = "attention_other_setting"  # Step-3.5: the windowed layers' own heads
MOST_LAYERS = 10_000
BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def layer_count(keys: Keys) -> int:
    """Number of layers; where the config has only the list of their kinds, its length."""
    count = keys.integer(*LAYERS, maximum=MOST_LAYERS)
    if count is not None:
        return count
    for name in ("layers_block_type", "layer_types", "block_configs", "hybrid_override_pattern"):
        kinds = keys.get(name)
        if isinstance(kinds, list | str) and kinds:
            keys.origin[LAYERS[0]] = f"length of {keys.origin[name]}"
            return len(kinds)
    return keys.need(*LAYERS, maximum=MOST_LAYERS)


def build_layers(keys: Keys, traits: Traits) -> tuple[Geometry, tuple[Layer, ...]]:
    """All layers in order, MTP excluded. Records what is missing or contradictory in ``keys.problems``."""
    count = layer_count(keys)
    geometry = read_geometry(keys, count)
    pattern = keys.marks("hybrid_override_pattern") or (
        keys.marks("layers_block_type") if keys.model_type == "nemotron_h" else None
    )
    if pattern is not None:
        return geometry, single_mixers(keys, traits, geometry, pattern, count)
    blocks = keys.per_layer("block_configs", count)
    if blocks is not None:
        try:
            return geometry, tuple(_searched_block(keys, traits, geometry, block) for block in blocks)
        except (TypeError, ValueError, AttributeError, KeyError, ZeroDivisionError) as error:
            keys.invalid("block_configs", f"a block that cannot be read ({error})", "attention and ffn of each block as published")
            return geometry, ()
    if keys.model_type in PURE_STATE:
        mixer = attention.mamba2(keys, geometry) if keys.model_type == "mamba2" else attention.mamba1(keys, geometry)
        return geometry, (Layer(mixer, NO_FFN),) * count
    if keys.get("is_encoder_decoder"):
        keys.invalid("is_encoder_decoder", "true", "a decoder-only model")
    mixers = attention_of_layers(keys, traits, geometry)
    shape = ffn.read_moe(keys, geometry)
    is_moe = ffn.moe_layers(keys, count) if shape else (lambda layer: False)
    sparse = ffn.moe(keys, traits, geometry, shape) if shape else NO_FFN
    if keys.model_type == "longcat_flash":
        twice = [Layer(mixer, ffn.dense(keys, traits, geometry)) for mixer in mixers]
        return geometry, tuple(part for layer in twice for part in (layer, layer, Layer(NO_ATTENTION, sparse)))
    plain = NO_FFN if shape and all(is_moe(i) for i in range(count)) else ffn.dense(keys, traits, geometry)
    return geometry, tuple(Layer(mixer, sparse if is_moe(i) else plain) for i, mixer in enumerate(mixers))


def single_mixers(keys: Keys, traits: Traits, g: Geometry, pattern: Sequence[str], count: int) -> tuple[Layer, ...]:
    """Nemotron-H: each layer is one mixer alone (M mamba2, * attention, - MLP, E MoE)."""
    kinds = [BLOCKS.get(str(mark), str(mark)) for mark in pattern]
    if len(kinds) != count:
        keys.invalid("hybrid_override_pattern", f"{len(kinds)} marks", f"one for each of the {count} layers")
    unknown = sorted(set(kinds) - set(BLOCKS.values()))
    if unknown:
        keys.invalid("hybrid_override_pattern", ", ".join(unknown), "M, *, - and E, or mamba, attention, mlp and moe")
    made: dict[str, Layer] = {}
    if "mamba" in kinds:
        made["mamba"] = Layer(attention.mamba2(keys, g), NO_FFN)
    if "attention" in kinds:
        made["attention"] = Layer(attention.grouped_query(keys, traits, g, None, "mixer"), NO_FFN)
    if "mlp" in kinds:
        made["mlp"] = Layer(NO_ATTENTION, ffn.dense(keys, traits, g, name="mixer"))
    if "moe" in kinds:
        shape = ffn.read_moe(keys, g)
        if shape is None:
            keys.missing(*ffn.EXPERTS)
        else:
            made["moe"] = Layer(NO_ATTENTION, ffn.moe(keys, traits, g, shape))
    return tuple(made.get(kind, Layer(NO_ATTENTION, NO_FFN)) for kind in kinds)


def _searched_block(keys: Keys, traits: Traits, g: Geometry, block: dict[str, Any]) -> Layer:
    """One block of a searched architecture (Nemotron NAS): attention with its own grouping or none, FFN of its own width.

    FFN width is 2/3 x ffn_mult x hidden, rounded up to 256 (the reference implementation's rule).
    """
    mixer, feed = block.get("attention") or {}, block.get("ffn") or {}
    for part in (mixer, feed):
        if part.get("replace_with_linear"):
            keys.invalid("block_configs", "replace_with_linear: true", "blocks with attention and FFN or without them")
    layer_attention = NO_ATTENTION
    if not mixer.get("no_op"):
        group = mixer.get("n_heads_in_group") or g.heads // int(mixer.get("num_key_value_heads") or g.heads)
        own = replace(g, kv_heads=g.heads // int(group))
        layer_attention = attention.grouped_query(keys, traits, own, mixer.get("window_length"))
    if feed.get("no_op"):
        return Layer(layer_attention, NO_FFN)
    width = feed.get("intermediate_size")
    if width is None:
        width = -(-int(2 * float(feed["ffn_mult"]) * g.hidden / 3) // 256) * 256
    return Layer(layer_attention, ffn.dense(keys, traits, g, int(width)))


def attention_of_layers(keys: Keys, traits: Traits, g: Geometry) -> list[Attention]:
    """The attention of each layer."""
    ratios = keys.per_layer("compress_ratios", g.layers)
    if ratios is not None:
        return [attention.compressed(keys, g, int(ratio)) for ratio in ratios]
    if keys.get("mamba_d_ssm") is not None:
        return [_parallel_hybrid(keys, traits, g)] * g.layers
    kinds = layer_kinds(keys, traits, g.layers)
    full = _full_attention(keys, traits, g)
    mixers: list[Attention] = []
    window: Attention | None = None
    linear: dict[str, Attention] = {}
    for layer, kind in enumerate(kinds):
        if kind == "full":
            mixers.append(full(layer))
        elif kind == "window":
            window = window or _window_attention(keys, traits, g)
            mixers.append(window)
        else:
            if kind not in linear:
                linear[kind] = _linear_attention(keys, g, kind)
            mixers.append(linear[kind])
    return _cross_attention(keys, _shared_caches(keys, mixers))


def _cross_attention(keys: Keys, mixers: list[Attention]) -> list[Attention]:
    """Layers that attend to an image's tokens alone (Llama-3.2-Vision): their matrices stay, no text token is cached."""
    members = keys.marks("cross_attention_layers")
    if not members:
        return mixers
    crossed = [layer for layer, mixer in enumerate(mixers) if layer in set(members) and mixer.kind == "full"]
    per_token = sum(2 * mixers[layer].kv_heads * (mixers[layer].qk_head_dim + mixers[layer].v_head_dim) for layer in crossed)
    keys.notes.append(
        f"{len(crossed)} cross-attention layers cache the tokens of an image, not of the text: {per_token:,} B (bf16) an image token, "
        "not counted here"
    )
    extra = {layer: 2 * mixers[layer].qk_head_dim + 2 for layer in crossed}  # query and key norms, two gates
    return [
        replace(mixer, kind="none", vector_params=mixer.vector_params + extra[layer]) if layer in extra else mixer
        for layer, mixer in enumerate(mixers)
    ]


def layer_kinds(keys: Keys, traits: Traits, count: int) -> list[str]:
    """full, window or a linear kind for each layer.

    Encodings: layer_types, hybrid_layer_pattern (1 = window), attn_type_list (0 = linear), full_attention_interval,
    layer_group_size, linear_attn_config.full_attn_layers (1-based), attn_layer_indices, attn_layer_period, sliding_window
    with a pattern, an interval, max_window_layers or none at all (null: full attention).
    """
    listed = keys.per_layer("layer_types", count) or keys.per_layer("layers_block_type", count)
    if listed is not None:
        return [_named_kind(keys, str(kind)) for kind in listed]
    marks = keys.per_layer("hybrid_layer_pattern", count)
    if marks is not None:
        return ["window" if mark else "full" for mark in marks]
    marks = keys.per_layer("attn_type_list", count)
    if marks is not None:
        return ["full" if mark else "lightning" for mark in marks]
    members = keys.marks("linear_attn_config.full_attn_layers")
    if members is not None:
        return ["full" if layer + 1 in set(members) else "kda" for layer in range(count)]
    members = keys.marks("attn_layer_indices")
    if members is not None:
        return ["full" if layer in set(members) else "mamba2" for layer in range(count)]
    if keys.get("full_attention_interval") is not None and keys.get("linear_num_value_heads") is not None:
        every = keys.need("full_attention_interval")
        return ["full" if (layer + 1) % every == 0 else "gdn" for layer in range(count)]
    if keys.get("layer_group_size") is not None:
        every = keys.need("layer_group_size")
        whole = count // every * every
        return ["full" if (layer + 1) % every == 0 or layer >= whole else "lightning" for layer in range(count)]
    if keys.get("attn_layer_period") is not None:
        every, offset = keys.need("attn_layer_period"), keys.integer("attn_layer_offset", default=0, minimum=0)
        return ["full" if layer % every == offset else "mamba" for layer in range(count)]
    return _window_kinds(keys, traits, count)


def _named_kind(keys: Keys, name: str) -> str:
    if name in FULL:
        return "full"
    if name in WINDOW:
        return "window"
    if name in LINEAR:
        if name == "conv":
            return "conv"
        if keys.get("linear_num_value_heads") is not None:
            return "gdn"
        if keys.get("linear_attn_config.num_heads") is not None:
            return "kda"
        if keys.get("mamba_n_heads", "mamba_num_heads") is not None:
            return "mamba2"
        return "mamba" if keys.get("mamba_d_state") is not None else "lightning"
    accepted = ", ".join(sorted(FULL | WINDOW | LINEAR))
    keys.invalid("layer_types", name, f"one of {accepted}")
    return "full"


def _window_kinds(keys: Keys, traits: Traits, count: int) -> list[str]:
    size = keys.integer(*WINDOW_SIZE)
    positions = keys.integer(*POSITIONS)
    if size is not None and positions is not None and size >= positions:
        keys.notes.append(f"sliding_window {size:,} covers all {positions:,} positions: full attention")
        return ["full"] * count
    asked = keys.get("use_sliding_window")
    if size is None or asked is False or (traits.sliding_default == "none" and not asked):
        return ["full"] * count
    pattern = keys.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:
        return ["window" if pattern[layer % len(pattern)] == "L" else "full" for layer in range(count)]
    if pattern is not None:
        every = keys.integer("sliding_window_pattern") or 1
        return ["full" if (layer + 1) % every == 0 else "window" for layer in range(count)]
    rotary = keys.per_layer("no_rope_layers", count)
    if rotary is not None:
        return ["window" if turned else "full" for turned in rotary]
    if asked and keys.get("max_window_layers") is not None:
        first = keys.integer("max_window_layers", minimum=0) or 0
        return ["window" if layer >= first else "full" for layer in range(count)]
    if traits.sliding_default in ("all", "none"):
        return ["window"] * count
    every = 2 if traits.sliding_default == "even" else int(traits.sliding_default.split(":")[0]) + 1
    keys.origin["layer pattern"] = f"convention of {keys.model_type}: {every - 1} windows to 1 full"
    return ["full" if (layer + 1) % every == 0 else "window" for layer in range(count)]


def _full_attention(keys: Keys, traits: Traits, g: Geometry) -> Callable[[int], Attention]:
    if keys.get("kv_lora_rank") is None:
        own = replace(
            g,
            qk_head_dim=keys.integer("global_head_dim", default=g.qk_head_dim) or g.qk_head_dim,
            v_head_dim=keys.integer("global_head_dim", default=g.v_head_dim) or g.v_head_dim,
            kv_heads=keys.integer("num_global_key_value_heads", default=g.kv_heads) or g.kv_heads,
        )
        whole = attention.grouped_query(keys, traits, own, None)
        if whole.indexer is None:
            return lambda layer: whole
        name = "sparse_attention_config.sparse_attention_freq"
        members = keys.marks(name)
        sparse = attention.with_indexer_weights(whole, g.hidden, g.hidden)
        plain = replace(whole, indexer=None)
        return lambda layer: sparse if members is None or members[layer] else plain
    if keys.get("index_topk") is None:
        whole = attention.latent(keys, g, None)
        return lambda layer: whole
    owned = Indexer(keys.need("index_n_heads"), keys.need("index_head_dim"), keys.need("index_topk"))
    first = attention.latent(keys, g, owned)
    later = attention.latent(keys, g, replace(owned, owns_keys=False))
    kinds = keys.per_layer("indexer_types", g.layers)
    return lambda layer: later if kinds is not None and kinds[layer] == "shared" else first


def _parallel_hybrid(keys: Keys, traits: Traits, g: Geometry) -> Attention:
    """Attention and Mamba2 side by side in every layer (Falcon-H1): a growing cache and a constant state."""
    whole, mixer = attention.grouped_query(keys, traits, g, None), attention.mamba2(keys, g)
    return replace(
        whole, state=mixer.state, gemms=whole.gemms + mixer.gemms, vector_params=whole.vector_params + mixer.vector_params
    )


def _window_attention(keys: Keys, traits: Traits, g: Geometry) -> Attention:
    size = keys.need(*WINDOW_SIZE)
    own = replace(
        g,
        heads=keys.integer("swa_num_attention_heads", f"{OTHER}.num_attention_heads", default=g.heads) or g.heads,
        kv_heads=keys.integer("swa_num_key_value_heads", f"{OTHER}.num_attention_groups", default=g.kv_heads) or g.kv_heads,
        qk_head_dim=keys.integer("swa_head_dim", default=g.qk_head_dim) or g.qk_head_dim,
        v_head_dim=keys.integer("swa_v_head_dim", default=g.v_head_dim) or g.v_head_dim,
    )
    return attention.grouped_query(keys, traits, own, size)


def _linear_attention(keys: Keys, g: Geometry, kind: str) -> Attention:
    return {
        "gdn": attention.gated_delta,
        "kda": attention.kimi_delta,
        "mamba2": attention.mamba2,
        "mamba": attention.mamba1,
        "lightning": attention.lightning,
        "conv": attention.short_convolution,
    }[kind](keys, g)


def _shared_caches(keys: Keys, mixers: list[Attention]) -> list[Attention]:
    """Layers that read another layer's cache: the last ``num_kv_shared_layers`` (Gemma), or all but one of each
    ``cla_share_factor`` (cross-layer attention). They have no key and value matrices of their own."""
    last = keys.integer("num_kv_shared_layers", default=0, minimum=0) or 0
    every = (keys.integer("cla_share_factor", default=1) or 1) if keys.flag("use_cla") else 1
    first_reader = len(mixers) - last

    def reader(mixer: Attention) -> Attention:
        own = tuple(gemm for gemm in mixer.gemms if not gemm.name.endswith((".k_proj", ".v_proj")))
        return replace(mixer, stores_kv=False, gemms=own)

    return [
        reader(mixer) if mixer.kind in ("full", "window") and (i >= first_reader or i % every) else mixer
        for i, mixer in enumerate(mixers)
    ]
