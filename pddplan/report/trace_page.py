"""A trace on one page: how it arrives, how long its requests are, what a prefix cache saves."""

from __future__ import annotations

from itertools import pairwise

from pddplan.report.document import Block, Column, Document, Figure, Paragraph, Section, Table
from pddplan.report.sections.charts import bars, layout, line
from pddplan.workload.trace_stats import BUCKET_EDGES, HitStats, Percentiles, RateSeries, TraceStats

BUCKET_NAMES = tuple(f"{100 * low:g}-{100 * high:g} %" for low, high in pairwise(BUCKET_EDGES))


def trace_page(stats: TraceStats, kv_bytes_per_token: float | None = None, model: str = "") -> Document:
    """The page of ``stats``. kv_bytes_per_token: of ``model``, to show capacities in bytes."""
    facts = [("requests", f"{stats.requests:,}"), ("format", stats.format)]
    if stats.block_tokens is not None:
        facts.append(("block", f"{stats.block_tokens} tokens"))
    if stats.arrivals is not None:
        facts += [("span", f"{stats.arrivals.span_s:,.0f} s"), ("rate", f"{stats.arrivals.rate_per_s:.3g} req/s")]
    sections = [Section("lengths", "How long are the requests?", (_lengths(stats),))]
    if stats.rates is not None:
        sections.insert(0, Section("arrivals", "How do they arrive?", (_rate_figure(stats.rates),)))
    if stats.hits is not None:
        blocks: tuple[Block, ...] = (_bucket_figure(stats.hits), _curve_figure(stats.hits, kv_bytes_per_token, model))
        sections.append(Section("hits", "What does a prefix cache save?", blocks))
    remarks = [*stats.warnings, *(f"{s.lines} lines skipped: {s.reason} (first at line {s.first_line})" for s in stats.skipped)]
    if remarks:
        sections.append(Section("remarks", "What to know", tuple(Paragraph(text, "note") for text in remarks)))
    if stats.hits is None:
        headline = f"{stats.requests:,} requests; no block hashes, so prefix hits are unknown"
    else:
        headline = f"{100 * stats.hits.token_hit_rate:.3g} % of {stats.requests:,} requests' input tokens are in an unlimited prefix cache"
    return Document("en", f"Trace {stats.name}", headline, tuple(facts), tuple(sections))


def _lengths(stats: TraceStats) -> Table:
    rows: list[tuple[str, Percentiles]] = [("input", stats.input_tokens), ("output", stats.output_tokens)]
    if stats.hits is not None:
        rows.insert(1, ("uncached input", stats.hits.uncached_tokens))
    columns = (Column("", align="left"), *(Column(name, "tokens", 4) for name in ("mean", "P50", "P90", "P99")))
    return Table("lengths", "Tokens per request", columns, tuple((name, p.mean, p.p50, p.p90, p.p99) for name, p in rows))


def _rate_figure(rates: RateSeries) -> Figure:
    starts = [i * rates.window_s for i in range(rates.rate_per_s.size)]
    table = Table(
        "rate-data", "Rate over time", (Column("start", "s"), Column("rate", "req/s")),
        tuple((start, float(rate)) for start, rate in zip(starts, rates.rate_per_s, strict=True)),
    )  # fmt: skip
    return Figure(
        "rate",
        f"The busiest {rates.window_s:g} s brings {rates.peak_to_mean:.3g} times the mean rate",
        f"Requests per second in windows of {rates.window_s:g} s",
        (line(starts, rates.rate_per_s.tolist(), "rate"),),
        layout("time (s)", "requests/s"),
        table,
    )


def _bucket_figure(hits: HitStats) -> Figure:
    shares = [100 * share for share in hits.buckets]
    table = Table(
        "bucket-data", "Requests by hit rate", (Column("hit rate", align="left"), Column("requests", "%")),
        tuple(zip(BUCKET_NAMES, shares, strict=True)),
    )  # fmt: skip
    return Figure(
        "buckets",
        f"{shares[-1]:.3g} % of requests hit more than 99 % of their prompt",
        "Share of requests in seven buckets of the prefix hit rate",
        (bars(BUCKET_NAMES, shares, "requests"),),
        layout("prefix hit rate of the request", "share of requests (%)"),
        table,
    )


def _curve_figure(hits: HitStats, kv_bytes_per_token: float | None, model: str) -> Figure:
    per_token = 1.0 if kv_bytes_per_token is None else kv_bytes_per_token / 1e9
    axis = "capacity (tokens)" if kv_bytes_per_token is None else f"capacity (GB of {model} KV)"
    capacities = [point.tokens * per_token for point in hits.curve]
    rates = [100 * point.hit_rate for point in hits.curve]
    columns: tuple[Column, ...] = (Column("blocks"), Column("tokens"), Column("hit rate", "%"))
    rows: tuple[tuple[float, ...], ...] = tuple((p.blocks, p.tokens, 100 * p.hit_rate) for p in hits.curve)
    if kv_bytes_per_token is not None:
        columns += (Column("capacity", "GB"),)
        rows = tuple((*row, capacity) for row, capacity in zip(rows, capacities, strict=True))
    return Figure(
        "curve",
        "How much cache buys how many hits?",
        "Token-weighted hit rate of an LRU prefix cache over its capacity",
        (line(capacities, rates, "LRU", mode="lines+markers"),),
        layout(axis, "token hit rate (%)", xaxis={"type": "log"}),
        Table("curve-data", "Hit rate over capacity", columns, rows),
    )
