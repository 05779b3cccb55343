"""The shipped profiles by name, and a user's own files by path."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from pddplan.data_files import data_root
from pddplan.errors import InputError, Problem
from pddplan.hardware.chip_file import read_chip, slug_key
from pddplan.hardware.types import Chip

_SUFFIXES = (".yaml", ".yml")


def profiles_folder(group: str) -> Path:
    """Folder of the shipped profiles of one group: chips, links, engines or prices."""
    return data_root() / "hardware_profiles" / group


@lru_cache(maxsize=1)
def list_chips() -> tuple[Chip, ...]:
    """Every shipped chip, by slug."""
    return tuple(read_chip(path) for path in sorted(profiles_folder("chips").glob("*.yaml")))


def load_chip(name: str) -> Chip:
    """Chip by slug, alias (case and punctuation do not matter) or path of a chip file.

    Raises InputError: unknown name, with the nearest ones; or a file with faults, all of them.
    """
    if is_path(name):
        return read_chip(Path(name))
    return _shipped_chip(name)


@lru_cache(maxsize=256)
def _shipped_chip(name: str) -> Chip:
    exact = profiles_folder("chips") / f"{name}.yaml"
    if exact.name == f"{name}.yaml" and exact.is_file():
        return read_chip(exact)
    by_key = {slug_key(alias): chip for chip in list_chips() for alias in (chip.slug, chip.name, *chip.aliases)}
    chip = by_key.get(slug_key(name))
    if chip is None:
        raise InputError(unknown_name("chip", name, [chip.slug for chip in list_chips()], by_key))
    return chip


def is_path(name: str) -> bool:
    """Whether a profile name means a file: it ends in .yaml or .yml."""
    return name.lower().endswith(_SUFFIXES)


def unknown_name(what: str, name: str, slugs: list[str], keys: Iterable[str]) -> Problem:
    """The problem of a name that no profile has, with the nearest ones."""
    near = difflib.get_close_matches(name.lower(), slugs, 3, 0.5)
    if not near:
        near = difflib.get_close_matches(slug_key(name), list(keys), 3, 0.5)
    accepted = f"nearest: {', '.join(near)}" if near else f"one of {', '.join(slugs)}"
    return Problem(what, f"{name!r} is not a shipped {what}", f"{accepted}; or the path of your own .yaml file", near[0] if near else slugs[0])
