"""Stability of sessions: a turn that ends on RLD leaves MD's cache behind, and the next turn has more to transfer.

From a fresh session a turn ends locally with probability s, from a stale one with p. Under PDD a turn that reaches MD heals the
session: the
share of stale turns settles at x = s / (s + 1 - p). Under the P-RLD pipeline nothing heals a session whose missing tokens only grow: after
k turns at entry rate q, 1 - (1 - q)^k of the sessions are stale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pddplan.pdd.context import PlanContext
from pddplan.pdd.decode_pool import DecodeTable
from pddplan.pdd.flows import Flow
from pddplan.pdd.plan import Decision, Feedback, Settings
from pddplan.pdd.steady_state import SteadyState, steady_state

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Variant = Literal["P-RLD", "PDD", "PDD with filter"]

VARIANTS: tuple[Variant, ...] = ("P-RLD", "PDD", "PDD with filter")
SESSIONS = 4000
TURNS = 60
SEED = 20260731
PACE_ROUNDS = 4
DEPTHS = 12
"""Local turns in a row that the closed form follows; deeper ones are like the last."""


def stale_share(s: ArrayLike, p: ArrayLike) -> FloatArray:
    """Share of stale turns in the long run, x = s / (s + 1 - p): from fresh a turn ends locally with probability s, from stale with p."""
    entering, staying = np.asarray(s, dtype=np.float64), np.asarray(p, dtype=np.float64)
    down = entering + 1.0 - staying
    share = np.divide(entering, down, out=np.ones(np.broadcast(entering, staying).shape), where=down > 0.0)
    return np.asarray(np.minimum(share, 1.0))


def stale_turns_without_healing(q: float, turns: int) -> float:
    """Share of the turns of sessions of ``turns`` turns that are stale when a session turns stale at rate q a turn and never heals:
    the mean of 1 - (1 - q)^k over k = 1..turns."""
    if q <= 0.0:
        return 0.0
    return 1.0 - (1.0 - q) * (1.0 - (1.0 - q) ** turns) / (q * turns)


@dataclass(frozen=True)
class Trajectory:
    """One policy turn by turn, arrays of shape (turns,). All sessions start fresh.

    local_share: of the turns that end on RLD. stale_share: of sessions whose MD cache is behind at the turn's start. rld_utilisation:
    load of the
    RLD pool if all sessions were at this turn. md_hit_rate: share of input tokens that MD holds. line_bytes: per request.
    overload_turn: first
    turn (from 1) with RLD load of 1 or more, None when there is none. bounded: RLD load stays under 1 to the last turn.
    """

    variant: Variant
    local_share: FloatArray
    stale_share: FloatArray
    rld_utilisation: FloatArray
    md_hit_rate: FloatArray
    line_bytes: FloatArray
    overload_turn: int | None

    @property
    def bounded(self) -> bool:
        return self.overload_turn is None


@dataclass(frozen=True)
class Stability:
    """Feedback of a plan's own policy, and the three policies turn by turn."""

    deployment: str
    feedback: Feedback
    trajectories: tuple[Trajectory, ...]


def feedback(context: PlanContext, decision: Decision, state: SteadyState | None = None) -> Feedback | None:
    """Closed-form feedback of the plan's policy; None for a plan without RLD, which has none."""
    solved = state or steady_state(context, decision)
    flow = _main_flow(solved)
    if flow is None or decision.settings.relay_threshold_s is None:
        return None
    rules = _Rules.of(context, decision, solved, flow, _own_variant(flow))
    fresh_load = solved.relay[flow.rld].utilisation if flow.rld is not None else 0.0
    found = _settled(rules)
    for _ in range(PACE_ROUNDS):
        slower = rules.slowed(found.rld_utilisation, fresh_load)
        if slower.token_s <= rules.token_s * 1.001:
            break
        found = _settled(slower)
    return found


