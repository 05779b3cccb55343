"""Who serves which rows: between aggregated pools, and between them and separate prefill and decode."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pddplan.errors import InputError, Problem
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.decode_pool import DecodeTable
from pddplan.pdd.plan import Decision, Role
from pddplan.stages.profiled import ProfiledStage, RateGrid

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """Pools that serve a part of a deployment's traffic, as indices, and the share of each row that is theirs, shape (rows,)."""

    pools: tuple[int, ...]
    share: FloatArray

    def of(self, decision: Decision, role: Role) -> list[int]:
        """Its pools of one role."""
        return [i for i in self.pools if decision.pools[i].configuration.role == role]


def parts_of(decision: Decision, deployment: Deployment) -> list[Part]:
    """The ways of a deployment that have instances; one of all its pools where the decision divides nothing. Raises InputError for
    shares that do not fit its classes or do not sum to 1.
    """
    mine = [i for i, pool in enumerate(decision.pools) if pool.configuration.deployment == deployment.name]
    standing = {i for i in mine if decision.pools[i].instances}
    ways = [way for way in decision.ways if set(way.pools) & set(mine)]
    if not ways:
        return [Part(tuple(sorted(standing)), np.ones(deployment.mix.rows))] if standing else []
    classes = len(deployment.mix.class_names)
    total = np.sum([way.class_shares for way in ways], axis=0) if all(len(way.class_shares) == classes for way in ways) else np.zeros(1)
    if total.size != classes or np.any(np.abs(total - 1.0) > 1e-6):
        found = "; ".join(", ".join(f"{share:g}" for share in way.class_shares) for way in ways)
        raise InputError(Problem("plan.ways", f"shares {found}", "for each class, shares that sum to 1 over the ways of its deployment"))
    parts = [(tuple(i for i in way.pools if i in standing), np.array(way.class_shares)) for way in ways]
    return [Part(pools, shares[deployment.mix.class_index]) for pools, shares in parts]


def row_shares(context: PlanContext, decision: Decision, deployment: Deployment) -> dict[int, FloatArray]:
    """Share of each row, shape (rows,), that each AGG pool takes."""
    taken: dict[int, FloatArray] = {}
    for part in parts_of(decision, deployment):
        for i, share in _of_part(context, decision, deployment, part).items():
            taken[i] = taken[i] + share if i in taken else share
    return taken


def separated_parts(context: PlanContext, decision: Decision, deployment: Deployment) -> list[Part]:
    """What P and MD pools serve: the parts that have any, with the share of each row that AGG pools beside them leave."""
    found = []
    for part in parts_of(decision, deployment):
        if part.of(decision, "P") or part.of(decision, "MD"):
            taken = _of_part(context, decision, deployment, part)
            left = part.share - np.sum(list(taken.values()), axis=0) if taken else part.share
            found.append(replace(part, share=np.where(left > 1e-9, left, 0.0)))
    return found


def _of_part(context: PlanContext, decision: Decision, deployment: Deployment, part: Part) -> dict[int, FloatArray]:
    """Share of each row, shape (rows,), that the AGG pools of a part take: in proportion to what its pools carry."""
    pools, mix = part.of(decision, "AGG"), deployment.mix
    if not pools:
        return {}
    if len(pools) == len(part.pools) == 1:
        return {pools[0]: part.share}
    work = {i: _seconds_per_request(context, decision, deployment, i, part.share) for i in pools}
    speed = {i: decision.pools[i].instances / work[i] for i in pools}
    if not any(agg_rates(context, decision, i) for i in pools):
        weight = mix.weight * part.share if float(mix.weight @ part.share) > 0.0 else mix.weight
        speed = {i: np.full(mix.rows, decision.pools[i].instances * float(weight.sum()) / float(weight @ work[i])) for i in pools}
    total = np.sum(list(speed.values()), axis=0) + _separated_rate(context, decision, deployment, part)
    safe = np.where(total > 0.0, total, 1.0)
    return {i: part.share * np.where(total > 0.0, speed[i] / safe, 1.0 / len(pools)) for i in pools}


def _separated_rate(context: PlanContext, decision: Decision, deployment: Deployment, part: Part) -> float:
    """Requests/s that the P and MD pools of a part carry: the smaller of both; 0 where one role is missing."""
    mix, pools, settings = deployment.mix, decision.pools, decision.settings
    weight = mix.weight * part.share if float(mix.weight @ part.share) > 0.0 else mix.weight
    weight = weight / weight.sum()
    work = {i: float(weight @ context.prefill_rows(pools[i].configuration, settings).occupancy_s) for i in part.of(decision, "P")}
    prefilled = sum(pools[i].instances / seconds for i, seconds in work.items())
    tokens = float(weight @ mix.output_tokens)
    tables = {i: agg_table(context, decision, deployment, i, part.share) for i in part.of(decision, "MD")}
    return min(prefilled, sum(pools[i].instances * table.rate_max(tokens) for i, table in tables.items()))


def _seconds_per_request(context: PlanContext, decision: Decision, deployment: Deployment, pool: int, share: FloatArray) -> FloatArray:
    """Seconds of an instance's capacity per request of each row, shape (rows,): prefill and a full batch's share of decode."""
    mix, configuration = deployment.mix, decision.pools[pool].configuration
    rates = agg_rates(context, decision, pool)
    if rates is not None:
        return rates.seconds_per_request(mix.input_tokens, mix.output_tokens)
    table = agg_table(context, decision, deployment, pool, share)
    decode = mix.output_tokens / table.rate_max(1.0) if table.batch_max else np.full(mix.rows, math.inf)
    return np.asarray(context.prefill_rows(configuration, decision.settings).occupancy_s + decode)


def agg_rates(context: PlanContext, decision: Decision, pool: int) -> RateGrid | None:
    """Measured request rates of a pool that is known by them alone."""
    stage = context.instance(decision.pools[pool].configuration, decision.settings)
    return stage.rate if isinstance(stage, ProfiledStage) else None


def agg_table(context: PlanContext, decision: Decision, deployment: Deployment, pool: int, share: FloatArray | None = None) -> DecodeTable:
    """Step table of a pool that decodes whole answers of a share of each row, shape (rows,); None: of the deployment's mix."""
    mix, configuration = deployment.mix, decision.pools[pool].configuration
    tables = context.decode_tables(configuration, decision.settings)
    weight = mix.weight if share is None or not (mix.weight @ share) > 0.0 else mix.weight * share
    residence = weight * mix.output_tokens
    middle = mix.input_tokens + mix.output_tokens / 2.0
    mean = float(residence @ middle) / float(residence.sum())
    resident = float(residence @ np.asarray(tables.stage.kv_resident_bytes(middle))) / float(residence.sum())
    return tables.table(mean, resident)
