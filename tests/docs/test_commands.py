"""The commands of the quick start and the tutorial, typed one after the other in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_every_command_of_a_page_works_in_its_order(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE) for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("pddplan ")]
    assert len(commands) > 5
    for arguments in commands:
        done = subprocess.run(
            [sys.executable, "-m", "pddplan", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, (arguments, done.stderr)
