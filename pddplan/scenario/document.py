"""A YAML or JSON file as plain data that knows on which line each value stands.

Read from parser events, without YAML's constructors: no tags, no merge keys, one document; ``no``, ``on`` and dates stay text and
1e9 is a number, as in YAML 1.2. Size, depth and the number of values (aliases expanded) are bounded.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pddplan.errors import InputError, Problem
from pddplan.units import shown

BYTES_MAX = 8_000_000
DEPTH_MAX = 40
VALUES_MAX = 200_000
KeyPath = tuple[str | int, ...]

_INT = re.compile(r"[-+]?\d+")
_FLOAT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    "-.inf": float("-inf"),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


@dataclass(frozen=True)
class Document:
    """Plain data with the line of each key path. ``problems``: faults found while reading that did not stop it (duplicate keys)."""

    value: Any
    lines: Mapping[KeyPath, int]
    file: str
    problems: tuple[Problem, ...] = ()

    def place(self, path: KeyPath) -> str:
        """``file:line path`` of the value, or of the nearest parent that has a line."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return f"{self.file}:{self.lines[path[:length]]} {written(path)}".rstrip()
        return f"{self.file} {written(path)}".rstrip()


def written(path: KeyPath) -> str:
    """A key path as ``--set`` takes it: ``sites.A.chips[0].price``; keys with other characters are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if re.fullmatch(r"[^\s.\[\]\"'=]+", part) else json.dumps(part, ensure_ascii=False)
            text += f".{key}" if text else key
    return text


def scalar(text: str) -> Any:
    """Value of a plain (unquoted) scalar under the YAML 1.2 core rules; what is no number, truth value or null is text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text) and len(text) <= 400:
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def read_bytes(path: Path, label: str) -> bytes:
    """Content of a regular file within BYTES_MAX. Raises InputError."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(Problem(label, "is a folder", "name a scenario file"))
        if not stat.S_ISREG(status.st_mode):
            raise InputError(Problem(label, "is not a regular file", "name a scenario file"))
        if status.st_size > BYTES_MAX:
            raise InputError(
                Problem(label, f"is {status.st_size / 1e6:.0f} MB long", f"a scenario file has at most {BYTES_MAX / 1e6:.0f} MB")
            )
        return path.read_bytes()
    except OSError as error:
        raise InputError(Problem(label, f"cannot be read ({error.strerror or error})", "name a readable file")) from None


def parse_document(data: bytes, label: str) -> Document:
    """Parse YAML (or JSON, by a ``.json`` label). Raises InputError for what cannot be read as a mapping."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(Problem(f"{label}:{line}", f"byte 0x{data[error.start]:02x} is not UTF-8", "save the file as UTF-8")) from None
    document = _parse_json(text, label) if label.lower().endswith(".json") else _Builder(label).build(text)
    if not isinstance(document.value, dict):
        what = "the file is empty" if document.value is None else f"the file holds {shown(document.value)}, not keys with values"
        raise InputError(Problem(label, what, "start from 'pddplan init'", "name: my plan"))
    return document


def _parse_json(text: str, label: str) -> Document:
    problems: list[Problem] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for key, item in items:
            if key in value:
                problems.append(Problem(label, f"key {shown(key)} stands twice", "write each key once"))
            value[key] = item
        return value

    try:
        value = json.loads(text, object_pairs_hook=pairs) if text.strip() else None
    except json.JSONDecodeError as error:
        raise InputError(Problem(f"{label}:{error.lineno}", f"is not JSON ({error.msg})", "write valid JSON")) from None
    except (RecursionError, ValueError):
        raise InputError(Problem(label, "is nested too deeply or holds a number too long", f"nest at most {DEPTH_MAX} levels")) from None
    return Document(value, {}, label, tuple(problems))


@dataclass
class _Node:
    value: Any
    lines: dict[KeyPath, int]
    count: int = 1


@dataclass
class _Open:
    """A collection that is being read. ``key`` is the pending key of a mapping."""

    node: _Node
    line: int
    anchor: str | None
    key: str | None = None
    key_line: int = 0
    first_lines: dict[str, int] = field(default_factory=dict)


