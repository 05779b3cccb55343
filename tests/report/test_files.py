"""Output files are whole, never overwrite unasked, and leave devices alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pddplan.errors import InputError
from pddplan.report.files import write_atomically


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    target = tmp_path / "结果 plan.json"
    write_atomically(target, "one")
    with pytest.raises(InputError, match="force"):
        write_atomically(target, "two")
    assert target.read_text(encoding="utf-8") == "one"
    write_atomically(target, "zwei ü", force=True)
    assert target.read_text(encoding="utf-8") == "zwei ü"
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize("place", ["nowhere/plan.json", "."])
def test_a_place_that_cannot_hold_a_file_is_an_input_error(tmp_path: Path, place: str) -> None:
    with pytest.raises(InputError):
        write_atomically(tmp_path / place, "x")


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
