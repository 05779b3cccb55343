"""Engine overlays as files: hardware_profiles/engines/<engine>.yaml, or a calibration of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from pddplan.data_files import data_root
from pddplan.errors import InputError, Problem
from pddplan.hardware.types import Chip
from pddplan.roofline.overlay import Overlay

ENGINES = ("vllm", "sglang", "trtllm", "generic")
SYNONYMS = {"tensorrtllm": "trtllm", "tensorrt": "trtllm", "trt": "trtllm"}
GENERATIONS = ("hopper", "blackwell")
LAWS = ("fixed", "random")
_BLACKWELL = ("b200_sxm", "b300_sxm", "gb200", "gb300", "rtx_pro_6000_server")


def generation(chip: Chip) -> str:
    """Fit group of a chip: blackwell where its kernels are a Blackwell chip's, else hopper (with older and borrowed ones)."""
    return "blackwell" if chip.efficiency_of in _BLACKWELL else "hopper"


def overlay_path(engine: str) -> Path:
    """File of a shipped engine or of a calibration overlay (a path that ends in .yaml)."""
    if engine.lower().endswith((".yaml", ".yml")):
        return Path(engine)
    plain = engine.strip().lower().replace("-", "").replace("_", "")
    return data_root() / "hardware_profiles" / "engines" / f"{SYNONYMS.get(plain, plain)}.yaml"


@lru_cache(maxsize=32)
def read_overlay(engine: str) -> Mapping[str, Any]:
    """Content of an overlay file. Raises InputError: unknown engine, unreadable file, unknown constant."""
    path = overlay_path(engine)
    if not path.is_file():
        raise InputError(Problem("engine", repr(engine), "one of " + ", ".join(ENGINES) + ", or the path of a calibration overlay", "vllm"))
    content = yaml.safe_load(path.read_text())
    if not isinstance(content, Mapping) or "constants" not in content:
        raise InputError(Problem(str(path), "no 'constants'", "an overlay written by pddplan calibrate"))
    known = set(Overlay.names())
    problems = [
        Problem(f"{path} constants.{group}.{name}", f"{value!r}", "a positive number under a known name: " + ", ".join(sorted(known)))
        for group, values in content["constants"].items()
        for name, value in values.items()
        if name not in known or not isinstance(value, int | float) or value < 0
    ]
    if problems:
        raise InputError(problems)
    result: Mapping[str, Any] = content
    return result


def base_engine(engine: str) -> str:
    """Engine whose kernels an overlay uses."""
    return str(read_overlay(engine).get("engine", engine))


def load_overlay(engine: str, chip: Chip, length_law: str = "random") -> Overlay:
    """Constants of ``engine`` on ``chip``; ``length_law`` (fixed or random) chooses the closed-loop waves."""
    constants = read_overlay(engine)["constants"]
    values: dict[str, float] = {}
    for group in ("all", generation(chip), length_law, chip.slug):
        values.update({name: float(v) for name, v in constants.get(group, {}).items()})
    return Overlay(**values)
