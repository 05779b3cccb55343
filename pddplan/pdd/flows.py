"""Flows: which share of each row of the traffic takes which P, RLD and MD pool, over which line, and what moves for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pddplan.errors import InputError, Problem
from pddplan.pdd.context import Deployment, PlanContext, StageRows
from pddplan.pdd.decode_pool import DecodeTables
from pddplan.pdd.line import Line
from pddplan.pdd.md_cache import MdHistory, md_history
from pddplan.pdd.plan import Decision, LinkPlan, Pool, Settings
from pddplan.pdd.sharing import Part, separated_parts
from pddplan.stages.profiled import ProfiledStage
from pddplan.stages.protocol import KvTransfer

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Flow:
    """One way through the plan. Pools are indices into the decision's pools.

    share: of the deployment's requests, per row, shape (rows,) (sums to the flow's share). line_bytes: KV missing at MD, v tokens;
    line_bytes_no_cache: all L tokens. hop_s: RDMA from P to RLD of the whole context. room_s: P to MD inside one room, v tokens.
    load_s: of MD's own
    history from a tier behind HBM. ``deployment.mix`` has a row per state of MD's cache, so it may be longer than the scenario's;
    origin: the scenario's row of each.
    """

    deployment: Deployment
    p: int
    rld: int | None
    md: int
    line: Line | None
    link: LinkPlan | None
    share: FloatArray
    prefill: StageRows
    line_bytes: FloatArray
    line_bytes_no_cache: FloatArray
    hop_s: FloatArray
    room_s: FloatArray
    load_s: FloatArray
    origin: NDArray[np.int64]

    @property
    def rate_per_s(self) -> float:
        return self.deployment.mix.rate_per_s


def flows_of(context: PlanContext, decision: Decision, deployment: Deployment) -> tuple[Flow, ...]:
    """Every way through the plan that carries traffic of ``deployment``. Raises InputError where P and MD rooms have no line.

    Several P pools in one part: requests with more uncached tokens than the P threshold take those away from MD's room, the others
    those in it; inside a group, and between RLD and MD pools, requests are split in proportion to what the pools can carry.
    """
    parts = separated_parts(context, decision, deployment)
    for part in parts:
        missing = next((role for role in ("P", "MD") if not part.of(decision, role)), None)
        if missing is not None:
            accepted = "at least one P and one MD pool, or AGG pools"
            raise InputError(Problem(f"plan.pools of {deployment.name}", f"no {missing} pool", accepted, f"role: {missing}"))
    decoding = dict.fromkeys(i for part in parts for i in part.of(decision, "MD"))
    served = sum(float(deployment.mix.weight @ part.share) for part in parts)
    history = md_history(context, decision, deployment, [decision.pools[i] for i in decoding], served or 1.0)
    return tuple(flow for part in parts for flow in _flows_of_part(context, decision, deployment, part, history))


def _flows_of_part(
    context: PlanContext, decision: Decision, deployment: Deployment, part: Part, history: MdHistory
) -> Iterator[Flow]:
    settings, pools = decision.settings, decision.pools
    mix, origin = history.mix, history.origin
    served = replace(deployment, mix=mix)
    decoding, relaying = part.of(decision, "MD"), part.of(decision, "RLD")
    for md, md_share in zip(decoding, _md_shares(context, decision, deployment, decoding), strict=True):
        md_site = pools[md].configuration.site
        p_shares = _p_shares(context, decision, deployment, part, md_site)
        for p, rows_share in p_shares.items():
            p_site = pools[p].configuration.site
            line, link = _line(context, decision, p_site, md_site)
            relays = [i for i in relaying if pools[i].configuration.site == p_site] if line is not None else []
            if line is not None and deployment.policy.rld == "colocated" and not relays:
                relays = [p]
            kv = transfer_of(context, deployment, pools[p], settings)
            alone = context.prefill_rows(pools[p].configuration, settings)
            stage_rows = StageRows(alone.latency_s[origin], alone.occupancy_s[origin])
            missing_bytes = _bytes(kv, mix.md_missing_tokens, mix.input_tokens)
            whole_bytes = _bytes(kv, mix.input_tokens, mix.input_tokens) if line is not None else missing_bytes
            room_s = rdma_s(context, pools[p], pools[md], missing_bytes) if line is None else np.zeros(mix.rows)
            for rld, rld_share in _relay_shares(pools, relays) or [(None, 1.0)]:
                hop = np.zeros(mix.rows)
                if rld is not None and rld != p:
                    hop = rdma_s(context, pools[p], pools[rld], whole_bytes)
                share = mix.weight * (rows_share * part.share)[origin] * md_share * rld_share
                yield Flow(
                    served, p, rld, md, line, link, share, stage_rows, missing_bytes, whole_bytes, hop, room_s, history.load_s, origin
                )


def transfer_of(context: PlanContext, deployment: Deployment, p: Pool, settings: Settings) -> KvTransfer:
    """KV sizes of a P pool: the profile's table when it has one, else the model's."""
    stage = context.instance(p.configuration, settings)
    return stage if isinstance(stage, ProfiledStage) and stage.kv is not None else deployment.kv


def rdma_s(context: PlanContext, source: Pool, target: Pool, size_bytes: FloatArray) -> FloatArray:
    """Seconds over the room's RDMA fabric at the slower end's NICs, its latency included."""
    rate = min(context.nic_bytes_per_s(source.configuration), context.nic_bytes_per_s(target.configuration))
    return np.asarray(size_bytes / rate + context.fabric(source.configuration.site).latency)


def _bytes(kv: KvTransfer, new_tokens: FloatArray, total_tokens: FloatArray) -> FloatArray:
    moved = np.asarray(kv.transfer_bytes(new_tokens, total_tokens), dtype=np.float64)
    return np.where(new_tokens > 0.0, moved, 0.0)


def _line(context: PlanContext, decision: Decision, p_site: str, md_site: str) -> tuple[Line | None, LinkPlan | None]:
    if p_site == md_site:
        return None, None
    line = context.line_between(p_site, md_site)
    if line is None:
        place, found = "links", f"no link joins {p_site} (P) and {md_site} (MD)"
        raise InputError(
            Problem(
                place,
                found,
                "a link between the rooms that the plan spans",
                f"{p_site}-{md_site}: {{between: [{p_site}, {md_site}], ...}}",
            )
        )
    link = next((link for link in decision.links if link.name == line.name), None)
    if link is None:
        link = LinkPlan(line.name, p_site, md_site, 0, line.circuit_bytes_per_s)
    return line, link


def _proportional(weights: list[float]) -> list[float]:
    total = sum(weights)
    return [weight / total if total > 0.0 else 1.0 / len(weights) for weight in weights]


def _p_shares(
    context: PlanContext, decision: Decision, deployment: Deployment, part: Part, md_site: str
) -> dict[int, FloatArray]:
    """Share of each row of a part, shape (rows,), that each of its P pools takes."""
    mix, settings, pools = deployment.mix, decision.settings, part.of(decision, "P")
    home = deployment.policy.p_routing.long
    remote = [
        i
        for i in pools
        if (decision.pools[i].configuration.site == home if home else decision.pools[i].configuration.site != md_site)
    ]
    local = [i for i in pools if i not in remote]
    shares: dict[int, FloatArray] = {}
    if remote and local and settings.p_threshold_tokens is not None:
        long = mix.uncached_tokens > settings.p_threshold_tokens
        groups = [(remote, long), (local, ~long)]
    else:
        groups = [(pools, np.ones(mix.rows, dtype=bool))]
    for members, rows in groups:
        weight = np.where(rows, mix.weight * part.share, 0.0)
        carried = []
        for i in members:
            work = float(weight @ context.prefill_rows(decision.pools[i].configuration, settings).occupancy_s)
            carried.append(decision.pools[i].instances / work if work > 0.0 else float(decision.pools[i].instances))
        for i, share in zip(members, _proportional(carried), strict=True):
            shares[i] = np.asarray(rows * share, dtype=np.float64)
    return shares


def _md_shares(context: PlanContext, decision: Decision, deployment: Deployment, pools: list[int]) -> list[float]:
    if len(pools) == 1:
        return [1.0]
    mix = deployment.mix
    tokens = mix.mean(mix.output_tokens)
    context_tokens = mix.mean(mix.output_tokens * (mix.input_tokens + mix.output_tokens / 2.0)) / tokens
    carried = []
    for i in pools:
        stage = context.instance(decision.pools[i].configuration, decision.settings)
        resident = float(np.asarray(stage.kv_resident_bytes(np.array([context_tokens])))[0])
        carried.append(decision.pools[i].instances * DecodeTables(stage).table(context_tokens, resident).rate_max(tokens))
    return _proportional(carried)


def _relay_shares(pools: tuple[Pool, ...], relays: list[int]) -> list[tuple[int | None, float]]:
    return list(zip(relays, _proportional([float(pools[i].gpus) for i in relays]), strict=True))


def active_deployments(context: PlanContext) -> tuple[Deployment, ...]:
    """Deployments with traffic, in the scenario's order."""
    return tuple(d for d in context.deployments.values() if d.mix.rate_per_s > 0.0 and math.isfinite(d.mix.rate_per_s))
