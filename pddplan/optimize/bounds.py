"""What a replica count carries at most: necessary conditions, stage by stage, so that a program over them bounds every real plan.

Each stage is taken alone, has the whole of every joint limit to itself, and meets the easiest demand that the relay thresholds
in question can make; its queueing is that of the whole model (pdd), with every later stage instantaneous. ``loose`` knows no
queueing and costs nothing; ``least_count`` and ``capacities`` do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pddplan.optimize.candidates import Candidate, Candidates
from pddplan.optimize.routes import Need, Route
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.decode_pool import decode_state
from pddplan.pdd.demand import RoleDemand, demand_shares
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.flows import transfer_of
from pddplan.pdd.laws import GRID
from pddplan.pdd.plan import Decision, Evaluation, LinkPlan, Pool, Settings
from pddplan.pdd.steady_state import spread_of
from pddplan.scenario.sla import Sla, TailLimits
from pddplan.stages.profiled import ProfiledStage, RateGrid

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


GRID_ERROR = 0.005
"""Latency laws live on a grid with cells of 0.4 %: a limit is met up to that."""
BISECTIONS = 6


@dataclass(frozen=True)
class Limit:
    """``quantile`` of the requests that enter a stage must meet ``seconds``; ``rows`` is the mask of the class among the mix's rows."""

    seconds: float
    quantile: float
    rows: BoolArray


