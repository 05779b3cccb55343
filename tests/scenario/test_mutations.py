"""Shipped scenarios with values replaced, keys lost and junk added: read, or refused with a reason."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pddplan.errors import InputError, Problem
from pddplan.scenario.load import load_scenario, shipped_scenarios
from pddplan.scenario.schema import Scenario

DOCUMENTS = {name: yaml.safe_load(path.read_text(encoding="utf-8")) for name, path in shipped_scenarios().items()}
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        ["10 Gbps", "-1 s", "5 %", "1e400 req/s", "auto", "none", "[", "{}", "\u202e", "=cmd|' /C calc'!A0", "<script>", "../../x"]
    ),
    st.lists(st.integers(-2, 2), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_scenario_is_read_or_refused_with_places(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    document = copy.deepcopy(DOCUMENTS[name])
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(sorted(places(document), key=str)))
        holder = document
        for part in path[:-1]:
            holder = holder[part]
        action = data.draw(st.sampled_from(["replace", "delete", "add"]))
        if action == "delete":
            del holder[path[-1]]
        elif action == "add" and isinstance(holder, dict):
            holder[data.draw(st.text(max_size=10))] = data.draw(JUNK)
        else:
            holder[path[-1]] = data.draw(JUNK)
        if not document:
            break
    file = tmp_path_factory.getbasetemp() / f"{name}.yaml"
    file.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
    problems: tuple[Problem, ...] = ()
    try:
        scenario = load_scenario(file)
    except InputError as error:
        problems = error.problems
    assert all(problem.place.startswith(str(file)) and problem.found for problem in problems)
    if not problems:
        assert Scenario.model_validate(json.loads(json.dumps(scenario.document()))).digest == scenario.digest
