"""ModelSpec from a Hugging Face config.json as published, with hf_quant_config.json beside it where there is one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pddplan.errors import InputError, Problem
from pddplan.model.architectures import Traits, traits_of
from pddplan.model.attention_layers import compressed
from pddplan.model.ffn_layers import moe, read_moe
from pddplan.model.geometry import POSITIONS, Geometry
from pddplan.model.layer_plan import build_layers, single_mixers
from pddplan.model.quantization import (
    BF16,
    FORMATS,
    LINEAR_GROUPS,
    Precision,
    Scheme,
    fp8_block,
    module_names,
    read_scheme,
)
from pddplan.model.reading import Keys
from pddplan.model.spec import WEIGHT_GROUPS, Gemm, Layer, ModelSpec, WeightGroup
from pddplan.model.vision import vision_params
from pddplan.units import shown

KV_FORMATS_V4 = ("fp8_ds_mla", "nominal", "mxfp4_keys", "bf16", "fp8")
KV_FORMATS_DSA = ("bf16", "fp8_ds_mla", "mxfp4_keys", "fp8", "int4", "fp32")
KV_FORMATS = ("bf16", "fp8", "int4", "nvfp4", "fp32")
MTP_COUNT = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers", "n_predict")
LOADED_ACTIVATION = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, read as UTF-8. Raises InputError when it is not there or not JSON."""
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(Problem(str(path), error.strerror or str(error), "a readable config.json")) from error
    except (ValueError, RecursionError) as error:
        raise InputError(Problem(str(path), f"not JSON ({error})", "a Hugging Face config.json")) from error
    if not isinstance(found, dict):
        raise InputError(Problem(str(path), "not a JSON object", "a Hugging Face config.json"))
    return found


def read_config(path: Path, name: str | None = None) -> ModelSpec:
    """ModelSpec from a config.json; ``hf_quant_config.json`` (or ``X_hf_quant_config.json`` beside ``X_config.json``) is read too."""
    beside = path.with_name(path.name.removesuffix("config.json") + "hf_quant_config.json")
    quantization = read_json(beside) if beside.is_file() else None
    return parse_config(read_json(path), name or model_name(path), quantization, str(path))


def model_name(path: Path) -> str:
    """``org/model`` from ``org--model_config.json``, else the folder or the file's own name."""
    stem = path.name.removesuffix(".json").removesuffix("config").rstrip("_")
    return (stem or path.resolve().parent.name).replace("--", "/")


