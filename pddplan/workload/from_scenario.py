"""From the words of a scenario to a RequestMix."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from pddplan.errors import InputError, Problem
from pddplan.scenario import workload as words
from pddplan.units import SECONDS_PER_DAY
from pddplan.workload import laws
from pddplan.workload.arrivals import demand_profile, measure_arrivals
from pddplan.workload.demand import DemandProfile
from pddplan.workload.demand_file import read_windows
from pddplan.workload.mix import ClassRows, RequestMix, assemble
from pddplan.workload.parametric import ClassLaws, RankCorrelation, class_rows
from pddplan.workload.sessions import SessionLaws, session_rows
from pddplan.workload.trace import Trace
from pddplan.workload.trace_mix import Cache, LocalRule, TraceHits, trace_hits, trace_rows
from pddplan.workload.trace_reader import Columns, Format, read_trace

_LEAST_ROWS = 400
_LEAST_REDUCED_ROWS = 2000  # fewer cannot hold the moments of a heavy tail


def length_law(length: words.Length) -> laws.QuantileLaw:
    """Law of a token count. Raises ValueError when its parameters hold no mass."""
    if length.fixed is not None:
        return laws.Fixed(length.fixed)
    if length.quantiles is not None:
        return _quantiles(length.quantiles)
    if length.histogram is not None:
        return laws.Histogram(tuple(laws.Bucket(*words.bucket_edges(name), share) for name, share in length.histogram.items()))
    assert length.lognormal is not None
    given = length.lognormal
    mu, sigma = laws.lognormal_parameters(
        mu=given.mu, sigma=given.sigma, mean=given.mean, p50=given.p50, p90=given.p90, p99=given.p99, cv=given.cv
    )
    return laws.LogNormal(mu, sigma, given.min, float("inf") if given.max is None else given.max)


def hit_rate_law(hit_rate: words.HitRate) -> laws.QuantileLaw:
    """Law of a hit rate in [0, 1]."""
    if hit_rate.fixed is not None:
        return laws.Fixed(hit_rate.fixed)
    if hit_rate.quantiles is not None:
        return _quantiles(hit_rate.quantiles)
    if hit_rate.beta is not None:
        return laws.BetaMixture(((1.0, *hit_rate.beta),))
    if hit_rate.mixture is not None:
        return laws.BetaMixture(tuple((part.weight, *part.beta) for part in hit_rate.mixture))
    assert hit_rate.buckets is not None
    buckets = []
    for name, share in hit_rate.buckets.items():
        low, high = words.bucket_edges(name)
        shape = hit_rate.below_90.beta if hit_rate.below_90 is not None and high <= 90 else (1.0, 1.0)
        buckets.append(laws.Bucket(low / 100, high / 100, share, *shape))
    return laws.Histogram(tuple(buckets))


def _quantiles(points: dict[str, float]) -> laws.Quantiles:
    ordered = sorted((words.quantile_level(name), value) for name, value in points.items())
    return laws.Quantiles(tuple(level for level, _ in ordered), tuple(value for _, value in ordered))


def _open_end(name: str, points: dict[str, float] | None) -> tuple[str, ...]:
    if points is None or "p100" in points:
        return ()
    top = max(points, key=words.quantile_level)
    return (f"{name} is not known above {top}; taken as {points[top]:g} there (give p100 to say otherwise)",)


def _parametric(given: words.WorkloadClass, rows: int) -> ClassRows:
    assert given.input_tokens is not None
    assert given.output_tokens is not None
    correlation = given.rank_correlation
    atoms = class_rows(
        ClassLaws(
            input_tokens=length_law(given.input_tokens),
            output_tokens=length_law(given.output_tokens),
            hit_rate=laws.Fixed(0.0) if given.hit_rate is None else hit_rate_law(given.hit_rate),
            md_hit_rate=None if given.md_hit_rate is None else hit_rate_law(given.md_hit_rate),
            correlation=RankCorrelation(correlation.input_hit, correlation.input_output, correlation.hit_output),
            turns_per_task=given.turns_per_task or 1.0,
        ),
        rows,
    )
    notes = _open_end("input_tokens", given.input_tokens.quantiles) + _open_end("output_tokens", given.output_tokens.quantiles)
    return replace(atoms, notes=notes)


def session_laws(given: words.Sessions) -> SessionLaws:
    """The laws of agent sessions as the workload gives them."""

    def or_inf(value: float | None) -> float:
        return math.inf if value is None else value

    ttl = or_inf(given.cache_ttl)
    return SessionLaws(
        turns=length_law(given.turns),
        first_tokens=length_law(given.first_tokens),
        growth_tokens=length_law(given.growth_tokens),
        output_tokens=length_law(given.output_tokens),
        system_tokens=given.system_tokens,
        answers_kept=given.answers_kept,
        think_s=(given.think_time.mean, given.think_time.cv),
        tool_s=(given.tool_time.mean, given.tool_time.cv),
        tool_share=given.tool_share,
        context_max=or_inf(given.context_max),
        compact_to=given.compact_to,
        cache_ttl_s=ttl,
        md_cache_ttl_s=ttl if given.md_cache_ttl is None else given.md_cache_ttl,
        seed=given.seed,
    )


def _sessions(given: words.Sessions, rows: int, rate_per_s: float | None) -> ClassRows:
    atoms = session_rows(session_laws(given), max(rows, _LEAST_REDUCED_ROWS))
    assert atoms.md_curve is not None
    assert rate_per_s is not None
    return replace(atoms, md_curve=atoms.md_curve.at_rate(rate_per_s))


def load_trace(given: words.Trace, base_path: Path) -> Trace:
    """The file of a scenario's trace, read once while it does not change. Raises InputError as ``read_trace`` does."""
    path = base_path / Path(given.file).expanduser()
    return _read_once(path, _version(path), given.format, given.block_tokens, given.columns, given.time_unit, given.skip_bad)


