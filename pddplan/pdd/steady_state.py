"""The steady state of a fixed plan: which way requests go, and how loaded every pool and line is, found as a fixed point.

Routing depends on the transfer times, they on the line's load, it on what local completions stop; the eager tokens depend on RLD's step
time,
it on RLD's occupancy. The iteration starts from an empty system and is damped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pddplan.pdd.context import PlanContext
from pddplan.pdd.decode_pool import DecodeState, DecodeTables, decode_state, relay_state
from pddplan.pdd.flows import Flow, active_deployments, flows_of
from pddplan.pdd.handoff import Extend, Outcome, catch_up, one_shot, resolve, ship_kv
from pddplan.pdd.laws import GRID, NO_WAIT
from pddplan.pdd.md_cache import cache_bytes_per_instance
from pddplan.pdd.plan import Decision
from pddplan.pdd.prefill_queue import QueueLaw
from pddplan.pdd.routing import Atoms, route
from pddplan.pdd.transfer import LineState, line_state
from pddplan.queueing.decode import Spread
from pddplan.stages.profiled import ProfiledStage

FloatArray = NDArray[np.float64]

ROUNDS_MAX = 16
TOLERANCE = 2e-3
CONTEXT_ATOMS = 48


@dataclass(frozen=True)
class PrefillState:
    """A P pool under load. queue: what is added to a lone prefill, by size of the request; its bins are of the scenario's rows.

    beside_s: relay decode steps that each prefill pass carries where RLD is colocated.
    """

    utilisation: float
    rate_per_s: float
    service_mean_s: float
    queue: QueueLaw
    beside_s: float = 0.0

    @property
    def stable(self) -> bool:
        return self.utilisation < 1.0


@dataclass(frozen=True)
class Handed:
    """What the handoff does to every atom of a flow, shape (atoms,); zeros where nothing is handed over. md_tokens: decoded on MD."""

    stall_s: FloatArray
    extra_tokens: FloatArray
    rld_extra_s: FloatArray
    extend_s: FloatArray
    first_extend_s: FloatArray
    batches: FloatArray
    line_bytes: FloatArray
    md_tokens: FloatArray
    mode: str


@dataclass(frozen=True)
class SteadyState:
    """Keys are pool indices of the decision, or link names. ``atoms`` and ``handed`` go flow by flow."""

    flows: tuple[Flow, ...]
    atoms: tuple[Atoms, ...]
    handed: tuple[Handed, ...]
    lines: dict[str, LineState]
    line_bytes_per_s: dict[str, float]
    line_bytes_per_s_no_cache: dict[str, float]
    prefill: dict[int, PrefillState]
    relay: dict[int, DecodeState]
    decode: dict[int, DecodeState]
    converged: bool


@dataclass(frozen=True)
class _Arrivals:
    """Requests that enter a decode pool, over all flows: rate, mean and scv of work, residence-weighted context."""

    rate_per_s: float
    work_mean: float
    work_scv: float
    context_tokens: float
    resident_bytes: float


def extends(stage: object) -> bool:
    """Whether the stage can say what recomputing handed-over tokens costs; a measured profile without extend_s cannot."""
    return not isinstance(stage, ProfiledStage) or stage.extend is not None


def spread_of(dispatch: str) -> Spread:
    return "random" if dispatch == "cache_affinity" else "balanced"


def steady_state(context: PlanContext, decision: Decision, rate_scale: float = 1.0) -> SteadyState:
    """Solve the plan's fixed point at the demand times ``rate_scale``. Raises InputError for plans that no model can read."""
    flows = tuple(
        flow for d in active_deployments(context) if _has_pd(decision, d.name) for flow in flows_of(context, decision, d)
    )
    solver = _Solver(context, decision, flows, rate_scale)
    return solver.solve()


def _has_pd(decision: Decision, deployment: str) -> bool:
    return any(
        pool.configuration.deployment == deployment and pool.configuration.role in ("P", "MD") and pool.instances
        for pool in decision.pools
    )


