"""Agent sessions by laws: turns, growth and pauses give the joint law of lengths and hits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pddplan.workload.hit_curve import HitCurve
from pddplan.workload.laws import LogNormal, QuantileLaw, lognormal_parameters
from pddplan.workload.mix import ClassRows
from pddplan.workload.reduction import reduce_requests

FloatArray = NDArray[np.float64]
_TURNS_DRAWN = 60_000
_TASK_QUANTILES = 200


@dataclass(frozen=True)
class SessionLaws:
    """Laws of an agent session; lengths in tokens, times in s. See ``session_rows`` for the recursion they drive.

    think_s, tool_s: (mean, coefficient of variation) of the pause before a turn, of a person and of a tool;
    tool_share: share of turns that follow a tool. cache_ttl_s, md_cache_ttl_s: idle time after which P and MD forget.
    """

    turns: QuantileLaw
    first_tokens: QuantileLaw
    growth_tokens: QuantileLaw
    output_tokens: QuantileLaw
    system_tokens: float = 0.0
    answers_kept: bool = True
    think_s: tuple[float, float] = (0.0, 1.0)
    tool_s: tuple[float, float] = (0.0, 1.0)
    tool_share: float = 0.0
    context_max: float = math.inf
    compact_to: float = 0.2
    cache_ttl_s: float = math.inf
    md_cache_ttl_s: float = math.inf
    seed: int = 1


@dataclass(frozen=True)
class SessionTurns:
    """Turns of drawn sessions, session after session; shape (turns,). turn: 0 for the first of a session."""

    session: NDArray[np.int64]
    turn: NDArray[np.int64]
    input_tokens: FloatArray
    uncached_tokens: FloatArray
    md_missing_tokens: FloatArray
    output_tokens: FloatArray
    pause_s: FloatArray
    after_tool: NDArray[np.bool_]


def draw_sessions(laws: SessionLaws, turns: int = _TURNS_DRAWN) -> SessionTurns:
    """About ``turns`` turns of whole sessions: every law is drawn by stratified quantiles in a seeded order.

    L_1 = system + first; L_k = L_{k-1} + kept answer O_{k-1} + growth_k. P holds the last prompt, u_k = L_k - L_{k-1}; MD
    also holds the answer it gave, v_k = L_k - L_{k-1} - O_{k-1} (when answers are kept). After a pause over the cache's
    ttl only the system prefix is left. Where L_k would pass context_max, the context shrinks to system + compact_to x
    (context_max - system) + growth_k, of which only the system prefix is cached.
    """
    rng = np.random.default_rng(laws.seed)

    def draw(law: QuantileLaw, n: int) -> FloatArray:
        return np.asarray(law.quantile(rng.permutation((np.arange(n) + 0.5) / n)), dtype=np.float64)

    pilot = np.maximum(np.rint(laws.turns.quantile((np.arange(1000) + 0.5) / 1000)), 1)
    sessions = max(200, math.ceil(turns / float(pilot.mean())))
    length_of = np.maximum(np.rint(draw(laws.turns, sessions)), 1).astype(np.int64)
    n = int(length_of.sum())
    ends = np.cumsum(length_of)
    session = np.repeat(np.arange(sessions), length_of)
    turn = np.arange(n) - np.repeat(ends - length_of, length_of)
    growth = np.maximum(np.rint(draw(laws.growth_tokens, n)), 1)
    growth[turn == 0] = np.maximum(np.rint(draw(laws.first_tokens, sessions)), 1)
    output = np.maximum(np.rint(draw(laws.output_tokens, n)), 1)
    after_tool = rng.permutation((np.arange(n) + 0.5) / n) < laws.tool_share
    pause = np.where(after_tool, draw(_pause(laws.tool_s), n), draw(_pause(laws.think_s), n))
    pause[turn == 0] = 0.0

    length, uncached, missing = np.empty(n), np.empty(n), np.empty(n)
    system = laws.system_tokens
    context = np.full(sessions, system)
    answer = np.zeros(sessions)
    for k in range(int(length_of.max())):
        live = np.flatnonzero(length_of > k)
        at = (ends - length_of)[live] + k
        kept = answer[live] if laws.answers_kept else np.zeros(live.size)
        total = context[live] + kept + growth[at]
        p_cached = context[live]
        md_cached = context[live] + kept
        compacted = (total > laws.context_max) & (k > 0)
        shrunk = system + laws.compact_to * (min(laws.context_max, 1e18) - system) + growth[at]
        total = np.rint(np.where(compacted, shrunk, total))
        p_cached = np.where(compacted | (pause[at] > laws.cache_ttl_s), system, p_cached)
        md_cached = np.where(compacted | (pause[at] > laws.md_cache_ttl_s), system, md_cached)
        length[at] = total
        uncached[at] = np.clip(total - p_cached, 1, total)
        missing[at] = np.clip(total - md_cached, 0, total)
        context[live] = total
        answer[live] = output[at]
    return SessionTurns(session, turn, length, uncached, missing, output, pause, after_tool)


def _pause(mean_and_cv: tuple[float, float]) -> QuantileLaw:
    mean, cv = mean_and_cv
    mu, sigma = lognormal_parameters(mean=max(mean, 1e-9), cv=cv)
    return LogNormal(mu, sigma)


def md_session_curve(laws: SessionLaws) -> HitCurve:
    """Hit rate at MD over the capacity of its cache, for sessions that bring 1 request/s (``at_rate`` for another).

    The cache of many sessions forgets after one idle time T (see ``prefix_cache.cache_hits``). A turn leaves L_k + O_k tokens
    behind; those that the next turn reads stay for min(pause, T), the others for T. Answers take no time here, and the one
    copy of the system prefix no room.
    """
    drawn = draw_sessions(replace(laws, md_cache_ttl_s=math.inf))
    system = laws.system_tokens
    follows = np.append(drawn.turn[1:] > 0, False)
    next_pause = np.where(follows, np.append(drawn.pause_s[1:], 0.0), np.inf)
    next_hit = np.where(follows, np.append((drawn.input_tokens - drawn.md_missing_tokens - system)[1:], 0.0), 0.0)
    kept = drawn.input_tokens + drawn.output_tokens - system
    borne = drawn.pause_s[(drawn.turn > 0) & (drawn.pause_s <= laws.md_cache_ttl_s)]
    idle = np.unique(np.quantile(borne, np.linspace(0, 1, 129))) if borne.size else np.zeros(1)
    order = np.argsort(next_pause, kind="stable")
    pause, hit = next_pause[order], next_hit[order]
    within = np.searchsorted(pause, idle, side="right")
    hit_sum = np.concatenate(([0.0], np.cumsum(hit)))
    waited = np.concatenate(([0.0], np.cumsum(hit * np.where(hit > 0, pause, 0.0))))
    token_seconds = waited[within] + (kept.sum() - hit_sum[within]) * idle
    n, total = drawn.turn.size, float(drawn.input_tokens.sum())
    capacity = np.concatenate(([0.0], token_seconds / n))
    rates = np.concatenate(([0.0], (n * system + hit_sum[within]) / total))
    return HitCurve(capacity, rates, np.concatenate(([0.0], idle)))


def session_rows(laws: SessionLaws, rows: int) -> ClassRows:
    """The turns of sessions as one class of requests: a turn is a request, a session is a task. Its curve is for 1 request/s."""
    drawn = draw_sessions(laws)
    atoms = reduce_requests(drawn.input_tokens, drawn.uncached_tokens, drawn.md_missing_tokens, drawn.output_tokens, rows=rows)
    turns = np.bincount(drawn.session).astype(np.float64)
    quantiles = np.quantile(turns, (np.arange(_TASK_QUANTILES) + 0.5) / _TASK_QUANTILES, method="inverted_cdf")
    return replace(
        atoms,
        turns_per_task=float(turns.mean()),
        task_turns=quantiles,
        md_curve=md_session_curve(laws),
        pause_s_per_turn=float(np.where(drawn.after_tool, drawn.pause_s, 0.0).mean()),
    )
