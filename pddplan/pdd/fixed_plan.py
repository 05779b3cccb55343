"""From the counts that a scenario fixes to a Decision, with the settings that the policy leaves open chosen by the whole model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pddplan.errors import InputError, Problem
from pddplan.hardware.catalog import load_chip
from pddplan.model.spec import Parallel
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Configuration, Decision, Evaluation, LinkPlan, Pool, Way
from pddplan.scenario.schema import FixedPlan, PoolCount, WayCount

FloatArray = NDArray[np.float64]

RELAY_QUANTILES = (0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)
MD_CACHE_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
P_QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def fixed_decision(context: PlanContext, plan: FixedPlan | None = None, *, place: str = "plan") -> Decision:
    """Decision of ``plan`` (None: the scenario's own). Policy values of ``auto`` are chosen by evaluating candidates.

    Raises InputError: no plan, a site without that chip, a profile that is not there.
    """
    plan = plan or context.scenario.plan
    if plan is None:
        raise InputError(
            Problem("plan", "the scenario fixes no counts", "a plan with pools", "plan: {pools: [{site: A, role: P, ...}]}")
        )
    pools = tuple(
        Pool(configuration_of(context, count, f"{place}.pools[{i}]"), count.instances) for i, count in enumerate(plan.pools)
    )
    links = tuple(
        LinkPlan(name, *context.lines[name].between, circuits, context.lines[name].circuit_bytes_per_s)
        for name, circuits in plan.links.items()
    )
    if not pools:
        if context.rate_per_s > 0.0:
            raise InputError(Problem(f"{place}.pools", "no pools", "at least one pool: requests arrive", "[{site: A, role: AGG, ...}]"))
        return Decision(pools, links, context.settings(next(iter(context.deployments))))
    deployment = pools[0].configuration.deployment
    ways = tuple(_way(context, way, pools) for way in plan.ways)
    return choose_settings(context, Decision(pools, links, context.settings(deployment), ways))


def _way(context: PlanContext, way: WayCount, pools: tuple[Pool, ...]) -> Way:
    names = context.deployments[pools[way.pools[0]].configuration.deployment].mix.class_names
    shares = way.share if isinstance(way.share, Mapping) else dict.fromkeys(names, way.share)
    return Way(way.pools, tuple(float(shares.get(name, 0.0)) for name in names))


def configuration_of(context: PlanContext, count: PoolCount, place: str) -> Configuration:
    """What one instance of a written pool is. Raises InputError for a chip or profile that the site does not have."""
    chip = load_chip(count.chip, context.scenario.base)
    if (count.site, chip.slug) not in context.stocks:
        raise InputError(Problem(f"{place}.chip", f"site {count.site} has no {chip.slug}", "a chip of that site"))
    stock = context.stocks[count.site, chip.slug][1]
    name = owner_of(context, count)
    if name not in context.deployments:
        raise InputError(
            Problem(f"{place}.deployment", f"{name!r} is not a deployment", f"one of {', '.join(context.deployments)}")
        )
    owner = context.deployments[name]
    engine = stock.engine or owner.engine
    if count.profile is not None:
        if count.profile >= len(stock.profiles):
            raise InputError(
                Problem(f"{place}.profile", f"{count.profile}: the chip has {len(stock.profiles)} profiles", "an index from 0")
            )
        gpus = stock.profiles[count.profile].gpus
        return Configuration(
            name, owner.spec.name, count.site, count.role, chip.slug, engine, Parallel(tp=gpus), gpus, count.profile
        )
    width = count.tp * count.dp
    experts = any(layer.ffn.kind == "moe" for layer in owner.spec.layers)
    ep = (count.ep or width) if experts else 1
    if width % ep:
        raise InputError(Problem(f"{place}.ep", f"{ep} does not divide tp x dp = {width}", "a divisor of tp x dp", str(width)))
    parallel = Parallel(
        tp=count.tp,
        pp=count.pp,
        dp=count.dp,
        moe_ep=ep,
        moe_tp=width // ep,
        redundant_experts=context.scenario.each_deployment()[name].model.redundant_experts if experts else 0,
    )
    return Configuration(name, owner.spec.name, count.site, count.role, chip.slug, engine, parallel, parallel.gpus)


def owner_of(context: PlanContext, count: PoolCount) -> str:
    """The deployment of a written pool: the one it names, or the scenario's first."""
    return count.deployment or next(iter(context.scenario.each_deployment()))


def choose_settings(context: PlanContext, decision: Decision) -> Decision:
    """The decision with the thresholds and MD's cache split that the policy leaves to ``auto``: most goodput, then least TTFT P99."""
    deployment = context.deployments[decision.pools[0].configuration.deployment]
    policy, mix = deployment.policy, deployment.mix
    roles = {pool.configuration.role for pool in decision.pools if pool.instances}
    best = decision
    sites = {pool.configuration.site for pool in decision.pools if pool.configuration.role == "P" and pool.instances}
    if policy.p_routing.threshold == "auto" and len(sites) > 1:
        cuts = [_weighted_quantile(mix.uncached_tokens, mix.weight, q) for q in P_QUANTILES]
        best = _best(
            context, [replace(best, settings=replace(best.settings, p_threshold_tokens=cut)) for cut in dict.fromkeys(cuts)]
        )
    if policy.relay_threshold == "auto" and "RLD" in roles and decision.links:
        line = context.lines[decision.links[0].name]
        rate = min(line.flow_bytes_per_s, max(line.rate_cap_bytes_per_s(decision.links[0]), 1.0))
        seconds = (
            np.asarray(deployment.kv.transfer_bytes(mix.md_missing_tokens, mix.input_tokens), dtype=np.float64) / rate
            + line.rtt_s
        )
        cuts = [_weighted_quantile(seconds, mix.weight, q) for q in RELAY_QUANTILES]
        choices = [None, *dict.fromkeys(cuts)]
        best = _best(context, [replace(best, settings=replace(best.settings, relay_threshold_s=cut)) for cut in choices])
    return _with_md_cache(context, best)


def _with_md_cache(context: PlanContext, decision: Decision) -> Decision:
    """The split of MD's memory that the policy leaves to ``auto``, where the traffic tells how hits grow with the cache."""
    deployment = context.deployments[decision.pools[0].configuration.deployment]
    room = md_room_bytes(context, decision)
    if room is None or not cache_is_open(deployment) or decision.settings.md_cache_bytes is not None:
        return decision
    splits = [share * room for share in MD_CACHE_SHARES]
    return _best(context, [replace(decision, settings=replace(decision.settings, md_cache_bytes=split)) for split in splits])


def cache_is_open(deployment: Deployment) -> bool:
    """Whether the policy leaves the split of MD's memory open and the traffic tells how hits grow with the cache."""
    choice = deployment.policy.md_cache
    decided = choice.share != "auto" or choice.tier is not None or choice.per_instance is not None
    return not decided and any(curve is not None for curve in deployment.mix.md_curves)


def md_room_bytes(context: PlanContext, decision: Decision) -> float | None:
    """KV bytes of the smallest MD instance of a decision; None where it has none, or a measured one that does not tell."""
    pools = [pool for pool in decision.pools if pool.configuration.role == "MD" and pool.instances]
    room = min((context.instance(pool.configuration, decision.settings).kv_capacity_bytes() for pool in pools), default=math.inf)
    return room if math.isfinite(room) else None


def _weighted_quantile(values: FloatArray, weights: FloatArray, q: float) -> float:
    order = np.argsort(values, kind="stable")
    reached = np.searchsorted(np.cumsum(weights[order]), q * float(weights.sum()))
    return float(values[order][min(int(reached), values.size - 1)])


def _best(context: PlanContext, candidates: list[Decision]) -> Decision:
    def worth(evaluation: Evaluation) -> tuple[bool, float, float]:
        metrics = evaluation.metrics
        return evaluation.feasible, round(metrics.goodput_rps, 6), -metrics.ttft_p99_s

    return max(candidates, key=lambda candidate: worth(evaluate(context, candidate, brief=True)))
