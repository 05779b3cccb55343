"""Compiled functions run where no cache can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pddplan

CODE = """
import numpy as np
from pddplan.workload._kernels import find_parents
one = np.ones(1, dtype=np.int64)
print(find_parents(0 * one, one, np.array([0, 1]), one, one, 1, 1).tolist())
"""


@pytest.mark.slow
def test_a_read_only_installation_without_a_home_still_computes(tmp_path):
    """numba gives up where neither the package's folder nor a user cache can hold its files; both are files here."""
    package = tmp_path / "pddplan"
    shutil.copytree(Path(pddplan.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "_data"))
    (package / "workload" / "__pycache__").touch()
    (tmp_path / "home").touch()
    home = {name: str(tmp_path / "home") for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA")}
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), **home}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[-1]"), done.stderr
