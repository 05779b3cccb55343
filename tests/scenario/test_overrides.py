"""--set: every value has a path."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pddplan.errors import InputError
from pddplan.scenario.document import written
from pddplan.scenario.load import load_scenario, override
from pddplan.scenario.overrides import parse_override

Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("links.A-B.circuit=10 Gbps", lambda s: s.links["A-B"].circuit == 1.25e9),
        ('links."A-B".circuit="10 Gbps"', lambda s: s.links["A-B"].circuit == 1.25e9),
        ("links['A-B'].circuit='10 Gbps'", lambda s: s.links["A-B"].circuit == 1.25e9),
        ("workload.classes.chat.hit_rate=0.9", lambda s: s.workload.classes["chat"].hit_rate.fixed == 0.9),
        ("sites.A.chips[0].price=3 USD/h", lambda s: s.sites["A"].chips[0].price == 3.0),
        ("search.tp=[1, 2]", lambda s: s.search.tp == (1, 2)),
        ("policy.singular=none", lambda s: s.policy.singular == "none"),
        ("policy.singular.output_under=300", lambda s: s.policy.singular.output_under == 300),
        ("policy.tail_packing=false", lambda s: s.policy.tail_packing is False),
        ("model.speculation={draft_tokens: 1, acceptance_length: 1.8}", lambda s: s.model.speculation.acceptance_length == 1.8),
        ("budget = 500 USD/h", lambda s: s.budget == 500),
        ("plan.pools=[{site: A, role: P, chip: h100-sxm, instances: 3}]", lambda s: s.plan.pools[0].instances == 3),
    ],
)
def test_a_value_is_set_by_its_path(small: str, scenario_file: Write, text: str, read: Callable[..., bool]) -> None:
    file = scenario_file(small)
    assert read(load_scenario(file, [text]))
    assert read(override(load_scenario(file), [text]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("links.A-B.circut=10 Gbps", "did you mean 'circuit'"),
        ("links.A-C.circuit=10 Gbps", "did you mean 'A-B'"),
        ("workload.classes.chatt.hit_rate=0.5", "did you mean 'chat'"),
        ("polcy.handoff=auto", "did you mean 'policy'"),
        ("sites.A.chips[4].price=1 USD/h", "a list of 1"),
        ("sites.A.chips.price=1 USD/h", "a list of 1"),
        ("sites[0].power=1 MW", "is no list"),
        ("workload.rate.peak=1", "single value"),
        ("workload.rate=5", "--set workload.rate: 5 has no unit"),
        ("links.A-B.loss=1", "must be under 1"),
        ("workload.rate", "has no '='"),
        ("=3", "is not a path"),
        ("a..b=3", "is not a path"),
        ("search.tp=[1, 2", "--set search.tp: is not valid YAML"),
        ("search.tp={a: 1, a: 2}", "stands twice"),
    ],
)
def test_a_bad_override_says_why(small: str, scenario_file: Write, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_scenario(scenario_file(small), [text])
    assert message in str(caught.value)


def test_all_bad_overrides_are_told_at_once(small: str, scenario_file: Write) -> None:
    with pytest.raises(InputError) as caught:
        load_scenario(scenario_file(small), ["x=1", "y=2", "workload.rat=3"])
    assert len(caught.value.problems) == 3


def test_an_override_does_not_change_the_scenario_it_starts_from(small: str, scenario_file: Write) -> None:
    scenario = load_scenario(scenario_file(small))
    before = scenario.digest
    changed = override(scenario, {"workload.rate": "20 req/s"})
    assert (scenario.digest, changed.digest != before) == (before, True)


keys = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(lambda s: s == s.strip())
paths = st.builds(lambda head, rest: (head, *rest), keys, st.lists(st.one_of(keys, st.integers(0, 999)), max_size=4))


@given(paths, st.integers(0, 99))
@settings(max_examples=200)
def test_a_written_path_reads_back(path: tuple[str | int, ...], value: int) -> None:
    parsed = parse_override(f"{written(path)}={value}")
    assert (parsed.path, parsed.value) == (path, value)


@given(st.text(max_size=60))
@settings(max_examples=200)
def test_any_text_is_an_override_or_an_input_error(text: str) -> None:
    with contextlib.suppress(InputError):
        parse_override(text)
