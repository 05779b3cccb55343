"""What replica counts carry, and what a routing asks of each role: the pieces from which capacity columns are made.

Columns are a first, optimistic-or-not guess at queueing that the whole model (evaluate) then checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pddplan.pdd.context import Deployment, PlanContext, StageRows
from pddplan.pdd.decode_pool import DecodeTable, decode_state, relay_state
from pddplan.pdd.flows import Flow
from pddplan.pdd.laws import GRID
from pddplan.pdd.plan import Configuration, LinkPlan, Settings
from pddplan.pdd.routing import route
from pddplan.pdd.steady_state import extends, spread_of
from pddplan.pdd.transfer import LineState, line_state
from pddplan.queueing.decode import Spread
from pddplan.queueing.ggc import service_moments, wait_quantile_s
from pddplan.queueing.mg1 import waiting_cdf
from pddplan.stages.profiled import ProfiledStage

FloatArray = NDArray[np.float64]

BISECTIONS = 14
SAMPLED_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Counts at which pooling is computed; between them, and above, capacity per instance is taken to lie between or stay."""


@dataclass(frozen=True)
class StageBudget:
    """What a stage may take.

    wait_s: queueing delay before service at ``quantile`` (inf: stability alone counts). token_s: seconds per output token at ``quantile``
    for decode roles (inf: no limit). utilisation_max: cap on load.
    """

    quantile: float = 0.99
    wait_s: float = math.inf
    token_s: float = math.inf
    utilisation_max: float = 0.95


@dataclass(frozen=True)
class RoleDemand:
    """What one request of a deployment asks of each role, in the mean, under one routing (per request of the whole deployment).

    rows_*: share of each mix row that enters the role, shape (rows,). *_rate: requests that enter. rld_tokens, md_tokens: output tokens
    decoded there. rld_hold_s: seconds of RLD residence. extend_tokens: eager tokens handed over, in ``handoffs`` handoffs. line_bytes: what
    crosses between the rooms; line_bytes_without_md_cache: the same if MD kept no history. Context tokens are residence-weighted means.
    """

    relay_threshold_s: float | None
    rows_remote_p: FloatArray
    rows_local_p: FloatArray
    rows_rld: FloatArray
    rows_md: FloatArray
    p_rate_remote: float
    p_rate_local: float
    rld_rate: float
    rld_tokens: float
    rld_hold_s: float
    rld_context_tokens: float
    md_rate: float
    md_tokens: float
    md_context_tokens: float
    handoffs: float
    extend_tokens: float
    line_bytes: float
    line_bytes_without_md_cache: float


def demand_shares(
    context: PlanContext,
    deployment: str,
    settings: Settings,
    link: LinkPlan | None,
    thresholds_s: ArrayLike,
    rld_token_s: float,
) -> tuple[RoleDemand, ...]:
    """Role demands at each relay threshold (seconds; inf relays nothing), RLD emitting a token every ``rld_token_s``.

    Transfers run as on a line loaded by the whole demand, at most to its target utilisation. ``link`` None: one room, nothing is relayed.
    """
    owner = context.deployments[deployment]
    mix = owner.mix
    new, total = mix.md_missing_tokens, mix.input_tokens
    sizes = np.where(new > 0.0, np.asarray(owner.kv.transfer_bytes(new, total), dtype=np.float64), 0.0)
    whole = np.asarray(owner.kv.transfer_bytes(total, total), dtype=np.float64)
    zero = np.zeros(mix.rows)
    line = None if link is None else context.lines[link.name]
    flow = Flow(
        owner, 0, 0, 0, line, link, mix.weight, StageRows(zero, zero), sizes, whole, zero, zero, zero, np.arange(mix.rows)
    )
    state = None
    if line is not None and link is not None:
        load = mix.rate_per_s * mix.mean(sizes)
        most = line.target_utilisation * line.rate_cap_bytes_per_s(link)
        state = line_state(line, link, mix.rate_per_s * min(1.0, most / load if load > 0.0 else 1.0), sizes, mix.weight)
    return tuple(
        _role_demand(owner, settings, flow, state, float(t), rld_token_s)
        for t in np.atleast_1d(np.asarray(thresholds_s, dtype=float))
    )


