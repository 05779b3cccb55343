"""trace stats: measure a recorded trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pddplan.cli.common import ForceOption, JsonOption, ReportOption, console, note, print_table, write_json, write_page

if TYPE_CHECKING:
    from pddplan.units import Quantity
    from pddplan.workload.trace_reader import Columns
    from pddplan.workload.trace_stats import Percentiles, TraceStats

app = typer.Typer(no_args_is_help=True)


@app.callback()
def trace() -> None:
    """Measure a trace: rates, lengths, prefix hits, cache curve."""


@app.command()
def stats(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSONL (Mooncake, flattened sessions) or CSV, .gz or not.")],
    format_: Annotated[str, typer.Option("--format", metavar="NAME", help="auto, mooncake, sessions or csv.")] = "auto",
    block_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens per hash block; told from the trace if absent.")] = None,
    cache_blocks: Annotated[str | None, typer.Option(metavar="N,N,...", help="Cache capacities of the curve, in blocks.")] = None,
    cache_bytes: Annotated[str | None, typer.Option(metavar="SIZE,SIZE,...", help="The same in bytes ('2 TB'), of --model.")] = None,
    model: Annotated[str | None, typer.Option(help="Model whose KV the cache holds.")] = None,
    kv_format: Annotated[str | None, typer.Option(help="KV format of the model.")] = None,
    ttl: Annotated[str | None, typer.Option(metavar="TIME", help="The cache forgets after so long idle ('5 min').")] = None,
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="Rate at which sessions without a clock share the cache.")] = None,
    columns: Annotated[str | None, typer.Option(metavar="MAP", help="time=NAME,input=NAME,output=NAME of a CSV.")] = None,
    time_unit: Annotated[str | None, typer.Option(help="s, ms or us, of numeric times.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad lines out, and count them.")] = False,
    report: ReportOption = None,
    json_: JsonOption = None,
    force: ForceOption = False,
) -> None:
    """Measure a trace: rate and burstiness, lengths, prefix hits, hit rate over cache capacity.

    Example: pddplan trace stats conversation_trace.jsonl.gz --cache-bytes "1 TB,4 TB" --model deepseek-ai/DeepSeek-V4-Pro
    """
    import math

    from pddplan.errors import InputError, Problem
    from pddplan.units import DURATION, RATE
    from pddplan.workload.trace_reader import TIME_UNITS, read_trace
    from pddplan.workload.trace_stats import measure_trace

    if format_ not in ("auto", "mooncake", "sessions", "csv"):
        raise InputError(Problem("--format", f"{format_!r} is unknown", "auto, mooncake, sessions or csv", "auto"))
    if time_unit is not None and time_unit not in TIME_UNITS:
        raise InputError(Problem("--time-unit", f"{time_unit!r} is unknown", "s, ms or us", "ms"))
    per_token = _kv_bytes_per_token(model, kv_format)
    read = read_trace(
        file, format=format_, block_tokens=block_tokens, columns=_columns(columns), time_unit=time_unit, skip_bad=skip_bad  # type: ignore[arg-type]
    )  # fmt: skip
    measured = measure_trace(
        read,
        cache_blocks=_capacities(cache_blocks, cache_bytes, per_token, read.block_tokens),
        ttl_s=math.inf if ttl is None else _quantity(DURATION, "--ttl", ttl),
        rate_per_s=None if rate is None else _quantity(RATE, "--rate", rate),
    )
    for skipped in measured.skipped:
        note(f"skipped {skipped.lines} bad lines: {skipped.reason} (first at line {skipped.first_line})")
    for warning in measured.warnings:
        note(f"warning: {warning}")
    if report is not None:
        from pddplan.report.trace_page import trace_page

        write_page(trace_page(measured, per_token, model or ""), report, force)
    if json_ is not None:
        write_json(stats_document(measured, per_token), json_, force)
    if json_ != "-":
        _show(measured, per_token)


def _quantity(quantity: Quantity, option: str, text: str) -> float:
    """Base-unit value of an option, over 0. Raises InputError."""
    from pddplan.errors import InputError, Problem
    from pddplan.units import UnitError

    try:
        value = quantity.parse(text)
    except UnitError as error:
        raise InputError(Problem(option, error.found, error.accepted, error.example)) from None
    if value <= 0:
        raise InputError(Problem(option, f"is {text}", "it is over 0", quantity.examples[0]))
    return value


def _columns(text: str | None) -> Columns | None:
    from pddplan.errors import InputError, Problem
    from pddplan.workload.trace_reader import Columns

    if text is None:
        return None
    pairs = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    if set(pairs) != {"time", "input", "output"}:
        example = "time=TIMESTAMP,input=ContextTokens,output=GeneratedTokens"
        raise InputError(Problem("--columns", f"is {text!r}", "name the columns of time, input and output", example))
    return Columns(pairs["time"], pairs["input"], pairs["output"])


def _kv_bytes_per_token(model: str | None, kv_format: str | None) -> float | None:
    if model is None:
        return None
    from pddplan.errors import InputError, Problem
    from pddplan.model.catalog import load_model
    from pddplan.model.kv_cache import kv_cache

    slope = kv_cache(load_model(model), kv_format).slope
    if slope <= 0:
        raise InputError(Problem("--model", f"KV of {model} does not grow with the prompt", "name a model whose KV does"))
    return slope


def _capacities(blocks: str | None, sizes: str | None, per_token: float | None, block_tokens: int | None) -> list[int]:
    """Capacities in blocks, rising. Raises InputError for what is no count or size, or for bytes without a model."""
    from pddplan.errors import InputError, Problem
    from pddplan.units import BYTES

    found: set[int] = set()
    for text in [] if blocks is None else blocks.split(","):
        try:
            count = float(text)
        except ValueError:
            count = -1.0
        if not (1 <= count < 1e15 and count.is_integer()):
            raise InputError(
                Problem("--cache-blocks", f"{text.strip()!r} is no number of blocks", "whole numbers, with commas", "1000,30000")
            )
        found.add(int(count))
    for text in [] if sizes is None else sizes.split(","):
        if per_token is None:
            raise InputError(Problem("--cache-bytes", "is given without --model", "bytes per token depend on the model", "--model NAME"))
        size = _quantity(BYTES, "--cache-bytes", text)
        found.add(int(size / per_token / (block_tokens or 1)))
    return sorted(found)


def stats_document(stats: TraceStats, kv_bytes_per_token: float | None = None) -> dict[str, Any]:
    """JSON of ``pddplan trace stats``: fractions from 0 to 1, null where the trace does not tell."""
    arrivals, hits = stats.arrivals, stats.hits
    curve = None
    if hits is not None:
        curve = [{"blocks": p.blocks, "hit_rate": p.hit_rate, "tokens": p.tokens} for p in hits.curve]
        if kv_bytes_per_token is not None:
            curve = [{**point, "bytes": point["tokens"] * kv_bytes_per_token} for point in curve]
    return {
        "schema_version": 1,
        "file": stats.name,
        "format": stats.format,
        "requests": stats.requests,
        "sessions": stats.sessions,
        "block_tokens": stats.block_tokens,
        "span_s": arrivals and arrivals.span_s,
        "rate_per_s": arrivals and arrivals.rate_per_s,
        "gap_cv": arrivals and arrivals.gap_cv,
        "clock_tick_s": arrivals and arrivals.tick_s,
        "dispersion": arrivals and [vars(d) for d in arrivals.dispersion],
        "peak_to_mean": stats.rates and stats.rates.peak_to_mean,
        "rates": stats.rates and {"window_s": stats.rates.window_s, "rate_per_s": stats.rates.rate_per_s.tolist()},
        "input_tokens": vars(stats.input_tokens),
        "output_tokens": vars(stats.output_tokens),
        "token_hit_rate": hits and hits.token_hit_rate,
        "hit_buckets": hits and list(hits.buckets),
        "hit_deciles": hits and list(hits.deciles),
        "uncached_tokens": hits and vars(hits.uncached_tokens),
        "singular_share": hits and hits.singular_share,
        "singular_uncached_share": hits and hits.singular_uncached_share,
        "curve": curve,
        "curve_rate_per_s": hits and hits.rate_per_s,
        "skipped": [vars(skipped) for skipped in stats.skipped],
        "warnings": list(stats.warnings),
    }


def _show(stats: TraceStats, per_token: float | None) -> None:
    from rich.table import Table

    out = console()
    sessions = f" in {stats.sessions:,} sessions" if stats.sessions else ""
    out.print(f"{stats.name}: {stats.requests:,} requests{sessions}", markup=False)
    if stats.arrivals is not None:
        a = stats.arrivals
        out.print(f"span {a.span_s:,.0f} s, rate {a.rate_per_s:.3g} req/s, CV of gaps {a.gap_cv:.3f}{' (clock ticks)' if a.coarse else ''}")
        if a.dispersion:
            parts = (f"{d.index:.3g} at {d.window_s:g} s{' (under the tick)' if d.under_tick else ''}" for d in a.dispersion)
            out.print(f"index of dispersion {', '.join(parts)}")
    if stats.rates is not None:
        out.print(f"peak over mean {stats.rates.peak_to_mean:.3g} in windows of {stats.rates.window_s:g} s")
    table = Table("tokens", "mean", "P50", "P90", "P99")
    for column in table.columns[1:]:
        column.justify = "right"
    rows: list[tuple[str, Percentiles]] = [("input", stats.input_tokens), ("output", stats.output_tokens)]
    if stats.hits is not None:
        rows.insert(1, ("uncached", stats.hits.uncached_tokens))
    for name, p in rows:
        table.add_row(name, *(f"{value:,.0f}" for value in (p.mean, p.p50, p.p90, p.p99)))
    print_table(table)
    if stats.hits is None:
        return
    from pddplan.report.numbers import significant
    from pddplan.report.trace_page import BUCKET_NAMES

    hits = stats.hits
    out.print(f"token-weighted hit rate {100 * hits.token_hit_rate:.2f} % in an unlimited cache")
    shares = Table("hit rate", *BUCKET_NAMES)
    shares.add_row("requests", *(f"{100 * share:.2f} %" for share in hits.buckets))
    print_table(shares)
    out.print(f"deciles of the hit rate {', '.join(f'{100 * h:.3g}' for h in hits.deciles)} %")
    out.print(
        f"singular traffic (uncached over 32,768, output under 500): {100 * hits.singular_share:.2f} % of requests, "
        f"{100 * hits.singular_uncached_share:.1f} % of uncached tokens"
    )
    at_rate = "" if hits.rate_per_s is None else f" at {hits.rate_per_s:g} req/s"
    curve = Table("cache blocks", "tokens", *(["GB"] if per_token else []), "hit rate", title=f"LRU cache{at_rate}")
    for column in curve.columns:
        column.justify = "right"
    for point in hits.curve:
        size = [significant(point.tokens * per_token / 1e9)] if per_token else []
        curve.add_row(f"{point.blocks:,}", f"{point.tokens:,}", *size, f"{100 * point.hit_rate:.2f} %")
    print_table(curve)
