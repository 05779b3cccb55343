"""The shipped profiles by name, and a user's own files by path."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from pddplan.data_files import data_root
from pddplan.errors import InputError, Problem
from pddplan.hardware.chip_file import name_key, read_chip
from pddplan.hardware.link_file import read_link
from pddplan.hardware.price_file import read_prices
from pddplan.hardware.types import Chip, LinkProfile, PriceBook

_Profile = TypeVar("_Profile", bound=Chip | LinkProfile)


def profiles_folder(group: str) -> Path:
    """Folder of the shipped profiles of one group: chips, links, engines or prices."""
    return data_root() / "hardware_profiles" / group


@lru_cache(maxsize=1)
def list_chips() -> tuple[Chip, ...]:
    """Every shipped chip, by slug."""
    return tuple(read_chip(path) for path in sorted(profiles_folder("chips").glob("*.yaml")))


@lru_cache(maxsize=1)
def list_links() -> tuple[LinkProfile, ...]:
    """Every shipped kind of line, by slug."""
    return tuple(read_link(path) for path in sorted(profiles_folder("links").glob("*.yaml")))


def load_chip(name: str, base: Path = Path()) -> Chip:
    """Chip by slug, alias (case and punctuation do not matter) or path of a chip file, relative to ``base``.

    Raises InputError: unknown name, with the nearest ones; or a file with faults, all of them.
    """
    return read_chip(base / name) if is_path(name) else _shipped("chip", name, read_chip, list_chips)


def load_link(name: str) -> LinkProfile:
    """Kind of line by slug, alias or path of a link file. Raises InputError as ``load_chip`` does."""
    return read_link(Path(name)) if is_path(name) else _shipped("link", name, read_link, list_links)


def load_prices(name: str = "reference") -> PriceBook:
    """Price book by name or path. Raises InputError."""
    if is_path(name):
        return read_prices(Path(name))
    known = sorted(path.stem for path in profiles_folder("prices").glob("*.yaml"))
    if name not in known:
        raise InputError(_unknown_name("price book", name, known, known))
    return read_prices(profiles_folder("prices") / f"{name}.yaml")


def _shipped(what: str, name: str, read: Callable[[Path], _Profile], every: Callable[[], tuple[_Profile, ...]]) -> _Profile:
    exact = profiles_folder(f"{what}s") / f"{name}.yaml"
    if exact.name == f"{name}.yaml" and exact.is_file():
        return read(exact)
    profiles = every()
    by_key = {name_key(alias): each for each in profiles for alias in (each.slug, each.name, *each.aliases)}
    found = by_key.get(name_key(name))
    if found is None:
        raise InputError(_unknown_name(what, name, [each.slug for each in profiles], by_key))
    return found


def is_path(name: str) -> bool:
    """Whether a profile name means a file: it ends in .yaml or .yml."""
    return name.lower().endswith((".yaml", ".yml"))


def _unknown_name(what: str, name: str, slugs: list[str], keys: Iterable[str]) -> Problem:
    near = difflib.get_close_matches(name.lower(), slugs, 3, 0.5)
    near = near or difflib.get_close_matches(name_key(name), list(keys), 3, 0.5)
    accepted = f"nearest: {', '.join(near)}" if near else f"one of {', '.join(slugs)}"
    example = near[0] if near else slugs[0]
    return Problem(what, f"{name!r} is not a shipped {what}", f"{accepted}; or the path of your own .yaml file", example)