def _role_demand(
    owner: Deployment, settings: Settings, flow: Flow, state: LineState | None, threshold_s: float, rld_token_s: float
) -> RoleDemand:
    mix = owner.mix
    chosen = Settings(
        relay_threshold_s=threshold_s,
        handoff=settings.handoff,
        prefill_chunk_tokens=settings.prefill_chunk_tokens,
        tail_packing=settings.tail_packing,
        singular_uncached_over=settings.singular_uncached_over,
        singular_output_under=settings.singular_output_under,
    )
    atoms = route(flow, state, rld_token_s, chosen)
    output = mix.output_tokens[atoms.row]
    on_rld = np.where(atoms.relayed, atoms.eager_tokens, 0.0)
    on_md = np.where(atoms.local, 0.0, output - on_rld)
    handed = atoms.relayed & (on_md > 0.0)
    hold = np.where(atoms.relayed, atoms.hold_s, 0.0)
    weight = atoms.weight

    def rows_of(mask: NDArray[np.bool_]) -> FloatArray:
        mass = np.bincount(atoms.row, weight * mask, mix.rows)
        return np.asarray(np.divide(mass, mix.weight, out=np.zeros(mix.rows), where=mix.weight > 0.0))

    def mean_context(work: FloatArray, middle: FloatArray) -> float:
        total = float(weight @ work)
        return float((weight * work) @ middle) / total if total > 0.0 else mix.mean(mix.input_tokens)

    threshold = settings.p_threshold_tokens
    remote = np.ones(mix.rows) if threshold is None else (mix.uncached_tokens > threshold).astype(float)
    sent_whole = np.where(atoms.sent_bytes > 0.0, flow.line_bytes_no_cache[atoms.row], 0.0)
    inputs = mix.input_tokens[atoms.row]
    return RoleDemand(
        relay_threshold_s=threshold_s,
        rows_remote_p=remote,
        rows_local_p=1.0 - remote,
        rows_rld=rows_of(atoms.relayed),
        rows_md=rows_of(on_md > 0.0),
        p_rate_remote=float(mix.weight @ remote),
        p_rate_local=float(mix.weight @ (1.0 - remote)),
        rld_rate=float(weight @ atoms.relayed),
        rld_tokens=float(weight @ on_rld),
        rld_hold_s=float(weight @ hold),
        rld_context_tokens=mean_context(hold, inputs + on_rld / 2.0),
        md_rate=float(weight @ (on_md > 0.0)),
        md_tokens=float(weight @ on_md),
        md_context_tokens=mean_context(on_md, inputs + output - on_md / 2.0),
        handoffs=float(weight @ handed),
        extend_tokens=float(weight @ np.where(handed, on_rld, 0.0)),
        line_bytes=float(weight @ atoms.sent_bytes),
        line_bytes_without_md_cache=float(weight @ sent_whole),
    )


