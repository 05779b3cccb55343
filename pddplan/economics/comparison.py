"""Two deployments compared by cost, goodput and benefit-cost ratio, and how fragile the gain of a split fleet is."""

from __future__ import annotations

from dataclasses import dataclass

from pddplan.economics.cost import benefit_cost_ratio


@dataclass(frozen=True)
class Change:
    """Relative changes of a deployment against a baseline: 0.05 is 5 % more."""

    cost: float
    goodput: float
    bcr: float


def compare(cost_per_hour: float, goodput_rps: float, base_cost_per_hour: float, base_goodput_rps: float) -> Change:
    """Change of (cost, goodput) against the baseline. Raises InputError where a cost is 0."""
    bcr, base_bcr = benefit_cost_ratio(goodput_rps, cost_per_hour), benefit_cost_ratio(base_goodput_rps, base_cost_per_hour)
    return Change(cost_per_hour / base_cost_per_hour - 1, goodput_rps / base_goodput_rps - 1, bcr / base_bcr - 1)


def split_fleet_bcr_gain(
    decode_cost_share: float,
    decode_speed_ratio: float,
    price_ratio: float,
    *,
    relay_token_share: float = 0.0,
    prefill_growth: float = 1.0,
) -> float:
    """BCR of moving decode to another chip over keeping it, minus 1, at the same goodput.

    One unit of goodput costs 1 on the first chip, ``decode_cost_share`` of it for decode. Moved: prefill (and the relay beside it)
    costs ``prefill_growth`` times its share, decode keeps (1 - ``relay_token_share``) of its tokens at price_ratio /
    decode_speed_ratio. Capacities only: instances are divisible and latency targets are met on both sides.
    """
    prefill = (1 - decode_cost_share) * prefill_growth
    decode = decode_cost_share * (1 - relay_token_share) * price_ratio / decode_speed_ratio
    return 1 / (prefill + decode) - 1
