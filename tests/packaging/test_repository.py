"""The repository's own promises: the README's commands, the checks of a change, generated pages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def commands_of_readme() -> list[str]:
    blocks = re.findall(r"```(?:sh|bash|console)\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip()]


def test_the_checks_of_a_change_run_the_tests_as_the_readme_does() -> None:
    tests = [line for line in commands_of_readme() if "-m pytest" in line]
    assert tests
    assert tests[0] in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_pddplan_command_of_the_readme_exists() -> None:
    from pddplan.cli import COMMANDS

    used = {match[1] for line in commands_of_readme() if (match := re.match(r"(?:\.venv/bin/)?pddplan (\S+)", line))}
    assert used
    assert used <= set(COMMANDS)


@pytest.mark.slow
def test_the_pages_generated_from_the_code_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "tools/reference.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
