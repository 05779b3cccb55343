"""Running the command line as users do: a process of its own, with only the environment given."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def pddplan(tmp_path: Path) -> Run:
    def run(*args: str, env: dict[str, str] | None = None, **options: object) -> subprocess.CompletedProcess[bytes]:
        kept = ("PATH", "HOME", "OMP_NUM_THREADS", "SYSTEMROOT", "COVERAGE_PROCESS_CONFIG")
        own = {name: value for name, value in os.environ.items() if name in kept}
        command = [sys.executable, "-m", "pddplan", *args]
        settings = {"cwd": tmp_path, "capture_output": True, "timeout": 120, **options}
        return subprocess.run(command, env={**own, **(env or {})}, **settings)  # type: ignore[call-overload]

    return run
