"""Reading a scenario: a path or a shipped name, overrides applied, every problem told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pddplan.data_files import data_root
from pddplan.errors import InputError, Problem
from pddplan.scenario.checks import Slug, cross_checks
from pddplan.scenario.document import Document, KeyPath, parse_document, read_bytes
from pddplan.scenario.keys import listed, suggestion
from pddplan.scenario.overrides import Override, parse_override, with_overrides
from pddplan.scenario.plan_file import scenario_of_plan
from pddplan.scenario.problems import tell
from pddplan.scenario.schema import Scenario
from pddplan.units import shown

NameCheck = Callable[[str, Path], Iterable[Problem]]
"""Says what is wrong with a name, relative to the scenario's folder where it is a path; the loader fills in the place."""


def shipped_scenarios() -> dict[str, Path]:
    """Shipped scenarios by name, in order of name."""
    return {path.stem: path for path in sorted((data_root() / "scenarios").glob("*.yaml"))}


def find_scenario(source: str | Path) -> Path:
    """File of a path or a shipped name. Raises InputError."""
    path = Path(source)
    try:
        if str(source) and path.exists():
            return path
    except (OSError, ValueError):
        raise InputError(Problem(shown(str(source)), "is no file name", "name a scenario file")) from None
    shipped = shipped_scenarios()
    if str(source) in shipped:
        return shipped[str(source)]
    near = suggestion(str(source), list(shipped))
    accepted = (f"did you mean {near!r}? " if near else "") + f"name a file, or one of {listed(list(shipped))}"
    raise InputError(Problem(str(source), "no such file, and no shipped scenario of that name", accepted))


def load_scenario(
    source: str | Path | Scenario,
    overrides: Iterable[str | Override] = (),
    checks: Mapping[str, NameCheck] | None = None,
    slug: Callable[[str, Path], str] | None = None,
) -> Scenario:
    """Read, override and validate a scenario (or the plan JSON of an earlier run).

    slug: what a chip's name or alias, written in a folder, stands for; without it pools are not held against the chips of their site.
    checks: by kind (chip, model, engine), say whether names are known, so that unknown ones stand in the same list as all else.
    Raises InputError with every problem found.
    """
    if isinstance(source, Scenario):
        document, base = Document(source.document(), source.origin.lines, source.origin.file), source.base
    else:
        path = find_scenario(source)
        document, base = scenario_of_plan(parse_document(read_bytes(path, str(path)), str(path)), path.parent)
    document, labels = with_overrides(document, overrides)
    return _validated(document, labels, base, checks or {}, None if slug is None else lambda name: slug(name, base))


def as_overrides(overrides: Iterable[str | Override] | Mapping[str, Any]) -> list[str | Override]:
    """Overrides from ``["workload.rate=5 req/s"]`` or ``{"workload.rate": "5 req/s"}``. Raises InputError."""
    if isinstance(overrides, Mapping):
        return [Override(parse_override(f"{path}=0").path, value) for path, value in overrides.items()]
    return list(overrides)


def override(scenario: Scenario, overrides: Iterable[str | Override] | Mapping[str, Any]) -> Scenario:
    """A scenario with other values by path. Raises InputError."""
    return load_scenario(scenario, as_overrides(overrides))


def locate(scenario: Scenario, place: str) -> str:
    """``sites.A.chips[0].price`` with the file and line where it stands; any other text as it is."""
    try:
        path = parse_override(f"{place}=").path
    except InputError:
        return place
    return scenario.place(*path) if path[:1] in scenario.origin.lines else place


def _validated(
    document: Document,
    labels: Mapping[KeyPath, str],
    base: Path,
    checks: Mapping[str, NameCheck],
    slug: Slug | None,
) -> Scenario:
    def place(path: KeyPath) -> str:
        own = [label for changed, label in labels.items() if path[: len(changed)] == changed]
        return own[-1] if own else document.place(path)

    problems = list(document.problems)
    scenario: Scenario | None = None
    currency = document.value.get("currency", "USD")
    try:
        scenario = Scenario.model_validate(document.value, context={"currency": currency})
    except ValidationError as error:
        problems += tell(error.errors(include_url=False), document.value, place)
    except RecursionError:
        problems.append(Problem(document.file, "is nested too deeply", "a scenario needs far fewer levels"))
    if scenario is not None:
        problems += cross_checks(scenario, place, slug)
    for kind, check in checks.items():
        for path, name in _names(document.value, kind):
            for problem in check(name, base):
                problems.append(Problem(place(path), problem.found, problem.accepted, problem.example))
    if problems or scenario is None:
        raise InputError(problems)
    scenario._base = base
    scenario._origin = document
    return scenario


_NAMES: dict[str, tuple[tuple[str, ...], ...]] = {
    "chip": (("sites", "*", "chips", "*", "chip"),),
    "model": (("model", "name"), ("deployments", "*", "model", "name")),
    "engine": (("engine",), ("deployments", "*", "engine"), ("sites", "*", "chips", "*", "engine")),
}


def _names(data: Mapping[str, Any], kind: str) -> Iterator[tuple[KeyPath, str]]:
    """(path, text) of each name of a kind in raw data, whether or not the rest of it is valid."""
    for pattern in _NAMES[kind]:
        yield from _matches(data, pattern, ())


def _matches(node: Any, pattern: tuple[str, ...], path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if not pattern:
        if isinstance(node, str):
            yield path, node
        return
    head, rest = pattern[0], pattern[1:]
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in items:
        if head in ("*", key):
            yield from _matches(inner, rest, (*path, key))
