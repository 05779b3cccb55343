"""Tables on stdout: whatever the width, no number and no name loses a character."""

from __future__ import annotations

import pytest
from rich.table import Table

from pddplan.cli import run
from pddplan.cli.common import print_table


@pytest.mark.parametrize("columns", ["20", "50", "80", None])
def test_no_cell_of_a_table_is_cut(columns: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    table = Table("a long header of several words", *(f"n{i}" for i in range(12)))
    cells = ["a-name-without-a-space-in-it", *(f"{10**i:,}" for i in range(12))]
    table.add_row(*cells)
    print_table(table)
    words = capsys.readouterr().out.replace("│", " ").split()
    assert set(cells) <= set(words)


def test_the_list_of_models_shows_every_name_and_number_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "list", "kimi"]) == 0
    out = capsys.readouterr().out
    assert "…" not in out
    assert "nvidia/Kimi-K2.7-Code-NVFP4" in out
    assert "1026.41" in out