def _version(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=4)
def _read_once(
    path: Path,
    version: tuple[int, int] | None,
    format: Format,
    block_tokens: int | None,
    columns: words.TraceColumns | None,
    time_unit: str | None,
    skip_bad: bool,
) -> Trace:
    names = None if columns is None else Columns(columns.time, columns.input_tokens, columns.output_tokens)
    return read_trace(path, format=format, block_tokens=block_tokens, columns=names, time_unit=time_unit, skip_bad=skip_bad)


def _cache(limit: words.CacheLimit) -> Cache:
    return Cache(math.inf if limit.tokens is None else limit.tokens, math.inf if limit.ttl is None else limit.ttl)


def hits_of_trace(
    given: words.Trace, trace: Trace, *, rate_per_s: float | None = None, ends_locally: LocalRule | None = None
) -> TraceHits | None:
    """Hits of every request in the caches that the scenario gives to the trace; None where laws or nothing say what hits."""
    if trace.blocks is None or given.hit_rate is not None:
        return None
    return trace_hits(
        trace,
        p_cache=_cache(given.p_cache),
        md_cache=_cache(given.p_cache if given.md_cache is None else given.md_cache),
        keeps_answers=given.md_keeps_answers,
        shared_prefix=given.shared_prefix,
        ends_locally=ends_locally,
        rate_per_s=rate_per_s,
    )


def _trace_rate(place: str, given: words.Trace, trace: Trace, rate_per_s: float | None) -> float:
    """Requests/s of a trace class: the workload's, the one it is scaled to, or the recorded one."""
    if rate_per_s is not None:
        return rate_per_s
    if isinstance(given.scale_rate, float):
        return given.scale_rate
    if trace.rate_per_s is None:
        found = f"{trace.name} has no clock of its own (times count from each session's start)"
        raise InputError(Problem(place, found, "give the rate to plan for", "workload.rate: 10 req/s"))
    return trace.rate_per_s * (float(given.scale_rate[:-1]) if isinstance(given.scale_rate, str) else 1.0)


@dataclass(frozen=True)
class _Part:
    rows: ClassRows
    rate_per_s: float | None = None
    scv: float = 1.0


class _Loaded:
    """A trace and what reduces it, as a key that compares by the trace's identity and the scenario's words."""

    def __init__(self, trace: Trace, given: words.Trace) -> None:
        self.trace, self.given, self._words = trace, given, given.model_dump_json()

    def __hash__(self) -> int:
        return hash((id(self.trace), self._words))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Loaded) and self.trace is other.trace and self._words == other._words


@lru_cache(maxsize=8)
def _reduced(loaded: _Loaded, rate_per_s: float | None, ends_locally: LocalRule | None) -> ClassRows:
    """Rows of a trace; ``rate_per_s`` is None where its hits do not depend on it (curves are then for 1 request/s)."""
    trace, given = loaded.trace, loaded.given
    return trace_rows(
        trace,
        rows=given.rows,
        hits=hits_of_trace(given, trace, rate_per_s=rate_per_s, ends_locally=ends_locally),
        hit_rate=None if given.hit_rate is None else hit_rate_law(given.hit_rate),
        md_hit_rate=None if given.md_hit_rate is None else hit_rate_law(given.md_hit_rate),
    )


