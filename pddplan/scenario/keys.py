"""Which keys may stand where: read from the JSON Schema of the scenario, for suggestions and for ``--set`` paths."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Any

from pddplan.scenario.document import KeyPath
from pddplan.scenario.schema import Scenario


@lru_cache(maxsize=1)
def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a scenario file, for editors and for checks."""
    schema = Scenario.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "pddplan scenario"}


def _expanded(node: dict[str, Any]) -> list[dict[str, Any]]:
    if "$ref" in node:
        return _expanded(json_schema()["$defs"][node["$ref"].rsplit("/", 1)[-1]])
    branches = [branch for key in ("anyOf", "oneOf", "allOf") for branch in node.get(key, ())]
    return [leaf for branch in branches for leaf in _expanded(branch)] or [node]


def _children(nodes: list[dict[str, Any]], part: str | int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for node in nodes:
        if isinstance(part, int):
            prefix = node.get("prefixItems", [])
            child = prefix[part] if part < len(prefix) else node.get("items")
        else:
            extra = node.get("additionalProperties")
            patterns = list(node.get("patternProperties", {}).values())
            child = node.get("properties", {}).get(part) or (patterns[0] if patterns else extra if isinstance(extra, dict) else None)
        if isinstance(child, dict):
            found += _expanded(child)
    return found


def _at(path: KeyPath) -> list[dict[str, Any]]:
    nodes = _expanded(json_schema())
    for part in path:
        nodes = _children(nodes, part)
    return nodes


def keys_at(path: KeyPath) -> tuple[str, ...]:
    """Keys that a mapping at ``path`` may have; empty where any name may stand."""
    return tuple(dict.fromkeys(key for node in _at(path) for key in node.get("properties", {})))


def is_open_map(path: KeyPath) -> bool:
    """Whether the mapping at ``path`` takes names of the user's choice (sites, links, classes ...)."""
    return any(
        isinstance(n.get("additionalProperties"), dict) or n.get("additionalProperties") is True or "patternProperties" in n
        for n in _at(path)
    )


def suggestion(word: str, known: tuple[str, ...] | list[str]) -> str | None:
    """The known word nearest to a misspelt one, if any is near; case and -/_ are forgiven."""
    folded = {k.lower().replace("-", "_"): k for k in known}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), list(folded), n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def listed(words: tuple[str, ...] | list[str], most: int = 14) -> str:
    """Words joined for a message, cut after ``most``."""
    return ", ".join(words[:most]) + (f", ... ({len(words)} in all)" if len(words) > most else "")
