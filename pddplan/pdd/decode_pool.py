"""A decode pool under load: how many requests run, how long a token takes, how long a request waits for a place.

Memory limits the batch: what is left of HBM for KV over the mean bytes of a running request. Extend-decode steps of handed-over requests
run between decode steps and take their share of the instance's time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pddplan.pdd.laws import GRID, exponential_nodes
from pddplan.queueing.decode import BatchLaw, Spread, open_loop
from pddplan.queueing.mg1 import waiting_cdf
from pddplan.stages.protocol import DecodeStage

FloatArray = NDArray[np.float64]

TABLE_BATCHES = 48
BATCH_LIMIT = 8192
TOKEN_NODES = 20
WAIT_NODES = 4
INTERRUPTION_KINDS = 24


@dataclass(frozen=True)
class DecodeTable:
    """Step times of one instance at every batch it can hold. ``step_s`` has shape (batch_max,); bound_by: memory or engine."""

    step_s: FloatArray
    tokens_per_step: float
    bound_by: str

    @property
    def batch_max(self) -> int:
        return int(self.step_s.size)

    def rate_max(self, tokens_per_request: float) -> float:
        """Requests/s of one instance with full batches."""
        if tokens_per_request <= 0.0:
            return math.inf
        return self.batch_max * self.tokens_per_step / (tokens_per_request * float(self.step_s[-1])) if self.batch_max else 0.0


@dataclass(frozen=True)
class DecodeTables:
    """Builds and keeps the tables of one stage; contexts are rounded to 1 %, which moves a step by less."""

    stage: DecodeStage
    _kept: dict[tuple[int, int, bool], DecodeTable] = field(default_factory=dict, repr=False, compare=False)

    def table(self, context_tokens: float, resident_bytes: float, cache_bytes: float = 0.0) -> DecodeTable:
        """Table at a mean context, with room for KV of ``resident_bytes`` a request beside ``cache_bytes`` of history."""
        batch_max, bound_by = self.batch_max(resident_bytes, cache_bytes)
        step = round(math.log(max(context_tokens, 1.0)) * 100.0)
        key = (step, batch_max, bound_by == "memory")
        if key not in self._kept:
            context = math.exp(step / 100.0)
            batches = np.unique(np.round(np.geomspace(1, max(batch_max, 1), TABLE_BATCHES))) if batch_max else np.empty(0)
            steps = np.asarray(self.stage.step_s(batches, np.full(batches.shape, context))) if batch_max else np.empty(0)
            full = np.interp(np.arange(1, batch_max + 1), batches, steps) if batch_max else np.empty(0)
            self._kept[key] = DecodeTable(full, self.stage.tokens_per_step, bound_by)
        return self._kept[key]

    def batch_max(self, resident_bytes: float, cache_bytes: float = 0.0) -> tuple[int, str]:
        """Most requests that run at once, and what says so."""
        room = self.stage.kv_capacity_bytes() - cache_bytes
        by_memory = room / resident_bytes if resident_bytes > 0.0 else math.inf
        limit = min(by_memory, self.stage.batch_max, BATCH_LIMIT)
        return max(int(limit + 1e-9), 0), "memory" if by_memory < min(self.stage.batch_max, BATCH_LIMIT) else "engine"


@dataclass(frozen=True)
class Interruptions:
    """What comes between two decode steps of an instance: ``rate_per_s`` of them, lasting ``seconds`` with ``probability``, shape (kinds,),
    in rising order."""

    rate_per_s: float
    seconds: FloatArray
    probability: FloatArray

    def longest(self, residence_s: FloatArray) -> FloatArray:
        """P(the longest of those met within a residence is kind k), shape (residences, kinds); what is missing to 1 meets none."""
        above = 1.0 - np.cumsum(self.probability)
        most = np.exp(-self.rate_per_s * residence_s[:, None] * np.maximum(above, 0.0)[None, :])
        none = np.exp(-self.rate_per_s * residence_s)[:, None]
        return np.diff(np.concatenate([none, most], axis=1), axis=1)


def interruptions(rate_per_s: float, seconds: FloatArray, weight: FloatArray) -> Interruptions | None:
    """Weighted durations pooled into a few kinds; None when there is nothing."""
    total = float(weight.sum())
    if rate_per_s <= 0.0 or total <= 0.0:
        return None
    order = np.argsort(seconds, kind="stable")
    kept, mass = _pooled(seconds[order], weight[order] / total, INTERRUPTION_KINDS)
    return Interruptions(rate_per_s, kept, mass / mass.sum())


@dataclass(frozen=True)
class DecodeState:
    """A decode pool in its steady state. Nodes (what an arriving request meets): ``token_s`` seconds per token, ``wait_s`` for a
    place, ``probability``; shape (nodes,). queued: whether requests meet others (False: capacities only). extend_wait_cdf: wait of an
    extend for those before it (None: there are none)."""

    utilisation: float
    batch_mean: float
    batch_max: int
    bound_by: str
    token_s: FloatArray
    wait_s: FloatArray
    probability: FloatArray
    token_mean_s: float
    step_mean_s: float
    p_wait: float
    wait_given_s: float
    extend_share: float = 0.0
    extend_queue_s: float = 0.0
    extend_wait_cdf: FloatArray | None = None
    interruptions: Interruptions | None = None
    queued: bool = True

    @property
    def tokens_per_step(self) -> float:
        return self.step_mean_s / self.token_mean_s if self.token_mean_s > 0.0 else 1.0

    @property
    def first_s(self) -> float:
        """From a place to the first token: what is left of the step (or extend) under way, then one step."""
        return self.step_mean_s * (1.0 + 0.5 * self.busy) + self.extend_queue_s

    @property
    def busy(self) -> float:
        """Probability that a step is under way; 0 where requests meet no others."""
        return -math.expm1(-self.batch_mean) if self.queued else 0.0

    @property
    def stable(self) -> bool:
        return self.utilisation < 1.0


def decode_state(
    table: DecodeTable,
    instances: int,
    rate_per_s: float,
    tokens_per_request: float,
    *,
    spread: Spread = "balanced",
    token_scv: float = 1.0,
    arrival_scv: float = 1.0,
    extend_s: FloatArray | None = None,
    extend_rate_per_s: FloatArray | None = None,
    queueing: bool = True,
) -> DecodeState:
    """State of a pool that ``rate_per_s`` requests of ``tokens_per_request`` enter; extends arrive beside them and block decoding.

    arrival_scv: of the gaps between requests at the pool's door. extend_s, extend_rate_per_s: duration and rate (all instances) of each
    kind of extend, shape (kinds,).

    An overloaded pool is an answer (utilisation >= 1).
    """
    if instances < 1 or table.batch_max < 1:
        return _overloaded(math.inf, table)
    if tokens_per_request <= 0.0:
        rate_per_s, tokens_per_request = 0.0, 1.0
    durations = np.zeros(0) if extend_s is None else extend_s
    rates = np.zeros(0) if extend_rate_per_s is None else extend_rate_per_s / instances
    share = float(rates @ durations)
    if share >= 1.0:
        return _overloaded(max(share, rate_per_s / instances / table.rate_max(tokens_per_request)), table)
    steps = table.step_s / (1.0 - share)
    if queueing:
        law = open_loop(
            rate_per_s,
            tokens_per_request,
            steps,
            tokens_per_step=table.tokens_per_step,
            instances=instances,
            spread=spread,
            output_scv=token_scv,
            arrival_scv=arrival_scv,
        )
    else:
        law = _capacity_only(rate_per_s, tokens_per_request, steps, table.tokens_per_step, instances)
    if not law.stable:
        return _overloaded(law.utilisation, table)
    tokens, waits, probability = _nodes(law)
    queue = float(rates @ durations**2) / (2.0 * (1.0 - share))
    kinds = interruptions(float(rates.sum()), durations, rates)
    behind = waiting_cdf(kinds.rate_per_s, kinds.seconds, kinds.probability, GRID) if kinds is not None and queueing else None
    token_mean = float(probability @ tokens)
    return DecodeState(
        utilisation=law.utilisation,
        batch_mean=law.batch_mean,
        batch_max=table.batch_max,
        bound_by=table.bound_by,
        token_s=tokens,
        wait_s=waits,
        probability=probability,
        token_mean_s=token_mean,
        step_mean_s=token_mean * table.tokens_per_step,
        p_wait=law.p_wait,
        wait_given_s=law.wait_given_s,
        extend_share=share,
        extend_queue_s=queue,
        extend_wait_cdf=behind,
        interruptions=kinds,
        queued=queueing,
    )


def relay_state(
    table: DecodeTable,
    instances: int,
    rate_per_s: float,
    hold_s: float,
    hold_scv: float,
    *,
    spread: Spread,
    arrival_scv: float = 1.0,
    queueing: bool = True,
) -> DecodeState:
    """State of an RLD pool: residence is set by the transfer that it hides, not by the batch, so places empty at n / hold.

    token_s are the step times at the batch that a newcomer makes.
    """
    if instances < 1 or table.batch_max < 1:
        return _overloaded(math.inf, table)
    if not queueing:
        rho = rate_per_s * hold_s / (instances * table.batch_max)
        batch = min(rate_per_s * hold_s / instances, float(table.batch_max))
        step = _step_at(table.step_s, batch)
        token = np.array([step / table.tokens_per_step])
        if rho > 1.0 + 1e-9:
            return _overloaded(rho, table)
        return DecodeState(
            min(rho, 1.0 - 1e-12),
            batch,
            table.batch_max,
            table.bound_by,
            token,
            np.zeros(1),
            np.ones(1),
            float(token[0]),
            step,
            0.0,
            0.0,
            queued=False,
        )
    if hold_s <= 0.0:
        rate_per_s, hold_s = 0.0, 1.0
    law = open_loop(
        rate_per_s,
        hold_s,
        np.ones(table.batch_max),
        instances=instances,
        spread=spread,
        output_scv=hold_scv,
        arrival_scv=arrival_scv,
    )
    if not law.stable:
        return _overloaded(law.utilisation, table)
    running = law.running
    token = table.step_s[np.minimum(np.arange(running.size), table.batch_max - 1)] / table.tokens_per_step
    tokens, probability = _pooled(token, running, TOKEN_NODES)
    mean = float(probability @ tokens)
    return DecodeState(
        utilisation=law.utilisation,
        batch_mean=law.batch_mean,
        batch_max=table.batch_max,
        bound_by=table.bound_by,
        token_s=tokens,
        wait_s=np.zeros(tokens.size),
        probability=probability,
        token_mean_s=mean,
        step_mean_s=mean * table.tokens_per_step,
        p_wait=law.p_wait,
        wait_given_s=law.wait_given_s,
    )


def _overloaded(utilisation: float, table: DecodeTable) -> DecodeState:
    step = float(table.step_s[-1]) if table.batch_max else math.inf
    token = step / table.tokens_per_step
    return DecodeState(
        max(utilisation, 1.0),
        float(table.batch_max),
        table.batch_max,
        table.bound_by,
        np.array([token]),
        np.array([math.inf]),
        np.ones(1),
        token,
        step,
        1.0,
        math.inf,
    )


def _capacity_only(rate: float, tokens: float, steps: FloatArray, tokens_per_step: float, instances: int) -> BatchLaw:
    """The deterministic operating point: the batch at which tokens leave as fast as they come; full load is still stable."""
    per_instance = rate / instances
    capacity = steps.size * tokens_per_step / (tokens * float(steps[-1])) if tokens > 0.0 else math.inf
    rho = per_instance / capacity
    batches = np.arange(1, steps.size + 1)
    throughput = batches * tokens_per_step / (tokens * steps) if tokens > 0.0 else np.full(steps.size, math.inf)
    reach = np.maximum.accumulate(throughput)
    batch = float(np.interp(per_instance, np.concatenate([[0.0], reach]), np.concatenate([[0.0], batches])))
    token = _step_at(steps, batch) / tokens_per_step
    stable = rho <= 1.0 + 1e-9
    return BatchLaw(
        utilisation=min(rho, 1.0 - 1e-12) if stable else rho,
        running=np.zeros(0),
        batch_mean=batch,
        token_s=np.array([token]),
        probability=np.ones(1),
        p_wait=0.0,
        wait_given_s=0.0,
        token_mean_s=token,
        throughput_per_s=rate,
    )


def _step_at(steps: FloatArray, batch: float) -> float:
    return float(np.interp(batch, np.arange(1, steps.size + 1), steps))


def _nodes(law: BatchLaw) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Token times of those who find a place, and, for those who wait, the full batch's token time with quantiles of the wait."""
    free = law.probability.copy()
    free[-1] = max(free[-1] - law.p_wait, 0.0)
    tokens, probability = _pooled(law.token_s, free, TOKEN_NODES)
    waits = np.zeros(tokens.size)
    if law.p_wait > 1e-6 and math.isfinite(law.wait_given_s):
        tokens = np.concatenate([tokens, np.full(WAIT_NODES, law.token_s[-1])])
        waits = np.concatenate([waits, law.wait_given_s * exponential_nodes(WAIT_NODES)])
        probability = np.concatenate([probability, np.full(WAIT_NODES, law.p_wait / WAIT_NODES)])
    return tokens, waits, probability / probability.sum()


def _pooled(values: FloatArray, probability: FloatArray, points: int) -> tuple[FloatArray, FloatArray]:
    """At most ``points`` nodes in place of increasing ``values``, finer in the upper tail, means kept."""
    left = np.sqrt(np.maximum(np.cumsum(probability[::-1])[::-1] / max(float(probability.sum()), 1e-300), 0.0))
    bins = np.minimum(((1.0 - left) * points).astype(int), points - 1)
    mass = np.bincount(bins, probability, points)
    total = np.bincount(bins, probability * values, points)
    kept = mass > 1e-12
    return np.asarray(total[kept] / mass[kept]), np.asarray(mass[kept], dtype=np.float64)
