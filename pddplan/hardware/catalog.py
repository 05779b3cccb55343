"""The shipped profiles by name, and a user's own files by path."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from pddplan.data_files import data_root
from pddplan.errors import InputError, Problem
from pddplan.hardware.chip_file import name_key, read_chip
from pddplan.hardware.link_file import read_link
from pddplan.hardware.price_file import read_prices
from pddplan.hardware.types import Chip, LinkProfile, PriceBook
from pddplan.units import GB, GIB

_Profile = TypeVar("_Profile", bound=Chip | LinkProfile)

# Words of a chip's name that do not tell it from another: makers, product lines, systems, kinds of memory.
_IDLE_WORD = re.compile(r"nvidia|amd|intel|huawei|google|aws|geforce|quadro|tesla|instinct|hgx|dgx|gpu|generation|hbm\d?e?|gddr\dx?")
_MEMORY_WORD = re.compile(r"(\d{2,3})(?:g|gb|gib)?")
_MEMORY_TOLERANCE = 0.11  # marketed sizes are GB or GiB, of the board or of what is left of it


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
    """Chip by slug, alias or path of a chip file, relative to ``base``.

    Case, punctuation, the maker's name and the kind of memory do not matter; a memory size must be the chip's own and tells
    variants apart: ``NVIDIA H100-80GB-HBM3``, ``A100-40``, ``a6000 48 GB``.
    Raises InputError: unknown name, with the nearest ones; or a file with faults, all of them.
    """
    return read_chip(base / name) if is_path(name) else _shipped("chip", name, read_chip, list_chips, _chip_by_words)


def load_link(name: str) -> LinkProfile:
    """Kind of line by slug, alias or path of a link file. Raises InputError as ``load_chip`` does."""
    return read_link(Path(name)) if is_path(name) else _shipped("link", name, read_link, list_links)


def load_prices(name: str = "reference") -> PriceBook:
    """Price book by name or path. Raises InputError."""
    if is_path(name):
        return read_prices(Path(name))
    known = sorted(path.stem for path in profiles_folder("prices").glob("*.yaml"))
    if name not in known:
        raise InputError(_unknown_name("price book", name, known))
    return read_prices(profiles_folder("prices") / f"{name}.yaml")


def _shipped(
    what: str,
    name: str,
    read: Callable[[Path], _Profile],
    every: Callable[[], tuple[_Profile, ...]],
    by_words: Callable[[str], _Profile | None] = lambda name: None,
) -> _Profile:
    exact = profiles_folder(f"{what}s") / f"{name}.yaml"
    if exact.name == f"{name}.yaml" and exact.is_file():
        return read(exact)
    profiles = every()
    by_key = {name_key(alias): each for each in profiles for alias in (each.slug, each.name, *each.aliases)}
    found = by_key.get(name_key(name)) or by_words(name)
    if found is None:
        raise InputError(_unknown_name(what, name, [each.slug for each in profiles]))
    return found


def _chip_by_words(name: str) -> Chip | None:
    """Chip whose name has the same telling words and, where ``name`` gives a size, that much memory.

    Raises InputError where the name fits a chip of another memory size.
    """
    words, size_gb = _telling_words(name)
    if not words:
        return None
    fits = [chip for chip in list_chips() if any(_telling_words(each)[0] == words for each in (chip.slug, chip.name, *chip.aliases))]
    plain = [chip for chip in fits if words in map(name_key, (chip.slug, chip.name, *chip.aliases))]
    if size_gb is None:
        return next(iter(plain or fits), None)
    sized = [chip for chip in (*plain, *fits) if _has_memory(chip, size_gb)]
    if fits and not sized:
        sizes = ", ".join(f"{chip.slug} ({(chip.hbm_bytes.value or 0) / GB:.4g} GB)" for chip in fits)
        accepted = f"its size: {sizes}; or the path of your own .yaml file"
        raise InputError(Problem("chip", f"{name!r}: no such chip has {size_gb} GB", accepted, fits[0].slug))
    return next(iter(sized), None)


def _telling_words(name: str) -> tuple[str, int | None]:
    """Name without idle words and memory size, and that size in GB: ``NVIDIA A100-SXM4-40GB`` is (a100sxm, 40)."""
    words = [word for word in re.split(r"[^0-9a-z\u4e00-\u9fff]+", name.lower()) if word and not _IDLE_WORD.fullmatch(word)]
    words = _joined_unit(words)
    sizes = [match[1] for word in words[1:] if (match := _MEMORY_WORD.fullmatch(word))]
    rest = [re.sub(r"^sxm\d$", "sxm", word) for i, word in enumerate(words) if i == 0 or not _MEMORY_WORD.fullmatch(word)]
    return "".join(rest), int(sizes[-1]) if sizes else None


def _joined_unit(words: Sequence[str]) -> list[str]:
    """``48 gb`` as one word."""
    joined: list[str] = []
    for word in words:
        if word in ("g", "gb", "gib") and joined and joined[-1].isdigit():
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _has_memory(chip: Chip, size_gb: int) -> bool:
    have = chip.hbm_bytes.value or 0.0
    return any(abs(have / (size_gb * unit) - 1.0) <= _MEMORY_TOLERANCE for unit in (GB, GIB))


def is_path(name: str) -> bool:
    """Whether a profile name means a file: it ends in .yaml or .yml."""
    return name.lower().endswith((".yaml", ".yml"))


def _unknown_name(what: str, name: str, slugs: list[str]) -> Problem:
    by_key = {name_key(slug): slug for slug in slugs}
    short = {slug.split("-")[0]: slug for slug in sorted(slugs, key=lambda slug: "sxm" in slug)}  # h100 as it is said: h100-sxm
    wanted = name_key(name)
    found = [*difflib.get_close_matches(name.lower(), list(short), 3, 0.6), *difflib.get_close_matches(wanted, list(by_key), 3, 0.5)]
    near = list(dict.fromkeys(short.get(key) or by_key[key] for key in found))[:3]
    accepted = f"nearest: {', '.join(near)}" if near else f"one of {', '.join(slugs)}"
    own = "; or the path of your own .yaml file" + (" ('pddplan profiles add' writes one)" if what == "chip" else "")
    return Problem(what, f"{name!r} is not a shipped {what}", accepted + own, near[0] if near else slugs[0])
