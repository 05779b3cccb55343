"""Stored precision of each matrix, from the quantisation blocks of a checkpoint: bits per weight with their scales."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pddplan.model.reading import Keys
from pddplan.model.spec import Gemm, WeightGroup
from pddplan.units import shown

LINEAR_GROUPS: tuple[WeightGroup, ...] = ("attention", "dense_ffn", "shared_experts", "experts", "indexer")
UNTOUCHED_GROUPS: tuple[WeightGroup, ...] = ("router", "embedding", "lm_head", "norm")
PREFIXES = ("model.", "model.language_model.", "language_model.model.", "backbone.", "model.text_model.", "")
HEAD_NAMES = ("lm_head", "head", "language_model.lm_head", "model.lm_head", "output")
EXCLUSIONS = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "exclude", "llm_int8_skip_modules")
EMBEDDING_NAMES = ("model.embed_tokens", "embed_tokens", "embed", "language_model.model.embed_tokens")


@dataclass(frozen=True)
class Precision:
    """``bits`` stored per weight, scales included; ``dtype``: what the tensor cores see."""

    dtype: str
    bits: float


BF16 = Precision("bf16", 16.0)
FP32 = Precision("bf16", 32.0)
FP8 = Precision("fp8", 8.0)
INT8 = Precision("int8", 8.0)
NVFP4 = Precision("nvfp4", 4.0 + 8.0 / 16)  # one FP8 scale per 16 weights
MXFP4 = Precision("mxfp4", 4.0 + 8.0 / 32)  # one 8-bit exponent per 32 weights
NVFP4_WEIGHT_ONLY = Precision("int4", NVFP4.bits)  # 4-bit weights, 16-bit products


def fp8_block(rows: int = 128, columns: int = 128, scale_bits: float = 32.0) -> Precision:
    """FP8 with one scale per rows x columns block."""
    return Precision("fp8_block", 8.0 + scale_bits / (rows * columns))


def int4(group: int = 128, zero_points: bool = False) -> Precision:
    """4-bit integers with a 16-bit scale (and a 4-bit zero point) per group."""
    per_group = 16.0 + (4.0 if zero_points else 0.0)
    return Precision("int4", 4.0 + (per_group / group if group > 0 else 0.0))


FORMATS: dict[str, Precision] = {
    "bf16": BF16, "bfloat16": BF16, "fp16": BF16, "float16": BF16, "fp32": FP32, "float32": FP32, "fp8": FP8,
    "fp8_block": fp8_block(), "int8": INT8, "nvfp4": NVFP4, "fp4": NVFP4, "mxfp4": MXFP4, "int4": int4(128),
    "awq": int4(128, True), "gptq": int4(128, True),
}  # every name that ``with_weights`` takes


@dataclass(frozen=True)
class Scheme:
    """Precision of a matrix by its names in the checkpoint. ``block``: of block FP8."""

    of: Callable[[Sequence[str], WeightGroup], Precision]
    block: tuple[int, int] | None = None
    kv_dtype: str | None = None
    notes: tuple[str, ...] = ()
    silent: bool = False  # the checkpoint has no quantisation block


UNQUANTISED = Scheme(lambda names, group: BF16, silent=True)


@lru_cache(maxsize=4096)
def _expression(pattern: str) -> re.Pattern[str]:
    """Matcher of one module pattern: ``re:`` expression, shell wildcard, or a name with everything below or ending in it."""
    if pattern.startswith("re:"):
        return re.compile(pattern[3:])
    if "*" in pattern:
        return re.compile(fnmatch.translate(pattern))
    name = re.escape(pattern)
    return re.compile(rf"(?:.*\.)?{name}(?:\..*)?$")


class Patterns:
    """A set of module patterns; ``match`` is quick for the thousands of plain names that some checkpoints list."""

    def __init__(self, patterns: Iterable[str]) -> None:
        listed = [str(pattern) for pattern in patterns]
        self._plain = {p for p in listed if "*" not in p and not p.startswith("re:") and "layers." in p}
        self._starts = tuple(p[:-1] for p in listed if p.endswith("*") and "*" not in p[:-1] and not p.startswith("re:"))
        rest = (p for p in listed if p not in self._plain and p.removesuffix("*") not in self._starts)
        self._expressions = [_expression(p) for p in rest]

    def match(self, names: Sequence[str]) -> bool:
        for name in names:
            if name.startswith(self._starts):
                return True
            part = name
            while part:
                if part in self._plain:
                    return True
                part = part.rpartition(".")[0]
        return any(expression.match(name) for expression in self._expressions for name in names)


def module_names(gemm: Gemm, layer: int | None) -> tuple[str, ...]:
    """Full names under which a matrix may stand in a checkpoint."""
    if layer is None:
        return HEAD_NAMES if gemm.group == "lm_head" else EMBEDDING_NAMES
    path = gemm.name
    paths = [path]
    if path.startswith("mixer."):
        paths.append(path.replace("mixer.", "mlp.", 1))
    return tuple(f"{prefix}layers.{layer}.{p}" for p in paths for prefix in PREFIXES)


def read_scheme(keys: Keys, beside: Mapping[str, Any] | None) -> Scheme:
    """Scheme of a checkpoint from quantization_config (top level or language section) and hf_quant_config.json beside it.

    Raises through ``keys.problems`` for a method it does not know: a guess would misstate the size by up to four times.
    """
    config = keys.get("quantization_config", "quantization")
    extra = (beside or {}).get("quantization") if beside else None
    if config is not None and not isinstance(config, Mapping):
        keys.invalid("quantization_config", shown(config), "a mapping with quant_method", "quant_method: fp8")
        return UNQUANTISED
    if not config and not isinstance(extra, Mapping):
        return UNQUANTISED
    try:
        return _read_blocks(keys, config, extra)
    except (TypeError, ValueError, AttributeError, KeyError, IndexError) as error:
        keys.invalid("quantization_config", f"a block that cannot be read ({error})", "a quantisation block as published")
        return UNQUANTISED


def _read_blocks(keys: Keys, config: Any, extra: Any) -> Scheme:
    block = dict(config) if isinstance(config, Mapping) else {}
    for name, value in (extra or {}).items():
        block.setdefault(name, value)
    kv_dtype = _kv_dtype(block)
    method = str(block.get("quant_method") or "").lower()
    algorithm = str(block.get("quant_algo") or "").upper()
    excluded = Patterns(name for key in EXCLUSIONS for name in block.get(key) or ())
    listed = block.get("quantized_layers")
    if listed:
        return _mixed(keys, block, listed, method, kv_dtype)
    if method == "compressed-tensors" or (block.get("config_groups") and method not in ("fp8", "modelopt") and not algorithm):
        return _compressed_tensors(keys, block, excluded, kv_dtype)
    if not method and (block.get("load_in_4bit") or block.get("load_in_8bit")):
        method = "bitsandbytes"
    precision, sizes = _quark(keys, block) if method == "quark" else _uniform(keys, block, method, algorithm)
    notes = _absorbed_note(block, algorithm)

    def of(names: Sequence[str], group: WeightGroup) -> Precision:
        if group in UNTOUCHED_GROUPS or (method == "mxfp4" and group != "experts") or excluded.match(names):
            return BF16
        return precision

    return Scheme(of, sizes, kv_dtype, notes)


def _absorbed_note(block: Mapping[str, Any], algorithm: str) -> tuple[str, ...]:
    named = any(block.get(name) is not None for name in EXCLUSIONS)
    if algorithm and not named:
        return ("the quantisation block excludes no modules: every linear layer but router, embedding and head is taken as quantised",)
    return ()


def _uniform(
    keys: Keys, block: Mapping[str, Any], method: str, algorithm: str
) -> tuple[Precision, tuple[int, int] | None]:
    """One precision for all linear layers."""
    sizes = block.get("weight_block_size")
    group = int(block.get("group_size") or 0)
    if algorithm in ("NVFP4", "W4A4_NVFP4") or method == "nvfp4":
        return NVFP4, None
    if algorithm in ("W4A16_NVFP4", "NVFP4_AWQ"):
        return (NVFP4_WEIGHT_ONLY if algorithm == "W4A16_NVFP4" else NVFP4), None
    if algorithm in ("W4A16_AWQ", "W4A8_AWQ", "INT4_AWQ"):
        return int4(group or 128), None
    if algorithm in ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO") or method in ("fp8", "fbgemm_fp8", "w8a8_fp8"):
        if sizes:
            rows, columns = _block(keys, sizes)
            return fp8_block(rows, columns, 8.0 if block.get("scale_fmt") == "ue8m0" else 32.0), (rows, columns)
        return FP8, None
    if algorithm in ("MXFP4", "W4A8_MXFP4_FP8") or method in ("mxfp4", "gpt_oss_mxfp4"):
        return MXFP4, None
    if algorithm in ("W8A8_SQ_PER_CHANNEL", "INT8") or method in ("int8", "smoothquant", "w8a8_int8", "eetq"):
        return INT8, None
    if method in ("exl2", "exl3") and isinstance(block.get("bits"), int | float):
        return Precision("int4", float(block["bits"])), None
    if method in ("awq", "gptq", "gptq_marlin", "awq_marlin", "auto-round", "autoround", "moe_wna16"):
        bits = int(block.get("bits") or block.get("w_bit") or 4)
        zero_points = bool(block.get("zero_point", not block.get("sym", False)))
        return _integer(keys, bits, group or int(block.get("q_group_size") or 128), zero_points), None
    if method in ("bitsandbytes", "bnb"):
        if block.get("load_in_8bit"):
            return INT8, None
        return Precision("int4", 4.0 + 8.0 / 64), None  # NF4: a block of 64 weights with an 8-bit absmax (double quantisation)
    keys.invalid(
        "quantization_config",
        f"quant_method {method or 'none'}, quant_algo {algorithm or 'none'}",
        "fp8 (with or without weight_block_size), mxfp4, NVFP4, FP8, W4A16_AWQ, awq, gptq, int8, bitsandbytes, quark or "
        "compressed-tensors; for any other, take the block out and name the nearest format with --weights (model.weights)",
        "quant_method: fp8",
    )
    return BF16, None


def _block(keys: Keys, sizes: Any) -> tuple[int, int]:
    """Rows and columns of a block of weights that share a scale."""
    if isinstance(sizes, Sequence) and len(sizes) == 2 and all(isinstance(size, int) and size > 0 for size in sizes):
        return sizes[0], sizes[1]
    keys.invalid("quantization_config", f"a weight block of {sizes}", "two whole numbers over 0", "weight_block_size: [128, 128]")
    return 128, 128


def _quark(keys: Keys, block: Mapping[str, Any]) -> tuple[Precision, tuple[int, int] | None]:
    """AMD Quark: dtype and group of the weights in global_quant_config."""
    weight = (block.get("global_quant_config") or {}).get("weight") or {}
    if isinstance(weight, Sequence):
        weight = weight[0]
    dtype, group = str(weight.get("dtype")), int(weight.get("group_size") or 0)
    if dtype.startswith("fp8"):
        return FP8, None
    if dtype.startswith("fp4"):
        return (MXFP4 if group == 32 else NVFP4), None
    if dtype in ("int4", "uint4", "int8", "uint8"):
        return _integer(keys, int(dtype[-1]), group, dtype.startswith("u")), None
    keys.invalid("quantization_config", f"quark weights of dtype {dtype}", "fp8_e4m3, fp4, int4, uint4 or int8", "dtype: fp8_e4m3")
    return BF16, None


def _integer(keys: Keys, bits: int, group: int, zero_points: bool) -> Precision:
    if bits not in (2, 3, 4, 8):
        keys.invalid("quantization_config", f"{bits} bits", "2, 3, 4 or 8")
    per_group = (16.0 + (bits if zero_points else 0.0)) / group if group > 0 else 0.0
    return Precision("int8" if bits == 8 else "int4", bits + per_group)


def _weights_precision(keys: Keys, weights: Mapping[str, Any], form: str, weight_only: bool) -> tuple[Precision, tuple[int, int] | None]:
    """Precision of one group of a compressed-tensors or modelopt block."""
    bits, kind = int(weights.get("num_bits") or 16), str(weights.get("type") or "int")
    group = int(weights.get("group_size") or 0)
    if bits == 16:
        return BF16, None
    if kind == "float" and bits == 8:
        sizes = weights.get("block_structure")
        if weights.get("strategy") == "block" and sizes:
            rows, columns = _block(keys, sizes)
            return fp8_block(rows, columns), (rows, columns)
        return FP8, None
    if kind == "float" and bits == 4:
        if "mxfp4" in form or group == 32:
            return MXFP4, None
        return (NVFP4_WEIGHT_ONLY if weight_only else NVFP4), None
    return _integer(keys, bits, group, not weights.get("symmetric", True)), None


def _compressed_tensors(keys: Keys, block: Mapping[str, Any], excluded: Patterns, kv_dtype: str | None) -> Scheme:
    groups: list[tuple[Patterns, bool, Precision]] = []
    sizes: tuple[int, int] | None = None
    for group in (block.get("config_groups") or {}).values():
        weights = group.get("weights") or {}
        targets = [str(target) for target in group.get("targets") or ["Linear"]]
        form = str(group.get("format") or block.get("format") or "")
        precision, own = _weights_precision(keys, weights, form, group.get("input_activations") is None)
        sizes = sizes or own
        groups.append((Patterns(t for t in targets if t != "Linear"), "Linear" in targets, precision))
    if not groups:
        keys.missing("config_groups")

    def of(names: Sequence[str], group: WeightGroup) -> Precision:
        if group in ("embedding", "norm", "router") or excluded.match(names):
            return BF16
        for patterns, everything, precision in groups:
            if everything or patterns.match(names):
                return precision
        return BF16

    return Scheme(of, sizes, kv_dtype)


def _mixed(keys: Keys, block: Mapping[str, Any], listed: Mapping[str, Any], method: str, kv_dtype: str | None) -> Scheme:
    """A list of modules with an algorithm each; the rest as ``weight_block_size`` says (FP8 blocks) or 16-bit."""
    base, sizes = (_uniform(keys, block, "fp8", "") if block.get("weight_block_size") else (BF16, None))
    by_algorithm: dict[str, list[str]] = {}
    for name, entry in listed.items():
        by_algorithm.setdefault(str(entry.get("quant_algo")).upper(), []).append(name)
    groups = [
        (Patterns(names), _uniform(keys, {"group_size": block.get("group_size")}, "", algorithm)[0])
        for algorithm, names in by_algorithm.items()
    ]

    def of(names: Sequence[str], group: WeightGroup) -> Precision:
        if group in ("embedding", "norm"):
            return BF16
        for patterns, precision in groups:
            if patterns.match(names):
                return precision
        return BF16 if group in UNTOUCHED_GROUPS else base

    return Scheme(of, sizes, kv_dtype)


def _kv_dtype(block: Mapping[str, Any]) -> str | None:
    """What the checkpoint asks for its cache: kv_cache_quant_algo (modelopt) or kv_cache_scheme; None when it is silent."""
    algorithm = block.get("kv_cache_quant_algo")
    scheme = block.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        bits, kind = int(scheme.get("num_bits") or 16), str(scheme.get("type"))
        algorithm = algorithm or {(8, "float"): "FP8", (8, "int"): "INT8", (4, "float"): "NVFP4"}.get((bits, kind))
    elif scheme:
        algorithm = algorithm or scheme
    return str(algorithm).lower() if algorithm else None
