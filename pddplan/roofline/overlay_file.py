"""Engine overlays as files: hardware_profiles/engines/<engine>.yaml, or a calibration of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

from pddplan.data_files import data_root
from pddplan.errors import InputError, Problem
from pddplan.hardware.types import Chip
from pddplan.roofline.overlay import Overlay
from pddplan.scenario.document import parse_document, read_bytes
from pddplan.units import shown

ENGINES = ("vllm", "sglang", "trtllm", "generic")
SYNONYMS = {"tensorrtllm": "trtllm", "tensorrt": "trtllm", "trt": "trtllm"}
GENERATIONS = ("hopper", "blackwell")
LAWS = ("fixed", "random")
_BLACKWELL = ("b200_sxm", "b300_sxm", "gb200", "gb300", "rtx_pro_6000_server")


def generation(chip: Chip) -> str:
    """Fit group of a chip: blackwell where its kernels are a Blackwell chip's, else hopper (with older and borrowed ones)."""
    return "blackwell" if chip.efficiency_of in _BLACKWELL else "hopper"


def overlay_beside(engine: str, folder: Path) -> str:
    """``engine`` as a scenario in ``folder`` names it: an overlay's file relative to that folder, or a shipped engine's name."""
    return str(folder / Path(engine).expanduser()) if _is_file(engine) else engine


def _is_file(engine: str) -> bool:
    return engine.lower().endswith((".yaml", ".yml"))


def overlay_path(engine: str) -> Path:
    """File of a shipped engine or of a calibration overlay (a path that ends in .yaml)."""
    if _is_file(engine):
        return Path(engine)
    plain = engine.strip().lower().replace("-", "").replace("_", "")
    return data_root() / "hardware_profiles" / "engines" / f"{SYNONYMS.get(plain, plain)}.yaml"


def read_overlay(engine: str) -> Mapping[str, Any]:
    """Content of an overlay file, read anew when the file changes.

    Raises InputError: unknown engine, unreadable file, and every constant and band that is no number or has no meaning.
    """
    path = overlay_path(engine)
    if not path.is_file() or (not _is_file(engine) and path.stem not in ENGINES):
        raise InputError(Problem("engine", repr(engine), "one of " + ", ".join(ENGINES) + ", or the path of a calibration overlay", "vllm"))
    status = path.stat()
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=32)
def _read(path: Path, changed_ns: int, size: int) -> Mapping[str, Any]:
    document = parse_document(read_bytes(path, str(path)), str(path))
    content: Mapping[str, Any] = document.value
    problems = list(document.problems)

    def mapping(*keys: str, value: Any) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        problems.append(Problem(document.place(keys), shown(value), "keys with values", "all: {step_s: 0.0003}"))
        return {}

    if "constants" not in content:
        raise InputError([*problems, Problem(str(path), "no 'constants'", "an overlay written by pddplan calibrate")])
    if content.get("engine", ENGINES[0]) not in ENGINES:
        problems.append(Problem(document.place(("engine",)), shown(content["engine"]), "one of " + ", ".join(ENGINES), "vllm"))
    known = Overlay.names()
    for group, values in mapping("constants", value=content["constants"]).items():
        for name, value in mapping("constants", group, value=values).items():
            if name not in known or not _constant(value, name):
                accepted = "a number of at least 0 under a known name: " + ", ".join(sorted(known))
                problems.append(Problem(document.place(("constants", group, name)), shown(value), accepted))
    for chips, loads in mapping("bands", value=content.get("bands", {})).items():
        for load, metrics in mapping("bands", chips, value=loads).items():
            for metric, band in mapping("bands", chips, load, value=metrics).items():
                if not (isinstance(band, list) and len(band) == 2 and all(_constant(x, metric) for x in band) and 0 < band[0] <= band[1]):
                    place = document.place(("bands", chips, load, metric))
                    problems.append(Problem(place, shown(band), "two factors over 0, low and high", "[0.9, 1.2]"))
    if problems:
        raise InputError(problems)
    return content


def _constant(value: Any, name: str) -> bool:
    """Whether a value can stand for a constant: a number of at least 0; infinite only where that has a meaning."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return number and (isfinite(value) or name == "popularity")


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