def pool_capacity(
    context: PlanContext,
    configuration: Configuration,
    counts: ArrayLike,
    settings: Settings,
    budget: StageBudget,
    demand: RoleDemand,
    p_rows: FloatArray | None = None,
) -> FloatArray:
    """Largest rate (requests/s that enter the role) that each replica count carries within ``budget``, shape of ``counts``.

    ``demand`` says which rows enter and what each brings. ``p_rows``: share of each row that enters a P pool (None: all rows).
    Non-decreasing in the count. 0 where one request alone misses the budget.
    """
    numbers = np.atleast_1d(np.asarray(counts, dtype=np.int64))
    role = configuration.role
    if role == "P":
        return _prefill_capacity(context, configuration, numbers, settings, budget, p_rows)
    if role == "AGG":
        return _aggregated_capacity(context, configuration, numbers, settings, budget)
    policy = context.deployments[configuration.deployment].policy
    full, spread = policy.queueing == "full", spread_of(policy.decode_dispatch)
    if role == "RLD":
        if demand.rld_rate <= 0.0:
            return np.full(numbers.shape, math.inf)
        table = _table(context, configuration, settings, demand.rld_context_tokens)
        hold = demand.rld_hold_s / demand.rld_rate

        def relays(rate: float, count: int) -> bool:
            state = relay_state(table, count, rate, hold, 1.0, spread=spread, queueing=full)
            return _within(state.utilisation, state.token_s, state.probability, state.p_wait, state.wait_given_s, budget, full)

        return _by_count(numbers, spread, full, lambda n: n * table.batch_max / hold if hold > 0.0 else math.inf, relays)
    if demand.md_rate <= 0.0:
        return np.full(numbers.shape, math.inf)
    table = _table(context, configuration, settings, demand.md_context_tokens, settings.md_cache_bytes or 0.0)
    tokens = demand.md_tokens / demand.md_rate
    handoffs = demand.handoffs / demand.md_rate
    extend = 0.0
    stage = context.instance(configuration, settings)
    if handoffs > 0.0 and settings.handoff != "ship-kv" and extends(stage):
        mean_eager = np.array([max(demand.extend_tokens / demand.handoffs, 1.0)])
        extend = float(np.asarray(stage.extend_s(mean_eager, np.array([demand.md_context_tokens])))[0])

    def decodes(rate: float, count: int) -> bool:
        state = decode_state(
            table,
            count,
            rate,
            tokens,
            spread=spread,
            extend_s=np.array([extend]),
            extend_rate_per_s=np.array([rate * handoffs]),
            queueing=full,
        )
        return _within(state.utilisation, state.token_s, state.probability, state.p_wait, state.wait_given_s, budget, full)

    return _by_count(numbers, spread, full, lambda n: n * table.rate_max(tokens), decodes)


def _table(
    context: PlanContext, configuration: Configuration, settings: Settings, context_tokens: float, cache_bytes: float = 0.0
) -> DecodeTable:
    tables = context.decode_tables(configuration, settings)
    resident = float(np.asarray(tables.stage.kv_resident_bytes(np.array([context_tokens])))[0])
    return tables.table(context_tokens, resident, cache_bytes)


def _within(
    utilisation: float,
    token_s: FloatArray,
    probability: FloatArray,
    p_wait: float,
    wait_given_s: float,
    budget: StageBudget,
    full: bool,
) -> bool:
    if utilisation >= 1.0 or (full and utilisation > budget.utilisation_max):
        return False
    if p_wait > 1.0 - budget.quantile and wait_given_s * math.log(p_wait / (1.0 - budget.quantile)) > budget.wait_s:
        return False
    order = np.argsort(token_s)
    reached = np.searchsorted(np.cumsum(probability[order]), budget.quantile * (1.0 - 1e-9))
    return bool(token_s[order][min(int(reached), token_s.size - 1)] <= budget.token_s * (1.0 + 1e-9))


def _by_count(
    counts: NDArray[np.int64], spread: Spread, full: bool, ceiling: Callable[[int], float], fits: Callable[[float, int], bool]
) -> FloatArray:
    """Bisects the rate of each count. Pools without pooling gain are linear; others are bisected at a few counts and interpolated per
    instance."""
    if spread == "random" or not full:
        return np.asarray(counts * _bisect(ceiling(1), lambda rate: fits(rate, 1)))
    sampled = [n for n in SAMPLED_COUNTS if n <= max(int(counts.max()), 1)]
    per_instance = [_bisect(ceiling(n), lambda rate, n=n: fits(rate, n)) / n for n in sampled]  # type: ignore[misc]
    return np.asarray(counts * np.interp(counts, sampled, np.maximum.accumulate(per_instance)))


