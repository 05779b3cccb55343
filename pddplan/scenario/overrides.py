"""``--set path=value``: change any value of a scenario by its path.

``links.A-B.circuit="10 Gbps"``, ``sites.A.chips[0].price=3 USD/h``, ``sites."eu.west".power=1 MW``, ``search.tp=[1, 2]``.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from pddplan.errors import InputError, Problem
from pddplan.scenario.document import Document, KeyPath, parse_document, scalar, written
from pddplan.scenario.keys import is_open_map, keys_at, listed, suggestion
from pddplan.units import shown

_PART = re.compile(
    r"""\s*(?:"(?P<dq>(?:[^"\\]|\\.)*)"|'(?P<sq>[^']*)'|\[\s*(?P<index>\d{1,6})\s*\]|\[\s*["'](?P<bq>[^"']*)["']\s*\]|(?P<key>[^.\["'=]+))"""
)
_FORM = 'write --set path=value, for example --set links.A-B.circuit="10 Gbps"'


@dataclass(frozen=True)
class Override:
    """A value to put at a path."""

    path: KeyPath
    value: Any


def parse_override(text: str) -> Override:
    """Read ``path=value``. Raises InputError."""
    path: list[str | int] = []
    at = 0
    while True:
        match = _PART.match(text, at)
        if match is None:
            raise InputError(Problem(f"--set {text}", "is not a path and a value", _FORM))
        if match["index"] is not None:
            path.append(int(match["index"]))
        else:
            key = next(match[name] for name in ("dq", "sq", "bq", "key") if match[name] is not None)
            path.append(key.strip() if match["key"] is not None else _unescaped(key, text) if match["dq"] is not None else key)
        at = match.end()
        rest = text[at:].lstrip()
        if rest.startswith("="):
            break
        if not rest.startswith(("[", ".")):
            raise InputError(Problem(f"--set {text}", "has no '='" if not rest else f"cannot be read at {shown(rest)}", _FORM))
        at = len(text) - len(rest) + (1 if rest.startswith(".") else 0)
    if "" in path:
        raise InputError(Problem(f"--set {text}", "has an empty key", _FORM))
    raw = rest[1:].strip()
    return Override(tuple(path), read_value(raw, f"--set {written(tuple(path))}"))


def _unescaped(key: str, text: str) -> str:
    try:
        return str(json.loads(f'"{key}"', strict=False))
    except json.JSONDecodeError:
        raise InputError(Problem(f"--set {text}", f"the quoted key {shown(key)} cannot be read", _FORM)) from None


def split_overrides(text: str) -> list[str]:
    """``a=1; b="x; y"`` as ``["a=1", 'b="x; y"']``: semicolons outside quotes and brackets separate."""
    parts, depth, quote, start = [], 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
        elif char == ";" and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def read_value(text: str, label: str) -> Any:
    """Value of an override: a scalar as in the file, or a list or mapping in brackets. Raises InputError."""
    if text[:1] in "[{\"'" and text:
        document = parse_document(f"value: {text}".encode(), label)
        if document.problems:
            raise InputError(document.problems)
        return document.value["value"]
    return scalar(text)


def with_overrides(document: Document, overrides: Iterable[str | Override]) -> tuple[Document, dict[KeyPath, str]]:
    """Document with values replaced, and for each changed path how it was asked for. Raises InputError with every fault."""
    value = copy.deepcopy(document.value)
    labels: dict[KeyPath, str] = {}
    problems: list[Problem] = []
    for item in overrides:
        try:
            override = parse_override(item) if isinstance(item, str) else item
            _put(value, override)
            labels[override.path] = f"--set {written(override.path)}"
        except InputError as error:
            problems += error.problems
        except yaml.YAMLError as error:  # pragma: no cover - parse_document turns these into InputError
            problems.append(Problem(f"--set {item}", str(error), _FORM))
    if problems:
        raise InputError([*document.problems, *problems])
    return Document(value, document.lines, document.file, document.problems), labels


def _put(data: dict[str, Any], override: Override) -> None:
    path, node = override.path, data
    place = f"--set {written(path)}"
    current: Any = node
    for depth, part in enumerate(path):
        last, here = depth == len(path) - 1, path[:depth]
        if isinstance(current, list):
            if not isinstance(part, int) or part >= len(current):
                raise InputError(
                    Problem(place, f"{written(here)} is a list of {len(current)}", "give an index from 0", f"{written(here)}[0]")
                )
        elif isinstance(current, dict):
            if isinstance(part, int):
                names = listed([str(key) for key in current])
                raise InputError(Problem(place, f"{written(here) or 'the scenario'} is no list", f"give a name: {names}"))
            if part not in current:
                _check_new_key(place, here, part, list(current), last)
                if not last:
                    current[part] = [] if isinstance(path[depth + 1], int) else {}
        else:
            raise InputError(
                Problem(place, f"{written(here)} is the single value {shown(current)}", "set it as a whole, or give a mapping")
            )
        if last:
            current[part] = override.value
            return
        if isinstance(current, dict) and current[part] is None:
            current[part] = {}
        if not isinstance(current[part], dict | list) and keys_at(path[: depth + 1]) and not _short_form(path, depth):
            current[part] = {}
        current = current[part]


def _short_form(path: KeyPath, depth: int) -> bool:
    return str(path[depth + 1]) not in keys_at(path[: depth + 1])


def _check_new_key(place: str, here: KeyPath, key: str, present: list[str], last: bool) -> None:
    known = keys_at(here)
    if key in known:
        return
    if is_open_map(here):
        if last:
            return
        near = suggestion(key, present)
        accepted = (f"did you mean {near!r}? " if near else "") + f"there are: {listed(present) or 'none'}"
        raise InputError(Problem(place, f"{written(here)} has no {key!r}", accepted))
    near = suggestion(key, known)
    accepted = (f"did you mean {near!r}? " if near else "") + f"known here: {listed(known) or 'nothing'}"
    raise InputError(Problem(place, f"unknown key {shown(key)}", accepted))
