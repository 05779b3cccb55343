"""Service levels of a request class: a limit for each request, and ceilings on percentiles."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar

from annotated_types import Gt
from pydantic import model_validator

from pddplan.scenario.base import Section, ShortForm, teach
from pddplan.scenario.quantities import Fraction, Seconds

Limit = Annotated[Seconds, Gt(0)]


class TailLimits(ShortForm):
    """Targets of one latency, seconds. ``limit``: what makes a single request good. ``p50`` ... ``p99``, ``mean``: ceilings over all
    requests.

    ``ttft: 2 s`` is short for ``ttft: {limit: 2 s}``.
    """

    short_form: ClassVar[str] = "limit"

    limit: Limit | None = None
    mean: Limit | None = None
    p50: Limit | None = None
    p75: Limit | None = None
    p90: Limit | None = None
    p95: Limit | None = None
    p99: Limit | None = None

    @model_validator(mode="after")
    def _ordered(self) -> TailLimits:
        given = [(name, getattr(self, name)) for name in ("p50", "p75", "p90", "p95", "p99") if getattr(self, name) is not None]
        for (low, a), (high, b) in pairwise(given):
            if b < a:
                raise teach(f"{high} {b:g} s is under {low} {a:g} s, so {low} could never bind", f"write {high} at or over {low}")
        return self

    def percentiles(self) -> dict[float, float]:
        """{quantile: ceiling in seconds} of the percentile targets that are set."""
        named = {0.50: self.p50, 0.75: self.p75, 0.90: self.p90, 0.95: self.p95, 0.99: self.p99}
        return {q: limit for q, limit in named.items() if limit is not None}


class Sla(Section):
    """SLA of a class. A request is good when ttft and tpot are both within their ``limit``; ``attainment`` is a floor on P(good).

    tpot = (last token - first token) / (output - 1), stalls included. stall: longest gap between two tokens. e2e: arrival to last token.
    """

    ttft: TailLimits = TailLimits()
    tpot: TailLimits = TailLimits()
    stall: TailLimits = TailLimits()
    e2e: TailLimits = TailLimits()
    task: TailLimits = TailLimits()
    attainment: Fraction | None = None