def _bisect(ceiling: float, fits: Callable[[float], bool]) -> float:
    if not math.isfinite(ceiling) or ceiling <= 0.0:
        return max(ceiling, 0.0)
    if fits(ceiling):
        return ceiling
    low, high = 0.0, ceiling
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _prefill_capacity(
    context: PlanContext,
    configuration: Configuration,
    counts: NDArray[np.int64],
    settings: Settings,
    budget: StageBudget,
    rows: FloatArray | None,
) -> FloatArray:
    owner = context.deployments[configuration.deployment]
    weight = owner.mix.weight if rows is None else owner.mix.weight * rows
    if float(weight.sum()) <= 0.0:
        return np.full(counts.shape, math.inf)
    weight = weight / weight.sum()
    services = context.prefill_rows(configuration, settings).occupancy_s
    mean, scv = service_moments(services, weight)
    if owner.policy.queueing == "none":
        return np.asarray(counts / mean, dtype=np.float64)
    top = budget.utilisation_max / mean
    used = weight > 0.0
    poisson = abs(owner.mix.arrival_scv - 1.0) < 0.02
    if owner.policy.dispatch == "cache_affinity" and poisson:

        def waits_little(rate: float) -> bool:
            if rate * mean > 1.0 - 1e-9:
                return False
            return bool(
                float(GRID.quantile(waiting_cdf(rate, services[used], weight[used], GRID), budget.quantile)) <= budget.wait_s
            )

        return np.asarray(counts * (top if budget.wait_s == math.inf else _bisect(top, waits_little)))
    servers = np.ones(counts.shape) if owner.policy.dispatch in ("cache_affinity", "round_robin") else counts.astype(float)
    scale = np.where(servers == 1.0, counts, 1.0)
    burst = owner.mix.arrival_scv if owner.policy.dispatch != "round_robin" else owner.mix.arrival_scv / counts
    low, high = np.zeros(counts.shape), servers * top
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        good = wait_quantile_s(servers, middle, mean, scv, budget.quantile, burst) <= budget.wait_s
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    fits_top = wait_quantile_s(servers, servers * top, mean, scv, budget.quantile, burst) <= budget.wait_s
    return np.asarray(np.where(fits_top, servers * top, low) * scale)


def _aggregated_capacity(
    context: PlanContext, configuration: Configuration, counts: NDArray[np.int64], settings: Settings, budget: StageBudget
) -> FloatArray:
    owner = context.deployments[configuration.deployment]
    mix = owner.mix
    stage = context.instance(configuration, settings)
    if isinstance(stage, ProfiledStage) and stage.rate is not None:
        seconds = mix.mean(stage.rate.seconds_per_request(mix.input_tokens, mix.output_tokens))
        return np.asarray(counts / seconds, dtype=np.float64)
    full, spread = owner.policy.queueing == "full", spread_of(owner.policy.decode_dispatch)
    residence = mix.weight * mix.output_tokens
    middle = float(residence @ (mix.input_tokens + mix.output_tokens / 2.0)) / float(residence.sum())
    table = _table(context, configuration, settings, middle)
    services = context.prefill_rows(configuration, settings).occupancy_s
    mean, scv = service_moments(services, mix.weight)
    tokens = mix.mean(mix.output_tokens)

    def serves(rate: float, count: int) -> bool:
        share = rate * mean / count
        if share >= 1.0:
            return False
        slowed = DecodeTable(table.step_s / (1.0 - share), table.tokens_per_step, table.bound_by)
        state = decode_state(slowed, count, rate, tokens, spread=spread, queueing=full)
        if not _within(state.utilisation, state.token_s, state.probability, state.p_wait, state.wait_given_s, budget, full):
            return False
        if not full:
            return True
        servers = 1 if owner.policy.dispatch in ("cache_affinity", "round_robin") else count
        wait = wait_quantile_s(servers, rate / count * servers, mean, scv, budget.quantile, mix.arrival_scv)
        return bool(wait <= budget.wait_s)

    return _by_count(counts, spread, full, lambda n: n * min(table.rate_max(tokens), 1.0 / mean), serves)


def line_capacity_bytes_per_s(context: PlanContext, link: LinkPlan) -> float:
    """Payload bytes/s that the link carries at its target utilisation, pool of connections included."""
    line = context.lines[link.name]
    capacity = line.rate_cap_bytes_per_s(link)
    if not math.isfinite(line.connections) or not math.isfinite(line.flow_bytes_per_s):
        return line.target_utilisation * capacity
    return line.target_utilisation * min(capacity, line.connections * line.flow_bytes_per_s)
