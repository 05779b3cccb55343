"""The outer settings in question: chunk sizes and P thresholds (each a search of its own), relay thresholds (tried plan by plan)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pddplan.optimize.routes import Route
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.demand import demand_shares
from pddplan.pdd.line import Line
from pddplan.pdd.plan import LinkPlan, Settings

FloatArray = NDArray[np.float64]

CHUNKS = (2048, 4096, 8192, 16384)
P_QUANTILES = tuple(q / 40 for q in range(1, 40))
MANY_ROUTES = 8
"""Where more routes than this have two P pools, every fourth P threshold is tried: each is a program over all of them."""
FINER = 16
"""P thresholds tried between the best quantile and its neighbours."""
RELAY_QUANTILES = (0.7, 0.8, 0.9, 0.95)
RELAY_SHARES_OF_LIMIT = (0.25, 0.5, 0.7, 0.8, 0.9)
SAME = 0.005
"""Relay thresholds that relay shares of the requests within this of each other count as one."""


def outer_settings(context: PlanContext, routes: tuple[Route, ...]) -> tuple[Settings, ...]:
    """Every combination of chunk size and P threshold that the policy leaves open. One policy holds for all deployments: the first's."""
    name = routes[0].deployment
    policy, mix = context.deployments[name].policy, context.deployments[name].mix
    base = replace(context.settings(name), relay_threshold_s=None)
    chunks = CHUNKS if policy.prefill_chunk == "auto" else (base.prefill_chunk_tokens,)
    cuts: tuple[float | None, ...] = (base.p_threshold_tokens,)
    if any(route.local_p_site for route in routes) and policy.p_routing.threshold == "auto":
        many = sum(route.local_p_site is not None for route in routes) > MANY_ROUTES
        quantiles = P_QUANTILES[len(P_QUANTILES) // 10 :: 4] if many else P_QUANTILES
        cuts = tuple(dict.fromkeys(_quantile(mix.uncached_tokens, mix.weight, q) for q in quantiles))
    return tuple(replace(base, prefill_chunk_tokens=chunk, p_threshold_tokens=cut) for chunk, cut in itertools.product(chunks, cuts))


def finer_settings(context: PlanContext, routes: tuple[Route, ...], best: Settings, tried: tuple[Settings, ...]) -> tuple[Settings, ...]:
    """P thresholds between the best one and its neighbours among those tried; nothing where the threshold is not searched."""
    name = routes[0].deployment
    cuts = sorted({s.p_threshold_tokens for s in tried if s.p_threshold_tokens is not None})
    if best.p_threshold_tokens not in cuts or len(cuts) < 2:
        return ()
    at = cuts.index(best.p_threshold_tokens)
    low, high = cuts[max(at - 1, 0)], cuts[min(at + 1, len(cuts) - 1)]
    uncached = np.unique(context.deployments[name].mix.uncached_tokens)
    between = uncached[(uncached > low) & (uncached < high)]
    chosen = between[np.unique(np.linspace(0, between.size - 1, FINER).astype(int))] if between.size else between
    return tuple(replace(best, p_threshold_tokens=float(cut)) for cut in chosen if float(cut) not in cuts)


def relay_thresholds_s(context: PlanContext, routes: tuple[Route, ...]) -> tuple[float, ...]:
    """Relay thresholds worth trying: the policy's own, or for ``auto`` quantiles of the predicted transfer time and shares of the
    TTFT limit, of those that relay the same requests one. Empty where no route relays.
    """
    relaying = [route for route in routes if route.relay and route.line is not None]
    if not relaying:
        return ()
    deployment = context.deployments[relaying[0].deployment]
    stated = deployment.policy.relay_threshold
    if not isinstance(stated, str):
        return (float(stated),)
    line = context.lines[relaying[0].line or ""]
    limits = [x for sla in deployment.slas for x in (sla.ttft.limit, *sla.ttft.percentiles().values()) if x is not None]
    seconds = _transfer_s(deployment, line)
    choices = [_quantile(seconds, deployment.mix.weight, q) for q in RELAY_QUANTILES]
    choices += [share * min(limits) for share in RELAY_SHARES_OF_LIMIT if limits]
    ordered = sorted({round(choice, 3) for choice in choices if choice > 0})
    settings = context.settings(deployment.name)
    demands = demand_shares(context, deployment.name, settings, _middle(line), ordered, 0.02)
    kept: list[tuple[float, float]] = []
    for threshold, demand in zip(ordered, demands, strict=True):
        if all(abs(demand.rld_rate - rate) > SAME for _, rate in kept):
            kept.append((threshold, demand.rld_rate))
    return tuple(threshold for threshold, rate in kept if rate > 0)


def _middle(line: Line) -> LinkPlan:
    return LinkPlan(line.name, *line.between, max(1, line.max_circuits // 2), max(line.prices_usd_h))


def _transfer_s(deployment: Deployment, line: Line) -> FloatArray:
    """Seconds of every row's transfer on an idle line of half the circuits, shape (rows,)."""
    rate = min(line.flow_bytes_per_s, line.rate_cap_bytes_per_s(_middle(line)))
    mix = deployment.mix
    size = np.asarray(deployment.kv.transfer_bytes(mix.md_missing_tokens, mix.input_tokens), dtype=np.float64)
    return size / rate + line.rtt_s if math.isfinite(rate) else np.full(size.shape, line.rtt_s)


def _quantile(values: FloatArray, weight: FloatArray, q: float) -> float:
    order = np.argsort(values, kind="stable")
    reached = int(np.searchsorted(np.cumsum(weight[order]), q * float(weight.sum())))
    return float(values[order][min(reached, values.size - 1)])