def _settled(rules: _Rules) -> Feedback:
    """Long-run shares of fresh and stale turns, by the chain of local turns in a row (each depth with its mean lag)."""
    mix = rules.flow.deployment.mix
    rows = np.arange(mix.rows)
    weight = rules.flow.share / rules.flow.share.sum()
    shares, local_given, holds = [1.0], [], []
    lag = 0.0
    for _ in range(DEPTHS):
        turn = rules.turn(np.minimum(mix.md_missing_tokens + lag, mix.input_tokens), rows)
        local = float(weight @ turn.local)
        local_given.append(local)
        holds.append(float(weight @ turn.hold_s))
        if local <= 0.0:
            break
        lag = float((weight * turn.local) @ turn.missing_after) / local
        shares.append(shares[-1] * local)
    s = local_given[0]
    if s <= 0.0:
        return Feedback(0.0, 0.0, 0.0, rules.utilisation(holds[0]), 1.0)
    depth = np.array(shares[: len(local_given)])
    last = local_given[-1]
    if last >= 1.0 - 1e-9:
        depth = np.append(np.zeros(depth.size - 1), 1.0) if depth.size > 1 else depth
    else:
        depth[-1] /= 1.0 - last
    depth = depth / depth.sum()
    stale = float(depth[1:].sum())
    p = float(depth[1:] @ np.array(local_given[1:])) / stale if stale > 0.0 else 0.0
    hold_stale = float(depth[1:] @ np.array(holds[1:])) / stale if stale > 0.0 else holds[0]
    load = rules.utilisation(float(depth @ np.array(holds)))
    return Feedback(s, min(p, 1.0), min(stale, 1.0), load, _largest_share(rules, holds[0], hold_stale, min(p, 1.0)))


def is_stable(context: PlanContext, decision: Decision, state: SteadyState | None = None) -> bool:
    """Whether the session feedback of a plan stays bounded (RLD's load under 1 in the long run)."""
    found = feedback(context, decision, state)
    return found is None or found.bounded


def stability(context: PlanContext, decision: Decision, turns: int = TURNS) -> Stability | None:
    """The three policies turn by turn on a seeded population of sessions, at the plan's transfer and step times; None without RLD."""
    state = steady_state(context, decision)
    flow = _main_flow(state)
    own = feedback(context, decision, state)
    if flow is None or own is None:
        return None
    trajectories = tuple(_trajectory(_Rules.of(context, decision, state, flow, variant), turns) for variant in VARIANTS)
    return Stability(flow.deployment.name, own, trajectories)


def _main_flow(state: SteadyState) -> Flow | None:
    """The flow with RLD that carries most requests; None where none carries any."""
    relaying = [flow for flow in state.flows if flow.rld is not None and flow.line is not None and flow.share.any()]
    return max(relaying, key=lambda flow: float(flow.share.sum()) * flow.rate_per_s) if relaying else None


def _own_variant(flow: Flow) -> Variant:
    if flow.deployment.policy.relayed_end == "rld":
        return "P-RLD"
    return "PDD" if flow.deployment.singular is None else "PDD with filter"


@dataclass(frozen=True)
class _Turn:
    local: BoolArray
    hold_s: FloatArray
    sent_bytes: FloatArray
    missing_after: FloatArray


