"""What arrives: a stream of requests drawn from the mix, from sessions turn by turn, or from a recorded trace in its own order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pddplan.errors import InputError, Problem
from pddplan.scenario import workload as words
from pddplan.workload.from_scenario import hit_rate_law
from pddplan.workload.mix import RequestMix
from pddplan.workload.sessions import SessionTurns
from pddplan.workload.trace import Trace

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Arrivals:
    """Requests in order of arrival, shape (requests,). session: of each request (-1: alone); tokens as in RequestMix.

    row: of the mix (-1: not drawn from it). md_load_s: seconds to bring MD's part of the history into HBM. follows: index of the request
    whose end, ``pause_s`` later, is this one's arrival; -1: it arrives at ``time_s``.
    """

    time_s: FloatArray
    input_tokens: FloatArray
    uncached_tokens: FloatArray
    md_missing_tokens: FloatArray
    output_tokens: FloatArray
    class_index: IntArray
    session: IntArray
    follows: IntArray
    pause_s: FloatArray
    row: IntArray
    md_load_s: FloatArray

    @property
    def requests(self) -> int:
        return int(self.time_s.size)


def gaps_s(rate: float, scv: float, count: int, rng: np.random.Generator) -> FloatArray:
    """Gamma gaps of mean 1 / rate and the given squared coefficient of variation."""
    return np.full(count, 1.0 / rate) if scv == 0.0 else rng.gamma(1.0 / scv, scv / rate, count)


def from_mix(mix: RequestMix, origin: IntArray, md_load_s: FloatArray, count: int, rng: np.random.Generator) -> Arrivals:
    """Independent requests: rows of ``mix`` by weight, gaps by its rate and variability. ``origin``: the scenario's row of each row."""
    row = rng.choice(mix.rows, size=count, p=mix.weight / mix.weight.sum())
    alone = np.full(count, -1, dtype=np.int64)
    return Arrivals(
        np.cumsum(gaps_s(mix.rate_per_s, mix.arrival_scv, count, rng)),
        mix.input_tokens[row],
        mix.uncached_tokens[row],
        mix.md_missing_tokens[row],
        mix.output_tokens[row],
        mix.class_index[row],
        alone,
        alone,
        np.zeros(count),
        origin[row],
        md_load_s[row],
    )


def from_sessions(turns: SessionTurns, rate: float, count: int, answer_s: float, rng: np.random.Generator) -> Arrivals:
    """Whole sessions that start as a Poisson stream; each later turn comes a pause after the end of the answer before it.

    At time 0 sessions are already under way: those begun earlier enter at the turn that they would have reached with answers
    of ``answer_s`` seconds, so that early and late turns are mixed from the start.
    """
    ends = np.flatnonzero(np.diff(turns.session, append=turns.session[-1] + 1)) + 1
    starts = np.concatenate([[0], ends[:-1]])
    lengths = ends - starts
    steps = np.where(turns.turn == 0, 0.0, turns.pause_s + answer_s)
    elapsed = np.cumsum(steps)
    elapsed -= np.repeat(elapsed[starts], lengths)
    longest = float(elapsed.max())
    session_rate = rate / float(lengths.mean())
    horizon = count / rate * 1.1 + 1.0
    begun = rng.poisson(session_rate * (longest + horizon))
    begin = np.sort(rng.uniform(-longest, horizon, begun))
    chosen = rng.integers(0, starts.size, begun)
    row = np.concatenate([np.arange(starts[s], ends[s]) for s in chosen])
    session = np.repeat(np.arange(begun), lengths[chosen])
    nominal = begin[session] + elapsed[row]
    kept = nominal >= 0.0
    row, session, nominal = row[kept], session[kept], nominal[kept]
    first = np.diff(session, prepend=-1) != 0
    return Arrivals(
        np.where(first, nominal, np.inf),
        turns.input_tokens[row],
        turns.uncached_tokens[row],
        turns.md_missing_tokens[row],
        turns.output_tokens[row],
        np.zeros(row.size, dtype=np.int64),
        session.astype(np.int64),
        np.where(first, -1, np.arange(row.size) - 1).astype(np.int64),
        turns.pause_s[row],
        np.full(row.size, -1, dtype=np.int64),
        np.zeros(row.size),
    )


def from_trace(
    trace: Trace, given: words.Trace, rate: float, cached_p: FloatArray | None, cached_md: FloatArray | None, rng: np.random.Generator
) -> Arrivals:
    """The recorded requests, times scaled so that their mean rate is ``rate``, as a circle entered at a random point.

    So every part of the recording is as likely to be measured, and sessions without a clock of their own, which begin anywhere on the
    circle, are under way from the start.

    cached_p, cached_md: tokens that the caches hold for each request, shape (requests,); None draws them from the trace's laws.
    """
    n = trace.requests
    length = trace.input_tokens.astype(float)
    if cached_p is None:
        level = rng.random(n)
        cached_p = np.zeros(n) if given.hit_rate is None else np.rint(hit_rate_law(given.hit_rate).quantile(level) * length)
        cached_md = cached_p if given.md_hit_rate is None else np.rint(hit_rate_law(given.md_hit_rate).quantile(level) * length)
    assert cached_md is not None
    session = np.full(n, -1, dtype=np.int64) if trace.session is None else trace.session
    if trace.session_times:
        starts = np.flatnonzero(np.diff(session, prepend=session[0] - 1))
        begin = rng.uniform(0.0, n / rate, starts.size)
        time = trace.time_s + begin[np.searchsorted(starts, np.arange(n), side="right") - 1]
    else:
        recorded = trace.rate_per_s
        if recorded is None:
            raise InputError(Problem(trace.name, "its requests all arrive at once", "a trace whose times differ"))
        time = (trace.time_s - trace.time_s[0]) * (recorded / rate) + rng.uniform(0.0, n / rate)
    time = time % (n / rate)
    order = np.argsort(time, kind="stable")
    alone = np.full(n, -1, dtype=np.int64)
    return Arrivals(
        time[order],
        length[order],
        np.maximum(length - cached_p, 1.0)[order],
        (length - cached_md)[order],
        np.maximum(trace.output_tokens, 1).astype(float)[order],
        np.zeros(n, dtype=np.int64),
        session[order],
        alone,
        np.zeros(n),
        alone,
        np.zeros(n),
    )
