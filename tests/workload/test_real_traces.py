"""Check values of published traces, measured independently: infinite cache, hit = leading run of known blocks."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from pddplan.workload.prefix_cache import hits_by_blocks, p_sequence
from pddplan.workload.trace_mix import trace_hits, trace_rows, turns_per_task
from pddplan.workload.trace_reader import read_trace
from pddplan.workload.trace_stats import measure_trace

ROOT = Path(__file__).parents[2]
FILES = {
    "mooncake": ROOT / "scenarios/traces/mooncake_conversation.jsonl.gz",
    "kct": ROOT / "scenarios/traces/kct_examples_flat.jsonl.gz",
    "miniswe": ROOT / "tests/data/lmcache_agent_miniswe_blk64.jsonl.gz",
    "azure": ROOT / "tests/data/azure2023_conv.csv.gz",
}


@lru_cache(maxsize=4)
def trace_named(name):
    return read_trace(FILES[name])


@lru_cache(maxsize=4)
def stats_named(name):
    return measure_trace(trace_named(name))


CHECKS = {  # requests, hit %, buckets %, uncached mean and percentiles, singular % of requests and of uncached, mean in and out
    "mooncake": (12031, 37.36, (84.13, 6.10, 1.80, 1.92, 1.96, 2.11, 1.97), (7538, 2470, 19012, 71888), (3.08, 23.6), (12035, 343)),
    "kct": (21284, 96.17, (7.21, 4.79, 2.42, 3.65, 7.06, 17.84, 57.02), (4152, 728, 4810, 83217), (1.54, 42.5), (108475, 437)),
    "miniswe": (402, 93.07, (20.65, 12.44, 4.73, 6.72, 11.94, 20.90, 22.64), (428, 75, 1351, 3586), (0, 0), (6169, 110)),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_published_traces_measure_as_published(name):
    requests, hit, buckets, uncached, singular, means = CHECKS[name]
    stats = stats_named(name)
    assert stats.requests == requests
    assert 100 * stats.hits.token_hit_rate == pytest.approx(hit, abs=0.005)
    assert [100 * share for share in stats.hits.buckets] == pytest.approx(buckets, abs=0.006)
    u = stats.hits.uncached_tokens
    assert (u.mean, u.p50, u.p90, u.p99) == pytest.approx(uncached, abs=0.51)
    assert 100 * stats.hits.singular_share == pytest.approx(singular[0], abs=0.006)
    assert 100 * stats.hits.singular_uncached_share == pytest.approx(singular[1], abs=0.06)
    assert (stats.input_tokens.mean, stats.output_tokens.mean) == pytest.approx(means, abs=0.51)


def test_mooncake_hits_at_five_capacities():
    curve = hits_by_blocks(p_sequence(trace_named("mooncake")))[0]
    at = [100 * curve[blocks] for blocks in (1000, 3000, 10_000, 30_000, 100_000)]
    assert at == pytest.approx([4.54, 6.66, 21.57, 33.22, 37.08], abs=0.006)


def test_block_size_is_told_from_the_trace():
    assert [trace_named(name).block_tokens for name in ("mooncake", "kct", "miniswe", "azure")] == [512, 64, 64, None]


def test_azure_arrivals_measure_as_published():
    stats = stats_named("azure")
    assert stats.arrivals.rate_per_s == pytest.approx(5.53, abs=0.005)
    assert stats.arrivals.gap_cv == pytest.approx(1.094, abs=0.0006)
    at = {d.window_s: d.index for d in stats.arrivals.dispersion}
    assert (at[1.0], at[10.0], at[60.0]) == pytest.approx((1.4, 3.9, 16), rel=0.02)
    assert (stats.input_tokens.mean, stats.output_tokens.mean) == pytest.approx((1155, 211), abs=0.51)
    assert stats.hits is None


def test_ticks_of_the_clock_are_called_out():
    stats = stats_named("mooncake")
    assert stats.arrivals.tick_s == pytest.approx(3.0)
    assert [d.under_tick for d in stats.arrivals.dispersion] == [True, False, False]
    assert any("ticks of 3 s" in warning for warning in stats.warnings)
    assert not any("ticks" in warning for warning in stats_named("azure").warnings)


@pytest.mark.parametrize("name", CHECKS)
def test_the_largest_cache_of_the_curve_hits_all_there_is_to_hit(name):
    hits = stats_named(name).hits
    rates = [point.hit_rate for point in hits.curve]
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(hits.token_hit_rate, abs=1e-9)


def test_sessions_without_a_clock_have_no_rate():
    stats = stats_named("kct")
    assert (stats.arrivals, stats.rates, stats.sessions) == (None, None, 323)
    assert any("no rate" in warning for warning in stats.warnings)


def weighted_quantile(values, weight, level):
    order = np.argsort(values, kind="stable")
    mass = np.cumsum(weight[order])
    return values[order][min(np.searchsorted(mass, level * mass[-1] - 1e-9), values.size - 1)]


@pytest.mark.parametrize("name", ["mooncake", "kct"])
def test_a_reduced_trace_keeps_percentiles_and_joint_structure_within_two_per_cent(name):
    """Of input, uncached and output tokens, and of uncached tokens given the output (tails, halves, and under 500 tokens).

    A percentile may also lie within 2 % of one between levels 0.1 point (1 point given the output) lower and higher: where the trace itself
    jumps by more from one request to the next, no nearer agreement means anything.
    """
    trace = trace_named(name)
    hits = trace_hits(trace)
    rows = trace_rows(trace, rows=4000, hits=hits)
    assert rows.weight.size <= 4000
    assert rows.weight.min() > 0
    assert rows.weight.sum() == pytest.approx(1)
    length, output = trace.input_tokens.astype(float), np.maximum(trace.output_tokens, 1).astype(float)
    uncached = np.maximum(length - hits.cached_p, 1)
    missing = length - hits.cached_md

    def agree(full, reduced, weight, slack):
        for level in (0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99):
            low, high = np.quantile(full, (level - slack, min(level + slack, 1)), method="inverted_cdf")
            value = weighted_quantile(reduced, weight, level)
            assert low / 1.02 - 1 <= value <= high * 1.02 + 1, (level, low, value, high)

    for full, reduced in (
        (length, rows.input_tokens),
        (uncached, rows.uncached_tokens),
        (missing, rows.md_missing_tokens),
        (output, rows.output_tokens),
    ):
        agree(full, reduced, rows.weight, 0.001)
        assert rows.weight @ reduced == pytest.approx(full.mean(), rel=0.001)
    for of_full, of_rows in (
        (uncached**2, rows.uncached_tokens**2),
        (missing**2, rows.md_missing_tokens**2),
        (uncached * (length - uncached / 2), rows.uncached_tokens * (rows.input_tokens - rows.uncached_tokens / 2)),
        (length * output, rows.input_tokens * rows.output_tokens),
    ):  # what waits are made of
        assert rows.weight @ of_rows == pytest.approx(of_full.mean(), rel=0.003)
    median = np.median(output)
    for of_full, of_rows in (
        (output < 500, rows.output_tokens < 500),
        (output <= median, rows.output_tokens <= median),
        (output > median, rows.output_tokens > median),
        (output > np.quantile(output, 0.9), rows.output_tokens > np.quantile(output, 0.9)),
    ):
        agree(uncached[of_full], rows.uncached_tokens[of_rows], rows.weight[of_rows], 0.01)
        assert rows.weight[of_rows].sum() == pytest.approx(of_full.mean(), rel=0.02)
    singular = rows.weight[(rows.uncached_tokens > 32768) & (rows.output_tokens < 500)].sum()
    assert singular == pytest.approx(np.mean((uncached > 32768) & (output < 500)), rel=0.02)
    hit = 1 - uncached / length
    for edge in (0.5, 0.9, 0.95, 0.99):
        share = rows.weight[1 - rows.uncached_tokens / rows.input_tokens > edge].sum()
        assert share == pytest.approx(np.mean(hit > edge), abs=0.01)


def test_reduction_is_deterministic():
    first, second = (trace_rows(trace_named("kct"), rows=1000, hits=trace_hits(trace_named("kct"))) for _ in range(2))
    assert np.array_equal(first.weight, second.weight)
    assert np.array_equal(first.input_tokens, second.input_tokens)


def test_md_holds_answers_and_loses_what_ended_on_the_relay():
    trace = trace_named("kct")
    at_p = trace_hits(trace)
    assert at_p.cached_md.sum() > at_p.cached_p.sum()
    relayed = trace_hits(trace, ends_locally=lambda uncached, output: (uncached > 32768) & (output < 500))
    assert np.array_equal(relayed.cached_p, at_p.cached_p)
    assert np.all(relayed.cached_md <= at_p.cached_md)
    assert relayed.cached_md.sum() < at_p.cached_md.sum()


def test_tasks_of_agents_end_where_the_model_hands_back():
    turns = turns_per_task(trace_named("kct"))
    assert turns.sum() == 21284
    assert 3 < turns.mean() < 66  # sessions have 66 requests on average, and several tasks each
    assert turns_per_task(trace_named("azure")) is None
    assert turns_per_task(trace_named("miniswe")).sum() == 402
