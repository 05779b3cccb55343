"""Latencies of requests: from the atoms of a steady state to the laws of TTFT, TPOT, worst stall and end to end, and to P(good).

Everything is a mixture over atoms. What an atom shares with the state of MD when it arrives (time per token, wait for a place) is taken
jointly, so that TTFT, TPOT and their joint attainment belong together.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pddplan.pdd.decode_pool import DecodeState
from pddplan.pdd.laws import GRID, NO_WAIT, Part, cells
from pddplan.pdd.plan import PipelineName
from pddplan.pdd.steady_state import SteadyState

FloatArray = NDArray[np.float64]

CELLS = 1000
STEP_PARTS = 8


@dataclass(frozen=True)
class Stream:
    """Atoms of one pipeline, class, size and way through the plan, shape (atoms,); weight is the share of the deployment's requests.

    ttft_s: without waits. base_s: first to last token without what MD's state decides; md_gaps: gaps of MD's pace after it. gaps: O - 1.
    stall_s: of the handoff, MD's queue left out (0: none). queue_cdf: wait before prefill; place_cdf: wait for a place that delays the
    first token (RLD's, or
    MD's without relay). md: MD's state, None where MD is not visited. starts, paces, served: False where the way to the first, to the last
    token is
    overloaded. flow, atom: where the atoms come from (aggregated pools: flow -1, rows of the mix).
    """

    deployment: str
    pipeline: PipelineName
    class_index: int
    weight: FloatArray
    ttft_s: FloatArray
    base_s: FloatArray
    md_gaps: FloatArray
    gaps: FloatArray
    stall_s: FloatArray
    rld_step_s: float
    queue_cdf: FloatArray
    place_cdf: FloatArray
    md: DecodeState | None
    direct: bool
    served: bool
    starts: bool
    paces: bool
    flow: int
    atom: NDArray[np.int64]

    @property
    def mass(self) -> float:
        return float(self.weight.sum())


def streams_of(state: SteadyState, chunk_tokens: float) -> tuple[Stream, ...]:
    """All streams of a steady state that carry requests; ``chunk_tokens`` is the plan's prefill chunk."""
    streams: list[Stream] = []
    for number, (atoms, handed) in enumerate(zip(state.atoms, state.handed, strict=True)):
        flow = atoms.flow
        mix, policy = flow.deployment.mix, flow.deployment.policy
        row = atoms.row
        p, md = state.prefill[flow.p], state.decode[flow.md]
        rld = state.relay.get(flow.rld) if flow.rld is not None else None
        line_ok = flow.link is None or state.lines[flow.link.name].stable
        output, classes = mix.output_tokens[row], mix.class_index[row]
        start = flow.prefill.latency_s[row] + policy.fixed_ttft
        if p.beside_s > 0.0:
            start = start + p.beside_s * np.maximum(np.ceil(mix.uncached_tokens[row] / chunk_tokens), 1.0)
        gaps = np.maximum(output - 1.0, 0.0)
        for name in ("P-MD", "P-RLD-MD", "local", "P-RLD"):
            mask = atoms.pipeline(name)
            if not mask.any():
                continue
            direct = name == "P-MD"
            uses_md: DecodeState | None = md
            if direct:
                ttft = start + atoms.transfer_s + md.first_s
                base, md_gaps, stall = np.zeros(row.size), gaps, np.zeros(row.size)
                place, step = md_place(md), 0.0
                starts = p.stable and line_ok and md.stable
                served, paces = starts, md.stable
            else:
                assert rld is not None
                ttft = start + flow.hop_s[row] + rld.first_s
                on_rld = np.maximum(np.where(atoms.local, output, atoms.eager_tokens + handed.extra_tokens) - 1.0, 0.0)
                joins = handed.md_tokens > 0.0
                queue = md.step_mean_s * md.busy / 2.0 + md.extend_queue_s
                stall = np.where(joins, handed.stall_s, 0.0)
                base = on_rld * rld.token_mean_s + np.where(joins, handed.stall_s + queue * (handed.extend_s > 0.0), 0.0)
                md_gaps = np.where(joins, np.maximum(handed.md_tokens - 1.0, 0.0), 0.0)
                place, step = md_place(rld), rld.step_mean_s
                uses_md = md if name == "P-RLD-MD" else None
                starts = p.stable and rld.stable
                paces = rld.stable and (uses_md is None or (md.stable and line_ok))
                served = starts and paces
            sizes = p.queue.bin_of_row[flow.origin[row]]
            for index, size in itertools.product(np.unique(classes[mask]), range(len(p.queue.cdfs))):
                pick = mask & (classes == index) & (sizes == size) & (atoms.weight > 0.0)
                if not pick.any():
                    continue
                streams.append(
                    Stream(
                        deployment=flow.deployment.name,
                        pipeline=name,
                        class_index=int(index),
                        weight=atoms.weight[pick],
                        ttft_s=ttft[pick],
                        base_s=base[pick],
                        md_gaps=md_gaps[pick],
                        gaps=gaps[pick],
                        stall_s=stall[pick],
                        rld_step_s=step,
                        queue_cdf=p.queue.cdfs[size],
                        place_cdf=place,
                        md=uses_md,
                        direct=direct,
                        served=served,
                        starts=starts,
                        paces=paces,
                        flow=number,
                        atom=np.nonzero(pick)[0],
                    )
                )
    return tuple(streams)


def md_place(state: DecodeState) -> FloatArray:
    """Law of the wait for a place in a decode pool."""
    return GRID.exponential(state.p_wait, state.wait_given_s) if state.p_wait > 1e-9 else NO_WAIT


def _nodes(stream: Stream) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Token time, wait for a place and probability of MD's states; one trivial node where MD is not visited."""
    if stream.md is None:
        return np.zeros(1), np.zeros(1), np.ones(1)
    return stream.md.token_s, stream.md.wait_s, stream.md.probability


def _waited(measure: FloatArray, *waits: FloatArray) -> FloatArray:
    total = float(measure[-1])
    if total <= 0.0:
        return measure
    result = measure / total
    for wait in waits:
        if wait is not NO_WAIT:
            result = GRID.convolve(result, wait)
    return result * total


def ttft_cdf(stream: Stream) -> FloatArray:
    """P(TTFT <= t) x mass on GRID."""
    if not stream.starts:
        return GRID.never()
    return _waited(Part(stream.ttft_s, stream.weight, NO_WAIT).cdf(), stream.queue_cdf, stream.place_cdf)


def tpot_cdf(stream: Stream) -> FloatArray:
    """P(TPOT <= t) x mass of requests with more than one token, on GRID."""
    several = stream.gaps > 0.0
    if not stream.paces or not several.any():
        return GRID.never()
    token, wait, probability = _nodes(stream)
    gaps, weight, base = stream.gaps[several], stream.weight[several], stream.base_s[several]
    if stream.direct and not base.any():
        return GRID.law(token, probability) * float(weight.sum())
    late = np.zeros_like(gaps) if stream.direct else (stream.md_gaps[several] > 0.0) / gaps
    weight, (fixed, paced, late) = cells(weight, (base / gaps, stream.md_gaps[several] / gaps, late), CELLS)
    values = fixed[:, None] + paced[:, None] * token[None, :] + late[:, None] * wait[None, :]
    return GRID.law(values, weight[:, None] * probability[None, :])


def e2e_cdf(stream: Stream) -> FloatArray:
    """P(end to end <= t) x mass on GRID."""
    if not stream.served:
        return GRID.never()
    token, wait, probability = _nodes(stream)
    weight, (fixed, paced) = cells(stream.weight, (stream.ttft_s + stream.base_s, stream.md_gaps), CELLS)
    visits = np.ones_like(fixed) if stream.direct else (paced > 0.0).astype(float)
    values = fixed[:, None] + paced[:, None] * token[None, :] + visits[:, None] * wait[None, :]
    measure = GRID.law(values, weight[:, None] * probability[None, :])
    return _waited(measure, stream.queue_cdf, *(() if stream.direct else (stream.place_cdf,)))


def stall_cdf(stream: Stream) -> FloatArray:
    """P(longest gap <= t) x mass of requests with more than one token, on GRID.

    Gaps: a decode step; the handoff with MD's wait for a place; and a step behind what interrupts it (others' handoffs or prefills).
    """
    several = stream.gaps > 0.0
    if not stream.paces or not several.any():
        return GRID.never()
    token, _, probability = _nodes(stream)
    weight = stream.weight[several]
    if stream.md is None:
        return GRID.law(np.full(weight.size, stream.rld_step_s), weight)
    step_s = stream.md.token_mean_s * stream.md.tokens_per_step
    residence = stream.md_gaps[several] * stream.md.token_mean_s + stream.base_s[several] * stream.direct
    mass = float(weight.sum())
    pauses, (residence,) = cells(weight / mass, (residence,), CELLS // 8)
    steps = GRID.law(token * stream.md.tokens_per_step, probability)
    others = stream.md.interruptions
    if others is not None:
        longest = pauses @ others.longest(residence)
        met = float(longest.sum())
        steps = (1.0 - met) * steps + GRID.law(step_s + others.seconds, longest)
    handoff = _handoff_cdf(stream, several, step_s)
    return mass * (steps if handoff is None else GRID.maximum(steps, handoff))


def _handoff_cdf(stream: Stream, several: NDArray[np.bool_], step_s: float) -> FloatArray | None:
    """Law over the stream's requests of the gap at the handoff: recompute, the rest of MD's step, other recomputes, a place at MD."""
    stall, weight = stream.stall_s[several], stream.weight[several]
    if stream.md is None or not stall.any():
        return None
    handed = stall > 0.0
    share = float(weight[handed].sum()) / float(weight.sum())
    weights, (stalls,) = cells(weight[handed] / float(weight[handed].sum()), (stall[handed],), CELLS // 8)
    _, wait, probability = _nodes(stream)
    values = stalls[:, None] + wait[None, :]
    law = GRID.law(values, weights[:, None] * probability[None, :])
    rest = step_s * (np.arange(STEP_PARTS) + 0.5) / STEP_PARTS
    law = GRID.convolve(law, stream.md.busy * GRID.law(rest) + (1.0 - stream.md.busy))
    if stream.md.extend_wait_cdf is not None:
        law = GRID.convolve(law, stream.md.extend_wait_cdf)
    floor = GRID.law(np.array([stream.rld_step_s]))
    return GRID.maximum(share * law + (1.0 - share), floor)


def good_mass(stream: Stream, ttft_limit_s: float | None, tpot_limit_s: float | None) -> float:
    """Mass of requests with TTFT and TPOT both within their limits (TPOT is met by requests of one token)."""
    if not stream.served:
        return 0.0
    token, wait, probability = _nodes(stream)
    order = np.argsort(token + wait)
    token, wait, probability = token[order], wait[order], probability[order]
    limit = math.inf if ttft_limit_s is None else ttft_limit_s
    ceiling = math.inf if tpot_limit_s is None else tpot_limit_s
    spare = ceiling * stream.gaps - stream.base_s
    if stream.direct:
        queue = stream.queue_cdf
        paces_well = (stream.md_gaps[:, None] * token[None, :] <= spare[:, None] + 1e-12) | (stream.gaps <= 0.0)[:, None]
        if limit == math.inf:
            return float(stream.weight @ (paces_well @ probability)) * float(queue[-1])
        distinct, inverse = np.unique(wait, return_inverse=True)
        shares = np.zeros((stream.weight.size, distinct.size))
        for k in range(distinct.size):
            shares[:, k] = paces_well[:, inverse == k] @ probability[inverse == k]
        in_time = GRID.at(queue, limit - stream.ttft_s[:, None] - distinct[None, :])
        return float(stream.weight @ (in_time * shares).sum(axis=1))
    queue = _waited(stream.queue_cdf, stream.place_cdf)
    in_time = np.full(stream.weight.size, float(queue[-1])) if limit == math.inf else GRID.at(queue, limit - stream.ttft_s)
    visits = (stream.md_gaps > 0.0).astype(float)
    spent = stream.md_gaps[:, None] * token[None, :] + visits[:, None] * wait[None, :]
    paced = ((spent <= spare[:, None] + 1e-12) | (stream.gaps <= 0.0)[:, None]) @ probability
    return float(stream.weight @ (in_time * paced))