@dataclass(frozen=True)
class _Rules:
    """What one turn does under a variant, at the plan's transfer rate and RLD pace."""

    flow: Flow
    variant: Variant
    settings: Settings
    threshold_s: float
    seconds_per_byte: float
    wait_s: float
    token_s: float
    rate_per_s: float
    places: float
    table: DecodeTable

    @classmethod
    def of(cls, context: PlanContext, decision: Decision, state: SteadyState, flow: Flow, variant: Variant) -> _Rules:
        assert flow.rld is not None
        assert flow.link is not None
        line, relay = state.lines[flow.link.name], state.relay[flow.rld]
        pool = decision.pools[flow.rld]
        threshold = decision.settings.relay_threshold_s
        context_tokens = flow.deployment.mix.mean(flow.deployment.mix.input_tokens)
        tables = context.decode_tables(pool.configuration, decision.settings)
        resident = float(np.asarray(tables.stage.kv_resident_bytes(np.array([context_tokens])))[0])
        return cls(
            flow=flow,
            variant=variant,
            settings=decision.settings,
            threshold_s=math.inf if threshold is None else threshold,
            seconds_per_byte=float(line.probability @ (1.0 / line.bytes_per_s)),
            wait_s=float(line.probability @ line.wait_s),
            token_s=relay.token_mean_s,
            rate_per_s=flow.rate_per_s * float(flow.share.sum()),
            places=pool.instances * relay.batch_max,
            table=tables.table(context_tokens, resident),
        )

    def turn(self, missing_tokens: FloatArray, row: NDArray[np.int64]) -> _Turn:
        """Turns of mix rows ``row`` whose MD lacks ``missing_tokens``; both of shape (n,)."""
        flow, line = self.flow, self.flow.line
        assert line is not None
        mix = flow.deployment.mix
        inputs, output = mix.input_tokens[row], mix.output_tokens[row]
        size = np.asarray(flow.deployment.kv.transfer_bytes(missing_tokens, inputs), dtype=np.float64)
        size = np.where(missing_tokens > 0.0, size, 0.0)
        transfer = np.where(size > 0.0, self.wait_s + size * self.seconds_per_byte, 0.0) + line.rtt_s
        hop = flow.hop_s[row]
        answer = hop + output * self.token_s
        oracle = np.zeros(row.size, dtype=bool)
        singular = flow.deployment.singular
        if self.variant == "PDD with filter" and singular is not None and singular.mode == "oracle":
            uncached = mix.uncached_tokens[row]
            oracle = (uncached > self.settings.singular_uncached_over) & (output < self.settings.singular_output_under)
        relayed = (transfer > self.threshold_s) | oracle
        if self.variant == "P-RLD":
            local = relayed
            sent = np.where(relayed, 0.0, size)
        elif self.variant == "PDD":
            local = relayed & (answer <= transfer)
            sent = size
        else:
            local = relayed & ((answer <= transfer) | oracle)
            done = np.clip((answer - self.wait_s - line.rtt_s) / np.maximum(size * self.seconds_per_byte, 1e-12), 0.0, 1.0)
            sent = np.where(local, np.where(oracle, 0.0, size * done), size)
        hold = np.where(local, output * self.token_s, np.where(relayed, np.maximum(transfer - hop, self.token_s), 0.0))
        # without the filter the KV of the input still arrives; only the answer's own is missing, and its ids are cheap to send
        behind = (
            np.zeros(row.size)
            if self.variant == "PDD"
            else np.where(local, missing_tokens - sent / np.maximum(size, 1.0) * missing_tokens + output, 0.0)
        )
        return _Turn(local, hold, sent, behind)

    def slowed(self, load: float, from_load: float) -> _Rules:
        """The rules with RLD's pace at ``load`` in place of the one at ``from_load``: steps lengthen with the batch."""
        if self.table.batch_max < 1:
            return self
        batches = np.arange(1, self.table.batch_max + 1)
        now, before = (
            float(np.interp(min(x, 1.0) * self.table.batch_max, batches, self.table.step_s)) for x in (load, from_load)
        )
        return replace(self, token_s=self.token_s * max(now / before, 1.0))

    def utilisation(self, hold_s: float) -> float:
        """RLD load at a mean residence per request."""
        return self.rate_per_s * hold_s / self.places if self.places > 0 else math.inf


def _largest_share(rules: _Rules, hold_fresh: float, hold_stale: float, p: float) -> float:
    """Largest share of locally finished requests, at the same p, whose long-run RLD load is under 1."""
    room = rules.places / rules.rate_per_s if rules.rate_per_s > 0.0 else math.inf
    if hold_stale <= room and hold_fresh <= room:
        return 1.0
    if hold_fresh >= room:
        return 0.0
    x = (room - hold_fresh) / (hold_stale - hold_fresh)
    return min(x * (1.0 - p) / (1.0 - x), 1.0) if x < 1.0 else 1.0


def _trajectory(rules: _Rules, turns: int) -> Trajectory:
    """A seeded population of sessions over ``turns`` turns; residence on RLD stretches with its own load."""
    mix, flow = rules.flow.deployment.mix, rules.flow
    rng = np.random.default_rng(SEED)
    edges = np.cumsum(flow.share / flow.share.sum())
    lag = np.zeros(SESSIONS)
    columns: list[tuple[float, float, float, float, float]] = []
    overload: int | None = None
    first_load: float | None = None
    unloaded = rules
    for number in range(1, turns + 1):
        level = (rng.permutation(SESSIONS) + rng.random(SESSIONS)) / SESSIONS
        row = np.minimum(np.searchsorted(edges, level), mix.rows - 1)
        missing = np.minimum(mix.md_missing_tokens[row] + lag, mix.input_tokens[row])
        stale = float(np.mean(lag > 0.0))
        turn = rules.turn(missing, row)
        load = rules.utilisation(float(turn.hold_s.mean()))
        first_load = load if first_load is None else first_load
        pace = unloaded.slowed(load, first_load)
        hits = 1.0 - float(missing.sum()) / float(mix.input_tokens[row].sum())
        columns.append((float(turn.local.mean()), stale, load, hits, float(turn.sent_bytes.mean())))
        if load >= 1.0 and overload is None:
            overload = number
        lag, rules = turn.missing_after, pace
    local, stale_column, loads, hit, sent = (np.array(column) for column in zip(*columns, strict=True))
    return Trajectory(rules.variant, local, stale_column, loads, hit, sent, overload)
