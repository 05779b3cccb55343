"""Profile files: YAML in, sourced numbers out. All problems of a file are reported at once, each at its line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from pddplan.errors import InputError, Problem
from pddplan.hardware.types import KINDS, Sourced
from pddplan.scenario.document import KeyPath, parse_document, read_bytes

_EXAMPLE = "{value: 1, kind: datasheet, source: vendor datasheet}"
_FIELDS = ("value", "low", "high", "kind", "source", "date", "note")


class Reader:
    """Takes values out of one file, collecting problems; ``finish`` raises them all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.document = parse_document(read_bytes(path, str(path)), str(path))
        self.content: Mapping[str, Any] = self.document.value
        self.problems = list(self.document.problems)

    def problem(self, path: KeyPath, found: str, accepted: str, example: str = "") -> None:
        self.problems.append(Problem(self.document.place(path), found, accepted, example))

    def only(self, known: Iterable[str], content: Mapping[str, Any] | None = None, prefix: KeyPath = ()) -> None:
        """Refuse keys that nobody reads, with the nearest known one."""
        names = list(known)
        for key in self.content if content is None else content:
            if key not in names:
                near = difflib.get_close_matches(key, names, 1)
                self.problem((*prefix, key), "unknown key", "one of " + ", ".join(names), near[0] if near else "")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.content.get(key, default)
        if not isinstance(value, str) or not value.strip():
            found = "missing" if value is None else repr(value)
            self.problem((key,), found, "text, in quotes where YAML reads something else")
            return ""
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.content.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.problem((key,), repr(value), "a list of texts", '["one", "two"]')
            return ()
        return tuple(value)

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.content.get(key, {})
        if not isinstance(value, dict):
            self.problem((key,), repr(value), "a mapping of names to values")
            return {}
        return value

    def count(self, key: str, default: int) -> int:
        value = self.content.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.problem((key,), repr(value), "a whole number of at least 1", str(default))
            return default
        return value

    def number(self, key: str, scale: float = 1.0, *, required: bool = True, positive: bool = True) -> Sourced:
        """The sourced number under ``key``, times ``scale``. A missing optional one is unknown (no value)."""
        if key not in self.content:
            if required:
                self.problem((key,), "missing", "a number with its kind and source", _EXAMPLE)
            return Sourced(None, "assumed", "not given")
        return self.sourced((key,), self.content[key], scale, positive=positive, valued=required)

    def sourced(self, path: KeyPath, raw: Any, scale: float = 1.0, *, positive: bool = True, valued: bool = True) -> Sourced:
        """``raw`` as a Sourced: a mapping with ``value`` (or ``low`` and ``high``), or a bare number, then assumed.

        valued: a range or an unknown is not enough, there must be a value.
        """
        if not isinstance(raw, dict):
            bare = self._finite(path, raw, scale, positive)
            return Sourced(bare, "assumed", f"given without a source in {self.path.name}")
        self.only(_FIELDS, raw, path)
        value, low, high = (
            None if raw.get(part) is None else self._finite((*path, part), raw[part], scale, positive) for part in ("value", "low", "high")
        )
        if valued and raw.get("value") is None:
            self.problem(path, "no value", "a number", _EXAMPLE)
        if (low is None) != (high is None) or (low is not None and high is not None and low > high):
            self.problem(path, f"range {raw.get('low')} to {raw.get('high')}", "low and high together, low <= high")
        kind: Any = raw.get("kind")
        if kind not in KINDS:
            self.problem((*path, "kind"), repr(kind), "one of " + ", ".join(KINDS), "datasheet")
            kind = "assumed"
        source, date, note = (raw.get(part, "") for part in ("source", "date", "note"))
        if not isinstance(source, str) or not source.strip():
            self.problem((*path, "source"), repr(source), "where the number comes from, as text", "vendor datasheet")
        if not isinstance(note, str):
            self.problem((*path, "note"), repr(note), "text in quotes")
        return Sourced(value, kind, str(source), str(date), str(note), low, high)

    def _finite(self, path: KeyPath, raw: Any, scale: float, positive: bool) -> float | None:
        ok = isinstance(raw, (int, float)) and not isinstance(raw, bool) and isfinite(raw)
        if not ok or (raw <= 0 if positive else raw < 0):
            accepted = f"a finite number {'over' if positive else 'of at least'} 0, without quotes or units"
            self.problem(path, repr(raw), accepted, "1.5")
            return None
        return float(raw) * scale

    def finish(self) -> None:
        if self.problems:
            raise InputError(self.problems)
