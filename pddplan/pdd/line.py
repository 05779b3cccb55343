"""A line between two rooms: what it carries, how fast one transfer goes, what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pddplan.pdd.plan import LinkPlan
from pddplan.scenario.schema import Link
from pddplan.units import GB, GBPS_BYTES_PER_S, HOURS_PER_MONTH, SECONDS_PER_HOUR

CUBIC_OVER_RENO = 3.0
"""CUBIC's rate over Mathis' bound for Reno on paths of 0.1 to 1 GB bandwidth-delay product: 2 to 5 times (assumed, middle)."""


@dataclass(frozen=True)
class Line:
    """A link of the scenario as the model sees it, before circuits are bought.

    flow_bytes_per_s: cap of one transfer, all its streams together (inf: none). flow_sigma: log-normal spread of that cap between
    transfers. connections: transfers in progress at once over the whole link (inf: no pool).
    """

    name: str
    between: tuple[str, str]
    circuit_bytes_per_s: float
    max_circuits: int
    rtt_s: float
    flow_bytes_per_s: float
    flow_sigma: float
    connections: float
    usable: float
    target_utilisation: float
    prices_usd_h: Mapping[float, float]
    usd_per_gb: float

    @classmethod
    def from_link(cls, name: str, link: Link) -> Line:
        """Per-flow cap: the lowest of ``per_flow``, streams x window / RTT, and streams x the loss bound
        1.22 MSS / (RTT sqrt(p)) (Mathis et al. 1997), the latter raised to CUBIC's."""
        caps = [link.per_flow if link.per_flow is not None else math.inf]
        if link.window is not None and link.rtt > 0:
            caps.append(link.streams * link.window / link.rtt)
        if link.loss and link.rtt > 0:
            caps.append(link.streams * CUBIC_OVER_RENO * 1.22 * link.segment / (link.rtt * math.sqrt(link.loss)))
        prices = {link.circuit: _circuit_price(link.circuit, link.price, link.circuit_price)}
        for size in link.other_sizes:
            prices[size.circuit] = _circuit_price(
                size.circuit, size.price if size.price is not None else link.price, size.circuit_price
            )
        return cls(
            name=name,
            between=link.between,
            circuit_bytes_per_s=link.circuit,
            max_circuits=link.max_circuits,
            rtt_s=link.rtt,
            flow_bytes_per_s=min(caps),
            flow_sigma=link.per_flow_sigma,
            connections=math.inf if link.connections is None else float(link.connections),
            usable=link.usable,
            target_utilisation=link.target_utilisation,
            prices_usd_h=prices,
            usd_per_gb=link.egress or 0.0,
        )

    def rate_cap_bytes_per_s(self, plan: LinkPlan) -> float:
        """Payload bytes/s of all circuits of ``plan`` together."""
        return self.usable * plan.circuits * plan.circuit_bytes_per_s

    def cost_usd_per_h(self, plan: LinkPlan, bytes_per_s: float) -> float:
        """Rent of the circuits and egress of ``bytes_per_s``."""
        egress = bytes_per_s * SECONDS_PER_HOUR / GB * self.usd_per_gb
        return plan.circuits * self.prices_usd_h[plan.circuit_bytes_per_s] + egress


def _circuit_price(bytes_per_s: float, per_gbps_month: float | None, per_hour: float | None) -> float:
    if per_hour is not None:
        return per_hour
    return (per_gbps_month or 0.0) * bytes_per_s / GBPS_BYTES_PER_S / HOURS_PER_MONTH
