"""What the whole model says of a fixed plan: load of every pool and line, latency laws, goodput, cost, and every limit that is missed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pddplan.pdd.aggregated import AggregatedState, aggregated_state
from pddplan.pdd.binding import decode_resource, prefill_resource, typical_context, typical_prefill
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.decode_pool import DecodeState
from pddplan.pdd.flows import active_deployments
from pddplan.pdd.latency import Stream, e2e_cdf, good_mass, stall_cdf, streams_of, tpot_cdf, ttft_cdf
from pddplan.pdd.laws import GRID, law_of, repeated
from pddplan.pdd.plan import (
    Decision,
    Evaluation,
    Feedback,
    LinkResult,
    Metrics,
    PipelineName,
    PipelineResult,
    Pool,
    PoolResult,
    Violation,
)
from pddplan.pdd.sharing import row_shares
from pddplan.pdd.stability import feedback
from pddplan.pdd.steady_state import SteadyState, extends, steady_state
from pddplan.pdd.terms import paid, ratio_of, short_of
from pddplan.scenario.sla import TailLimits
from pddplan.units import GBPS_BYTES_PER_S, SECONDS_PER_HOUR

FloatArray = NDArray[np.float64]
Cdf = Callable[[Stream], FloatArray]

LATENCIES: Mapping[str, Cdf] = {"ttft": ttft_cdf, "tpot": tpot_cdf, "stall": stall_cdf, "e2e": e2e_cdf}
TASK_LEVELS = 9
PIPELINES: tuple[PipelineName, ...] = ("P-MD", "P-RLD-MD", "local", "P-RLD", "AGG")


def evaluate(context: PlanContext, decision: Decision, rate_scale: float = 1.0, *, brief: bool = False) -> Evaluation:
    """Evaluate ``decision`` under the scenario's demand times ``rate_scale``.

    brief: leave out the laws that no SLA of the scenario asks for (stall, end to end); their metrics are then NaN. It takes about half the
    time, and says the same of stability, violations, goodput and cost.
    An unstable plan is an answer: ``stable`` is False, latencies of what it serves too slowly are inf, goodput 0. Raises InputError for
    a decision that no model can read (no decode pool, no line between the rooms that it spans).
    """
    state = steady_state(context, decision, rate_scale)
    aggregated = _aggregated(context, decision, rate_scale)
    streams = (
        *streams_of(state, decision.settings.prefill_chunk_tokens),
        *(stream for agg in aggregated for stream in agg.streams),
    )
    return _Judge(context, decision, rate_scale, state, aggregated, streams, brief).evaluation()


def _aggregated(context: PlanContext, decision: Decision, rate_scale: float) -> tuple[AggregatedState, ...]:
    return tuple(
        aggregated_state(context, decision, deployment, pool, shares, rate_scale)
        for deployment in active_deployments(context)
        for pool, shares in row_shares(context, decision, deployment).items()
    )


def _asked(deployments: Sequence[Deployment]) -> tuple[str, ...]:
    """Latencies that TTFT and TPOT limits and the SLAs of the classes need."""
    asked = {"ttft", "tpot"}
    for sla in (sla for deployment in deployments for sla in deployment.slas):
        for kind, target in (("stall", sla.stall), ("e2e", sla.e2e), ("e2e", sla.task)):
            if target.percentiles() or target.mean is not None:
                asked.add(kind)
    return tuple(kind for kind in LATENCIES if kind in asked)


class _Judge:
    """Turns states and streams into an Evaluation; nothing of it outlives ``evaluation``."""

    def __init__(
        self,
        context: PlanContext,
        decision: Decision,
        rate_scale: float,
        state: SteadyState,
        aggregated: Sequence[AggregatedState],
        streams: Sequence[Stream],
        brief: bool,
    ) -> None:
        self.context, self.decision, self.scale = context, decision, rate_scale
        self.state, self.aggregated, self.streams = state, tuple(aggregated), tuple(streams)
        self.deployments = active_deployments(context)
        self.rate_per_s = sum(d.mix.rate_per_s for d in self.deployments) * rate_scale
        self.brief = brief
        asked = _asked(self.deployments) if brief else LATENCIES
        self.kinds: dict[str, list[tuple[Stream, FloatArray]]] = {
            name: [(s, LATENCIES[name](s) * self._share(s)) for s in self.streams] for name in asked
        }

    def _share(self, stream: Stream) -> float:
        """Requests of the stream's deployment as a share of all requests."""
        return self.context.deployments[stream.deployment].mix.rate_per_s * self.scale / self.rate_per_s

    def _mass(self, stream: Stream, kind: str) -> float:
        weight = stream.weight if kind in ("ttft", "e2e") else stream.weight[stream.gaps > 0.0]
        return float(weight.sum()) * self._share(stream)

    def cdf(self, kind: str, keep: Callable[[Stream], bool] = lambda _: True) -> FloatArray:
        """Law of a latency over the streams that ``keep`` accepts, normalised, on GRID."""
        chosen = [(stream, measure) for stream, measure in self.kinds[kind] if keep(stream)]
        mass = sum(self._mass(stream, kind) for stream, _ in chosen)
        if mass <= 0.0:
            return GRID.never()
        return np.asarray(np.minimum(np.sum([measure for _, measure in chosen], axis=0) / mass, 1.0))

    def evaluation(self) -> Evaluation:
        costs, bought = paid(self.context, self.decision.pools)
        pools, links = self._pools(costs), self._links()
        loads_hold = all(pool.utilisation < 1.0 for pool in pools) and all(link.utilisation < 1.0 for link in links)
        sessions = feedback(self.context, self.decision, self.state) if loads_hold else None
        stable = loads_hold and (sessions is None or sessions.bounded)
        laws = {kind: self.cdf(kind) for kind in self.kinds}
        per_class = self._per_class()
        good = self._good_shares() if stable else {}
        tasks = self._task_laws(per_class)
        task = None
        if tasks:
            rates = np.array([rate for rate, _ in tasks.values()])
            laws["task"] = task = np.tensordot(rates / rates.sum(), np.array([law for _, law in tasks.values()]), axes=(0, 0))
            for name, (_, law) in tasks.items():
                per_class[name]["task"] = law
        metrics = self._metrics(laws, pools, links, good, stable, task)
        missed = (*self._unstable(pools, links, sessions), *self._missed(per_class, good)) if self.rate_per_s > 0.0 else ()
        violations = (*missed, *short_of(self.context, bought))
        return Evaluation(
            decision=self.decision,
            metrics=metrics,
            pools=pools,
            links=links,
            pipelines=self._pipelines(),
            laws={name: law_of(cdf) for name, cdf in laws.items()},
            stable=stable,
            violations=violations,
            warnings=self._warnings(),
            feedback=sessions,
            rate_scale=self.scale,
            purchases=bought,
            class_laws={name: {kind: law_of(cdf) for kind, cdf in kinds.items()} for name, kinds in per_class.items()},
        )

    def _classes(self) -> list[tuple[Deployment, int, str]]:
        """Deployment, class index and the name under which the class is reported."""
        several = len(self.context.deployments) > 1
        return [(d, i, f"{d.name}.{name}" if several else name) for d in self.deployments for i, name in enumerate(d.mix.class_names)]

    def _per_class(self) -> dict[str, dict[str, FloatArray]]:
        return {
            name: {
                kind: self.cdf(kind, lambda s, d=deployment, i=index: s.deployment == d.name and s.class_index == i)  # type: ignore[misc]
                for kind in self.kinds
            }
            for deployment, index, name in self._classes()
        }

    def _good_shares(self) -> dict[str, tuple[float, float]]:
        """Per class: its share of all requests, and P(good) within it."""
        shares = {}
        for deployment, index, name in self._classes():
            sla = deployment.slas[index]
            mine = [s for s in self.streams if s.deployment == deployment.name and s.class_index == index]
            known = self._by_rate(deployment, index)
            mass = known + sum(s.mass for s in mine)
            good = known + sum(good_mass(s, sla.ttft.limit, sla.tpot.limit) for s in mine)
            share = deployment.mix.rate_per_s * self.scale / self.rate_per_s
            weight = float(deployment.mix.weight[deployment.mix.class_index == index].sum())
            shares[name] = (weight * share, good / mass if mass > 0.0 else 0.0)
        return shares

    def _by_rate(self, deployment: Deployment, index: int) -> float:
        """Share of the deployment's requests that are of a class and served by pools known by their rate within the SLA alone."""
        known = {agg.pool for agg in self.aggregated if agg.decode is None and agg.stable and not agg.streams}
        weight = deployment.mix.weight * (deployment.mix.class_index == index)
        shares = row_shares(self.context, self.decision, deployment) if known else {}
        return sum(float(weight @ share) for pool, share in shares.items() if pool in known)

    def _pools(self, costs: Sequence[float]) -> tuple[PoolResult, ...]:
        results = []
        by_pool = {agg.pool: agg for agg in self.aggregated}
        for i, (pool, cost) in enumerate(zip(self.decision.pools, costs, strict=True)):
            load, mean, most = 0.0, 0.0, 0.0
            decode = self.state.decode.get(i) or self.state.relay.get(i)
            if i in by_pool:
                load, decode = by_pool[i].utilisation, by_pool[i].decode
            elif i in self.state.prefill:
                load = max(self.state.prefill[i].utilisation, decode.utilisation if decode is not None else 0.0)
            elif decode is not None:
                load = decode.utilisation
            if decode is not None:
                mean, most = decode.batch_mean, float(decode.batch_max)
            binding = self._binding(pool, decode, by_pool.get(i))
            results.append(PoolResult(pool, load, cost, binding, mean, most))
        return tuple(results)

    def _binding(self, pool: Pool, decode: DecodeState | None, aggregated: AggregatedState | None) -> str:
        """What sets the pace of a pool; empty for one that serves nothing."""
        if aggregated is not None and aggregated.decode is None and not aggregated.streams:
            return "measured rate"
        configuration = pool.configuration
        prefills = configuration.role == "P" or (aggregated is not None and aggregated.prefill_share > aggregated.utilisation / 2.0)
        if pool.instances == 0 or (not prefills and decode is None):
            return ""
        mix = self.context.deployments[configuration.deployment].mix
        stage = self.context.instance(configuration, self.decision.settings)
        if prefills:
            return prefill_resource(stage, *typical_prefill(mix))
        assert decode is not None
        return decode_resource(stage, decode.batch_mean, typical_context(mix), float(decode.batch_max), decode.bound_by)

    def _links(self) -> tuple[LinkResult, ...]:
        results = []
        for link in self.decision.links:
            line = self.context.lines[link.name]
            moved = self.state.line_bytes_per_s.get(link.name, 0.0)
            state = self.state.lines.get(link.name)
            results.append(
                LinkResult(
                    link=link,
                    utilisation=0.0 if state is None else state.utilisation,
                    cost_usd_per_h=line.cost_usd_per_h(link, moved),
                    bytes_per_s_mean=moved,
                    bytes_per_s_needed=moved / line.target_utilisation / line.usable,
                    bytes_per_s_mean_without_md_cache=self.state.line_bytes_per_s_no_cache.get(link.name, 0.0),
                )
            )
        bought = {link.name for link in self.decision.links}
        for name, state in self.state.lines.items():
            if name not in bought:
                flow = next(flow for flow in self.state.flows if flow.link is not None and flow.link.name == name)
                assert flow.link is not None
                moved = self.state.line_bytes_per_s[name]
                results.append(LinkResult(flow.link, state.utilisation, 0.0, moved, moved / self.context.lines[name].target_utilisation))
        return tuple(results)

    def _pipelines(self) -> tuple[PipelineResult, ...]:
        results = []
        for name in PIPELINES:
            share = sum(s.mass * self._share(s) for s in self.streams if s.pipeline == name)
            if share <= 0.0:
                continue
            law = law_of(self.cdf("ttft", lambda s, n=name: s.pipeline == n))  # type: ignore[misc]
            results.append(PipelineResult(name, share, law.quantile(0.5), law.quantile(0.9), law.quantile(0.99), law))
        return tuple(results)

    def _metrics(
        self,
        laws: Mapping[str, FloatArray],
        pools: Sequence[PoolResult],
        links: Sequence[LinkResult],
        good: Mapping[str, tuple[float, float]],
        stable: bool,
        task: FloatArray | None,
    ) -> Metrics:
        cost = sum(pool.cost_usd_per_h for pool in pools) + sum(link.cost_usd_per_h for link in links)
        p_good = min(1.0, sum(share * part for share, part in good.values())) if stable else 0.0
        goodput = self.rate_per_s * p_good
        known = bool(self.streams)
        eager, output = self._tokens_per_s()
        money_rate = (
            sum((d.mix.mean_rate_per_s or d.mix.rate_per_s) * d.mix.mean(d.mix.output_tokens) for d in self.deployments) * self.scale
        )
        tokens_per_h = money_rate * SECONDS_PER_HOUR

        def quantile(kind: str, q: float) -> float:
            return float(GRID.quantile(laws[kind], q)) if known and kind in laws else math.nan

        tpot_mean = self._mean_tpot()
        return Metrics(
            goodput_rps=goodput,
            p_good=p_good,
            cost_usd_per_h=cost,
            bcr=ratio_of(goodput, cost),
            ttft_p50_s=quantile("ttft", 0.5),
            ttft_p90_s=quantile("ttft", 0.9),
            ttft_p99_s=quantile("ttft", 0.99),
            tpot_mean_s=tpot_mean if known else math.nan,
            tpot_p99_s=quantile("tpot", 0.99),
            stall_p99_s=quantile("stall", 0.99),
            e2e_p50_s=quantile("e2e", 0.5),
            e2e_p99_s=quantile("e2e", 0.99),
            rld_token_share=eager / output if output > 0.0 else 0.0,
            line_gbps_mean=sum(link.bytes_per_s_mean for link in links) / GBPS_BYTES_PER_S,
            line_gbps_needed=sum(link.bytes_per_s_needed for link in links) / GBPS_BYTES_PER_S,
            usd_per_million_output_tokens=cost / tokens_per_h * 1e6 if tokens_per_h > 0.0 and stable else math.nan,
            gpus=sum(pool.pool.gpus for pool in pools),
            tpot_inclusive_mean_s=self._mean_inclusive_tpot() if known and not self.brief else math.nan,
            task_p50_s=None if task is None else float(GRID.quantile(task, 0.5)),
            task_p99_s=None if task is None else float(GRID.quantile(task, 0.99)),
        )

    def _tokens_per_s(self) -> tuple[float, float]:
        """Output tokens/s emitted by RLD, and in all."""
        eager = 0.0
        for atoms, handed in zip(self.state.atoms, self.state.handed, strict=True):
            rate = atoms.flow.rate_per_s * self.scale
            on_rld = np.where(atoms.relayed, atoms.eager_tokens + handed.extra_tokens, 0.0)
            eager += rate * float(atoms.weight @ on_rld)
        return eager, sum(d.mix.rate_per_s * self.scale * d.mix.mean(d.mix.output_tokens) for d in self.deployments)

    def _mean_tpot(self) -> float:
        return float(GRID.mean(self.cdf("tpot"))) if any((s.gaps > 0.0).any() for s in self.streams) else 0.0

    def _mean_inclusive_tpot(self) -> float:
        """Mean over requests of end-to-end time over output tokens."""
        total, mass = 0.0, 0.0
        for stream in self.streams:
            if not stream.served:
                return math.inf
            waits = float(GRID.mean(stream.queue_cdf)) + float(GRID.mean(stream.place_cdf))
            token = stream.md.token_mean_s if stream.md is not None else 0.0
            seconds = stream.ttft_s + waits + stream.base_s + stream.md_gaps * token
            share = self._share(stream)
            total += share * float(stream.weight @ (seconds / (stream.gaps + 1.0)))
            mass += share * stream.mass
        return total / mass if mass > 0.0 else 0.0

    def _task_laws(self, per_class: Mapping[str, Mapping[str, FloatArray]]) -> dict[str, tuple[float, FloatArray]]:
        """Tasks/s and law of an agent task by class: its model calls one after another, pauses between them left out."""
        found = {}
        for deployment, index, name in self._classes():
            mix = deployment.mix
            turns = mix.turns_per_task[index] if index < len(mix.turns_per_task) else 1.0
            if turns <= 1.0 or "e2e" not in per_class[name]:
                continue
            drawn = mix.task_turns[index] if index < len(mix.task_turns) else np.empty(0)
            levels = (np.arange(TASK_LEVELS) + 0.5) / TASK_LEVELS
            lengths = np.quantile(drawn, levels, method="inverted_cdf") if drawn.size else np.array([turns])
            counts, weight = np.unique(np.maximum(np.round(lengths), 1.0).astype(int), return_counts=True)
            laws = [repeated(per_class[name]["e2e"], int(count)) for count in counts]
            share = float(mix.weight[mix.class_index == index].sum())
            law = np.tensordot(weight / weight.sum(), np.array(laws), axes=(0, 0))
            found[name] = (mix.rate_per_s * share / turns, np.minimum(law, 1.0))
        return found

    def _unstable(self, pools: Sequence[PoolResult], links: Sequence[LinkResult], sessions: Feedback | None) -> tuple[Violation, ...]:
        overloaded = [
            Violation(f"load of {p.pool.configuration.role} at {p.pool.configuration.site}", p.utilisation, 1.0)
            for p in pools
            if p.utilisation >= 1.0
        ]
        overloaded += [Violation(f"load of line {link.link.name}", link.utilisation, 1.0) for link in links if link.utilisation >= 1.0]
        if sessions is not None and not sessions.bounded:
            overloaded.append(Violation("load of RLD by session feedback", sessions.rld_utilisation, 1.0))
        return tuple(overloaded)

    def _missed(self, per_class: Mapping[str, Mapping[str, FloatArray]], good: Mapping[str, tuple[float, float]]) -> tuple[Violation, ...]:
        """Percentile ceilings, mean ceilings and attainment floors that are not met, class by class; one without requests misses none."""
        missed = []
        for deployment, index, name in self._classes():
            sla, mix = deployment.slas[index], deployment.mix
            if not mix.weight[mix.class_index == index].any():
                continue
            by_rate = self._by_rate(deployment, index) > 0.0
            if by_rate and not any(s.deployment == deployment.name and s.class_index == index for s in self.streams):
                continue
            targets: dict[str, TailLimits] = {
                "ttft": sla.ttft,
                "tpot": sla.tpot,
                "stall": sla.stall,
                "e2e": sla.e2e,
                "task": sla.task,
            }
            cdfs = dict(per_class[name])
            if "e2e" in cdfs:
                cdfs.setdefault("task", cdfs["e2e"])
            for kind, target in targets.items():
                for q, limit in target.percentiles().items():
                    value = float(GRID.quantile(cdfs[kind], q))
                    if value > limit:
                        missed.append(Violation(f"{name}.sla.{kind}.p{100 * q:g}", value, limit))
                if target.mean is not None:
                    value = float(GRID.mean(cdfs[kind]))
                    if value > target.mean:
                        missed.append(Violation(f"{name}.sla.{kind}.mean", value, target.mean))
            if sla.attainment is not None:
                part = good.get(name, (0.0, 0.0))[1]
                if part < sla.attainment:
                    missed.append(Violation(f"{name}.sla.attainment", -part, -sla.attainment))
        return tuple(missed)

    def _warnings(self) -> tuple[str, ...]:
        warnings = list(self.context.warnings)
        if not self.state.converged and self.state.flows:
            warnings.append("routing and line load did not settle: the line's figures are within a few per cent only")
        if any(agg.decode is None and agg.stable for agg in self.aggregated):
            warnings.append(
                "a profile by rate knows no latencies: it serves within the SLA up to its rate, TTFT and TPOT are not predicted"
            )
        silent = [
            i
            for i in self.state.decode
            if any(flow.rld is not None and flow.md == i for flow in self.state.flows)
            and self.decision.settings.handoff != "ship-kv"
            and not extends(self.context.instance(self.decision.pools[i].configuration, self.decision.settings))
        ]
        if silent:
            warnings.append(
                "a measured MD profile has no extend_s: the handoff's recompute is taken to be in its measured rate, and its stall as 0"
            )
        if any(state.queue.method == "recursion" for state in self.state.prefill.values()):
            warnings.append(
                "prefill waits come from a seeded recursion: packed passes, bursts, or services outside the closed form's limits"
            )
        return tuple(dict.fromkeys(warnings))