def parse_config(
    root: Mapping[str, Any], name: str, quantization: Mapping[str, Any] | None = None, place: str = "config.json"
) -> ModelSpec:
    """ModelSpec from the parsed config. Raises InputError that lists every missing key with all names looked for."""
    keys = Keys(root, place)
    traits = _traits(keys)
    geometry, layers = build_layers(keys, traits)
    if not layers:
        keys.finish()
    scheme = read_scheme(keys, quantization)
    tied = keys.root.get("tie_word_embeddings", keys.text.get("tie_word_embeddings", traits.tied))
    if not isinstance(tied, bool | None):
        keys.invalid("tie_word_embeddings", shown(tied), "true or false")
    keys.used.add("tie_word_embeddings")
    positions = keys.integer(*POSITIONS, default=None)
    mtp_layers, mtp_extra = _mtp(keys, traits, geometry, layers)
    vision, vision_note = vision_params(root, geometry.hidden)
    keys.finish()

    embedding = Gemm("model.embed_tokens", geometry.vocab, geometry.hidden, "out", "embedding")
    head = None if tied else Gemm("lm_head", geometry.vocab, geometry.hidden, "out", "lm_head")
    norm = geometry.hidden * (2 if traits.norm_bias else 1) if traits.norms else 0
    layers = _with_input_gates(keys, geometry, layers)
    whole = {layer: _with_norms(layer, traits, geometry, keys) for layer in dict.fromkeys(layers)}
    layers = tuple(whole[layer] for layer in layers)  # equal layers are one object
    mtp_layers = tuple(_with_norms(layer, traits, geometry, keys) for layer in mtp_layers)
    final = norm * (2 if traits.embedding_norm else 1) + _hyper_connections(keys, geometry, 0)
    final += ((positions or 0) + traits.position_offset) * geometry.hidden if traits.learned_positions else 0
    final += _input_tables(keys, geometry)
    final += geometry.vocab if traits.lm_head_bias else 0
    bits, dtypes, block = _precisions(scheme, layers, embedding, head)
    if "expert_dtype" in keys.text and scheme.block and bits["experts"] > 8:
        expert = _declared_experts(keys)
        bits["experts"], dtypes["experts"] = expert.bits, expert.dtype
    kinds = {layer.attention.kind for layer in layers}
    sparse = any(layer.attention.kind == "mla" and layer.attention.indexer for layer in layers)
    formats = KV_FORMATS_V4 if kinds & {"csa", "hca"} else KV_FORMATS_DSA if sparse else KV_FORMATS
    native = scheme.kv_dtype
    default = "fp8_ds_mla" if formats is KV_FORMATS_V4 else native if native in FORMATS else "bf16"
    return ModelSpec(
        name=name,
        architecture=keys.architecture,
        hidden_size=geometry.hidden,
        vocab_size=geometry.vocab,
        layers=layers,
        embedding=embedding,
        lm_head=head,
        final_vector_params=final,
        weight_bits=bits,
        weight_dtype=dtypes,
        max_position_embeddings=positions,
        native_kv_dtype=native,
        kv_formats=formats,
        default_kv_format=default,
        mtp_layers=mtp_layers,
        mtp_params=mtp_extra + sum(layer_params(layer) for layer in mtp_layers),
        mtp_bits=_mtp_bits(scheme, mtp_layers, len(layers)),
        vision_params=vision,
        fp8_block=block,
        validated=traits.validated,
        origin=dict(keys.origin),
        ignored=keys.ignored(),
        notes=tuple(_notes(keys, traits, geometry, layers, mtp_layers, scheme, vision_note, name)),
    )


def layer_params(layer: Layer) -> int:
    """All parameters of a layer, every expert counted."""
    ffn = layer.ffn
    experts = ffn.experts * (sum(gemm.params for gemm in ffn.expert_gemms) + ffn.expert_vector_params)
    gemms = sum(gemm.params for gemm in (*layer.attention.gemms, *ffn.gemms))
    return gemms + experts + layer.attention.vector_params + ffn.vector_params


def _with_norms(layer: Layer, traits: Traits, g: Geometry, keys: Keys) -> Layer:
    """Adds the norms of a block (and hyper-connections) to its attention's, or else its FFN's, vector parameters."""
    per_norm = g.hidden * (2 if traits.norm_bias else 1)
    single = not layer.attention.gemms or layer.ffn.kind == "none"
    norms = per_norm * (min(traits.norms, 1) if single else traits.norms) + _hyper_connections(keys, g, 2)
    if layer.attention.gemms:
        return replace(layer, attention=replace(layer.attention, vector_params=layer.attention.vector_params + norms))
    return replace(layer, ffn=replace(layer.ffn, vector_params=layer.ffn.vector_params + norms))


def _traits(keys: Keys) -> Traits:
    """Conventions of the family, with what a Falcon config says of its own."""
    traits = traits_of(keys.model_type, str(keys.get(*LOADED_ACTIVATION)))
    if keys.model_type != "falcon":
        return traits
    two = keys.flag("new_decoder_architecture") and keys.integer("num_ln_in_parallel_attn", default=2) == 2
    norms = 2 if two or not (keys.flag("new_decoder_architecture") or keys.flag("parallel_attn", default=True)) else 1
    bias = keys.flag("bias")
    return replace(traits, norms=norms, qkv_bias=bias, o_bias=bias, ffn_bias=bias)


