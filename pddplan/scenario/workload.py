"""What the user says of the traffic: classes, agent sessions, traces and the profile of the day.

Values are in base units (tokens, seconds, requests/s, fractions); ``pddplan.workload.from_scenario`` turns them
into a RequestMix.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le
from pydantic import BeforeValidator, Field, model_validator

from pddplan.scenario.base import Section, ShortForm, teach
from pddplan.scenario.quantities import Fraction, RequestRate, Seconds, Tokens
from pddplan.scenario.sla import Sla

PositiveTokens = Annotated[Tokens, Ge(1)]
PositiveFloat = Annotated[float, Gt(0)]
BetaShape = tuple[PositiveFloat, PositiveFloat]
RankCorrelation = Annotated[float, Ge(-1), Le(1)]
Rows = Annotated[int, Ge(100), Le(20000)]

_EDGE_SCALE = {"": 1.0, "k": 1e3, "Ki": 1024.0, "M": 1e6}
_BUCKET = re.compile(r"\s*(\d+(?:\.\d*)?)\s*(k|Ki|M)?\s*-\s*(\d+(?:\.\d*)?)\s*(k|Ki|M)?\s*%?\s*")
_QUANTILE = re.compile(r"p(\d{1,3}(?:\.\d+)?)")


def bucket_edges(name: str) -> tuple[float, float]:
    """Lower and upper edge of a bucket written ``low-high`` (``90-95``, ``1k-4k``)."""
    match = _BUCKET.fullmatch(name)
    if match is None:
        raise teach(f"bucket {name!r} is not written low-high", "name a bucket by its edges", "90-95")
    low, high = (float(match[i]) * _EDGE_SCALE[match[i + 1] or ""] for i in (1, 3))
    if not low < high:
        raise teach(f"bucket {name!r} is empty", "its lower edge must be under its upper edge", "90-95")
    return low, high


def quantile_level(name: str) -> float:
    """The level of a quantile written ``p50``: 0.5."""
    match = _QUANTILE.fullmatch(name)
    if match is None or float(match[1]) > 100:
        raise teach(f"{name!r} is not a quantile", "write p0 to p100", "p50")
    return float(match[1]) / 100


def _check_buckets(shares: Mapping[str, float], highest: float | None = None) -> None:
    spans = sorted(bucket_edges(name) for name in shares)
    for (_, high), (low, _) in itertools.pairwise(spans):
        if low < high:
            raise teach(
                f"two buckets share the values from {low:g} to {high:g}",
                "each bucket begins where the one before it ends, or later",
            )
    if highest is not None and spans and spans[-1][1] > highest:
        raise teach(f"a bucket ends at {spans[-1][1]:g}", f"buckets are in per cent and end at {highest:g}", "99-100")
    total = sum(shares.values())
    if abs(total - 1) > 0.0011:
        raise teach(f"the bucket shares sum to {100 * total:.4g} %", "they must sum to 100 % (0.1 point of rounding is allowed)")


def _check_quantiles(points: Mapping[str, float]) -> None:
    if len(points) < 2:
        raise teach(f"{len(points)} quantile given", "give at least two", "{p0: 100, p50: 2k, p99: 64k}")
    ordered = sorted(points.items(), key=lambda item: quantile_level(item[0]))
    for (low, a), (high, b) in itertools.pairwise(ordered):
        if b < a:
            raise teach(f"{high} = {b:g} is under {low} = {a:g}", "quantiles must not fall")


def _check_one(section: Section, forms: tuple[str, ...]) -> None:
    given = [form for form in forms if getattr(section, form) is not None]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given together" if given else "none of its forms is given"
        raise teach(found, f"give exactly one of {', '.join(forms)}")


class LogNormal(Section):
    """Log-normal law of a token count, cut to [min, max].

    Given by one pair: mu and sigma of ln(tokens), or two of mean, p50, p90, p99, cv of the law before the cut.
    """

    mu: float | None = None
    sigma: Annotated[float, Ge(0)] | None = None
    mean: PositiveTokens | None = None
    p50: PositiveTokens | None = None
    p90: PositiveTokens | None = None
    p99: PositiveTokens | None = None
    cv: Annotated[float, Ge(0)] | None = None
    min: PositiveTokens = 1.0
    max: PositiveTokens | None = None

    @model_validator(mode="after")
    def _determined(self) -> LogNormal:
        pairs = ("mu sigma", "p50 sigma", "mean sigma", "mean cv", "p50 cv", "mean p50", "p50 p90", "p50 p99")
        given = [name for name in ("mu", "mean", "p50", "p90", "p99", "sigma", "cv") if getattr(self, name) is not None]
        if " ".join(given) not in ("mean p50" if pair == "mean p50" else pair for pair in pairs):
            accepted = ", or ".join(pair.replace(" ", " and ") for pair in pairs)
            raise teach(
                f"a log-normal of {' and '.join(given) or 'nothing'} is not determined",
                f"give {accepted}",
                "{p50: 2k, p90: 16k}",
            )
        for upper in ("mean", "p90", "p99"):
            value = getattr(self, upper)
            if value is not None and self.p50 is not None and value < self.p50:
                raise teach(
                    f"{upper} = {value:g} is under p50 = {self.p50:g}",
                    f"a log-normal's {upper} is never under its median",
                )
        if self.max is not None and self.min >= self.max:
            raise teach(f"min = {self.min:g} is not under max = {self.max:g}", "min must be under max")
        return self


class Length(ShortForm):
    """Law of a number of tokens; ``input_tokens: 64k`` is short for ``{fixed: 64k}``.

    quantiles: straight between the given points, flat outside them.
    histogram: shares of buckets in tokens, uniform inside a bucket.
    """

    short_form: ClassVar[str] = "fixed"

    fixed: PositiveTokens | None = None
    lognormal: LogNormal | None = None
    quantiles: dict[str, PositiveTokens] | None = None
    histogram: dict[str, Fraction] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Length:
        _check_one(self, ("fixed", "lognormal", "quantiles", "histogram"))
        if self.quantiles is not None:
            _check_quantiles(self.quantiles)
        if self.histogram is not None:
            _check_buckets(self.histogram)
        return self


class BetaBucket(Section):
    """Beta law stretched over a bucket."""

    beta: BetaShape


class BetaPart(BetaBucket):
    """One part of a mixture of beta laws on 0 to 1."""

    weight: PositiveFloat


class HitRate(ShortForm):
    """Law of the share of input tokens that the prefix cache holds; ``hit_rate: 90 %`` is short for ``{fixed: 90 %}``.

    buckets: shares of requests by bucket in per cent (``90-95: 4.8 %``), uniform inside a bucket unless
    below_90 gives the shape of those that end at 90 % or lower.
    """

    short_form: ClassVar[str] = "fixed"

    fixed: Fraction | None = None
    buckets: dict[str, Fraction] | None = None
    below_90: BetaBucket | None = None
    beta: BetaShape | None = None
    mixture: tuple[BetaPart, ...] | None = None
    quantiles: dict[str, Fraction] | None = None

    @model_validator(mode="after")
    def _complete(self) -> HitRate:
        _check_one(self, ("fixed", "buckets", "beta", "mixture", "quantiles"))
        if self.buckets is not None:
            _check_buckets(self.buckets, highest=100.0)
        elif self.below_90 is not None:
            raise teach(
                "below_90 is given without buckets",
                "it shapes the buckets that end at 90 % or lower: give buckets, or drop it",
            )
        if self.quantiles is not None:
            _check_quantiles(self.quantiles)
        if self.mixture == ():
            raise teach("the mixture is empty", "give at least one part", "[{weight: 1, beta: [9, 1]}]")
        return self


class Correlation(ShortForm):
    """Spearman rank correlations between the laws of a class.

    ``rank_correlation: -0.3`` is short for ``{input_hit: -0.3}``.
    """

    short_form: ClassVar[str] = "input_hit"

    input_hit: RankCorrelation = 0.0
    input_output: RankCorrelation = 0.0
    hit_output: RankCorrelation = 0.0


class Pause(ShortForm):
    """Idle time between two turns: log-normal by mean and coefficient of variation; ``think_time: 20 s`` has cv 1."""

    short_form: ClassVar[str] = "mean"

    mean: Seconds = 0.0
    cv: Annotated[float, Ge(0)] = 1.0


class Sessions(Section):
    """Agent sessions: each turn sends the whole context again, grown by the last answer and by new input.

    system_tokens: prefix that all sessions share (always cached). first_tokens: the first turn's own input.
    growth_tokens: new input of each later turn. answers_kept: whether the next turn's context contains the answer.
    A turn follows the last answer after tool_time (share tool_share of turns) or think_time. When a turn would pass
    context_max, the context is compacted to compact_to of it, which nobody has cached. Prefixes idle longer than
    cache_ttl are gone (md_cache_ttl: at MD).
    """

    turns: Length
    first_tokens: Length
    growth_tokens: Length
    output_tokens: Length
    system_tokens: Tokens = 0.0
    answers_kept: bool = True
    think_time: Pause = Pause()
    tool_time: Pause = Pause()
    tool_share: Fraction = 0.0
    context_max: PositiveTokens | None = None
    compact_to: Fraction = 0.2
    cache_ttl: Seconds | None = None
    md_cache_ttl: Seconds | None = None
    seed: int = 1


class TraceColumns(Section):
    """The columns of a CSV trace by name."""

    time: str
    input_tokens: str
    output_tokens: str


class CacheLimit(Section):
    """Capacity of a prefix cache in tokens and the idle time after which it forgets; absent is unlimited."""

    tokens: PositiveTokens | None = None
    ttl: Seconds | None = None


class Trace(Section):
    """Recorded requests, read from ``file`` (relative to the scenario; .gz is unpacked).

    format and block_tokens are found from the file when not given. columns: names in a CSV; time_unit: of its time.
    scale_rate: the rate to plan for (``12 req/s``) or a factor on the recorded one (``2x``).
    p_cache, md_cache: capacities that turn block hashes into hits (md_cache is p_cache when absent).
    md_keeps_answers: MD's cache also holds the answers it produced. shared_prefix: every cache holds the tools and system
    prompt that a session's first request states (all sessions share them).
    hit_rate, md_hit_rate: laws for a trace without hashes. rows: size of the mix that the trace is reduced to.
    """

    file: str
    format: Literal["auto", "mooncake", "sessions", "csv"] = "auto"
    block_tokens: Annotated[int, Ge(1)] | None = None
    columns: TraceColumns | None = None
    time_unit: Literal["s", "ms", "us"] | None = None
    scale_rate: RequestRate | Annotated[str, Field(pattern=r"^\d+(\.\d+)? ?x$")] | None = None
    p_cache: CacheLimit = CacheLimit()
    md_cache: CacheLimit | None = None
    md_keeps_answers: bool = True
    shared_prefix: bool = False
    hit_rate: HitRate | None = None
    md_hit_rate: HitRate | None = None
    skip_bad: bool = False
    rows: Annotated[int, Ge(2000), Le(20000)] = 4000


class WorkloadClass(Section):
    """One class of requests, its share of them and its SLA: laws of lengths and hits, or agent sessions, or a trace."""

    share: PositiveFloat | Fraction = 1.0
    input_tokens: Length | None = None
    output_tokens: Length | None = None
    hit_rate: HitRate | None = None
    md_hit_rate: HitRate | None = None
    rank_correlation: Correlation = Correlation()
    turns_per_task: Annotated[float, Ge(1)] | None = None
    sessions: Sessions | None = None
    trace: Trace | None = None
    sla: Sla = Sla()

    @model_validator(mode="after")
    def _one_source(self) -> WorkloadClass:
        laws = [name for name in ("input_tokens", "output_tokens", "hit_rate", "md_hit_rate") if getattr(self, name) is not None]
        sources = [name for name in ("sessions", "trace") if getattr(self, name) is not None] + laws[:1]
        if len(sources) != 1:
            found = f"{' and '.join(sources)} are given together" if sources else "the class says nothing of its lengths"
            raise teach(found, "give input_tokens and output_tokens (and hit_rate), or sessions, or trace")
        for name in ("input_tokens", "output_tokens"):
            if laws and getattr(self, name) is None:
                raise teach(f"{name} is missing", "a class of laws has input_tokens and output_tokens", f"{name}: 1000")
        return self


class Demand(Section):
    """The profile of the day.

    hourly: factors at equal steps of the day (24 for hours): rate(t) = workload.rate x factor, as they stand.
    file: a measured shape (a trace, or ServeGen windows); workload.rate is then its mean over time, or its peak.
    size_for: what the plan is sized for, the peak or a percentile of time (``p95``). Money is counted over the mean.
    """

    hourly: tuple[Annotated[float, Ge(0)], ...] | None = None
    file: str | None = None
    format: Literal["auto", "servegen", "mooncake", "sessions", "csv"] = "auto"
    columns: TraceColumns | None = None
    time_unit: Literal["s", "ms", "us"] | None = None
    window: Seconds = 600.0
    rate_is: Literal["mean", "peak"] = "mean"
    size_for: Annotated[str, Field(pattern=r"^(peak|p\d{1,2}(\.\d+)?)$")] = "peak"

    @model_validator(mode="after")
    def _complete(self) -> Demand:
        _check_one(self, ("hourly", "file"))
        if self.hourly is not None and not any(self.hourly):
            raise teach("every factor of the day is 0", "at least one factor must be over 0", "[0.4, 0.6, 1.0, 0.8]")
        return self


def _zero_needs_no_unit(value: object) -> object:
    return "0 req/s" if not isinstance(value, bool) and value in (0, "0") else value


class Workload(Section):
    """The traffic: named classes, or one trace, or one kind of session; ``rate`` is over all classes.

    A rate of 0 is traffic of which nothing arrives. rate may be absent only where the one class is a trace, which brings
    its own; arrival_scv is a trace's own, or 1, when absent. Shares of classes sum to 1.
    """

    rate: Annotated[RequestRate, BeforeValidator(_zero_needs_no_unit)] | None = None
    arrival_scv: Annotated[float, Ge(0)] | None = None
    classes: dict[str, WorkloadClass] = Field(default_factory=dict)
    trace: Trace | None = None
    sessions: Sessions | None = None
    sla: Sla | None = None
    demand: Demand | None = None
    rows: Rows = 3000

    @model_validator(mode="after")
    def _one_source(self) -> Workload:
        sources = [name for name in ("trace", "sessions") if getattr(self, name) is not None] + (["classes"] if self.classes else [])
        if len(sources) != 1:
            found = f"{' and '.join(sources)} are given together" if sources else "the workload says nothing of its requests"
            raise teach(found, "give exactly one of classes, trace, sessions")
        if self.sla is not None and self.classes:
            raise teach("sla stands beside classes", "each class has its own: workload.classes.NAME.sla")
        total = sum(c.share for c in self.classes.values())
        if self.classes and abs(total - 1) > 0.0011:
            raise teach(f"the shares of the classes sum to {total:.4g}", "they must sum to 1 (100 %)")
        of_trace = [c.trace for c in self.all_classes().values() if c.trace is not None]
        if self.rate is None and (not of_trace or len(self.classes) > 1):
            raise teach("rate is missing", "a workload has a rate", "rate: 10 req/s")
        if any(trace.scale_rate is not None for trace in of_trace) and (self.rate is not None or len(self.classes) > 1):
            raise teach("rate and a trace's scale_rate are given together", "give one of them: rate is over all classes")
        return self

    def all_classes(self) -> dict[str, WorkloadClass]:
        """The classes by name; a workload of one trace, or of one kind of session, is a class of that name."""
        if self.classes:
            return self.classes
        sla = self.sla or Sla()
        if self.trace is not None:
            return {"trace": WorkloadClass(trace=self.trace, sla=sla)}
        return {"sessions": WorkloadClass(sessions=self.sessions, sla=sla)}