@dataclass
class StageBounds:
    """Bounds of one context under fixed chunk size and P threshold (``settings``) over the relay thresholds ``thresholds_s``.

    judge: the whole model, asked where a pool is the whole plan (aggregated serving).
    """

    context: PlanContext
    candidates: Candidates
    settings: Settings
    thresholds_s: tuple[float, ...]
    judge: Callable[[Decision, float], Evaluation]
    _demands: dict[tuple[str, str | None], tuple[RoleDemand, ...]] = field(default_factory=dict)
    _alone: dict[str, PlanContext] = field(default_factory=dict)
    _loose: dict[tuple[str, Need], float] = field(default_factory=dict)

    def rows(self, need: Need, deployment: Deployment) -> BoolArray:
        """Mask of the rows of the mix that enter a P pool, shape (rows,)."""
        threshold, uncached = self.settings.p_threshold_tokens, deployment.mix.uncached_tokens
        if need.rows == "all" or threshold is None:
            return np.ones(uncached.shape, dtype=bool)
        return uncached > threshold if need.rows == "long" else uncached <= threshold

    def rate_per_s(self, need: Need, deployment: Deployment) -> float:
        """Least requests/s that enter the need at the scenario's demand."""
        mix = deployment.mix
        if need.role == "P":
            return mix.rate_per_s * float(mix.weight @ self.rows(need, deployment))
        if need.role == "MD":
            return mix.rate_per_s * self._easiest(deployment, need).md_rate
        return mix.rate_per_s

    def line_bytes_per_s(self, route: Route, deployment: Deployment) -> float:
        """Least bytes/s that cross the line of ``route``: what MD lacks of the requests of the remote P pool, less what answers
        that end on RLD save.
        """
        mix = deployment.mix
        assert route.p_site is not None
        assert route.line is not None
        remote = self.rows(route.needs[0], deployment)
        pools = (Pool(c.configuration, 1) for c in self.candidates.of(deployment.name, "P", route.p_site))
        kinds = {id(kv): kv for kv in (transfer_of(self.context, deployment, pool, self.settings) for pool in pools)}
        sizes = [np.asarray(kv.transfer_bytes(mix.md_missing_tokens, mix.input_tokens), dtype=np.float64) for kv in kinds.values()]
        moved = np.where(mix.md_missing_tokens > 0, np.min(sizes, axis=0), 0.0)
        mean = float((mix.weight * remote) @ moved)
        if route.relay:
            demands = self._relayed(deployment, route.line)
            straight = demand_shares(self.context, deployment.name, self.settings, self._widest(route.line), [math.inf], 1.0)[0]
            least = min(d.line_bytes for d in demands)
            mean *= least / straight.line_bytes if straight.line_bytes > 0 else 1.0
        return mix.rate_per_s * mean

    def loose(self, candidate: Candidate, need: Need) -> float:
        """Requests/s of one instance with no queueing at all; 0 where a request alone misses its limits."""
        key = (candidate.name, need)
        if key not in self._loose:
            self._loose[key] = self._loose_rate(candidate, need)
        return self._loose[key]

    def _loose_rate(self, candidate: Candidate, need: Need) -> float:
        deployment = self.context.deployments[candidate.configuration.deployment]
        if candidate.role == "P":
            return self._loose_prefill(candidate, need, deployment)
        if candidate.role == "AGG":
            return self._loose_aggregated(candidate, deployment)
        demand = self._easiest(deployment, need)
        if demand.md_rate <= 0 or demand.md_tokens <= 0:
            return math.inf
        return self._decode_rate(candidate, deployment, demand.md_context_tokens, demand.md_tokens / demand.md_rate, need)

    def idle_s(self, candidate: Candidate, need: Need) -> float:
        """How slow an idle instance is: mean seconds of a lone prefill, or of a token at batch 1."""
        deployment = self.context.deployments[candidate.configuration.deployment]
        if candidate.role == "P":
            weight = deployment.mix.weight * self.rows(need, deployment)
            return float(weight @ self.context.prefill_rows(candidate.configuration, self.settings).latency_s)
        table = self._table(candidate, deployment, self._straight(deployment).md_context_tokens)
        return math.inf if table is None else float(table[0][0]) / table[1]

    def carries(self, candidate: Candidate, need: Need, serving: int, rate_per_s: float) -> bool:
        """Whether ``serving`` instances could carry ``rate_per_s`` if all other stages took no time."""
        deployment = self.context.deployments[candidate.configuration.deployment]
        if candidate.role == "AGG":
            decision, scale = Decision((Pool(candidate.configuration, serving),), (), self.settings), rate_per_s / deployment.mix.rate_per_s
            if len(self.context.deployments) == 1:
                return self.judge(decision, scale).feasible
            alone = self._alone.setdefault(deployment.name, self.context.with_deployments({deployment.name: deployment}))
            return evaluate(alone, decision, scale, brief=True).feasible
        if candidate.role == "P":
            return self._prefills(candidate, need, deployment, serving, rate_per_s)
        return self._decodes(candidate, need, deployment, serving, rate_per_s)

    def least_count(self, candidate: Candidate, need: Need, rate_per_s: float, most: int) -> int | None:
        """Fewest serving instances that could carry ``rate_per_s``, found upwards from the loose bound; None when ``most`` cannot."""
        each = self.loose(candidate, need)
        if each <= 0:
            return None
        low = max(math.ceil(rate_per_s / each * (1 - 1e-9)), 1)
        if low > most:
            return None
        if self.carries(candidate, need, low, rate_per_s):
            return low
        fails, step = low, 1
        while not self.carries(candidate, need, passes := min(fails + step, most), rate_per_s):
            if passes == most:
                return None
            fails, step = passes, 2 * step
        while passes - fails > 1:
            middle = (passes + fails) // 2
            fails, passes = (fails, middle) if self.carries(candidate, need, middle, rate_per_s) else (middle, passes)
        return passes

    def capacities(self, candidate: Candidate, need: Need, most: int) -> FloatArray:
        """Most requests/s of 1..most serving instances, shape (most,): each counts for what it carries in the largest pool, since
        pooling only helps.
        """
        carried = self.capacity(candidate, need, most, most * self.loose(candidate, need))
        return np.asarray(np.arange(1, most + 1) * (carried / most), dtype=np.float64)

    def capacity(self, candidate: Candidate, need: Need, serving: int, high: float) -> float:
        """Most requests/s, up to ``high``, that ``serving`` instances carry, bisected from above."""
        low = 0.0
        if not self.carries(candidate, need, serving, high * (1 - 1e-9)):
            for _ in range(BISECTIONS):
                middle = 0.5 * (low + high)
                low, high = (middle, high) if self.carries(candidate, need, serving, middle) else (low, middle)
        return high

    def _prefills(self, candidate: Candidate, need: Need, deployment: Deployment, serving: int, rate_per_s: float) -> bool:
        mix, policy = deployment.mix, deployment.policy
        rows = self.rows(need, deployment)
        weight = mix.weight * rows
        share = float(weight.sum())
        if share <= 0:
            return True
        stage = self.context.prefill_rows(candidate.configuration, self.settings)
        load = rate_per_s * float(weight @ stage.occupancy_s) / share / serving
        if load > self._most(deployment) * (1 + 1e-9):
            return False
        if policy.queueing == "none":
            return True
        scv = 1.0 + share * (mix.arrival_scv - 1.0)
        law = self.context.prefill_queue(candidate.configuration, self.settings, serving, rate_per_s, weight, scv)
        for limit in self.ttft_limits(deployment, rows):
            used = limit.rows & rows
            left = limit.seconds * (1 + GRID_ERROR) - stage.latency_s[used]
            bins, met = law.bin_of_row[used], np.zeros(left.shape)
            for b, cdf in enumerate(law.cdfs):
                met[bins == b] = np.interp(left[bins == b], GRID.seconds, cdf, left=0.0)
            if float(mix.weight[used] @ met) < limit.quantile * float(mix.weight[used].sum()) * (1 - 1e-9):
                return False
        return True

    def _decodes(self, candidate: Candidate, need: Need, deployment: Deployment, serving: int, rate_per_s: float) -> bool:
        demand, policy, mix = self._easiest(deployment, need), deployment.policy, deployment.mix
        if demand.md_rate <= 0 or demand.md_tokens <= 0:
            return True
        tables = self.context.decode_tables(candidate.configuration, self.settings)
        resident = float(np.asarray(tables.stage.kv_resident_bytes(np.array([demand.md_context_tokens])))[0])
        mean = mix.mean(mix.output_tokens)
        state = decode_state(
            tables.table(demand.md_context_tokens, resident),
            serving,
            rate_per_s,
            demand.md_tokens / demand.md_rate,
            spread=spread_of(policy.decode_dispatch),
            token_scv=max(mix.mean(mix.output_tokens**2) / mean**2 - 1.0, 0.0),
            queueing=policy.queueing == "full",
        )
        if state.utilisation > self._most(deployment) * (1 + 1e-9):
            return False
        order = np.argsort(state.token_s)
        reached = np.cumsum(state.probability[order])
        for limit in self.tpot_limits(deployment, need):
            at = int(np.searchsorted(reached, limit.quantile * (1 - 1e-6)))
            if state.token_s[order][min(at, order.size - 1)] > limit.seconds * (1 + GRID_ERROR):
                return False
        return True

    def rates(self, candidate: Candidate) -> RateGrid | None:
        """The grid of rates of an aggregated profile; None for any other instance."""
        if candidate.configuration.profile is None:
            return None
        stage = self.context.instance(candidate.configuration, self.settings)
        return stage.rate if isinstance(stage, ProfiledStage) else None

    def ttft_limits(self, deployment: Deployment, rows: BoolArray | None = None) -> list[Limit]:
        """Limits on TTFT for the requests of ``rows`` (None: all)."""
        return self._limits(deployment, lambda sla: sla.ttft, rows, 0.0)

    def tpot_limits(self, deployment: Deployment, need: Need) -> list[Limit]:
        """Limits on TPOT for the requests that MD or AGG decodes from the first token on."""
        elsewhere = 0.0
        if need.rows == "relayed":
            elsewhere = max((d.rld_rate for d in self._relayed(deployment, None)), default=0.0)
        return self._limits(deployment, lambda sla: sla.tpot, None, elsewhere)

    def service_misses(self, candidate: Candidate, need: Need) -> tuple[str, float, float] | None:
        """(what, seconds, limit) by which a request alone on an idle instance already misses a limit; None where it does not."""
        deployment = self.context.deployments[candidate.configuration.deployment]
        if candidate.role in ("P", "AGG") and self.rates(candidate) is None:
            rows = self.rows(need, deployment) if candidate.role == "P" else None
            alone = self.context.prefill_rows(candidate.configuration, self.settings).latency_s
            for limit in self.ttft_limits(deployment, rows):
                used = limit.rows if rows is None else limit.rows & rows
                reached = _quantile(alone[used], deployment.mix.weight[used], limit.quantile)
                if reached > limit.seconds:
                    return f"TTFT P{100 * limit.quantile:g} of an idle instance", reached, limit.seconds
        if candidate.role in ("MD", "AGG") and self.rates(candidate) is None:
            demand = self._straight(deployment)
            table = self._table(candidate, deployment, demand.md_context_tokens)
            if table is None:
                return None
            token_s = float(table[0][0]) / table[1]
            for limit in self.tpot_limits(deployment, need):
                if token_s > limit.seconds:
                    return "TPOT of one request alone", token_s, limit.seconds
        return None

    def _limits(self, deployment: Deployment, kind: Callable[[Sla], TailLimits], rows: BoolArray | None, elsewhere: float) -> list[Limit]:
        mix, found = deployment.mix, []
        for index, sla in enumerate(deployment.slas):
            target = kind(sla)
            members = mix.class_index == index
            mass = float(mix.weight[members].sum())
            inside = mass if rows is None else float(mix.weight[members & rows].sum())
            inside -= mass * elsewhere
            stated = dict(target.percentiles())
            if target.limit is not None and sla.attainment is not None and stated.get(sla.attainment, math.inf) > target.limit:
                stated[sla.attainment] = target.limit
            for q, seconds in stated.items():
                inner = 1.0 - (1.0 - q) * mass / inside if inside > 0 else 0.0
                if inner > 0:
                    found.append(Limit(seconds, inner, members))
        return found

    def _loose_prefill(self, candidate: Candidate, need: Need, deployment: Deployment) -> float:
        if self.service_misses(candidate, need) is not None:
            return 0.0
        rows, weight = self.rows(need, deployment), deployment.mix.weight
        share = float(weight @ rows)
        if share <= 0:
            return math.inf
        work = float((weight * rows) @ self.context.prefill_rows(candidate.configuration, self.settings).occupancy_s) / share
        return self._most(deployment) / work

    def _loose_aggregated(self, candidate: Candidate, deployment: Deployment) -> float:
        need = Need("AGG", candidate.configuration.site)
        if self.service_misses(candidate, need) is not None:
            return 0.0
        demand, mix = self._straight(deployment), deployment.mix
        decode = self._decode_rate(candidate, deployment, demand.md_context_tokens, demand.md_tokens, need)
        prefill = mix.mean(self.context.prefill_rows(candidate.configuration, self.settings).occupancy_s)
        return 1.0 / (prefill + 1.0 / decode) if decode > 0 else 0.0

    def _decode_rate(self, candidate: Candidate, deployment: Deployment, context_tokens: float, tokens: float, need: Need) -> float:
        """Requests/s at the largest batch that meets the TPOT limits. A share 1 - q of requests may see any batch."""
        table = self._table(candidate, deployment, context_tokens)
        if table is None:
            return 0.0
        steps, per_step = table
        rates = np.arange(1, steps.size + 1) * per_step / (tokens * steps)
        full = float(np.max(rates))
        best = full
        for limit in self.tpot_limits(deployment, need):
            within = steps / per_step <= limit.seconds
            if not within[0]:
                return 0.0
            best = min(best, limit.quantile * float(np.max(rates[within])) + (1.0 - limit.quantile) * full)
        return best

    def _table(self, candidate: Candidate, deployment: Deployment, context_tokens: float) -> tuple[FloatArray, float] | None:
        """Step seconds at each batch, shape (batch_max,), and tokens per step; None when not even one request fits."""
        tables = self.context.decode_tables(candidate.configuration, self.settings)
        resident = float(np.asarray(tables.stage.kv_resident_bytes(np.array([context_tokens])))[0])
        table = tables.table(context_tokens, resident)
        return (table.step_s, table.tokens_per_step) if table.batch_max else None

    def _most(self, deployment: Deployment) -> float:
        return deployment.policy.utilisation_max if deployment.policy.queueing == "full" else 1.0

    def _widest(self, line: str) -> LinkPlan:
        spec = self.context.lines[line]
        return LinkPlan(line, *spec.between, spec.max_circuits, max(spec.prices_usd_h))

    def _straight(self, deployment: Deployment) -> RoleDemand:
        """Demand with nothing relayed."""
        key = (deployment.name, None)
        if key not in self._demands:
            self._demands[key] = demand_shares(self.context, deployment.name, self.settings, None, [math.inf], 1.0)
        return self._demands[key][0]

    def _relayed(self, deployment: Deployment, line: str | None) -> tuple[RoleDemand, ...]:
        """Demands at every relay threshold over one circuit and over all; ``line`` None: over any line."""
        found: list[RoleDemand] = []
        for name, spec in self.context.lines.items():
            if line not in (None, name):
                continue
            key = (deployment.name, name)
            if key not in self._demands:
                one = LinkPlan(name, *spec.between, 1, min(spec.prices_usd_h))
                self._demands[key] = tuple(
                    demand
                    for link in (one, self._widest(name))
                    for demand in demand_shares(self.context, deployment.name, self.settings, link, self.thresholds_s, 0.02)
                )
            found += self._demands[key]
        return tuple(found)

    def _easiest(self, deployment: Deployment, need: Need) -> RoleDemand:
        """The demand that gives MD least to do; what a handoff adds is left out."""
        choices = (self._straight(deployment), *(self._relayed(deployment, None) if need.rows == "relayed" else ()))
        least = min(choices, key=lambda demand: demand.md_tokens)
        return replace(least, handoffs=0.0, extend_tokens=0.0)


def _quantile(values: FloatArray, weight: FloatArray, q: float) -> float:
    order = np.argsort(values, kind="stable")
    reached = int(np.searchsorted(np.cumsum(weight[order]), q * float(weight.sum()) * (1 - 1e-9)))
    return float(values[order][min(reached, values.size - 1)])
