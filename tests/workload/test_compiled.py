"""Compiled functions give what they give as plain Python, and run where no cache can be written."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from caches import trace_of

import pddplan
from pddplan.pdd import _passes
from pddplan.queueing import _recursion
from pddplan.workload import _kernels
from pddplan.workload.prefix_cache import cache_hits, hits_by_blocks, md_sequence, p_sequence

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


def both(monkeypatch: pytest.MonkeyPatch, module: ModuleType, compute: Callable[[], list[np.ndarray]]) -> None:
    """``compute`` with the module's functions compiled and as plain Python, where an index out of bounds is an error."""
    compiled = compute()
    for name, function in vars(module).copy().items():
        if hasattr(function, "py_func"):
            monkeypatch.setattr(module, name, function.py_func)
    for fast, plain in zip(compiled, compute(), strict=True):
        np.testing.assert_allclose(fast, plain, rtol=1e-12, atol=1e-12)


def test_queue_recursions_are_the_same_compiled_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    gaps, services, ties = rng.exponential(1.0, 300), rng.gamma(0.5, 4.0, 300), rng.random(300)
    server_of, rate_of = rng.integers(0, 3, 300), np.minimum(1.0, 2.0 / np.maximum(np.arange(6), 1))
    both(
        monkeypatch,
        _recursion,
        lambda: [
            _recursion.central_waits(gaps, services, 3),
            _recursion.assigned_waits(gaps, services, server_of, 3),
            _recursion.shortest_queue_waits(gaps, services, ties, 3),
            *_recursion.shared_times(gaps, services, rate_of),
        ],
    )


@pytest.mark.parametrize("mode", [_passes.PINNED, _passes.CENTRAL, _passes.SHORTEST])
@pytest.mark.parametrize("packs", [True, False])
def test_prefill_passes_are_the_same_compiled_and_plain(monkeypatch: pytest.MonkeyPatch, mode: int, packs: bool) -> None:
    rng = np.random.default_rng(6)
    uncached = np.array([200.0, 1000.0, 3500.0])
    row, arrival = rng.integers(0, 3, 300), np.cumsum(rng.exponential(0.6, 300))
    server, ties = rng.integers(0, 3, 300), rng.random(300)
    points, seconds = np.array([1.0, 500.0, 1000.0]), np.array([0.5, 0.6, 1.0])
    both(
        monkeypatch,
        _passes,
        lambda: [
            _passes.pass_times(
                arrival, row, server, ties, uncached, uncached / 2000, np.ones(3), points, seconds, 1000.0, 2.0, packs, 0.01, 3, mode
            )
        ],
    )


@pytest.mark.parametrize("sessions", [False, True])
def test_cache_passes_are_the_same_compiled_and_plain(monkeypatch: pytest.MonkeyPatch, sessions: bool) -> None:
    """Conversations in turn, each prompt the last one and more."""
    rng = np.random.default_rng(7)
    histories: list[list[int]] = [[] for _ in range(6)]
    prompts, fresh = [], iter(range(10_000))
    for turn in range(120):
        history = histories[turn % 6]
        history += [next(fresh) for _ in range(int(rng.integers(1, 5)))]
        prompts.append(list(history))
    lengths = [4 * len(prompt) + 2 for prompt in prompts]
    trace = trace_of(prompts, 4, lengths, rng.integers(1, 30, 120).tolist(), np.cumsum(rng.exponential(1.0, 120)).tolist())
    trace = dataclasses.replace(trace, session_times=sessions, local_ids=sessions)
    capacities = (math.inf, 200.0, 20.0)

    def compute() -> list[np.ndarray]:
        found: list[np.ndarray] = []
        for sequence in (p_sequence(trace), md_sequence(trace)):
            for capacity in capacities:
                hits = cache_hits(sequence, capacity_tokens=capacity, ttl_s=30.0)
                found += [hits.cached_tokens, hits.curve.rates, hits.curve.capacity_tokens]
            found += hits_by_blocks(sequence)
        return found

    both(monkeypatch, _kernels, compute)
