"""Hostile files: bounded time and memory, one clear error, nothing executed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pddplan.errors import InputError
from pddplan.scenario.document import BYTES_MAX, parse_document
from pddplan.scenario.load import load_scenario

Write = Callable[..., Path]
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(12)
)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (BOMB, "values"),
        ("a: &a [*a]\n", "alias"),
        ("a: &a {b: *a}\n", "alias"),
        ("[" * 100_000, "nest"),
        ("a: " + "{a: " * 10_000, "nest"),
        ("name: !!python/object/apply:os.system ['touch /tmp/owned']\n", "tag"),
        ("name: !!int '3'\n", "tag"),
        ("x: &x {a: 1}\ny: {<<: *x}\n", "merge"),
        ("? [a, b]\n: c\n", "key"),
        ("name: a\n---\nname: b\n", "second document"),
        ("name: a\n\tengine: b\n", "YAML"),
        ("name: 'unclosed\n", "YAML"),
        ("name: \x00\n", "YAML"),
        ("- 1\n- 2\n", "not keys"),
        ("just text\n", "not keys"),
        ("a: *nothing\n", "YAML|alias"),
    ],
)
def test_a_hostile_file_is_refused_with_a_reason(scenario_file: Write, content: str, word: str) -> None:
    started = time.process_time()
    with pytest.raises(InputError, match=word):
        load_scenario(scenario_file(content))
    assert time.process_time() - started < 5
    assert not Path("/tmp/owned").exists()


def test_a_file_too_long_is_refused_before_it_is_read(scenario_file: Write) -> None:
    file = scenario_file("")
    os.truncate(file, BYTES_MAX + 1)
    with pytest.raises(InputError, match="MB long"):
        load_scenario(file)


def test_a_line_of_megabytes_is_read_in_seconds_and_quoted_short(scenario_file: Write, small: str) -> None:
    file = scenario_file(small.replace("engine: vllm", "objective: " + "x" * 4_000_000))
    with pytest.raises(InputError) as caught:
        load_scenario(file)
    assert len(str(caught.value)) < 2000


def test_huge_integers_are_refused(scenario_file: Write, small: str) -> None:
    for number in ("9" * 300, "9" * 5000, "1e999"):
        with pytest.raises(InputError):
            load_scenario(scenario_file(small.replace("stock: 16, price: 2.00", f"stock: {number}, price: 2.00")))


def test_a_folder_a_pipe_and_a_device_are_no_scenarios(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match=r"folder|regular file"):
            load_scenario(path)


def test_an_unreadable_name_is_no_traceback() -> None:
    for name in ("x" * 5000, "a\x00b", "", "../../etc/passwd\n"):
        with pytest.raises(InputError):
            load_scenario(name)


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"a": NaN', '{"a": 1} x', "", '{"name": "a", "name": "b"}', "[]", '{"a":' + "1" * 9000 + "}"]
)
def test_broken_json_is_refused(scenario_file: Write, content: str) -> None:
    with pytest.raises(InputError):
        load_scenario(scenario_file(content, "plan.json"))


@given(st.binary(max_size=300))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    for label in ("x.yaml", "x.json"):
        with contextlib.suppress(InputError):
            parse_document(data, label)
