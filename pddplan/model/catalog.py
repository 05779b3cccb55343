"""Shipped models by name: exact, by alias, or the nearest names when there is none."""

from __future__ import annotations

import difflib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pddplan.data_files import data_root
from pddplan.errors import InputError, Problem
from pddplan.model.config import read_config, with_weights
from pddplan.model.spec import ModelSpec, WeightGroup

SUFFIX = "_config.json"
ALIASES = {
    "meta-llama/llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/llama-3.1-405b": "meta-llama/Meta-Llama-3.1-405B",
    "meta-llama/llama-3.3-70b": "meta-llama/Meta-Llama-3.1-70B",
    "mistralai/mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "mistralai/mixtral-8x22b": "mistralai/Mixtral-8x22B-v0.1",
    "meta-llama/llama-4-scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "meta-llama/llama-4-maverick": "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "meta-llama/llama-4-scout-17b-16e": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "meta-llama/llama-4-maverick-17b-128e": "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "nvidia/nemotron-h-56b": "nvidia/Nemotron-H-56B-Base-8K",
    "deepseek-ai/deepseek-v3.1": "deepseek-ai/DeepSeek-V3",
    "deepseek-ai/deepseek-v3.1-terminus": "deepseek-ai/DeepSeek-V3",
    "deepseek-ai/deepseek-v3.2-exp": "deepseek-ai/DeepSeek-V3.2",
    "zhipuai/glm-5": "zai-org/GLM-5",
}
TUNES = (
    "-instruct", "-chat", "-base", "-it", "-thinking", "-0528", "-0324", "-0905", "-2507", "-hf", "-v0.1", "-instruct-v0.1",
)
QUANTISED = {
    "-fp8-dynamic": "fp8", "-fp8": "fp8", "-nvfp4": "nvfp4", "-fp4": "nvfp4", "-awq": "awq", "-gptq-int4": "gptq",
    "-gptq": "gptq", "-int4": "int4", "-w4a16": "int4", "-w8a8": "int8", "-int8": "int8",
}  # names of re-quantised copies and the format of their linear layers
BLOCK_FP8_MAKERS = ("deepseek", "qwen", "glm", "kimi", "minimax", "step")


def profile_folder() -> Path:
    return data_root() / "model_profiles"


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Path]:
    files = sorted(profile_folder().glob(f"*{SUFFIX}"))
    return {
        path.name.removesuffix(SUFFIX).replace("--", "/"): path for path in files if not path.name.endswith("hf_quant_config.json")
    }


def model_names() -> tuple[str, ...]:
    """Names of all shipped models, sorted."""
    return tuple(_shipped())


def resolve(name: str) -> str:
    """The shipped name that ``name`` means: case, ``--`` and the organisation may differ, an instruction tune is its base.

    Raises InputError with the nearest shipped names.
    """
    wanted = name.strip().replace("--", "/").lower().removesuffix(SUFFIX)
    by_lower = {shipped.lower(): shipped for shipped in _shipped()}
    by_short: dict[str, list[str]] = {}
    for shipped in _shipped():
        by_short.setdefault(shipped.rpartition("/")[2].lower(), []).append(shipped)
    for form in _forms(wanted):
        if form in by_lower:
            return by_lower[form]
        if form in ALIASES:
            return ALIASES[form]
        short = by_short.get(form.rpartition("/")[2], []) if "/" not in form else []
        if len(short) == 1:
            return short[0]
        alias = [target for alias, target in ALIASES.items() if "/" not in form and alias.rpartition("/")[2] == form]
        if alias:
            return alias[0]
    short_names = list(by_short)
    near = difflib.get_close_matches(wanted.rpartition("/")[2], short_names, n=4, cutoff=0.4)
    names = ", ".join(shipped for short in near for shipped in by_short[short]) or "see `pddplan models list`"
    raise InputError(
        Problem("model.name", f"{name}: no shipped model and no such file", f"a config.json, or a shipped name; nearest: {names}")
    )


def _forms(wanted: str) -> list[str]:
    forms = [wanted]
    base = wanted
    for _ in range(3):
        for tune in (*TUNES, *QUANTISED):
            if base.endswith(tune):
                base = base.removesuffix(tune)
                forms.append(base)
    requantised = any(wanted.endswith(suffix) for suffix in QUANTISED)
    return forms + [form.rpartition("/")[2] for form in forms[1:] if requantised]  # its maker need not be the model's


def _as_named(model: ModelSpec, name: str) -> ModelSpec:
    """``model`` with the weights that a re-quantised copy's ``name`` speaks of, where that copy is not shipped."""
    short = name.strip().lower().replace("--", "/").rpartition("/")[2]
    stored = QUANTISED.get(next((suffix for suffix in QUANTISED if short.endswith(suffix)), ""))
    if stored is None or model.name.lower().endswith(short):
        return model
    if stored == "fp8" and short.startswith(BLOCK_FP8_MAKERS):
        stored = "fp8_block"
    made = with_weights(model, stored)
    if all(made.weight_dtype[group] == model.weight_dtype[group] for group in ("attention", "dense_ffn", "experts")):
        return model
    bits, dtypes = dict(made.weight_bits), dict(made.weight_dtype)
    if "fp8" not in stored and any(layer.ffn.kind == "moe" for layer in model.layers):
        kept: tuple[WeightGroup, ...] = ("attention", "indexer")  # post-training 4-bit of mixture-of-experts leaves it as it was
        for group in kept:
            bits[group], dtypes[group] = model.weight_bits[group], model.weight_dtype[group]
    note = f"no config of {name} is shipped: {model.name} with its linear layers as {stored}"
    return replace(made, weight_bits=bits, weight_dtype=dtypes, notes=(*made.notes, note))


def load_model(name_or_path: str | Path) -> ModelSpec:
    """ModelSpec of a shipped model, a config.json or a folder that holds one.

    Raises InputError for an unknown name (with the nearest ones) or a config that cannot be read (with the keys looked for).
    """
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        path = path / "config.json"
    if path.is_file() or path.suffix == ".json":
        return read_config(path)
    return _as_named(_load_shipped(resolve(str(name_or_path))), str(name_or_path))


@lru_cache(maxsize=256)
def _load_shipped(name: str) -> ModelSpec:
    return read_config(_shipped()[name], name)