def _input_tables(keys: Keys, g: Geometry) -> int:
    """Per-layer input embeddings (Gemma-3n, Gemma-4 E): a second table of layers x width for each token, and its projection;
    Gemma-3n's further streams have a hidden x hidden projection in and out each."""
    width = keys.integer("hidden_size_per_layer_input", default=0, minimum=0) or 0
    streams = keys.integer("altup_num_inputs", default=1) or 1
    total = 2 * (streams - 1) * g.hidden * g.hidden
    if width:
        table = (keys.integer("vocab_size_per_layer_input", default=g.vocab) or g.vocab) + g.hidden
        total += table * g.layers * width + width
        keys.notes.append(f"per-layer input embeddings of {table - g.hidden:,} x {g.layers} x {width} are counted with the weights")
    return total


def _with_input_gates(keys: Keys, g: Geometry, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Matrices of each layer for its own input embedding, Gemma-3n's low-rank residual (LAuReL) and mixing of streams (AltUp)."""
    width = keys.integer("hidden_size_per_layer_input", default=0, minimum=0) or 0
    rank = keys.integer("laurel_rank", default=0, minimum=0) or 0
    streams = keys.integer("altup_num_inputs", default=0, minimum=0) or 0
    sizes = {"per_layer_input_gate": (width, g.hidden), "per_layer_projection": (g.hidden, width)} if width else {}
    if rank:
        sizes |= {"laurel.linear_left": (rank, g.hidden), "laurel.linear_right": (g.hidden, rank)}
    if streams:
        sizes["altup.modality_router"] = (streams, g.hidden)
    if not sizes:
        return layers
    gemms = tuple(Gemm(name, rows, columns, "none", "router") for name, (rows, columns) in sizes.items())
    vectors = (g.hidden if width else 0) + (g.hidden if rank else 0) + (g.hidden + g.hidden + streams**3 + streams**2 if streams else 0)
    made = {
        layer: replace(layer, ffn=replace(layer.ffn, gemms=layer.ffn.gemms + gemms, vector_params=layer.ffn.vector_params + vectors))
        for layer in dict.fromkeys(layers)
    }
    return tuple(made[layer] for layer in layers)


def _hyper_connections(keys: Keys, g: Geometry, blocks: int) -> int:
    """Hyper-connections of DeepSeek-V4: per block a (2 + m) m x m hidden mixing matrix, (2 + m) m offsets, 3 scales;
    ``blocks`` 0: those of the head, m x m hidden."""
    streams = keys.integer("hc_mult", default=0, minimum=0) or 0
    if not streams:
        return 0
    if not blocks:
        return streams * streams * g.hidden + streams + 1
    rows = (2 + streams) * streams
    return blocks * (rows * streams * g.hidden + rows + 3)


def _mtp(keys: Keys, traits: Traits, g: Geometry, layers: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], int]:
    """MTP layers and their further parameters: the 2 hidden x hidden projection and three norms of each module."""
    count = keys.integer(*MTP_COUNT, default=0, minimum=0, maximum=64) or 0
    if not count or keys.get("use_mtp") is False:
        return (), 0
    pattern = keys.marks("mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if pattern:
        made = single_mixers(keys, traits, g, pattern, len(pattern))
    else:
        cached = [layer for layer in layers if layer.attention.kind in ("full", "window", "mla")]
        last = cached[-1] if cached else layers[-1]
        ratios = keys.marks("compress_ratios")
        if ratios:
            last = Layer(compressed(keys, g, int(ratios[-1])), layers[-1].ffn)
        shape = read_moe(keys, g)
        made = (Layer(last.attention, moe(keys, traits, g, shape) if shape else last.ffn),)
    return made * count, count * (2 * g.hidden * g.hidden + 3 * g.hidden)


def _declared_experts(keys: Keys) -> Precision:
    declared = str(keys.get("expert_dtype"))
    return FORMATS.get("mxfp4" if declared == "fp4" else declared, BF16)


def _precisions(
    scheme: Scheme, layers: tuple[Layer, ...], embedding: Gemm, head: Gemm | None
) -> tuple[dict[WeightGroup, float], dict[WeightGroup, str], tuple[int, int] | None]:
    """Mean bits per weight of each group over all layers, and the family that most of its weights are in."""
    counted: dict[WeightGroup, dict[Precision, int]] = {}

    def count(gemm: Gemm, names: tuple[str, ...], times: int = 1) -> None:
        tally = counted.setdefault(gemm.group, {})
        precision = scheme.of(names, gemm.group)
        tally[precision] = tally.get(precision, 0) + gemm.params * times

    for index, layer in enumerate(layers):
        for gemm in (*layer.attention.gemms, *layer.ffn.gemms):
            count(gemm, module_names(gemm, index))
        for gemm in layer.ffn.expert_gemms:
            count(gemm, module_names(gemm, index), layer.ffn.experts)
    count(embedding, module_names(embedding, None))
    if head is not None:
        count(head, module_names(head, None))
    bits: dict[WeightGroup, float] = {}
    dtypes: dict[WeightGroup, str] = {}
    for group in WEIGHT_GROUPS:
        tally = counted.get(group) or {BF16: 1}
        bits[group] = sum(p.bits * n for p, n in tally.items()) / sum(tally.values())
        dtypes[group] = max(tally, key=lambda precision: tally[precision]).dtype
    return bits, dtypes, scheme.block


def _mtp_bits(scheme: Scheme, layers: tuple[Layer, ...], first: int) -> float:
    total = stored = 0.0
    for index, layer in enumerate(layers):
        gemms = [(gemm, 1) for gemm in (*layer.attention.gemms, *layer.ffn.gemms)]
        gemms += [(gemm, layer.ffn.experts) for gemm in layer.ffn.expert_gemms]
        for gemm, times in gemms:
            names = (*module_names(gemm, first + index), f"mtp.layers.{index}.{gemm.name}", f"mtp.{index}.{gemm.name}")
            total += gemm.params * times
            stored += gemm.params * times * scheme.of(names, gemm.group).bits
    return stored / total if total else 16.0


def _notes(
    keys: Keys,
    traits: Traits,
    g: Geometry,
    layers: tuple[Layer, ...],
    mtp: tuple[Layer, ...],
    scheme: Scheme,
    vision_note: str,
    name: str,
) -> Iterable[str]:
    yield from g.notes
    yield from keys.notes
    if not traits.validated:
        yield (
            f"unvalidated architecture {keys.architecture} (model_type {keys.model_type or 'none'}): a generic estimate from "
            "the dimensions in its config"
        )
    if mtp:
        yield (
            f"{len(mtp)} MTP layer(s) are in the config: speculation stays off unless asked for with a measured acceptance "
            "length; their KV and weights are not counted"
        )
    states = [layer.attention.state for layer in layers if layer.attention.state]
    if states and keys.get("mamba_ssm_dtype", "mamba_ssm_cache_dtype") is None:
        yield "the config names no dtype of recurrent state: float32 is taken (bfloat16 would be half)"
    if scheme.kv_dtype:
        yield f"the checkpoint asks for a {scheme.kv_dtype} KV cache: that is the default here"
    yield from scheme.notes
    if scheme.silent and re.search(r"fp8|fp4|int4|int8|awq|gptq|w4a|w8a", name.lower()):
        yield f"the name {name} speaks of quantised weights but neither config.json nor hf_quant_config.json does: sized as 16-bit"
    if vision_note:
        yield vision_note


def with_weights(model: ModelSpec, weights: str) -> ModelSpec:
    """The model with all linear layers stored as ``weights`` (checkpoint: unchanged; bf16: everything 16-bit).

    Router, embedding, head and norms stay as published. Raises InputError for an unknown format.
    """
    name = weights.strip().lower().replace("-", "_")
    if name in ("checkpoint", "auto", "as_published"):
        return model
    if name not in FORMATS:
        raise InputError(Problem("model.weights", weights, f"checkpoint or one of {', '.join(FORMATS)}", "fp8"))
    precision = FORMATS[name]
    block = (128, 128) if precision == fp8_block() else None
    bits, dtypes = dict(model.weight_bits), dict(model.weight_dtype)
    groups = tuple(bits) if precision.dtype == "bf16" else LINEAR_GROUPS
    for group in groups:
        bits[group], dtypes[group] = precision.bits, precision.dtype
    return replace(model, weight_bits=bits, weight_dtype=dtypes, fp8_block=block)
