"""What tokens cost and what they earn: attribution of a bill to tokens, API revenue, margin, buying instead of serving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pddplan.errors import InputError, Problem
from pddplan.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

MILLION = 1e6
Attribution = Literal["role", "tokens"]


def per_million(cost_per_hour: float, tokens_per_s: float) -> float:
    """Cost of a million tokens. Raises InputError at a rate of 0: nothing is served, so a token has no price."""
    if not tokens_per_s > 0:
        raise InputError(Problem("tokens per second", f"{tokens_per_s}", "a rate over 0", "1000"))
    return cost_per_hour / SECONDS_PER_HOUR / tokens_per_s * MILLION


@dataclass(frozen=True)
class TokenFlow:
    """Tokens per second that a deployment serves."""

    uncached_per_s: float
    cached_per_s: float
    output_per_s: float

    @classmethod
    def of_requests(cls, rate_per_s: float, input_tokens: float, hit_rate: float, output_tokens: float) -> TokenFlow:
        """Flow of ``rate_per_s`` requests with mean ``input_tokens``, of which ``hit_rate`` (token-weighted) is cached."""
        cached = rate_per_s * input_tokens * hit_rate
        return cls(rate_per_s * input_tokens - cached, cached, rate_per_s * output_tokens)

    @property
    def input_per_s(self) -> float:
        return self.uncached_per_s + self.cached_per_s

    @property
    def total_per_s(self) -> float:
        return self.input_per_s + self.output_per_s


@dataclass(frozen=True)
class TokenCosts:
    """Cost per million tokens of each kind; None where none of that kind is served. ``attribution`` says by which rule."""

    uncached: float | None
    cached: float | None
    output: float | None
    attribution: Attribution

    def per_hour(self, flow: TokenFlow) -> float:
        """The bill these costs add up to on ``flow``."""
        pairs = ((self.uncached, flow.uncached_per_s), (self.cached, flow.cached_per_s), (self.output, flow.output_per_s))
        return sum((cost or 0.0) * rate for cost, rate in pairs) * SECONDS_PER_HOUR / MILLION


def token_costs(
    role_per_hour: Mapping[str, float],
    flow: TokenFlow,
    attribution: Attribution = "role",
    *,
    cached_prefill_share: float = 0.0,
    aggregated_prefill_share: float = 0.0,
) -> TokenCosts:
    """Split a bill over the tokens it serves; nothing is lost: ``costs.per_hour(flow)`` is the sum of ``role_per_hour``.

    ``role``: P pays for input, MD and RLD for output, ``line`` for uncached input (its KV is what crosses), ``cache`` for
    cached input; AGG for input by ``aggregated_prefill_share`` of its busy time and for output by the rest. Of what input costs,
    ``cached_prefill_share`` is the part of prefill time that cached tokens cause (reading their KV). ``tokens``: every token
    costs the same. A kind that is not served passes its share to those that are. Raises InputError: an unknown role, or no flow.
    """
    known = ("P", "RLD", "MD", "AGG", "line", "cache")
    unknown = [Problem(f"role {role}", "unknown role", "one of " + ", ".join(known), "P") for role in role_per_hour if role not in known]
    if unknown:
        raise InputError(unknown)
    total = sum(role_per_hour.values())
    level = per_million(total, flow.total_per_s)
    rates = (flow.uncached_per_s, flow.cached_per_s, flow.output_per_s)
    bill = {role: role_per_hour.get(role, 0.0) for role in known}
    prefill = bill["P"] + bill["AGG"] * aggregated_prefill_share
    parts = (
        prefill * (1 - cached_prefill_share) + bill["line"],
        prefill * cached_prefill_share + bill["cache"],
        bill["MD"] + bill["RLD"] + bill["AGG"] * (1 - aggregated_prefill_share),
    )
    served = sum(part for part, rate in zip(parts, rates, strict=True) if rate > 0)
    even = attribution == "tokens" or not served > 0
    uncached, cached, output = (
        None if not rate > 0 else level if even else per_million(part * total / served, rate)
        for part, rate in zip(parts, rates, strict=True)
    )
    return TokenCosts(uncached, cached, output, attribution)


@dataclass(frozen=True)
class Utilised:
    """One cost seen two ways: ``allocated`` spreads the whole bill over what was served, ``used`` only the busy part of it."""

    allocated: float
    used: float


def allocated_and_used(allocated: float, utilisation: float) -> Utilised:
    """Cost at ``utilisation`` of the fleet: allocated = used / utilisation. Raises InputError outside (0, 1]."""
    if not 0 < utilisation <= 1:
        raise InputError(Problem("utilisation", f"{utilisation}", "a share over 0 and at most 1", "0.3"))
    return Utilised(allocated, allocated * utilisation)


def per_request(cost_per_hour: float, rate_per_s: float, turns_per_task: float = 1.0) -> float:
    """Cost of a request, or of an agent task of ``turns_per_task`` requests. Raises InputError at a rate of 0."""
    return per_million(cost_per_hour, rate_per_s) / MILLION * turns_per_task


@dataclass(frozen=True)
class TokenPrices:
    """What a provider bills per million tokens: uncached input ``miss``, cached input ``hit``, ``output``."""

    miss: float
    hit: float
    output: float

    @property
    def hit_ratio(self) -> float:
        """Cached over uncached price."""
        return self.hit / self.miss

    def revenue_per_hour(self, flow: TokenFlow) -> float:
        per_s = flow.uncached_per_s * self.miss + flow.cached_per_s * self.hit + flow.output_per_s * self.output
        return per_s * SECONDS_PER_HOUR / MILLION

    def per_request(self, input_tokens: float, hit_rate: float, output_tokens: float) -> float:
        """Bill of one request."""
        return self.revenue_per_hour(TokenFlow.of_requests(1.0, input_tokens, hit_rate, output_tokens)) / SECONDS_PER_HOUR

    def per_million_input(self, hit_rate: float, output_per_input: float) -> float:
        """All-in bill per million input tokens: input at its hit rate, and the output that goes with it."""
        return hit_rate * self.hit + (1 - hit_rate) * self.miss + output_per_input * self.output


@dataclass(frozen=True)
class Business:
    """Serving against selling and against buying. Amounts per hour; ``per_month`` scales them.

    margin: share of revenue left after cost (None without revenue). break_even_utilisation: share of the tokens sold now at which
    revenue pays the bill; over 1 where the prices never do. buying: what an API would charge for the same tokens.
    """

    cost_per_hour: float
    revenue_per_hour: float
    buying_per_hour: float | None = None

    @property
    def profit_per_hour(self) -> float:
        return self.revenue_per_hour - self.cost_per_hour

    @property
    def margin(self) -> float | None:
        return self.profit_per_hour / self.revenue_per_hour if self.revenue_per_hour > 0 else None

    @property
    def break_even_utilisation(self) -> float | None:
        return self.cost_per_hour / self.revenue_per_hour if self.revenue_per_hour > 0 else None

    @property
    def serving_saves_per_hour(self) -> float | None:
        """What serving saves against buying; negative where the API is cheaper, None without an API price."""
        return None if self.buying_per_hour is None else self.buying_per_hour - self.cost_per_hour

    @property
    def buy_instead_below(self) -> float | None:
        """Share of today's traffic below which buying is cheaper than a fleet of this size."""
        return self.cost_per_hour / self.buying_per_hour if self.buying_per_hour else None

    def per_month(self) -> Business:
        buying = None if self.buying_per_hour is None else self.buying_per_hour * HOURS_PER_MONTH
        return Business(self.cost_per_hour * HOURS_PER_MONTH, self.revenue_per_hour * HOURS_PER_MONTH, buying)
