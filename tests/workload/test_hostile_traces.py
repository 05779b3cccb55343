"""Hostile and random traces: bounded time and memory, an answer that keeps its invariants or an error with a place."""

from __future__ import annotations

import contextlib
import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pddplan.errors import InputError
from pddplan.workload.prefix_cache import cache_hits, p_sequence
from pddplan.workload.trace_reader import read_trace
from pddplan.workload.trace_stats import measure_trace

JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=2)
)
REQUESTS = st.lists(
    st.fixed_dictionaries(
        {
            "timestamp": st.integers(0, 10**7),
            "input_length": st.integers(1, 3000),
            "output_length": st.integers(1, 500),
            "blocks": st.lists(st.integers(0, 12), max_size=6),
        }
    ),
    min_size=1,
    max_size=40,
)


def written(folder: Path, rows: list[dict[str, object]]) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@given(REQUESTS)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_valid_trace_is_measured_and_hits_rise_with_the_cache(tmp_path: Path, requests: list[dict[str, object]]) -> None:
    rows = []
    for row in sorted(requests, key=lambda r: r["timestamp"]):  # type: ignore[arg-type, return-value]
        blocks = -(-row["input_length"] // 512)  # type: ignore[operator]
        ids = (list(row["blocks"]) + [100 + i for i in range(blocks)])[:blocks]  # type: ignore[call-overload]
        rows.append({key: row[key] for key in ("timestamp", "input_length", "output_length")} | {"hash_ids": ids})
    trace = read_trace(written(tmp_path, rows), block_tokens=512)
    stats = measure_trace(trace)
    assert stats.requests == len(rows)
    assert stats.input_tokens.p50 <= stats.input_tokens.p90 <= stats.input_tokens.p99
    curve = cache_hits(p_sequence(trace)).curve
    assert all(0 <= rate <= 1 for rate in curve.rates)
    assert list(curve.rates) == sorted(curve.rates)
    assert stats.hits is not None
    assert sum(stats.hits.buckets) == pytest.approx(1)
    assert stats.hits.token_hit_rate <= 1


@given(st.lists(st.dictionaries(st.sampled_from(["timestamp", "input_length", "output_length", "hash_ids", "x"]), JUNK), max_size=5))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_trace_of_junk_is_refused_with_a_line(tmp_path: Path, rows: list[dict[str, object]]) -> None:
    path = written(tmp_path, rows)
    problems, requests = (), 0
    try:
        requests = read_trace(path).requests
    except InputError as error:
        problems = error.problems
    assert bool(problems) != (requests > 0)
    assert all("trace.jsonl" in problem.place for problem in problems)


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_a_trace_or_an_input_error(tmp_path: Path, data: bytes) -> None:
    for name in ("t.jsonl", "t.csv", "t.jsonl.gz"):
        (tmp_path / name).write_bytes(data)
        with contextlib.suppress(InputError):
            read_trace(tmp_path / name)


HOSTILE = {
    "deep nesting": b'{"timestamp": 0, "input_length": ' + b"[" * 200_000 + b"}\n",
    "a number of many digits": b'{"timestamp": 0, "input_length": ' + b"9" * 6000 + b', "output_length": 1}\n',
    "huge lengths": b'{"timestamp": 0, "input_length": 9000000000000000000, "output_length": 1, "hash_ids": [1]}\n',
    "infinite time": b'{"timestamp": Infinity, "input_length": 5, "output_length": 1}\n',
    "null bytes": b"\0" * 100_000 + b"\n",
    "two encodings": '{"timestamp": 0}'.encode("utf-16") + b"\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_line_is_an_input_error_in_bounded_time(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(HOSTILE[name])
    started = time.process_time()
    with pytest.raises(InputError) as caught:
        measure_trace(read_trace(path))
    assert time.process_time() - started < 10
    assert len(str(caught.value)) < 4000


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
@pytest.mark.parametrize("kind", ["one line of 100 MB", "a gzip bomb of one line", "a gzip bomb of many lines"])
def test_large_hostile_files_are_refused_in_two_gigabytes_and_a_minute(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("t.jsonl.gz" if "gzip" in kind else "t.jsonl")
    if kind == "one line of 100 MB":
        path.write_bytes(b'{"timestamp": 0, "input_length": "' + b"x" * 100_000_000 + b'"}\n')
    else:
        chunk = (b"x" if "one line" in kind else b"xxxxxxx\n") * (8_000_000 // (1 if "one line" in kind else 8))
        with gzip.open(path, "wb", compresslevel=9) as file:
            for _ in range(100):
                file.write(chunk)

    def limit() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))

    command = [sys.executable, "-m", "pddplan", "trace", "stats", str(path)]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr[-2000:]
    assert b"Traceback" not in done.stderr
    assert len(done.stderr) < 20_000


def test_a_small_gzip_of_endless_blank_lines_is_told_soon(tmp_path):
    path = tmp_path / "blank.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n" * 1_500_000))
    with pytest.raises(InputError, match="1,000,000 lines so far are blank"):
        read_trace(path)
