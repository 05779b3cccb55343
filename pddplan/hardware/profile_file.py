"""Profile files: YAML in, checked mappings of sourced numbers out. All problems of a file are reported at once."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from pddplan.errors import InputError, Problem
from pddplan.hardware.types import KINDS, Sourced

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_EXAMPLE = "{value: 1, kind: datasheet, source: vendor datasheet}"
_FIELDS = ("value", "low", "high", "kind", "source", "date", "note")


class _StrictLoader(_LOADER):  # type: ignore[misc]
    """Safe loader that refuses a key given twice (the default keeps the last one in silence)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.MarkedYAMLError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return dict(super().construct_mapping(node, deep=deep))


def read_yaml(path: Path) -> dict[str, Any]:
    """Top-level mapping of a UTF-8 YAML file. Raises InputError with file and line when it cannot be read."""
    try:
        loaded = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except OSError as error:
        raise InputError(Problem(str(path), error.strerror or str(error), "a readable profile file")) from error
    except UnicodeDecodeError as error:
        raise InputError(Problem(str(path), "not UTF-8 text", "a YAML file in UTF-8")) from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise InputError(Problem(f"{path}:{line}", error.problem or "not YAML", "valid YAML")) from error
    except yaml.YAMLError as error:
        raise InputError(Problem(str(path), str(error), "valid YAML")) from error
    if not isinstance(loaded, dict):
        raise InputError(Problem(str(path), f"a {type(loaded).__name__}", "a mapping of keys to values"))
    return loaded


class Reader:
    """Takes values out of one file's mapping, collecting problems; ``finish`` raises them all."""

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        self.path, self.content = path, content
        self.problems: list[Problem] = []

    def problem(self, key: str, found: str, accepted: str, example: str = "") -> None:
        self.problems.append(Problem(f"{self.path} {key}", found, accepted, example))

    def only(self, known: Iterable[str], content: Mapping[str, Any] | None = None, prefix: str = "") -> None:
        """Refuse keys that nobody reads, with the nearest known one."""
        names = list(known)
        for key in content if content is not None else self.content:
            if key not in names:
                near = difflib.get_close_matches(str(key), names, 1)
                self.problem(f"{prefix}{key}", "unknown key", "one of " + ", ".join(names), near[0] if near else "")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.content.get(key, default)
        if not isinstance(value, str) or not value.strip():
            self.problem(
                key, "missing" if value is None else repr(value), "text, in quotes where YAML reads something else"
            )
            return ""
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.content.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.problem(key, repr(value), "a list of texts", '["one", "two"]')
            return ()
        return tuple(value)

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.content.get(key, {})
        if not isinstance(value, dict):
            self.problem(key, repr(value), "a mapping of names to values")
            return {}
        return value

    def count(self, key: str, default: int) -> int:
        value = self.content.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.problem(key, repr(value), "a whole number of at least 1", str(default))
            return default
        return value

    def number(self, key: str, scale: float = 1.0, *, required: bool = True, positive: bool = True) -> Sourced:
        """The sourced number under ``key``, times ``scale``. A missing optional one is unknown (no value)."""
        if key not in self.content:
            if required:
                self.problem(key, "missing", "a number with its kind and source", _EXAMPLE)
            return Sourced(None, "assumed", "not given")
        return self.sourced(key, self.content[key], scale, positive=positive, valued=required)

    def sourced(
        self, place: str, raw: Any, scale: float = 1.0, *, positive: bool = True, valued: bool = True
    ) -> Sourced:
        """``raw`` as a Sourced: a mapping with ``value`` (or ``low`` and ``high``), or a bare number, then assumed.

        valued: a range or an unknown is not enough, there must be a value.
        """
        if not isinstance(raw, dict):
            value = self._finite(place, raw, scale, positive)
            return Sourced(value, "assumed", f"given without a source in {self.path.name}")
        self.only(_FIELDS, raw, f"{place}.")
        value, low, high = (
            self._finite(f"{place}.{part}", raw[part], scale, positive) if raw.get(part) is not None else None
            for part in ("value", "low", "high")
        )
        if valued and value is None and raw.get("value") is None:
            self.problem(place, "no value", "a number", _EXAMPLE)
        if (low is None) != (high is None) or (low is not None and high is not None and low > high):
            self.problem(place, f"range {raw.get('low')} to {raw.get('high')}", "low and high together, low <= high")
        kind: Any = raw.get("kind")
        if kind not in KINDS:
            self.problem(f"{place}.kind", repr(kind), "one of " + ", ".join(KINDS), "datasheet")
            kind = "assumed"
        source, date, note = (raw.get(part, "") for part in ("source", "date", "note"))
        if not isinstance(source, str) or not source.strip():
            self.problem(f"{place}.source", repr(source), "where the number comes from, as text", "vendor datasheet")
        for part, text in (("date", date), ("note", note)):
            if not isinstance(text, str):
                self.problem(f"{place}.{part}", repr(text), "text in quotes", "'2026-11-30'")
        return Sourced(value, kind, str(source), str(date), str(note), low, high)

    def _finite(self, place: str, raw: Any, scale: float, positive: bool) -> float | None:
        ok = isinstance(raw, (int, float)) and not isinstance(raw, bool) and isfinite(raw)
        if not ok or (raw <= 0 if positive else raw < 0):
            accepted = f"a finite number {'over' if positive else 'of at least'} 0, without quotes or units"
            self.problem(place, repr(raw), accepted, "1.5")
            return None
        return float(raw) * scale

    def finish(self) -> None:
        if self.problems:
            raise InputError(self.problems)
