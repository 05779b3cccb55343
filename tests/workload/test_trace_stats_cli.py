"""`pddplan trace stats`: JSON, text, page and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from caches import lru_leading_blocks
from hypothesis import given, settings
from hypothesis import strategies as st

from pddplan.cli import run as run_command_line

ROOT = Path(__file__).parents[2]
MOONCAKE = str(ROOT / "scenarios/traces/mooncake_conversation.jsonl.gz")
AZURE = str(ROOT / "tests/data/azure2023_conv.csv.gz")


def run(capsys, *arguments):
    code = run_command_line(["trace", "stats", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_has_the_agreed_fields(capsys):
    code, out, _ = run(capsys, MOONCAKE, "--cache-blocks", "1000,30000", "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert found["requests"] == 12031
    assert found["span_s"] == pytest.approx(3537, abs=0.1)
    assert found["rate_per_s"] == pytest.approx(3.401, abs=0.001)
    assert found["gap_cv"] > 1
    for name in ("input_tokens", "output_tokens", "uncached_tokens"):
        assert set(found[name]) == {"mean", "p50", "p90", "p99"}
    assert found["token_hit_rate"] == pytest.approx(0.3736, abs=5e-5)
    assert len(found["hit_buckets"]) == 7
    assert sum(found["hit_buckets"]) == pytest.approx(1)
    assert found["singular_share"] == pytest.approx(0.0308, abs=5e-5)
    assert [(p["blocks"], round(p["hit_rate"], 4)) for p in found["curve"]] == [(1000, 0.0454), (30000, 0.3322)]


def test_hit_fields_are_null_without_hashes(capsys):
    code, out, _ = run(capsys, AZURE, "--json", "-")
    found = json.loads(out)
    assert code == 0
    for name in ("token_hit_rate", "hit_buckets", "uncached_tokens", "singular_share", "curve"):
        assert found[name] is None
    assert found["gap_cv"] == pytest.approx(1.094, abs=0.001)


def test_bytes_of_a_model_become_blocks(capsys):
    code, out, _ = run(capsys, MOONCAKE, "--cache-bytes", "100 GB,1 TB", "--model", "deepseek-ai/DeepSeek-V3", "--json", "-")
    assert code == 0
    per_token = 61 * (512 + 64) * 2
    assert [p["blocks"] for p in json.loads(out)["curve"]] == [int(size / per_token / 512) for size in (1e11, 1e12)]


def test_text_and_page_tell_the_same(capsys, tmp_path):
    page = tmp_path / "trace.html"
    code, out, err = run(capsys, MOONCAKE, "--report", str(page))
    assert code == 0
    assert "37.36 %" in out
    assert "ticks of 3 s" in err
    text = page.read_text()
    assert "How much cache buys how many hits?" in text
    assert "<script src=" not in text
    code, _, err = run(capsys, MOONCAKE, "--report", str(page))
    assert code == 2
    assert "exists already" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["none.jsonl"],
        [AZURE, "--columns", "time=WHEN"],
        [AZURE, "--columns", "time=TIMESTAMP,input=Prompt,output=GeneratedTokens"],
        [MOONCAKE, "--cache-blocks", "many"],
        [MOONCAKE, "--cache-blocks", "0"],
        [MOONCAKE, "--cache-bytes", "1 TB"],
        [MOONCAKE, "--cache-bytes", "1", "--model", "deepseek-ai/DeepSeek-V3"],
        [MOONCAKE, "--model", "no/such-model"],
        [MOONCAKE, "--ttl", "5"],
        [MOONCAKE, "--format", "parquet"],
        [MOONCAKE, "--time-unit", "h"],
        [MOONCAKE, "--block-tokens", "0"],
    ],
)
def test_bad_arguments_exit_with_2_and_a_reason(capsys, arguments):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.strip()
    assert "Traceback" not in err


def test_skipped_lines_are_reported(capsys, tmp_path):
    good = {"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1]}
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (good, {**good, "output_length": 0}, {**good, "timestamp": 5})))
    code, _, err = run(capsys, str(path))
    assert code == 2
    assert "t.jsonl:2" in err
    code, out, err = run(capsys, str(path), "--skip-bad", "--json", "-")
    assert code == 0
    assert "skipped 1 bad lines" in err
    found = json.loads(out)
    assert found["requests"] == 2
    assert found["skipped"] == [{"reason": "output_length is 0", "lines": 1, "first_line": 2}]


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 20), st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 900)), min_size=2, max_size=20
    ),
    block=st.sampled_from([4, 512]),
)
def test_statistics_of_small_random_traces_agree_exactly_with_plain_sums(tmp_path_factory, rows, block):
    import numpy as np

    from pddplan.workload.trace_reader import read_trace
    from pddplan.workload.trace_stats import measure_trace

    path = tmp_path_factory.mktemp("random") / "t.jsonl"
    times = np.cumsum([gap for gap, _, _ in rows]).tolist()
    lengths = [len(ids) * block - (i % block) for i, (_, ids, _) in enumerate(rows)]
    written = [
        {"timestamp": t, "input_length": n, "output_length": o, "hash_ids": ids}
        for t, n, (_, ids, o) in zip(times, lengths, rows, strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in written))
    stats = measure_trace(read_trace(path, block_tokens=block), cache_blocks=[1, 2, 3, 5, 8, 100])
    prompts = [ids for _, ids, _ in rows]

    def hits(capacity):
        return [min(run * block, n) for run, n in zip(lru_leading_blocks(prompts, capacity), lengths, strict=True)]

    cached = hits(10**9)
    assert stats.requests == len(rows)
    assert stats.hits.token_hit_rate == sum(cached) / sum(lengths)
    for point in stats.hits.curve:
        assert point.hit_rate == pytest.approx(sum(hits(point.blocks)) / sum(lengths), abs=1e-12)
    uncached = [n - c for n, c in zip(lengths, cached, strict=True)]
    assert stats.hits.uncached_tokens.mean == pytest.approx(sum(uncached) / len(rows))
    assert stats.hits.uncached_tokens.p50 == pytest.approx(np.median(uncached))
    edges = [0, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99]
    bucket = [max(k for k, edge in enumerate(edges) if c / n >= edge) for c, n in zip(cached, lengths, strict=True)]
    assert list(stats.hits.buckets) == [bucket.count(k) / len(rows) for k in range(7)]
    if times[-1] > times[0]:
        assert stats.arrivals.rate_per_s == pytest.approx((len(rows) - 1) / (times[-1] - times[0]) * 1000)
        gaps = np.diff(times)
        assert stats.arrivals.gap_cv == pytest.approx(gaps.std() / gaps.mean())
    else:
        assert stats.arrivals is None
