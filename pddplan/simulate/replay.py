"""One run of a plan, request by request: SimPy processes that carry requests through prefill, transfer, relay, handoff and decode."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from pddplan.errors import InputError, Problem
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.flows import rdma_s, transfer_of
from pddplan.pdd.handoff import SHIP_KV_COPY_S_PER_BYTE
from pddplan.pdd.md_cache import cache_bytes_per_instance
from pddplan.pdd.plan import Decision, LinkPlan, Pool
from pddplan.pdd.sharing import Part, row_shares, separated_parts
from pddplan.pdd.steady_state import extends
from pddplan.simulate.aggregated_pool import AggregatedPool
from pddplan.simulate.decode_pool import DecodeInstance, DecodePool, Job
from pddplan.simulate.line import SharedLine, Transfer
from pddplan.simulate.prefill_pool import Prefill, PrefillPool
from pddplan.simulate.records import PIPELINES, Records, Run, longest_gaps
from pddplan.simulate.requests import Arrivals
from pddplan.simulate.stage_tables import DecodeTimes, PrefillTimes
from pddplan.stages.profiled import ProfiledStage

FloatArray = NDArray[np.float64]
Steps = Generator[simpy.Event, Any, Any]

CATCH_UP_BATCHES_MOST = 12


class Replay:
    """A plan under one stream of arrivals per deployment. ``run`` may be called once."""

    def __init__(self, context: PlanContext, decision: Decision, arrivals: Mapping[str, Arrivals], seed: int) -> None:
        self.env = simpy.Environment()
        self.context, self.decision = context, decision
        self.rng = np.random.default_rng(seed)
        self.lines: dict[str, SharedLine] = {}
        self.pools: dict[int, PrefillPool | DecodePool | AggregatedPool] = {}
        self.colocated: dict[int, DecodePool] = {}  # relay decode on the instances of a P pool
        self.services = [_Service(self, context.deployments[name], stream) for name, stream in arrivals.items()]

    def line(self, link: LinkPlan) -> SharedLine:
        """The line of a link, made on first use."""
        if link.name not in self.lines:
            spec = self.context.lines[link.name]
            self.lines[link.name] = SharedLine(
                self.env, spec.rate_cap_bytes_per_s(link), spec.flow_bytes_per_s, spec.connections, spec.flow_sigma, self.rng
            )
        return self.lines[link.name]

    def run(self, skip: int, measure: int, progress: Callable[[int], None] | None = None) -> Run:
        """Replay until ``measure`` requests of each deployment, after its first ``skip``, are done (or nothing can happen any more)."""
        for service in self.services:
            service.start(skip, measure)
        reported = 0
        try:
            while any(service.remaining > 0 for service in self.services):
                for _ in range(2000):
                    self.env.step()
                done = sum(measure - service.remaining for service in self.services)
                if progress is not None and done > reported:
                    progress(done - reported)
                    reported = done
        except simpy.core.EmptySchedule:
            pass
        now = self.env.now
        loads = {i: self._load(pool, now) for i, pool in self.pools.items()}
        carried = {name: line.sent_bytes / (line.capacity * now) if line.capacity > 0 else math.inf for name, line in self.lines.items()}
        return Run(tuple(service.records() for service in self.services), loads, carried, now)

    def _load(self, pool: PrefillPool | DecodePool | AggregatedPool, now: float) -> float:
        if isinstance(pool, DecodePool):
            places = max(pool.times.places, 1)
            return sum(i.occupied_seconds for i in pool.instances) / (now * len(pool.instances) * places)
        return sum(i.busy_s for i in pool.instances) / (now * len(pool.instances))


class _Service:
    """The part of the replay that serves one deployment."""

    def __init__(self, replay: Replay, deployment: Deployment, arrivals: Arrivals) -> None:
        self.replay, self.deployment, self.arrivals = replay, deployment, arrivals
        self.env, self.policy, self.settings = replay.env, deployment.policy, replay.decision.settings
        self.context, self.rng = replay.context, replay.rng
        n = arrivals.requests
        self.input, self.output = arrivals.input_tokens, arrivals.output_tokens
        self.first, self.last = np.full(n, np.inf), np.full(n, np.inf)
        self.arrived = np.full(n, np.inf)
        self.own_gap = np.zeros(n)
        self.spans: list[list[tuple[Any, float, float]]] = [[] for _ in range(n)]
        self.pipeline = np.zeros(n, dtype=np.int64)
        self.relay_tokens = np.zeros(n)
        self.order: list[int] = []
        self.remaining = 0
        self.next_turn = {int(before): int(i) for i, before in enumerate(arrivals.follows) if before >= 0}
        self.md_holds: dict[int, float] = {}
        self.early: dict[int, Transfer] = {}
        self.prefilled_at: dict[int, DecodeInstance] = {}
        self._build()

    def _indices(self, role: str) -> list[int]:
        return [
            i
            for i, pool in enumerate(self.replay.decision.pools)
            if pool.configuration.role == role and pool.configuration.deployment == self.deployment.name and pool.instances
        ]

    def _build(self) -> None:
        pools = self.replay.decision.pools
        self.p, self.rld, self.md, self.agg = (self._indices(role) for role in ("P", "RLD", "MD", "AGG"))
        taken = row_shares(self.context, self.replay.decision, self.deployment)
        self.agg_share = np.array([taken[i] for i in self.agg])
        self.parts = separated_parts(self.context, self.replay.decision, self.deployment)
        self.resident: dict[int, FloatArray] = {}
        for i in self.p:
            self.replay.pools[i] = PrefillPool(self.env, self._prefill_times(i), pools[i].instances, self.policy.dispatch, self.rng)
        for i in (*self.rld, *self.md):
            self.replay.pools[i] = DecodePool(self.env, self._decode_times(i), pools[i].instances, self.policy.decode_dispatch, self.rng)
        for i in self.agg:
            stage = self._stage(i)
            if isinstance(stage, ProfiledStage) and stage.rate is not None:
                found = f"pool {i} ({pools[i].configuration.chip}) is known by its rate alone, its latencies are not"
                raise InputError(
                    Problem("simulate", found, "a plan whose instances have times: roofline, or profiles with prefill_s and step_s")
                )
            dispatch = self.policy.decode_dispatch if self.policy.dispatch == "cache_affinity" else self.policy.dispatch
            self.replay.pools[i] = AggregatedPool(
                self.env, self._prefill_times(i), self._decode_times(i), pools[i].instances, dispatch, self.rng
            )
        if not self.agg and not (self.p and self.md):
            raise InputError(Problem("simulate", f"the plan has no pools that serve {self.deployment.name}", "P and MD, or AGG pools"))
        self.ways: dict[int, dict[int, _Way]] = {}
        for part in self.parts:
            for i in part.of(self.replay.decision, "P"):
                self.ways.setdefault(i, {}).update(self._way(i, part))

    def _stage(self, pool: int) -> Any:
        return self.context.instance(self.replay.decision.pools[pool].configuration, self.settings)

    def _prefill_times(self, pool: int) -> PrefillTimes:
        parallel = self.replay.decision.pools[pool].configuration.parallel
        cached = self.input - self.arrivals.uncached_tokens
        ranks = parallel.dp * parallel.pp
        packs = self.settings.tail_packing and not isinstance(self._stage(pool), ProfiledStage)  # measured one request at a time
        return PrefillTimes.of(
            self._stage(pool), self.arrivals.uncached_tokens, cached, float(self.settings.prefill_chunk_tokens), ranks, packs
        )

    def _decode_times(self, pool: int) -> DecodeTimes:
        stage = self._stage(pool)
        middle = self.input + self.output / 2.0
        self.resident[pool] = np.asarray(stage.kv_resident_bytes(middle), dtype=float)
        role = self.replay.decision.pools[pool].configuration.role
        chosen = self.replay.decision.pools[pool]
        cache = cache_bytes_per_instance(self.context, self.replay.decision, chosen) if role == "MD" else 0.0
        relays = bool(self.rld) or self.policy.rld == "colocated"
        handed = role == "MD" and relays and self.settings.handoff != "ship-kv" and self.settings.relay_threshold_s is not None
        contexts = np.concatenate([self.input, self.input + self.output])
        return DecodeTimes.of(stage, contexts, middle, cache, handed and extends(stage))

    def _way(self, p: int, part: Part) -> dict[int, _Way]:
        """What lies between a P pool and each MD pool of a part."""
        pools = self.replay.decision.pools
        kv = transfer_of(self.context, self.deployment, pools[p], self.settings)
        missing = self.arrivals.md_missing_tokens
        sizes = np.where(missing > 0.0, np.asarray(kv.transfer_bytes(missing, self.input), dtype=float), 0.0)
        ways = {}
        for md in part.of(self.replay.decision, "MD"):
            here, there = pools[p].configuration.site, pools[md].configuration.site
            if here == there:
                ways[md] = _Way(None, 0.0, None, kv, pools[p], pools[md], sizes, sizes)
                continue
            spec = self.context.line_between(here, there)
            if spec is None:
                raise InputError(Problem("links", f"no link joins {here} (P) and {there} (MD)", "a link between the rooms of the plan"))
            link = next((link for link in self.replay.decision.links if link.name == spec.name), None)
            link = link or LinkPlan(spec.name, here, there, 0, spec.circuit_bytes_per_s)
            relays = [i for i in part.of(self.replay.decision, "RLD") if pools[i].configuration.site == here]
            if self.policy.rld == "colocated" and not relays:
                self._colocate(p)
                relays = [p]
            whole = np.asarray(kv.transfer_bytes(self.input, self.input), dtype=float)
            ways[md] = _Way(self.replay.line(link), spec.rtt_s, relays, kv, pools[p], pools[md], sizes, whole)
        return ways

    def start(self, skip: int, measure: int) -> None:
        self.skip, self.measure, self.remaining = skip, measure, measure
        self.env.process(self._source())

    def _source(self) -> Steps:
        times = self.arrivals.time_s
        for i in np.argsort(times, kind="stable"):
            if not math.isfinite(times[i]):
                return
            if times[i] > self.env.now:
                yield self.env.timeout(times[i] - self.env.now)
            self.env.process(self._request(int(i)))

    def _request(self, i: int) -> Steps:
        position = len(self.order)
        self.order.append(i)
        self.arrived[i] = self.env.now
        yield from self._serve(i)
        if self.skip <= position < self.skip + self.measure:
            self.remaining -= 1
        follower = self.next_turn.get(i)
        if follower is not None:
            yield self.env.timeout(self.arrivals.pause_s[follower])
            self.env.process(self._request(follower))

    def _serve(self, i: int) -> Steps:
        agg = self._choose_agg(i)
        if agg is not None:
            yield from self._aggregated(i, agg)
            return
        part = self._choose_part(i)
        md = self._choose(part.of(self.replay.decision, "MD"))
        p = self._choose_p(i, part, md)
        way = self.ways[p][md]
        pool = self.replay.pools[p]
        assert isinstance(pool, PrefillPool)
        session = int(self.arrivals.session[i])
        size = self._line_bytes(i, way, session)
        prefill = pool.enter(i, session)
        early = (
            self.env.process(self._early_transfer(i, pool, prefill, way, size))
            if way.line is not None and self.policy.overlap != "none"
            else None
        )
        yield prefill.done
        if prefill.instance is not None and prefill.instance.beside is not None:
            self.prefilled_at[i] = prefill.instance.beside
        yield self.env.timeout(pool.times.handling_s + self.policy.fixed_ttft)
        if way.line is None:
            hop = float(rdma_s(self.context, way.source, way.target, np.array([size]))[0])
            yield self.env.timeout(max(hop, float(self.arrivals.md_load_s[i])))
            yield from self._decode_on_md(i, md)
            return
        yield from self._across(i, way, md, size, session, early)

    def _line_bytes(self, i: int, way: _Way, session: int) -> float:
        """KV that must cross the line for a request."""
        if self.md_holds.get(session) is None:
            return float(way.line_bytes[i])
        missing = self.missing_of(i, session)
        return float(way.kv.transfer_bytes(np.array([missing]), self.input[i : i + 1])[0]) if missing > 0.0 else 0.0

    def missing_of(self, i: int, session: int) -> float:
        """Tokens that MD lacks: as the stream says, or more when earlier turns of the session ended on RLD."""
        held = self.input[i] - self.arrivals.md_missing_tokens[i]
        return (
            float(self.input[i] - min(held, self.md_holds.get(session, math.inf)))
            if session >= 0
            else float(self.arrivals.md_missing_tokens[i])
        )

    def _early_transfer(self, i: int, pool: PrefillPool, prefill: Prefill, way: _Way, size: float) -> Steps:
        """Overlap: the transfer starts with the first finished piece and cannot end before the last one has been sent."""
        assert way.line is not None
        yield prefill.started
        pieces = len(self.deployment.spec.layers)
        if self.policy.overlap == "chunk":
            pieces = max(math.ceil(self.arrivals.uncached_tokens[i] / self.settings.prefill_chunk_tokens), 1)
        yield self.env.timeout(float(pool.times.alone_s[i]) / pieces)
        transfer = self.early[i] = way.line.send(size)
        yield transfer.done & prefill.done
        if transfer.ended_s < self.env.now:
            yield self.env.timeout(size / pieces / transfer.cap_bytes_per_s)

    def _across(self, i: int, way: _Way, md: int, size: float, session: int, early: simpy.Process | None) -> Steps:
        """Over the line: straight to MD, or with a relay in front of it."""
        line = way.line
        assert line is not None
        settings, singular = self.settings, self.deployment.singular
        threshold = settings.relay_threshold_s
        relay = False
        never_sent = False
        if way.relays and threshold is not None:
            expected = line.predicted_s(size) + way.rtt_s
            never_sent = (
                singular is not None
                and singular.mode == "oracle"
                and self.arrivals.uncached_tokens[i] > settings.singular_uncached_over
                and self.output[i] < settings.singular_output_under
            )
            relay = expected > threshold or never_sent
        ends_there = self.policy.relayed_end == "rld"
        if relay and (never_sent or ends_there):
            yield from self._on_relay(i, way, md, session, None, self.env.event())
            return
        transfer = line.send(size) if early is None else None
        arrived = self.env.process(self._arrival(i, transfer.done if transfer is not None else early, way.rtt_s))
        if not relay:
            yield arrived
            self._now_on_md(session)
            yield from self._decode_on_md(i, md)
            return
        yield from self._on_relay(i, way, md, session, transfer, arrived)

    def _arrival(self, i: int, sent: Any, rtt_s: float) -> Steps:
        """All of a request's KV is at MD: what crossed the line, and what MD loads from its own tier meanwhile."""
        loaded = self.env.now + float(self.arrivals.md_load_s[i])
        yield sent
        yield self.env.timeout(max(rtt_s, loaded - self.env.now))

    def _on_relay(self, i: int, way: _Way, md: int, session: int, transfer: Transfer | None, arrived: simpy.Event) -> Steps:
        assert way.relays
        which = self._choose(way.relays)
        pool = self._relay_pool(which)
        if pool is self.replay.colocated.get(which):
            job = pool.enter(self.input[i], float(self.resident[which][i]), session, self.prefilled_at[i])
        else:
            yield self.env.timeout(self._hop_s(i, way, which))
            job = pool.enter(self.input[i], float(self.resident[which][i]), session)
        yield job.placed | arrived
        if not job.placed.triggered:
            pool.withdraw(job)
            self._now_on_md(session)
            yield from self._decode_on_md(i, md)
            return
        instance = job.instance
        assert instance is not None
        instance.decode(job, self.output[i])
        yield job.done | arrived
        if job.done.triggered:
            self._ended_on_relay(i, session, job, instance)
            transfer = transfer or self.early.get(i)
            if transfer is not None and self.deployment.singular is not None:
                assert way.line is not None
                way.line.cancel(transfer)
            return
        self._now_on_md(session)
        yield from self._hand_over(i, way, md, which, job, instance)

    def _relay_pool(self, which: int) -> DecodePool:
        pool = self.replay.colocated.get(which) or self.replay.pools[which]
        assert isinstance(pool, DecodePool)
        return pool

    def _hop_s(self, i: int, way: _Way, which: int) -> float:
        """RDMA of the whole context from P to RLD."""
        return float(rdma_s(self.context, way.source, self.replay.decision.pools[which], way.context_bytes[i : i + 1])[0])

    def _colocate(self, p: int) -> None:
        """Relay decode on the instances of a P pool: prefill passes and decode steps take turns."""
        prefill = self.replay.pools[p]
        assert isinstance(prefill, PrefillPool)
        if p in self.replay.colocated:
            return
        relay = DecodePool(self.env, self._decode_times(p), len(prefill.instances), self.policy.decode_dispatch, self.rng)
        for instance, beside in zip(prefill.instances, relay.instances, strict=True):
            instance.beside = beside
        self.replay.colocated[p] = relay

    def _ended_on_relay(self, i: int, session: int, job: Job, instance: DecodeInstance) -> None:
        self.pipeline[i] = PIPELINES.index("P-RLD" if self.policy.relayed_end == "rld" else "local")
        self.first[i], self.last[i] = job.first_s, job.last_s
        self.relay_tokens[i] = self.output[i]
        self.spans[i].append((instance, job.first_s, job.last_s))
        if session >= 0:
            self.md_holds[session] = self.input[i] - self.missing_of(i, session)

    def _now_on_md(self, session: int) -> None:
        if session >= 0:
            self.md_holds.pop(session, None)

    def _hand_over(self, i: int, way: _Way, md: int, which: int, job: Job, instance: DecodeInstance) -> Steps:
        """RLD has streamed while the transfer ran; now MD takes over."""
        self.pipeline[i] = PIPELINES.index("P-RLD-MD")
        pool, relay = self.replay.pools[md], self._relay_pool(which)
        assert isinstance(pool, DecodePool)
        mode = self.settings.handoff
        if mode == "auto":
            mode = "catch-up" if relay.occupied_share() < self.policy.handoff_below else "one-shot"
        there: Job | None = None
        sent = 0.0
        if mode == "catch-up":
            batch = instance.emitted(job)
            for _ in range(CATCH_UP_BATCHES_MOST):
                if batch <= self.policy.catch_up_threshold or job.done.triggered:
                    break
                yield self.env.timeout(way.rtt_s / 2.0)
                if there is None:
                    there = pool.enter(self.input[i] + batch, float(self.resident[md][i]), int(self.arrivals.session[i]))
                    yield there.placed
                assert there.instance is not None
                yield there.instance.extend(there, batch)
                yield self.env.timeout(way.rtt_s / 2.0)
                sent += batch
                pending = (self.output[i] if job.done.triggered else instance.emitted(job)) - sent
                shrinks = pending < 0.98 * batch
                batch = pending
                if not shrinks:
                    break
        if job.done.triggered:
            self.first[i], self.last[i] = job.first_s, job.last_s
            self.relay_tokens[i] = self.output[i]
            self.spans[i].append((instance, job.first_s, job.last_s))
            if there is not None and there.instance is not None:
                there.instance.leave(there)
            return
        emitted, stopped = instance.emitted(job), instance.last_token_s(job)
        began = job.first_s if emitted > 0.0 else math.nan
        instance.leave(job)
        self.relay_tokens[i] = emitted
        left = self.output[i] - emitted
        if mode == "ship-kv":
            kv = self.deployment.kv.transfer_bytes(np.array([emitted]), np.array([self.input[i] + emitted]))
            assert way.line is not None
            size = float(kv[0]) if emitted > 0.0 else 0.0
            yield way.line.send(size).done
            yield self.env.timeout(size * SHIP_KV_COPY_S_PER_BYTE)
        yield self.env.timeout(way.rtt_s / 2.0)
        if there is None:
            there = pool.enter(self.input[i] + emitted, float(self.resident[md][i]), int(self.arrivals.session[i]))
            yield there.placed
        target = there.instance
        assert target is not None
        fresh = emitted - sent
        if mode != "ship-kv" and fresh > 0.0:
            yield target.extend(there, fresh)
            resumed = self.env.now
            if left > 1.0:
                target.decode(there, left - 1.0)
                yield there.done
            else:
                target.leave(there)
            ended = there.last_s if left > 1.0 else resumed
        else:
            target.decode(there, left)
            yield there.done
            resumed, ended = there.first_s, there.last_s
        self.first[i] = began if not math.isnan(began) else resumed
        self.last[i] = ended
        if not math.isnan(began):
            self.own_gap[i] = resumed - stopped
            self.spans[i].append((instance, began, stopped))
        self.spans[i].append((target, resumed, ended))

    def _decode_on_md(self, i: int, md: int) -> Steps:
        pool = self.replay.pools[md]
        assert isinstance(pool, DecodePool)
        job = pool.enter(self.input[i], float(self.resident[md][i]), int(self.arrivals.session[i]))
        yield job.placed
        assert job.instance is not None
        job.instance.decode(job, self.output[i])
        yield job.done
        self.first[i], self.last[i] = job.first_s, job.last_s
        self.spans[i].append((job.instance, job.first_s, job.last_s))

    def _aggregated(self, i: int, which: int) -> Steps:
        pool = self.replay.pools[which]
        assert isinstance(pool, AggregatedPool)
        self.pipeline[i] = PIPELINES.index("AGG")
        served = pool.enter(i, self.input[i], self.output[i], float(self.resident[which][i]), int(self.arrivals.session[i]))
        yield served.done
        extra = pool.prefill_times.handling_s + self.policy.fixed_ttft
        self.first[i], self.last[i] = served.first_s + extra, self.env.now + extra
        assert served.instance is not None
        self.spans[i].append((served.instance, served.first_s, self.env.now))

    def _choose_agg(self, i: int) -> int | None:
        """An AGG pool, or None for the way over P and MD: as the plan shares its rows out, a stream not drawn from rows by their mean."""
        if not self.agg:
            return None
        row = int(self.arrivals.row[i])
        shares = self.agg_share[:, row] if row >= 0 else self.agg_share @ self.deployment.mix.weight
        if not (self.p and self.md):
            shares = shares / shares.sum()
        which = int(np.searchsorted(np.cumsum(shares), self.rng.random()))
        return self.agg[which] if which < len(self.agg) else (None if self.p and self.md else self.agg[-1])

    def _choose_part(self, i: int) -> Part:
        """One of the parts that the plan divides the traffic of P and MD pools into, by their shares of the request's row."""
        if len(self.parts) == 1:
            return self.parts[0]
        row = int(self.arrivals.row[i])
        shares = np.array([part.share[row] if row >= 0 else part.share @ self.deployment.mix.weight for part in self.parts])
        return self.parts[int(self.rng.choice(len(self.parts), p=shares / shares.sum()))]

    def _choose(self, pools: list[int]) -> int:
        """A pool at random, by its instances."""
        if len(pools) == 1:
            return pools[0]
        weights = np.array([float(self.replay.decision.pools[k].gpus) for k in pools])
        return pools[int(self.rng.choice(len(pools), p=weights / weights.sum()))]

    def _choose_p(self, i: int, part: Part, md: int) -> int:
        """By uncached length where the plan splits P pools so; else by capacity."""
        members = part.of(self.replay.decision, "P")
        if len(members) == 1:
            return members[0]
        pools, threshold = self.replay.decision.pools, self.settings.p_threshold_tokens
        home, md_site = self.policy.p_routing.long, pools[md].configuration.site
        remote = [k for k in members if (pools[k].configuration.site == home if home else pools[k].configuration.site != md_site)]
        near = [k for k in members if k not in remote]
        if threshold is not None and remote and near:
            return self._choose_by_speed(remote if self.arrivals.uncached_tokens[i] > threshold else near)
        return self._choose_by_speed(members)

    def _choose_by_speed(self, pools: list[int]) -> int:
        if len(pools) == 1:
            return pools[0]
        speeds = []
        for k in pools:
            pool = self.replay.pools[k]
            assert isinstance(pool, PrefillPool)
            speeds.append(len(pool.instances) / float(np.mean(pool.times.shared_s)))
        weights = np.array(speeds)
        return pools[int(self.rng.choice(len(pools), p=weights / weights.sum()))]

    def records(self) -> Records:
        """The measured requests, in order of arrival."""
        kept = np.array(self.order[self.skip : self.skip + self.measure], dtype=np.int64)
        stall = np.maximum(longest_gaps([self.spans[i] for i in kept]), self.own_gap[kept])
        return Records(
            self.deployment.name,
            self.arrivals.class_index[kept],
            self.first[kept] - self.arrived[kept],
            self.last[kept] - self.arrived[kept],
            np.where(np.isfinite(self.last[kept]), stall, np.inf),
            self.output[kept],
            self.pipeline[kept],
            self.relay_tokens[kept],
        )


@dataclass(frozen=True)
class _Way:
    """What lies between a P and an MD pool: a line (None: one room), its RTT, the RLD pools beside P, and the KV to move.

    line_bytes: KV that MD lacks, context_bytes: that of the whole prompt; shape (requests,).
    """

    line: SharedLine | None
    rtt_s: float
    relays: list[int] | None
    kv: Any
    source: Pool
    target: Pool
    line_bytes: FloatArray
    context_bytes: FloatArray
