"""The notebooks of the documentation run from top to bottom, and their own assertions hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent.parent / "docs" / "notebooks"
SLOW = ("first_plan", "hit_rate_curve")
SCRIPTS = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize(
    "script", [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else []) for path in SCRIPTS]
)
def test_a_notebook_runs_in_an_empty_folder(script: Path, tmp_path: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert text.startswith("# %% [markdown]\n# # "), "a notebook opens with its title"
    assert "assert " in text
    environment = {**os.environ, "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert list(tmp_path.iterdir()) == [], "notebooks write nothing"


def test_every_notebook_is_found_and_named_in_the_tutorial() -> None:
    tutorial = (FOLDER.parent / "tutorial.md").read_text(encoding="utf-8")
    assert len(SCRIPTS) >= 3
    for script in SCRIPTS:
        assert f"notebooks/{script.name}" in tutorial
