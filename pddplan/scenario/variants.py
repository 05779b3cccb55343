"""Named variants of a scenario: overrides kept in its file, planned or evaluated side by side."""

from __future__ import annotations

from collections.abc import Iterator

from pddplan.errors import InputError, Problem
from pddplan.scenario.load import override
from pddplan.scenario.schema import Scenario


def variants(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    """(name, scenario) of each variant, in file order: ``variants: {name: {path: value}}``. Raises InputError with the variant's name."""
    problems: list[Problem] = []
    found: list[tuple[str, Scenario]] = []
    for name, values in scenario.variants.items():
        try:
            found.append((name, override(scenario, values)))
        except InputError as error:
            where = scenario.place("variants", name)
            problems += [Problem(f"{where}: {p.place.removeprefix('--set ')}", p.found, p.accepted, p.example) for p in error.problems]
    if problems:
        raise InputError(problems)
    yield from found
