"""The checkpoint a server ran, from the model's name and the precision of its weights (fp4, fp8, int4, bf16)."""

from __future__ import annotations

from dataclasses import replace

from pddplan.errors import InputError
from pddplan.model import load_model, model_names, with_weights
from pddplan.model.spec import ModelSpec, WeightGroup

PRECISIONS = ("bf16", "fp8", "fp4", "int4")
_FAMILY = {"bf16": "bf16", "fp16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4", "mxfp4": "fp4", "int4": "int4", "int8": "int8"}
_SUFFIXES = {"fp4": ("-nvfp4", "-fp4"), "fp8": ("-fp8",), "int4": ("-int4", "-awq"), "bf16": ("-bf16",)}
# Published checkpoints of the same weights under another name.
_SIBLINGS = {
    ("deepseek-v3", "fp4"): "nvidia/DeepSeek-V3.1-NVFP4",
    ("deepseek-v3.1", "fp4"): "nvidia/DeepSeek-V3.1-NVFP4",
    ("deepseek-r1", "fp4"): "nvidia/DeepSeek-V3.1-NVFP4",
}
_BLOCK_FP8_MAKERS = ("deepseek", "qwen", "glm", "kimi", "minimax", "step")


def precision_of(model: ModelSpec) -> str:
    """Precision of most of the weights as published: bf16, fp8, fp4 or int4."""
    group: WeightGroup = "experts" if any(layer.ffn.kind == "moe" for layer in model.layers) else "dense_ffn"
    return _FAMILY.get(model.weight_dtype[group], model.weight_dtype[group])


def served_checkpoint(name: str, precision: str = "") -> ModelSpec:
    """Model as served: the published checkpoint of that precision if one is shipped, else the weights re-quantised.

    Post-training NVFP4 and INT4 of mixture-of-experts models leave attention as it was. Raises InputError for an unknown
    model or precision.
    """
    base, suffix = _base(name)
    wanted = precision.strip().lower() or suffix
    family = _FAMILY.get(wanted, wanted)
    if not wanted or family == precision_of(base):
        return base
    short = base.name.rpartition("/")[2].lower()
    sibling = _SIBLINGS.get((short, family))
    shipped = {n.rpartition("/")[2].lower(): n for n in model_names()}
    for suffix in _SUFFIXES.get(family, ()):
        sibling = sibling or shipped.get(short + suffix)
    if sibling:
        return load_model(sibling)
    return _requantised(base, wanted, family, short)


def _base(name: str) -> tuple[ModelSpec, str]:
    """Model by name; an unshipped re-quantised copy (``nvidia/X-FP8``) is X, with the precision in its suffix."""
    try:
        return load_model(name), ""
    except InputError as error:
        short = name.rpartition("/")[2]
        for precision, suffixes in _SUFFIXES.items():
            for suffix in suffixes:
                if short.lower().endswith(suffix):
                    try:
                        return load_model(short[: -len(suffix)]), precision
                    except InputError:
                        raise error from None
        raise


def _requantised(base: ModelSpec, wanted: str, family: str, short: str) -> ModelSpec:
    form = {"fp4": "nvfp4", "fp8": "fp8_block" if short.startswith(_BLOCK_FP8_MAKERS) else "fp8"}.get(family, wanted)
    model = with_weights(base, form)
    if family in ("fp4", "int4") and any(layer.ffn.kind == "moe" for layer in base.layers):
        kept: tuple[WeightGroup, ...] = ("attention", "indexer")
        bits = {**model.weight_bits, **{group: base.weight_bits[group] for group in kept}}
        dtypes = {**model.weight_dtype, **{group: base.weight_dtype[group] for group in kept}}
        return replace(model, weight_bits=bits, weight_dtype=dtypes)
    return model