def _trace(place: str, given: words.Trace, base_path: Path, rate_per_s: float | None, ends_locally: LocalRule | None) -> _Part:
    trace = load_trace(given, base_path)
    rate = _trace_rate(place, given, trace, rate_per_s)
    limits = [given.p_cache, given.md_cache or given.p_cache]
    decides = any(limit.ttl is not None or (trace.independent_sessions and limit.tokens is not None) for limit in limits)
    atoms = _reduced(_Loaded(trace, given), rate if decides else None, ends_locally)
    curve = atoms.md_curve
    if curve is not None and trace.independent_sessions and not decides:
        curve = curve.at_rate(rate)
    arrivals = None if trace.session_times else measure_arrivals(trace.time_s)
    notes = trace.notes + tuple(
        f"{skipped.lines} lines skipped: {skipped.reason} (first at line {skipped.first_line})" for skipped in trace.skipped
    )
    if trace.blocks is None and given.hit_rate is None:
        notes += (f"{trace.name} has no block hashes and the scenario no hit_rate: every prompt counts as uncached",)
    return _Part(replace(atoms, md_curve=curve, notes=notes), rate, 1.0 if arrivals is None else arrivals.scv)


def _profile(demand: words.Demand, base_path: Path) -> DemandProfile:
    quantile = 1.0 if demand.size_for == "peak" else words.quantile_level(demand.size_for)
    if demand.hourly is not None:
        return DemandProfile(np.array(demand.hourly), SECONDS_PER_DAY / len(demand.hourly), quantile)
    assert demand.file is not None
    path = base_path / Path(demand.file).expanduser()
    if demand.format == "servegen" or (demand.format == "auto" and ".tar" in path.name):
        profile = read_windows(path, quantile)
    else:
        trace = load_trace(
            words.Trace(file=demand.file, format=demand.format, columns=demand.columns, time_unit=demand.time_unit), base_path
        )
        if trace.session_times:
            found = f"{trace.name} has no clock of its own"
            raise InputError(Problem("workload.demand.file", found, "a profile needs a trace with one, or hourly factors"))
        profile = demand_profile(trace.time_s, demand.window, quantile)
    return profile if demand.rate_is == "mean" else profile.scaled(1.0 / profile.peak_to_mean)


def request_mix(workload: words.Workload, *, base_path: Path, ends_locally: LocalRule | None = None) -> RequestMix:
    """The mix that ``workload`` describes; files in it are relative to ``base_path``.

    ends_locally: which requests of a trace end on RLD, so that MD's cache never holds them (none when absent).
    Raises InputError with the path of every class that cannot be built.
    """
    classes = workload.all_classes()
    parts: dict[str, _Part] = {}
    problems: list[Problem] = []
    for name, given in classes.items():
        place = f"workload.classes.{name}" if workload.classes else f"workload.{name}"
        rows = max(_LEAST_ROWS, round(workload.rows * given.share))
        rate = None if workload.rate is None else workload.rate * given.share
        try:
            if given.trace is not None:
                parts[name] = _trace(place, given.trace, base_path, rate, ends_locally)
            else:
                parts[name] = _Part(_parametric(given, rows) if given.sessions is None else _sessions(given.sessions, rows, rate))
        except InputError as error:
            problems.extend(error.problems)
        except ValueError as error:
            problems.append(Problem(place, str(error), "change the law so that it holds some mass"))
    demand = None
    if workload.demand is not None:
        try:
            demand = _profile(workload.demand, base_path)
        except InputError as error:
            problems.extend(error.problems)
        except ValueError as error:
            problems.append(Problem("workload.demand", str(error), "give factors over 0, a longer trace or a shorter window"))
    if problems:
        raise InputError(problems)
    scv = sum(given.share * parts[name].scv for name, given in classes.items())
    rate = workload.rate if workload.rate is not None else next(iter(parts.values())).rate_per_s
    assert rate is not None
    return assemble(
        [(name, given.share, parts[name].rows) for name, given in classes.items()],
        rate_per_s=rate,
        arrival_scv=scv / sum(given.share for given in classes.values()) if workload.arrival_scv is None else workload.arrival_scv,
        demand=demand,
    )