class _Solver:
    """Working memory of one solution; nothing of it outlives ``solve``."""

    def __init__(self, context: PlanContext, decision: Decision, flows: Sequence[Flow], rate_scale: float) -> None:
        self.context, self.decision, self.flows, self.scale = context, decision, tuple(flows), rate_scale
        self.link_flows: dict[str, list[int]] = {}
        self.rld_flows: dict[int, list[int]] = {}
        self.md_flows: dict[int, list[int]] = {}
        self.p_flows: dict[int, list[int]] = {}
        for i, flow in enumerate(self.flows):
            if flow.link is not None:
                self.link_flows.setdefault(flow.link.name, []).append(i)
            if flow.rld is not None:
                self.rld_flows.setdefault(flow.rld, []).append(i)
            self.md_flows.setdefault(flow.md, []).append(i)
            self.p_flows.setdefault(flow.p, []).append(i)

    def rate(self, flow: Flow) -> float:
        return flow.rate_per_s * self.scale

    def tables(self, pool: int) -> DecodeTables:
        return self.context.decode_tables(self.decision.pools[pool].configuration, self.decision.settings)

    def solve(self) -> SteadyState:
        lines = {name: self._line(name, None, 0.0) for name in self.link_flows}
        loads: dict[str, float] = {}
        relay: dict[int, DecodeState] = {}
        token_s = {rld: self._first_token_s(rld) for rld in self.rld_flows}
        converged = False
        atoms: tuple[Atoms, ...] = ()
        handed: tuple[Handed, ...] = ()
        for round_number in range(ROUNDS_MAX):
            atoms = tuple(
                route(
                    flow,
                    lines.get(flow.link.name) if flow.link else None,
                    token_s.get(flow.rld if flow.rld is not None else -1, math.inf),
                    self.decision.settings,
                )
                for flow in self.flows
            )
            handed = tuple(self._hand_over(a, token_s, relay) for a in atoms)
            change = 0.0
            for name in self.link_flows:
                load = self._bytes_per_s(name, atoms, handed)
                damped = load if round_number == 0 else 0.5 * (loads[name] + load)
                change = max(change, abs(load - loads.get(name, 0.0)) / max(load, 1.0))
                loads[name] = damped
                lines[name] = self._line(name, atoms, damped / load if load > 0.0 else 1.0)
            for rld in self.rld_flows:
                relay[rld] = self._colocated(rld, self._relay(rld, atoms, handed))
                change = max(change, abs(relay[rld].token_mean_s - token_s[rld]) / relay[rld].token_mean_s)
                token_s[rld] = relay[rld].token_mean_s
            if change < TOLERANCE:
                converged = True
                break
        loads = {name: self._bytes_per_s(name, atoms, handed) for name in self.link_flows}
        return SteadyState(
            flows=self.flows,
            atoms=atoms,
            handed=handed,
            lines=lines,
            line_bytes_per_s=loads,
            line_bytes_per_s_no_cache={name: self._bytes_per_s_no_cache(name, atoms) for name in self.link_flows},
            prefill={p: self._prefill(p, relay.get(p)) for p in self.p_flows},
            relay=relay,
            decode={md: self._decode(md, atoms, handed) for md in self.md_flows},
            converged=converged,
        )

    def _line(self, name: str, atoms: Sequence[Atoms] | None, factor: float) -> LineState:
        flow = self.flows[self.link_flows[name][0]]
        assert flow.line is not None
        assert flow.link is not None
        full = self.context.deployments[flow.deployment.name].policy.queueing == "full"
        if atoms is None:
            return line_state(flow.line, flow.link, 0.0, np.ones(1), np.ones(1), full)
        members = self.link_flows[name]
        sizes = np.concatenate([atoms[i].sent_bytes for i in members])
        rates = np.concatenate([atoms[i].weight * self.rate(self.flows[i]) for i in members])
        return line_state(flow.line, flow.link, float(rates.sum()) * factor, sizes, rates, full)

    def _bytes_per_s(self, name: str, atoms: Sequence[Atoms], handed: Sequence[Handed]) -> float:
        return sum(
            self.rate(self.flows[i]) * float(atoms[i].weight @ (atoms[i].sent_bytes + handed[i].line_bytes))
            for i in self.link_flows[name]
        )

    def _bytes_per_s_no_cache(self, name: str, atoms: Sequence[Atoms]) -> float:
        total = 0.0
        for i in self.link_flows[name]:
            kept = np.where(atoms[i].sent_bytes > 0.0, self.flows[i].line_bytes_no_cache[atoms[i].row], 0.0)
            total += self.rate(self.flows[i]) * float(atoms[i].weight @ kept)
        return total

    def _first_token_s(self, rld: int) -> float:
        flow = self.flows[self.rld_flows[rld][0]]
        mix = flow.deployment.mix
        stage = self.tables(rld).stage
        return float(np.asarray(stage.step_s(np.ones(1), np.array([mix.mean(mix.input_tokens)])))[0]) / stage.tokens_per_step

    def _extend(self, md: int, context_tokens: float, most_tokens: float) -> Extend:
        """extend(n) at a mean context as a straight line through 1 and the most tokens handed over."""
        stage = self.tables(md).stage
        if not extends(stage):
            return Extend(np.zeros(()), np.zeros(()))
        many = max(float(most_tokens), 2.0)
        low, high = np.asarray(stage.extend_s(np.array([1.0, many]), np.full(2, context_tokens)), dtype=np.float64)
        slope = max(float(high - low) / (many - 1.0), 0.0)
        return Extend(np.asarray(low - slope), np.asarray(slope))

    def _hand_over(self, atoms: Atoms, token_s: dict[int, float], relay: dict[int, DecodeState]) -> Handed:
        flow = atoms.flow
        mix, policy = flow.deployment.mix, flow.deployment.policy
        output = mix.output_tokens[atoms.row]
        zero = np.zeros(atoms.row.size)
        left = output - atoms.eager_tokens
        goes = atoms.relayed & ~atoms.local & (left > 0.0) & (atoms.weight > 0.0)
        md_tokens = np.where(atoms.relayed, 0.0, output)
        if flow.rld is None or not goes.any():
            return Handed(zero, zero, zero, zero, zero, zero, zero, md_tokens, self.decision.settings.handoff)
        assert flow.line is not None
        state = relay.get(flow.rld)
        load = 0.0 if state is None else state.utilisation
        mode = resolve(self.decision.settings.handoff, load, policy.handoff_below)
        index = np.nonzero(goes)[0]
        eager, rest, rtt = atoms.eager_tokens[index], left[index], flow.line.rtt_s
        token = token_s[flow.rld]
        weight = atoms.weight[index]
        mean_context = float(weight @ (mix.input_tokens[atoms.row[index]] + eager)) / float(weight.sum())
        result: Outcome
        if mode == "ship-kv":
            kv = np.asarray(
                flow.deployment.kv.transfer_bytes(eager, mix.input_tokens[atoms.row[index]] + eager), dtype=np.float64
            )
            result = ship_kv(kv, atoms.flow_bytes_per_s[index], token, rtt)
        elif mode == "catch-up":
            result = catch_up(
                eager, rest, self._extend(flow.md, mean_context, eager.max()), token, rtt, policy.catch_up_threshold
            )
        else:
            result = one_shot(eager, self._extend(flow.md, mean_context, eager.max()), rtt)

        def placed(values: FloatArray) -> FloatArray:
            column = zero.copy()
            column[index] = values
            return column

        extra = placed(result.extra_tokens)
        md_tokens = np.where(goes, np.maximum(left - extra, 0.0), md_tokens)
        return Handed(
            placed(result.stall_s),
            extra,
            placed(result.rld_extra_s),
            placed(result.extend_s),
            placed(result.first_extend_s),
            placed(result.batches),
            placed(result.line_bytes),
            md_tokens,
            mode,
        )

    def _relay(self, rld: int, atoms: Sequence[Atoms], handed: Sequence[Handed]) -> DecodeState:
        members = self.rld_flows[rld]
        rates, holds, contexts = [], [], []
        for i in members:
            a = atoms[i]
            mix = a.flow.deployment.mix
            rates.append(np.where(a.relayed, a.weight, 0.0) * self.rate(a.flow))
            holds.append(a.hold_s + handed[i].rld_extra_s)
            contexts.append(mix.input_tokens[a.row] + a.eager_tokens / 2.0)
        arrivals = self._arrivals(rld, np.concatenate(rates), np.concatenate(holds), np.concatenate(contexts))
        table = self.tables(rld).table(arrivals.context_tokens, arrivals.resident_bytes)
        policy = self.flows[members[0]].deployment.policy
        return relay_state(
            table,
            self.decision.pools[rld].instances,
            arrivals.rate_per_s,
            arrivals.work_mean,
            arrivals.work_scv,
            spread=spread_of(policy.decode_dispatch),
            arrival_scv=self._door_scv(members, arrivals.rate_per_s),
            queueing=policy.queueing == "full",
        )

    def _colocated(self, rld: int, state: DecodeState) -> DecodeState:
        """RLD on P's own instances: while P prefills, a pass lies between two decode steps."""
        if rld not in self.p_flows:
            return state
        configuration, settings = self.decision.pools[rld].configuration, self.decision.settings
        mix = self.context.deployments[configuration.deployment].mix
        rows = self.context.prefill_rows(configuration, settings)
        weight = np.sum([np.bincount(self.flows[i].origin, self.flows[i].share, mix.rows) for i in self.p_flows[rld]], axis=0)
        rate = self.rate(self.flows[self.p_flows[rld][0]])
        busy = min(rate * float(weight @ rows.occupancy_s) / self.decision.pools[rld].instances, 1.0)
        chunks = np.maximum(np.ceil(mix.uncached_tokens / settings.prefill_chunk_tokens), 1.0)
        between = busy * float(weight @ rows.latency_s) / float(weight @ chunks) / state.tokens_per_step
        return replace(state, token_s=state.token_s + between, token_mean_s=state.token_mean_s + between)

    def _decode(self, md: int, atoms: Sequence[Atoms], handed: Sequence[Handed]) -> DecodeState:
        members = self.md_flows[md]
        rates, tokens, contexts, extends, extend_rates = [], [], [], [], []
        for i in members:
            a, h = atoms[i], handed[i]
            mix = a.flow.deployment.mix
            rate = a.weight * self.rate(a.flow)
            rates.append(np.where(h.md_tokens > 0.0, rate, 0.0))
            tokens.append(h.md_tokens)
            contexts.append(mix.input_tokens[a.row] + mix.output_tokens[a.row] - h.md_tokens / 2.0)
            more = np.maximum(h.batches - 1.0, 0.0)
            extends += [h.first_extend_s, (h.extend_s - h.first_extend_s) / np.maximum(more, 1.0)]
            extend_rates += [np.where(h.first_extend_s > 0.0, rate, 0.0), rate * more]
        arrivals = self._arrivals(md, np.concatenate(rates), np.concatenate(tokens), np.concatenate(contexts))
        cache = cache_bytes_per_instance(self.context, self.decision, self.decision.pools[md])
        table = self.tables(md).table(arrivals.context_tokens, arrivals.resident_bytes, cache)
        extend, extend_rate = np.concatenate(extends), np.concatenate(extend_rates)
        policy = self.flows[members[0]].deployment.policy
        return decode_state(
            table,
            self.decision.pools[md].instances,
            arrivals.rate_per_s,
            arrivals.work_mean,
            spread=spread_of(policy.decode_dispatch),
            token_scv=arrivals.work_scv,
            arrival_scv=self._door_scv(members, arrivals.rate_per_s),
            extend_s=extend[extend_rate > 0.0],
            extend_rate_per_s=extend_rate[extend_rate > 0.0],
            queueing=policy.queueing == "full",
        )

    def _door_scv(self, members: Sequence[int], rate_per_s: float) -> float:
        """Dispersion of arrivals at a decode pool over the time requests stay: prefill delays bursts, but does not undo them."""
        owners = {self.flows[i].deployment.name: self.flows[i] for i in members}
        total = sum(self.rate(flow) for flow in owners.values())
        scv = sum(self.rate(flow) * flow.deployment.mix.arrival_scv for flow in owners.values()) / total
        return 1.0 + min(rate_per_s / total, 1.0) * (scv - 1.0)

    def _arrivals(self, pool: int, rates: FloatArray, work: FloatArray, contexts: FloatArray) -> _Arrivals:
        """Moments of the requests entering a pool; context and memory are weighted by residence."""
        rate = float(rates.sum())
        if rate <= 0.0:
            return _Arrivals(0.0, 0.0, 1.0, 1.0, 0.0)
        mean = float(rates @ work) / rate
        scv = max(float(rates @ work**2) / rate / mean**2 - 1.0, 0.0) if mean > 0.0 else 0.0
        residence = rates * work
        total = float(residence.sum())
        if total <= 0.0:
            residence, total = rates, rate
        mean_context = float(residence @ contexts) / total
        order = np.argsort(contexts)
        cumulative = np.cumsum(residence[order])
        picks = np.searchsorted(cumulative, (np.arange(CONTEXT_ATOMS) + 0.5) / CONTEXT_ATOMS * cumulative[-1])
        sample = contexts[order][np.minimum(picks, contexts.size - 1)]
        resident = float(np.mean(np.asarray(self.tables(pool).stage.kv_resident_bytes(sample))))
        return _Arrivals(rate, mean, scv, mean_context, resident)

    def _prefill(self, p: int, relay: DecodeState | None) -> PrefillState:
        members = self.p_flows[p]
        flow = self.flows[members[0]]
        policy, mix = flow.deployment.policy, self.context.deployments[flow.deployment.name].mix
        rows = mix.rows
        shares = [np.bincount(self.flows[i].origin, self.flows[i].share, rows) for i in members]
        share = np.asarray(np.sum(shares, axis=0), dtype=np.float64)
        part = float(share.sum())
        rate = part * self.rate(flow)
        configuration, settings = self.decision.pools[p].configuration, self.decision.settings
        services = self.context.prefill_rows(configuration, settings).occupancy_s
        instances = self.decision.pools[p].instances
        mean = float(share @ services) / part if part > 0.0 else 0.0
        beside = 0.0 if relay is None else round(relay.step_mean_s * -math.expm1(-relay.batch_mean), 6)
        chunks = np.maximum(np.ceil(mix.uncached_tokens / settings.prefill_chunk_tokens), 1.0)
        steps = beside * float(share @ chunks) / part if part > 0.0 else 0.0
        load = rate * (mean + steps) / instances
        if policy.queueing == "none":
            over = load > 1.0 + 1e-9
            law = QueueLaw(
                np.zeros(rows, dtype=np.int64), (GRID.never() if over else NO_WAIT,), math.inf if over else 0.0, "capacity"
            )
            return PrefillState(load if over else min(load, 1.0 - 1e-12), rate, mean, law, beside)
        scv = 1.0 + part * (mix.arrival_scv - 1.0)
        queue = self.context.prefill_queue(configuration, settings, instances, rate, share, scv, beside_s=beside)
        return PrefillState(load, rate, mean, queue, beside)
