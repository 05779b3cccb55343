"""What a routing asks of each role: shares of requests, tokens, residence and bytes, from which a search makes its columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pddplan.pdd.context import Deployment, PlanContext, StageRows
from pddplan.pdd.flows import Flow
from pddplan.pdd.plan import LinkPlan, Settings
from pddplan.pdd.routing import route
from pddplan.pdd.transfer import LineState, line_state

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class RoleDemand:
    """What one request of a deployment asks of each role, in the mean, under one routing (per request of the whole deployment).

    rows_*: share of each mix row that enters the role, shape (rows,). *_rate: requests that enter. rld_tokens, md_tokens: output tokens
    decoded there. rld_hold_s: seconds of RLD residence. extend_tokens: eager tokens handed over, in ``handoffs`` handoffs. line_bytes: what
    crosses between the rooms; line_bytes_without_md_cache: the same if MD kept no history. Context tokens are residence-weighted means.
    """

    relay_threshold_s: float | None
    rows_remote_p: FloatArray
    rows_local_p: FloatArray
    rows_rld: FloatArray
    rows_md: FloatArray
    p_rate_remote: float
    p_rate_local: float
    rld_rate: float
    rld_tokens: float
    rld_hold_s: float
    rld_context_tokens: float
    md_rate: float
    md_tokens: float
    md_context_tokens: float
    handoffs: float
    extend_tokens: float
    line_bytes: float
    line_bytes_without_md_cache: float


def demand_shares(
    context: PlanContext,
    deployment: str,
    settings: Settings,
    link: LinkPlan | None,
    thresholds_s: ArrayLike,
    rld_token_s: float,
) -> tuple[RoleDemand, ...]:
    """Role demands at each relay threshold (seconds; inf relays nothing), RLD emitting a token every ``rld_token_s``.

    Transfers run as on a line loaded by the whole demand, at most to its target utilisation. ``link`` None: one room, nothing is relayed.
    """
    owner = context.deployments[deployment]
    mix = owner.mix
    new, total = mix.md_missing_tokens, mix.input_tokens
    sizes = np.where(new > 0.0, np.asarray(owner.kv.transfer_bytes(new, total), dtype=np.float64), 0.0)
    whole = np.asarray(owner.kv.transfer_bytes(total, total), dtype=np.float64)
    zero = np.zeros(mix.rows)
    line = None if link is None else context.lines[link.name]
    flow = Flow(
        owner, 0, 0, 0, line, link, mix.weight, StageRows(zero, zero), sizes, whole, zero, zero, zero, np.arange(mix.rows)
    )
    state = None
    if line is not None and link is not None:
        load = mix.rate_per_s * mix.mean(sizes)
        most = line.target_utilisation * line.rate_cap_bytes_per_s(link)
        state = line_state(line, link, mix.rate_per_s * min(1.0, most / load if load > 0.0 else 1.0), sizes, mix.weight)
    return tuple(
        _role_demand(owner, settings, flow, state, float(t), rld_token_s)
        for t in np.atleast_1d(np.asarray(thresholds_s, dtype=float))
    )


def _role_demand(
    owner: Deployment, settings: Settings, flow: Flow, state: LineState | None, threshold_s: float, rld_token_s: float
) -> RoleDemand:
    mix = owner.mix
    chosen = Settings(
        relay_threshold_s=threshold_s,
        handoff=settings.handoff,
        prefill_chunk_tokens=settings.prefill_chunk_tokens,
        tail_packing=settings.tail_packing,
        singular_uncached_over=settings.singular_uncached_over,
        singular_output_under=settings.singular_output_under,
    )
    atoms = route(flow, state, rld_token_s, chosen)
    output = mix.output_tokens[atoms.row]
    on_rld = np.where(atoms.relayed, atoms.eager_tokens, 0.0)
    on_md = np.where(atoms.local, 0.0, output - on_rld)
    handed = atoms.relayed & (on_md > 0.0)
    hold = np.where(atoms.relayed, atoms.hold_s, 0.0)
    weight = atoms.weight

    def rows_of(mask: NDArray[np.bool_]) -> FloatArray:
        mass = np.bincount(atoms.row, weight * mask, mix.rows)
        return np.asarray(np.divide(mass, mix.weight, out=np.zeros(mix.rows), where=mix.weight > 0.0))

    def mean_context(work: FloatArray, middle: FloatArray) -> float:
        total = float(weight @ work)
        return float((weight * work) @ middle) / total if total > 0.0 else mix.mean(mix.input_tokens)

    threshold = settings.p_threshold_tokens
    remote = np.ones(mix.rows) if threshold is None else (mix.uncached_tokens > threshold).astype(float)
    sent_whole = np.where(atoms.sent_bytes > 0.0, flow.line_bytes_no_cache[atoms.row], 0.0)
    inputs = mix.input_tokens[atoms.row]
    return RoleDemand(
        relay_threshold_s=threshold_s,
        rows_remote_p=remote,
        rows_local_p=1.0 - remote,
        rows_rld=rows_of(atoms.relayed),
        rows_md=rows_of(on_md > 0.0),
        p_rate_remote=float(mix.weight @ remote),
        p_rate_local=float(mix.weight @ (1.0 - remote)),
        rld_rate=float(weight @ atoms.relayed),
        rld_tokens=float(weight @ on_rld),
        rld_hold_s=float(weight @ hold),
        rld_context_tokens=mean_context(hold, inputs + on_rld / 2.0),
        md_rate=float(weight @ (on_md > 0.0)),
        md_tokens=float(weight @ on_md),
        md_context_tokens=mean_context(on_md, inputs + output - on_md / 2.0),
        handoffs=float(weight @ handed),
        extend_tokens=float(weight @ np.where(handed, on_rld, 0.0)),
        line_bytes=float(weight @ atoms.sent_bytes),
        line_bytes_without_md_cache=float(weight @ sent_whole),
    )
