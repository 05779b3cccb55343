"""Validation errors of pydantic, told as problems: place, found, accepted, example."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pydantic_core import ErrorDetails

from pddplan.errors import Problem
from pddplan.scenario.document import KeyPath
from pddplan.scenario.keys import keys_at, listed, suggestion
from pddplan.units import shown

_KINDS = {
    "string_type": "text", "int_type": "a whole number", "int_parsing": "a whole number", "int_from_float": "a whole number",
    "float_type": "a number", "float_parsing": "a number", "bool_type": "true or false", "bool_parsing": "true or false",
    "dict_type": "a mapping (key: value)", "mapping_type": "a mapping (key: value)", "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)", "list_type": "a list", "tuple_type": "a list", "finite_number": "a finite number",
    "int_parsing_size": "a whole number of fewer digits",
}  # fmt: skip
_BOUNDS = {
    "greater_than": ("gt", "over"), "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "under"), "less_than_equal": ("le", "at most"),
}  # fmt: skip


def _data_path(loc: Iterable[str | int], data: Any, keep_last: bool) -> KeyPath:
    """The part of pydantic's location that exists in the data: names of union branches are left out."""
    parts = list(loc)
    if (
        parts
        and isinstance(data, dict)
        and parts[0] not in data
        and isinstance(data.get("objective"), dict)
        and parts[0] in data["objective"]
    ):
        parts.insert(0, "objective")
    path: list[str | int] = []
    for index, part in enumerate(parts):
        inside = (isinstance(data, dict) and part in data) or (isinstance(data, list) and isinstance(part, int) and part < len(data))
        if inside:
            data = data[part]
            path.append(part)
        elif keep_last and index == len(parts) - 1:
            path.append(part)
    return tuple(path)


def _value_at(data: Any, path: KeyPath) -> Any:
    for part in path:
        data = data[part]
    return data


def _literals(error: ErrorDetails) -> str:
    return str(error.get("ctx", {}).get("expected", ""))


def _told(error: ErrorDetails, path: KeyPath, data: Any) -> tuple[str, str, str]:
    """(found, accepted, example) of one error."""
    kind, context, value = error["type"], error.get("ctx", {}), error.get("input")
    if kind == "extra_forbidden":
        key, known = str(path[-1]), keys_at(path[:-1])
        near = suggestion(key, known)
        return f"unknown key {shown(key)}", (f"did you mean {near!r}? " if near else "") + f"known here: {listed(known)}", ""
    if kind == "missing":
        return f"key {shown(path[-1])} is missing", "it has no default", ""
    if kind == "teach":
        return context["found"], context["accepted"], context["example"]
    if kind == "value_error":
        found, _, accepted = str(context.get("error", error["msg"])).partition("; ")
        return found, accepted, ""
    if kind in ("literal_error", "enum"):
        return f"{shown(value)}", f"write one of {_literals(error)}", ""
    if kind in _BOUNDS:
        name, word = _BOUNDS[kind]
        raw = _value_at(data, path) if path else value
        shown_value = shown(raw if not isinstance(raw, dict | list) else value)
        hint = (
            f"; write {float(value):g} % if that is a percentage"
            if kind == "less_than_equal" and context.get("le") == 1 and isinstance(value, float) and value <= 100 and "%" not in str(raw)
            else ""
        )
        return shown_value, f"must be {word} {context[name]:g}{hint}", f"{value / 100:g}" if hint and isinstance(value, float) else ""
    if kind in ("too_short", "too_long"):
        bound = f"at least {context['min_length']}" if kind == "too_short" else f"at most {context['max_length']}"
        return shown(value), f"must have {bound} entries", ""
    if kind == "string_pattern_mismatch":
        return f"{shown(value)}", f"does not look as it must ({context.get('pattern')})", ""
    return f"{shown(value)}", f"must be {_KINDS[kind]}" if kind in _KINDS else error["msg"][0].lower() + error["msg"][1:], ""


def tell(errors: Iterable[ErrorDetails], data: dict[str, Any], place: Callable[[KeyPath], str]) -> list[Problem]:
    """Problems of a failed validation of ``data``, one per value: of a union's branches only the nearest speaks."""
    by_path: dict[KeyPath, list[ErrorDetails]] = {}
    for error in errors:
        path = _data_path(error["loc"], data, keep_last=error["type"] == "missing")
        by_path.setdefault(path, []).append(error)
    deeper = {path[:length] for path in by_path for length in range(len(path))}
    problems: list[Problem] = []
    for path, group in by_path.items():
        literals = [error for error in group if error["type"] == "literal_error"]
        others = [error for error in group if error["type"] != "literal_error"]
        spoken = [error for error in others if error["type"] in ("teach", "value_error")] or others
        mere_type = all(error["type"] in _KINDS or error["type"] == "literal_error" for error in group)
        if path in deeper and all(error["type"] in (*_KINDS, "literal_error", "too_short") for error in group):
            continue
        if len(group) > 1 and mere_type:
            kinds = list(dict.fromkeys(_KINDS[error["type"]] for error in others)) + [_literals(error) for error in literals]
            problems.append(Problem(place(path), shown(group[0].get("input")), f"must be {' or '.join(kinds)}"))
            continue
        for error in spoken or literals:
            found, accepted, example = _told(error, path, data)
            if literals and error not in literals and not isinstance(error.get("input"), dict):
                accepted += f"; or {_literals(literals[0])}"
            problems.append(Problem(place(path), found, accepted, example))
    return list(dict.fromkeys(problems))
