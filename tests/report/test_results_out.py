"""Results on their way out: rights, failed writes, and JSON without infinities."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pddplan.errors import InputError
from pddplan.pdd.plan import Violation
from pddplan.report.files import write_atomically
from pddplan.report.json import json_text
from pddplan.report.numbers import missed


def test_a_file_is_written_whole_with_ordinary_rights(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        path = write_atomically(tmp_path / "计划 1.json", "é")
    finally:
        os.umask(old)
    assert path.read_bytes() == "é".encode()
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="No space left"):
        write_atomically(path, "new", force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
    assert path.read_text() == "old"


def test_numbers_without_a_value_are_null_in_json() -> None:
    import json

    import numpy as np

    document = {
        "a": float("inf"),
        "b": float("nan"),
        "c": np.float64(0.5),
        "d": np.int64(3),
        "e": (1, True, None),
        "f": np.array([1.0, np.inf]),
    }
    assert json.loads(json_text(document)) == {"a": None, "b": None, "c": 0.5, "d": 3, "e": [1, True, None], "f": [1.0, None]}


@pytest.mark.parametrize(
    ("constraint", "value", "limit", "said"),
    [
        ("load of P at A", 2.65, 1.0, ("265 %", "100 %")),
        ("chat.sla.attainment", -0.0, -0.95, ("0 %", "95 %")),
        ("chat.sla.ttft.p99", 4.2, 2.0, ("4.2 s", "2 s")),
        ("utilisation_max of P at A", 0.93, 0.9, ("93 %", "90 %")),
    ],
)
def test_a_missed_limit_is_told_in_its_own_unit_without_a_sign(
    constraint: str, value: float, limit: float, said: tuple[str, str]
) -> None:
    assert missed(Violation(constraint, value, limit)) == said
