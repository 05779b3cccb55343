"""Who serves which rows: between aggregated pools, and between them and separate prefill and decode."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.decode_pool import DecodeTable
from pddplan.pdd.plan import Decision
from pddplan.stages.profiled import ProfiledStage, RateGrid

FloatArray = NDArray[np.float64]


def aggregated_pools(decision: Decision, deployment: str) -> list[int]:
    """Indices of the AGG pools of a deployment."""
    return [
        i
        for i, pool in enumerate(decision.pools)
        if pool.configuration.role == "AGG" and pool.configuration.deployment == deployment and pool.instances
    ]


def row_shares(context: PlanContext, decision: Decision, deployment: Deployment) -> dict[int, FloatArray]:
    """Share of each row, shape (rows,), that each AGG pool takes: as the decision says, else in proportion to what pools carry."""
    pools, mix = aggregated_pools(decision, deployment.name), deployment.mix
    if not pools:
        return {}
    if decision.agg_row_shares is not None:
        order = [i for i, pool in enumerate(decision.pools) if pool.configuration.role == "AGG"]
        return {i: np.asarray(decision.agg_row_shares[order.index(i)], dtype=np.float64) for i in pools}
    work = {i: _seconds_per_request(context, decision, deployment, i) for i in pools}
    speed = {i: decision.pools[i].instances / work[i] for i in pools}
    if not any(agg_rates(context, decision, i) for i in pools):
        speed = {i: np.full(mix.rows, decision.pools[i].instances / mix.mean(work[i])) for i in pools}
    total = np.sum(list(speed.values()), axis=0) + _separated_rate(context, decision, deployment)
    safe = np.where(total > 0.0, total, 1.0)
    return {i: np.where(total > 0.0, speed[i] / safe, 1.0 / len(pools)) for i in pools}


def separated_share(context: PlanContext, decision: Decision, deployment: Deployment) -> FloatArray:
    """Share of each row that P and MD pools take, shape (rows,): what AGG pools leave."""
    taken = row_shares(context, decision, deployment)
    left = 1.0 - np.sum(list(taken.values()), axis=0) if taken else np.ones(deployment.mix.rows)
    return np.asarray(np.where(left > 1e-9, left, 0.0), dtype=np.float64)


def _separated_rate(context: PlanContext, decision: Decision, deployment: Deployment) -> float:
    """Requests/s that the P and MD pools carry: the smaller of both; 0 where one role is missing."""
    mix, carried = deployment.mix, {"P": 0.0, "MD": 0.0}
    for i, pool in enumerate(decision.pools):
        role = pool.configuration.role
        if role not in carried or pool.configuration.deployment != deployment.name or not pool.instances:
            continue
        if role == "P":
            carried[role] += pool.instances / mix.mean(context.prefill_rows(pool.configuration, decision.settings).occupancy_s)
        else:
            carried[role] += pool.instances * agg_table(context, decision, deployment, i).rate_max(mix.mean(mix.output_tokens))
    return min(carried.values())


def _seconds_per_request(context: PlanContext, decision: Decision, deployment: Deployment, pool: int) -> FloatArray:
    """Seconds of an instance's capacity per request of each row, shape (rows,): prefill and a full batch's share of decode."""
    mix, configuration = deployment.mix, decision.pools[pool].configuration
    rates = agg_rates(context, decision, pool)
    if rates is not None:
        return rates.seconds_per_request(mix.input_tokens, mix.output_tokens)
    table = agg_table(context, decision, deployment, pool)
    decode = mix.output_tokens / table.rate_max(1.0) if table.batch_max else np.full(mix.rows, math.inf)
    return np.asarray(context.prefill_rows(configuration, decision.settings).occupancy_s + decode)


def agg_rates(context: PlanContext, decision: Decision, pool: int) -> RateGrid | None:
    """Measured request rates of a pool that is known by them alone."""
    stage = context.instance(decision.pools[pool].configuration, decision.settings)
    return stage.rate if isinstance(stage, ProfiledStage) else None


def agg_table(context: PlanContext, decision: Decision, deployment: Deployment, pool: int) -> DecodeTable:
    """Step table of a pool that decodes whole answers of the deployment's mix."""
    mix, configuration = deployment.mix, decision.pools[pool].configuration
    tables = context.decode_tables(configuration, decision.settings)
    residence = mix.weight * mix.output_tokens
    middle = mix.input_tokens + mix.output_tokens / 2.0
    mean = float(residence @ middle) / float(residence.sum())
    resident = float(residence @ np.asarray(tables.stage.kv_resident_bytes(middle))) / float(residence.sum())
    return tables.table(mean, resident)
