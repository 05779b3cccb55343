"""What the user says of the traffic: classes, agent sessions, traces and the profile of the day.

Values are what the scenario file holds, in base units (tokens, seconds, requests/s, fractions);
``pddplan.workload.from_scenario`` turns them into a RequestMix.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from pddplan.scenario.base import Section as _Model
from pddplan.scenario.quantities import Fraction, RequestRate, Seconds, Tokens
from pddplan.scenario.sla import Sla


def _bare(form: str) -> Any:
    """Validator that reads a bare value as ``{form: value}`` (``input_tokens: 64k`` is ``{fixed: 64k}``)."""

    def read(value: Any) -> Any:
        return {form: value} if isinstance(value, int | float | str) and not isinstance(value, bool) else value

    return read


def _one_of(model: BaseModel, forms: tuple[str, ...]) -> None:
    given = [form for form in forms if getattr(model, form) is not None]
    if len(given) != 1:
        found = f"has {' and '.join(given)}" if given else "is empty"
        raise ValueError(f"{found}; give exactly one of {', '.join(forms)}")


def edges(text: str, *, scale: float = 1.0) -> tuple[float, float]:
    """Edges of a bucket named ``lo-hi`` (``90-95``, ``1k-4k``), each divided by ``scale``. Raises ValueError."""
    found = re.fullmatch(r"\s*([\d.]+)\s*(k|Ki|M)?\s*-\s*([\d.]+)\s*(k|Ki|M)?\s*%?\s*", text)
    if not found:
        raise ValueError(f"bucket {text!r} is not written low-high; write for example '90-95' or '1k-4k'")
    factor = {None: 1.0, "k": 1e3, "Ki": 1024.0, "M": 1e6}
    low, high = (float(found[i]) * factor[found[i + 1]] / scale for i in (1, 3))
    if not low < high:
        raise ValueError(f"bucket {text!r} is empty: its lower edge is not under its upper edge")
    return low, high


def _check_buckets(shares: dict[str, float], *, scale: float, slack: float = 0.0011) -> None:
    spans = sorted(edges(name, scale=scale) for name in shares)
    for (_, high), (low, _) in zip(spans, spans[1:], strict=False):
        if low < high - 1e-12:
            raise ValueError(f"buckets overlap at {low * scale:g}; each must begin where the one before ends or later")
    total = sum(shares.values())
    if abs(total - 1) > slack:
        raise ValueError(f"bucket shares sum to {100 * total:.4g} %; they must sum to 100 % within 0.1 point")


class LogNormal(_Model):
    """Log-normal, cut to [min, max]: mu and sigma of ln(tokens), or two of mean, p50, p90, p99, cv of the uncut law."""

    mu: float | None = None
    sigma: Annotated[float, Field(ge=0)] | None = None
    mean: Tokens | None = None
    p50: Tokens | None = None
    p90: Tokens | None = None
    p99: Tokens | None = None
    cv: Annotated[float, Field(ge=0)] | None = None
    min: Tokens | None = None
    max: Tokens | None = None

    @model_validator(mode="after")
    def _determined(self) -> LogNormal:
        given = {name for name in ("mu", "sigma", "mean", "p50", "p90", "p99", "cv") if getattr(self, name) is not None}
        pairs = [{"mu", "sigma"}, {"p50", "sigma"}, {"mean", "sigma"}, {"mean", "cv"}, {"mean", "p50"}]
        pairs += [{"p50", "p90"}, {"p50", "p99"}, {"p50", "cv"}]
        if given not in pairs:
            accepted = "; ".join(" and ".join(sorted(pair)) for pair in pairs)
            raise ValueError(f"a log-normal is given by one pair of: {accepted}; found {sorted(given) or 'none'}")
        if self.mean is not None and self.p50 is not None and self.mean < self.p50:
            raise ValueError(f"mean {self.mean:g} is under the median {self.p50:g}; a log-normal's mean is never under its median")
        for name in ("p90", "p99"):
            value = getattr(self, name)
            if value is not None and self.p50 is not None and value < self.p50:
                raise ValueError(f"{name} {value:g} is under p50 {self.p50:g}")
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise ValueError(f"min {self.min:g} is not under max {self.max:g}")
        return self


def _quantile_levels(points: dict[str, Any]) -> dict[str, Any]:
    for name in points:
        if not re.fullmatch(r"p\d{1,3}(\.\d+)?", str(name)) or float(str(name)[1:]) > 100:
            raise ValueError(f"quantile {name!r} is not written p0 to p100; write for example 'p50'")
    if len(points) < 2:
        raise ValueError("give at least two quantiles, for example {p0: 100, p50: 2k, p99: 64k}")
    ordered = sorted(points.items(), key=lambda item: float(item[0][1:]))
    for (low, a), (high, b) in zip(ordered, ordered[1:], strict=False):
        if b < a:
            raise ValueError(f"{high} {b:g} is under {low} {a:g}; quantiles must not fall")
    return points


class Length(_Model):
    """Law of a number of tokens: exactly one of the forms."""

    fixed: Tokens | None = None
    lognormal: LogNormal | None = None
    quantiles: dict[str, Tokens] | None = None
    histogram: dict[str, Fraction] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Length:
        _one_of(self, ("fixed", "lognormal", "quantiles", "histogram"))
        if self.quantiles is not None:
            _quantile_levels(self.quantiles)
        if self.histogram is not None:
            _check_buckets(self.histogram, scale=1.0)
        return self

    _read_bare = model_validator(mode="before")(_bare("fixed"))


class Beta(_Model):
    """Beta law on a bucket (or on 0 to 1): ``{beta: [a, b]}``."""

    beta: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]


class BetaPart(Beta):
    weight: Annotated[float, Field(gt=0)]


class HitRate(_Model):
    """Law of the share of a request's input tokens found in the prefix cache: exactly one of the forms.

    buckets: shares of requests per bucket in per cent (``90-95: 4.8 %``), uniform inside a bucket;
    below_90: shape inside the buckets that end at 90 % or lower.
    """

    fixed: Fraction | None = None
    buckets: dict[str, Fraction] | None = None
    below_90: Beta | None = None
    beta: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] | None = None
    mixture: tuple[BetaPart, ...] | None = None
    quantiles: dict[str, Fraction] | None = None

    @model_validator(mode="after")
    def _complete(self) -> HitRate:
        _one_of(self, ("fixed", "buckets", "beta", "mixture", "quantiles"))
        if self.below_90 is not None and self.buckets is None:
            raise ValueError("below_90 shapes the buckets under 90 %, and there are no buckets")
        if self.buckets is not None:
            _check_buckets(self.buckets, scale=100.0)
            high = max(edges(name, scale=100.0)[1] for name in self.buckets)
            if high > 1 + 1e-12:
                raise ValueError(f"a hit-rate bucket ends at {100 * high:g} %; buckets are in per cent, up to 100")
        if self.quantiles is not None:
            _quantile_levels(self.quantiles)
        if self.mixture is not None and not self.mixture:
            raise ValueError("mixture is empty; write for example [{weight: 0.9, beta: [50, 1]}, {weight: 0.1, beta: [1, 2]}]")
        return self

    _read_bare = model_validator(mode="before")(_bare("fixed"))


RankCorrelation = Annotated[float, Field(ge=-1, le=1)]


class Correlation(_Model):
    """Spearman rank correlations between the laws of a class (0: independent)."""

    input_hit: RankCorrelation = 0.0
    input_output: RankCorrelation = 0.0
    hit_output: RankCorrelation = 0.0

    _read_bare = model_validator(mode="before")(_bare("input_hit"))


class Sessions(_Model):
    """Agent sessions: every turn re-sends the context, which has grown by the last answer and by new input.

    system_tokens: prefix that all sessions share; first_tokens: the first turn's own input; growth_tokens: new input of a
    later turn (tool results, the user); output_tokens: answer of a turn; think_time: from an answer's end to the next turn;
    turns: turns per session; context_max: the context is compacted to ``compact_to`` of it when a turn would pass it.
    cache_ttl: prefixes idle for longer are gone at P (md_cache_ttl: at MD, the same by default).
    """

    turns: Length
    first_tokens: Length
    growth_tokens: Length
    output_tokens: Length
    system_tokens: Tokens = 0
    shared_system: Fraction = 1.0
    think_time: Seconds | None = None
    think_time_cv: Annotated[float, Field(ge=0)] = 1.0
    tool_time: Seconds | None = None
    tool_share: Fraction = 0.0
    context_max: Tokens | None = None
    compact_to: Fraction = 0.2
    cache_ttl: Seconds | None = None
    md_cache_ttl: Seconds | None = None
    answers_reused: bool = True
    seed: int = 1


class TraceColumns(_Model):
    """Names of the columns of a CSV trace."""

    time: str
    input_tokens: str
    output_tokens: str


class Trace(_Model):
    """A file of recorded requests.

    format: found from the file when it is ``auto``. block_tokens: tokens per hash block (found from the file when absent).
    columns: names of a CSV's columns; time_unit of its time column when that is a number.
    scale_rate: requests/s to plan for in place of the recorded rate, or a factor (``2x``). rows: size of the reduced mix.
    cache_blocks, cache_bytes: capacity of the prefix cache (unlimited when absent) at P, md_* at MD (the same as P's when absent);
    cache_ttl: prefixes idle for longer are gone. hit_rate: for traces without hashes.
    """

    file: str
    format: Literal["auto", "mooncake", "sessions", "csv"] = "auto"
    block_tokens: Annotated[int, Field(ge=1)] | None = None
    columns: TraceColumns | None = None
    time_unit: Literal["s", "ms", "us"] | None = None
    scale_rate: RequestRate | str | None = None
    rows: Annotated[int, Field(ge=100, le=20000)] = 3000
    skip_bad: bool = False
    cache_tokens: Tokens | None = None
    cache_ttl: Seconds | None = None
    md_cache_tokens: Tokens | None = None
    md_cache_ttl: Seconds | None = None
    md_keeps_answers: bool = True
    hit_rate: HitRate | None = None
    md_hit_rate: HitRate | None = None

    @field_validator("scale_rate", mode="before")
    @classmethod
    def _factor(cls, value: Any) -> Any:
        if isinstance(value, str) and re.fullmatch(r"\s*\d+(\.\d*)?(e-?\d+)?\s*x\s*", value) and float(value.strip()[:-1]) > 0:
            return value.strip()
        return value

    @model_validator(mode="after")
    def _known_rate(self) -> Trace:
        if isinstance(self.scale_rate, str) and not self.scale_rate.endswith("x"):
            raise ValueError(f"scale_rate {self.scale_rate!r} is neither a rate nor a factor; write '12 req/s' or '2x'")
        return self


class WorkloadClass(_Model):
    """One class of requests: parametric laws, or agent sessions, or a trace; its share of the requests and its SLA."""

    share: Annotated[float, Field(gt=0)] = 1.0
    input_tokens: Length | None = None
    output_tokens: Length | None = None
    hit_rate: HitRate | None = None
    md_hit_rate: HitRate | None = None
    rank_correlation: Correlation = Correlation()
    turns_per_task: Annotated[float, Field(ge=1)] | None = None
    sessions: Sessions | None = None
    trace: Trace | None = None
    sla: Sla = Sla()

    @model_validator(mode="after")
    def _one_source(self) -> WorkloadClass:
        laws = [name for name in ("input_tokens", "output_tokens", "hit_rate", "md_hit_rate") if getattr(self, name) is not None]
        sources = [name for name in ("sessions", "trace") if getattr(self, name) is not None] + ([laws[0]] if laws else [])
        if len(sources) != 1:
            found = f"has {' and '.join(sources)}" if sources else "says nothing of its lengths"
            raise ValueError(f"{found}; give either input_tokens and output_tokens (with hit_rate), or sessions, or trace")
        if laws and (self.input_tokens is None or self.output_tokens is None):
            absent = "input_tokens" if self.input_tokens is None else "output_tokens"
            raise ValueError(f"{absent} is missing; write for example {absent}: 1000")
        return self


class Demand(_Model):
    """Profile of the day: factors on ``rate``, or the shape of a trace (ServeGen windows, or any trace file).

    hourly: factors at equal steps of the day (24 for hours), used as they stand: rate(t) = rate x factor.
    file: measured shape; ``rate`` is then its mean over time (or its peak, when ``rate_is: peak``).
    size_for: the plan is sized for the peak or for a percentile of time (p95); money is counted over the mean.
    """

    hourly: tuple[Annotated[float, Field(ge=0)], ...] | None = None
    file: str | None = None
    format: Literal["auto", "servegen", "mooncake", "sessions", "csv"] = "auto"
    columns: TraceColumns | None = None
    window: Seconds | None = None
    rate_is: Literal["mean", "peak"] = "mean"
    size_for: str = "peak"

    @model_validator(mode="after")
    def _complete(self) -> Demand:
        _one_of(self, ("hourly", "file"))
        if self.hourly is not None and not any(self.hourly):
            raise ValueError("every factor of the day is 0; at least one must be over 0")
        if self.size_for != "peak" and not re.fullmatch(r"p\d{1,2}(\.\d+)?", self.size_for):
            raise ValueError(f"size_for {self.size_for!r} is neither 'peak' nor a percentile of time such as 'p95'")
        return self


class Workload(_Model):
    """The traffic: named classes, or one trace, or one kind of session; rate in requests/s over all classes.

    ``rate`` may be absent only where every class is a trace, which brings its own.
    """

    rate: RequestRate | None = None
    arrival_scv: Annotated[float, Field(ge=0)] | None = None
    classes: dict[str, WorkloadClass] = {}
    trace: Trace | None = None
    sessions: Sessions | None = None
    sla: Sla | None = None
    demand: Demand | None = None
    rows: Annotated[int, Field(ge=100, le=20000)] = 3000

    @model_validator(mode="after")
    def _one_source(self) -> Workload:
        sources = [name for name in ("trace", "sessions") if getattr(self, name) is not None] + (["classes"] if self.classes else [])
        if len(sources) != 1:
            found = f"has {' and '.join(sources)}" if sources else "says nothing of the requests"
            raise ValueError(f"{found}; give exactly one of classes, trace, sessions")
        if self.sla is not None and self.classes:
            raise ValueError("sla stands beside trace or sessions; with classes, each class has its own: workload.classes.NAME.sla")
        if self.rate is None and any(c.trace is None for c in self.all_classes().values()):
            raise ValueError("rate is missing; write for example rate: 10 req/s")
        return self

    def all_classes(self) -> dict[str, WorkloadClass]:
        """The classes by name; a workload of one trace or one kind of session is a class of that name."""
        if self.classes:
            return dict(self.classes)
        sla = self.sla or Sla()
        if self.trace is not None:
            return {"trace": WorkloadClass(trace=self.trace, sla=sla)}
        return {"sessions": WorkloadClass(sessions=self.sessions, sla=sla)}


WorkloadModel = Workload