class _Builder:
    """Builds one Document from parser events, iteratively (nesting never uses the interpreter's stack)."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.problems: list[Problem] = []
        self.anchors: dict[str, _Node] = {}
        self.stack: list[_Open] = []
        self.root: _Node | None = None
        self.values = 0

    def build(self, text: str) -> Document:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            documents = 0
            for event in yaml.parse(text, Loader=loader):
                if isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        raise self._fault(event, "a second document begins", "a scenario file holds one document (no '---' inside)")
                self._take(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = self._line(mark) if mark else self.label
            found = error.problem or error.context or "not YAML"
            if mark and "\t" in "".join(text.splitlines()[mark.line : mark.line + 1])[: mark.column + 1]:
                found = "a tab: YAML is indented with spaces"
            raise InputError(
                [*self.problems, Problem(place, f"is not valid YAML ({found})", "mend the syntax at or just before this line")]
            ) from None
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            detail = " ".join(str(error).split())[:120]
            raise InputError([*self.problems, Problem(self.label, f"is not valid YAML ({detail})", "write plain UTF-8 YAML")]) from None
        node = self.root or _Node(None, {})
        return Document(node.value, node.lines, self.label, tuple(self.problems))

    def _line(self, mark: Any) -> str:
        return self.label if self.label.startswith("--") else f"{self.label}:{mark.line + 1}"

    def _fault(self, event: Any, found: str, accepted: str, example: str = "") -> InputError:
        return InputError([*self.problems, Problem(self._line(event.start_mark), found, accepted, example)])

    def _take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise self._fault(event, f"alias *{event.anchor} refers to nothing finished above it", "define the anchor before")
            node = self.anchors[event.anchor]
            self._add(node, event)
        elif isinstance(event, yaml.ScalarEvent):
            self._no_tag(event)
            plain = event.implicit[0]
            if self._wants_key():
                self._start_key(event)
                return
            node = _Node(scalar(event.value) if plain else event.value, {})
            if event.anchor:
                self.anchors[event.anchor] = node
            self._add(node, event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._no_tag(event)
            if self._wants_key():
                raise self._fault(event, "a key is a list or mapping", "keys are plain text")
            if len(self.stack) >= DEPTH_MAX:
                raise self._fault(event, f"is nested more than {DEPTH_MAX} levels deep", "a scenario needs far fewer")
            value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            self.stack.append(_Open(_Node(value, {}), line, event.anchor))
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            done = self.stack.pop()
            if done.anchor:
                self.anchors[done.anchor] = done.node
            self._add(done.node, event, done.line)

    def _no_tag(self, event: Any) -> None:
        if event.tag not in (None, "!"):
            raise self._fault(event, f"tag {shown(event.tag)}", "YAML tags are not read: write the value alone")

    def _wants_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].node.value, dict) and self.stack[-1].key is None

    def _start_key(self, event: Any) -> None:
        top, key, line = self.stack[-1], event.value, event.start_mark.line + 1
        if key == "<<" and event.implicit[0]:
            raise self._fault(event, "merge key '<<'", "merge keys are not read: write the keys out")
        if key in top.first_lines:
            found = f"key {shown(key)} stands twice (first on line {top.first_lines[key]})"
            self.problems.append(Problem(f"{self.label}:{line}", found, "write each key once"))
        top.first_lines.setdefault(key, line)
        top.key, top.key_line = key, line

    def _add(self, node: _Node, event: Any, line: int | None = None) -> None:
        self.values += node.count if isinstance(event, yaml.AliasEvent) else 1
        if self.values > VALUES_MAX:
            raise self._fault(event, f"holds more than {VALUES_MAX} values (aliases expanded)", "a scenario needs far fewer")
        if not self.stack:
            self.root = node
            return
        top = self.stack[-1]
        if isinstance(top.node.value, dict):
            assert top.key is not None
            part: str | int = top.key
            top.node.value[part] = node.value
            top.node.lines[(part,)] = top.key_line
            top.key = None
        else:
            part = len(top.node.value)
            top.node.value.append(node.value)
            top.node.lines[(part,)] = line or event.start_mark.line + 1
        top.node.count += node.count
        for inner, number in node.lines.items():
            top.node.lines[(part, *inner)] = number
