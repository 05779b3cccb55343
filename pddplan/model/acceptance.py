"""Measured acceptance lengths of speculative decoding: mean tokens per step by model, draft and number of draft tokens."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from pddplan.data_files import data_root
from pddplan.errors import InputError, Problem
from pddplan.scenario.document import parse_document, read_bytes


@dataclass(frozen=True)
class AcceptanceTable:
    """One measured table. name: ``deepseek-v4-pro-mtp:thinking_on``. lengths: mean tokens per step by draft tokens."""

    name: str
    lengths: Mapping[int, float]
    source: str


@lru_cache(maxsize=1)
def acceptance_tables() -> Mapping[str, AcceptanceTable]:
    """Every shipped table by name."""
    tables = {}
    for path in sorted((data_root() / "model_profiles" / "acceptance").glob("*.yaml")):
        data = read_bytes(path, str(path))
        source = next(line.partition(": ")[2] for line in data.decode().splitlines() if line.startswith("# Source"))
        for variants in parse_document(data, str(path)).value.values():
            for variant, lengths in variants.items():
                name = f"{path.stem}:{variant}"
                tables[name] = AcceptanceTable(name, {int(draft): float(length) for draft, length in lengths.items()}, source)
    return tables


def acceptance_length(model: str, draft_tokens: int) -> float:
    """Mean tokens per step of ``model`` with ``draft_tokens`` proposed.

    model: a table's name, or the start of one where only one table fits (``glm-5.2``, ``zai-org/GLM-5.2``). A table is not extended
    beyond the depths that were measured. Raises InputError: no table, several (with their names), or a depth nobody measured.
    """
    tables, place = acceptance_tables(), "acceptance length"
    wanted = model.rsplit("/", 1)[-1].lower()
    fitting = [wanted] if wanted in tables else [name for name in tables if name.startswith((f"{wanted}-", f"{wanted}:"))]
    if len(fitting) != 1:
        near = difflib.get_close_matches(wanted, tables, 3, 0.3)
        found = f"{model!r} fits {len(fitting)} measured tables" if fitting else f"nobody measured {model!r}"
        choices = ", ".join(fitting or near or tables)
        raise InputError(Problem(place, found, f"one of {choices}; or your own acceptance_length", (fitting or near or list(tables))[0]))
    table = tables[fitting[0]]
    if draft_tokens not in table.lengths:
        depths = ", ".join(map(str, table.lengths))
        raise InputError(Problem(place, f"{draft_tokens} draft tokens of {table.name}", f"a measured depth: {depths}", depths[0]))
    return table.lengths[draft_tokens]
