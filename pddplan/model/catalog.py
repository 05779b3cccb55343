"""Shipped models by name: exact, by alias, or the nearest names when there is none."""

from __future__ import annotations

import difflib
from functools import lru_cache
from pathlib import Path

from pddplan.data_files import data_root
from pddplan.errors import InputError, Problem
from pddplan.model.config import read_config
from pddplan.model.spec import ModelSpec

SUFFIX = "_config.json"
ALIASES = {
    "meta-llama/llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/llama-3.1-405b": "meta-llama/Meta-Llama-3.1-405B",
    "zhipuai/glm-5": "zai-org/GLM-5",
    "nvidia/qwen3-32b-nvfp4": "Qwen/Qwen3-32B",
}
TUNES = ("-instruct", "-chat", "-base", "-it", "-thinking", "-0528", "-hf")


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
    for _ in range(2):
        for tune in (*TUNES, "-fp8"):
            if base.endswith(tune):
                base = base.removesuffix(tune)
                forms.append(base)
    return forms


def load_model(name_or_path: str | Path) -> ModelSpec:
    """ModelSpec of a shipped model, a config.json or a folder that holds one.

    Raises InputError for an unknown name (with the nearest ones) or a config that cannot be read (with the keys looked for).
    """
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        path = path / "config.json"
    if path.is_file() or path.suffix == ".json":
        return read_config(path)
    return _load_shipped(resolve(str(name_or_path)))


@lru_cache(maxsize=256)
def _load_shipped(name: str) -> ModelSpec:
    return read_config(_shipped()[name], name)
