"""Timeline of one typical request: what runs where and when, and how much of the transfer nobody notices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pddplan.pdd.aggregated import aggregated_state
from pddplan.pdd.context import PlanContext
from pddplan.pdd.flows import active_deployments
from pddplan.pdd.latency import Stream, streams_of
from pddplan.pdd.laws import GRID, NO_WAIT
from pddplan.pdd.plan import Decision, Evaluation, PipelineName
from pddplan.pdd.sharing import row_shares
from pddplan.pdd.steady_state import SteadyState, steady_state
from pddplan.workload.mix import RequestMix

Lane = Literal["P", "RDMA", "line", "RLD", "MD", "AGG"]
PERCENTILES = (0.50, 0.90, 0.99)


@dataclass(frozen=True)
class Span:
    """One activity of the request. seconds from arrival; tokens: decoded or moved in it; hidden: the user sees tokens meanwhile."""

    lane: Lane
    activity: str
    start_s: float
    end_s: float
    tokens: float = 0.0
    hidden: bool = False


@dataclass(frozen=True)
class Timeline:
    """A request whose TTFT is at ``percentile`` of the plan's, or of its own pipeline's (``among_pipeline``).

    hidden_s: seconds of the transfer during which RLD streams.
    """

    percentile: float
    pipeline: PipelineName
    among_pipeline: bool
    input_tokens: float
    uncached_tokens: float
    md_missing_tokens: float
    output_tokens: float
    ttft_s: float
    e2e_s: float
    stall_s: float
    hidden_s: float
    spans: tuple[Span, ...]


def timelines(
    context: PlanContext, evaluation: Evaluation, percentiles: Sequence[float] = PERCENTILES, *, relayed: bool = False
) -> tuple[Timeline, ...]:
    """Timeline at each TTFT percentile of an evaluated plan; percentiles that are never reached are left out.

    relayed: also the median request among those that RLD relays to MD, where there are any.
    """
    decision = evaluation.decision
    state = steady_state(context, decision, evaluation.rate_scale)
    streams = (*streams_of(state, decision.settings.prefill_chunk_tokens), *_aggregated(context, decision, evaluation.rate_scale))
    asked = [(q, evaluation.laws["ttft"].quantile(q), streams, False) for q in percentiles if streams]
    if relayed:
        handed = tuple(stream for stream in streams if stream.pipeline == "P-RLD-MD")
        asked += [(0.5, p.ttft.quantile(0.5), handed, True) for p in evaluation.pipelines if p.name == "P-RLD-MD" and p.share > 0.0]
    return tuple(_timeline(context, state, among, q, ttft, own) for q, ttft, among, own in asked if math.isfinite(ttft))


def _aggregated(context: PlanContext, decision: Decision, rate_scale: float) -> tuple[Stream, ...]:
    return tuple(
        stream
        for deployment in active_deployments(context)
        for pool, shares in row_shares(context, decision, deployment).items()
        for stream in aggregated_state(context, decision, deployment, pool, shares, rate_scale).streams
    )


def _likeliest(streams: Sequence[Stream], ttft_s: float) -> tuple[Stream, int, float]:
    """The atom that most likely had this TTFT, and its wait before prefill (and for a place)."""
    best: tuple[float, Stream, int] | None = None
    width = 0.02 * ttft_s
    for stream in streams:
        if not stream.starts:
            continue
        wait = stream.queue_cdf if stream.place_cdf is NO_WAIT else GRID.convolve(stream.queue_cdf, stream.place_cdf)
        slack = ttft_s - stream.ttft_s
        likely = stream.weight * np.where(
            slack + width >= 0.0,
            GRID.at(wait, np.maximum(slack + width, 0.0)) - np.where(slack - width > 0.0, GRID.at(wait, slack - width), 0.0),
            0.0,
        )
        index = int(np.argmax(likely))
        if best is None or likely[index] > best[0]:
            best = (float(likely[index]), stream, index)
    assert best is not None
    return best[1], best[2], max(ttft_s - float(best[1].ttft_s[best[2]]), 0.0)


def _timeline(
    context: PlanContext, state: SteadyState, streams: Sequence[Stream], percentile: float, ttft_s: float, among_pipeline: bool
) -> Timeline:
    stream, index, wait = _likeliest(streams, ttft_s)
    deployment = context.deployments[stream.deployment]
    mix, fixed = deployment.mix, deployment.policy.fixed_ttft
    atom = int(stream.atom[index])
    spans: list[Span] = []
    clock = 0.0

    def add(lane: Lane, activity: str, seconds: float, tokens: float = 0.0) -> float:
        nonlocal clock
        if seconds > 0.0:
            spans.append(Span(lane, activity, clock, clock + seconds, tokens))
        clock += seconds
        return clock

    if stream.flow < 0:
        row = atom
        add("AGG", "queue", wait)
        add("AGG", "prefill", float(stream.ttft_s[index]), float(mix.uncached_tokens[row]))
        first = clock
        token = stream.md.token_mean_s if stream.md else 0.0
        add("AGG", "decode", float(stream.gaps[index]) * token, float(stream.gaps[index]))
        return _finished(stream, mix, row, (percentile, among_pipeline), first, clock, 0.0, 0.0, spans)
    atoms, handed = state.atoms[stream.flow], state.handed[stream.flow]
    flow, row = atoms.flow, int(atoms.row[atom])
    mix = flow.deployment.mix
    md = state.decode[flow.md]
    add("P", "queue", wait)
    add("P", "prefill", float(flow.prefill.latency_s[row]) + fixed, float(mix.uncached_tokens[row]))
    handover = clock
    transfer = float(atoms.transfer_s[atom])
    lane: Lane = "line" if flow.line is not None else "RDMA"
    output = float(mix.output_tokens[row])
    if stream.pipeline == "P-MD":
        add(lane, "transfer", transfer, float(mix.md_missing_tokens[row]))
        add("MD", "first token", md.first_s, 1.0)
        first = clock
        add("MD", "decode", float(stream.gaps[index]) * md.token_mean_s, output - 1.0)
        return _finished(stream, mix, row, (percentile, among_pipeline), first, clock, 0.0, 0.0, spans)
    assert flow.rld is not None
    relay = state.relay[flow.rld]
    add("RDMA", "hop to RLD", float(flow.hop_s[row]), float(mix.input_tokens[row]))
    start_rld = clock
    on_rld = output if bool(atoms.local[atom]) else float(atoms.eager_tokens[atom] + handed.extra_tokens[atom])
    first = start_rld + relay.first_s
    rld_end = first + max(on_rld - 1.0, 0.0) * relay.token_mean_s
    spans.append(Span("RLD", "eager decode", start_rld, rld_end, on_rld))
    sent = float(atoms.sent_bytes[atom])
    whole = float(flow.line_bytes[row])
    if sent > 0.0:
        done = handover + transfer if sent >= whole * (1.0 - 1e-9) else min(rld_end, handover + transfer)
        spans.append(Span(lane, "transfer", handover, done, float(mix.md_missing_tokens[row]) * sent / whole, hidden=True))
    hidden = max(min(rld_end, handover + transfer) - first, 0.0)
    clock = rld_end
    stall = float(stream.stall_s[index])
    stall += md.step_mean_s * md.busy / 2.0 + md.extend_queue_s if stall > 0.0 else 0.0
    if stream.pipeline == "P-RLD-MD" and float(handed.md_tokens[atom]) > 0.0:
        add("MD", "take over (stall)", stall, on_rld)
        add("MD", "decode", float(stream.md_gaps[index]) * md.token_mean_s, float(handed.md_tokens[atom]))
    return _finished(stream, mix, row, (percentile, among_pipeline), first, clock, stall, hidden, spans)


def _finished(
    stream: Stream,
    mix: RequestMix,
    row: int,
    asked: tuple[float, bool],
    first: float,
    end: float,
    stall: float,
    hidden: float,
    spans: list[Span],
) -> Timeline:
    return Timeline(
        percentile=asked[0],
        pipeline=stream.pipeline,
        among_pipeline=asked[1],
        input_tokens=float(mix.input_tokens[row]),
        uncached_tokens=float(mix.uncached_tokens[row]),
        md_missing_tokens=float(mix.md_missing_tokens[row]),
        output_tokens=float(mix.output_tokens[row]),
        ttft_s=first,
        e2e_s=end,
        stall_s=stall,
        hidden_s=hidden,
        spans=tuple(spans),
    )
