"""From the words of a scenario to a RequestMix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from pddplan.errors import InputError, Problem
from pddplan.scenario import workload as words
from pddplan.workload import laws
from pddplan.workload.demand import DemandProfile
from pddplan.workload.mix import ClassRows, RequestMix, assemble
from pddplan.workload.parametric import ClassLaws, RankCorrelation, class_rows

_LEAST_ROWS = 400


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


def _profile(demand: words.Demand, base_path: Path) -> DemandProfile:
    quantile = 1.0 if demand.size_for == "peak" else words.quantile_level(demand.size_for)
    assert demand.hourly is not None
    return DemandProfile(np.array(demand.hourly), 86400.0 / len(demand.hourly), quantile)


def request_mix(workload: words.Workload, *, base_path: Path) -> RequestMix:
    """The mix that ``workload`` describes; files in it are relative to ``base_path``.

    Raises InputError with the path of every class that cannot be built.
    """
    classes = workload.all_classes()
    total = sum(given.share for given in classes.values())
    parts: list[tuple[str, float, ClassRows]] = []
    problems: list[Problem] = []
    for name, given in classes.items():
        rows = max(_LEAST_ROWS, round(workload.rows * given.share / total))
        try:
            parts.append((name, given.share, _parametric(given, rows)))
        except ValueError as error:
            problems.append(Problem(f"workload.classes.{name}", str(error), "change the law so that it holds some mass"))
    if problems:
        raise InputError(problems)
    assert workload.rate is not None
    return assemble(
        parts,
        rate_per_s=workload.rate,
        arrival_scv=1.0 if workload.arrival_scv is None else workload.arrival_scv,
        demand=None if workload.demand is None else _profile(workload.demand, base_path),
    )
