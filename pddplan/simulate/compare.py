"""Predicted beside simulated: metrics of replays over several seeds, their interval, and where the prediction misses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pddplan.errors import InputError, Problem
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.flows import active_deployments
from pddplan.pdd.plan import Decision, Evaluation
from pddplan.simulate.records import PIPELINES, Records, Run
from pddplan.simulate.replay import Replay
from pddplan.simulate.streams import streams

FloatArray = NDArray[np.float64]

MISS = 0.15
CONFIDENCE = 0.95
SEEDS = 4
REQUESTS = 20_000
WARM_SHARE = 0.15
CRITICAL = 0.97  # load from which a queue needs more than a million requests to settle
METRICS = (
    "ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "tpot_mean_s", "tpot_p99_s", "stall_p99_s", "e2e_p50_s", "e2e_p99_s",
    "goodput_rps", "p_good", "rld_token_share",
)  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """Metrics by name. interval: 95 % of the mean over seeds. deviation: predicted / simulated - 1 (None: one of them is not finite, or 0).

    misses: metrics more than 15 % off and outside the interval. pipelines: share of requests by pipeline, simulated.
    requests: measured in all, over all seeds. evaluation: what was predicted.
    """

    predicted: Mapping[str, float]
    simulated: Mapping[str, float]
    interval: Mapping[str, tuple[float, float]]
    deviation: Mapping[str, float | None]
    misses: tuple[str, ...]
    pipelines: Mapping[str, float]
    pool_load: Mapping[int, float]
    line_load: Mapping[str, float]
    requests: int
    seed: int
    seeds: int
    evaluation: Evaluation
    warnings: tuple[str, ...] = ()


def compare(
    context: PlanContext,
    decision: Decision,
    *,
    requests: int = REQUESTS,
    seed: int = 1,
    seeds: int = SEEDS,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Replay ``decision`` with ``requests`` requests (all seeds together) and hold the prediction against it.

    Raises InputError for a plan whose times are not known (profiles by rate), or too few requests.
    """
    if requests < 100 * seeds:
        raise InputError(Problem("requests", str(requests), f"at least {100 * seeds}, 100 for each of {seeds} seeds", "20000"))
    asked, context = context, with_queueing(context)
    evaluation = evaluate(context, decision)
    predicted = {name: float(getattr(evaluation.metrics, name)) for name in METRICS}
    deployments = active_deployments(context)
    if not deployments:
        raise InputError(Problem("workload.rate", "no request arrives", "a rate over 0", "10 req/s"))
    per_run = requests // seeds // len(deployments)
    rate = sum(d.mix.rate_per_s for d in deployments)
    skip = _warm(per_run, rate / len(deployments), evaluation)
    found: list[dict[str, float]] = []
    runs: list[Run] = []
    for k in range(seeds):
        rng = np.random.default_rng([seed, k])
        arrivals = {d.name: streams(context, decision, d, skip + 2 * per_run, evaluation.metrics.e2e_p50_s, rng) for d in deployments}
        measured = {name: min(per_run, max(s.requests - skip, 0)) for name, s in arrivals.items()}
        if min(measured.values()) < 50:
            skip, measured = 0, {name: min(per_run, s.requests) for name, s in arrivals.items()}
        run = Replay(context, decision, arrivals, int(rng.integers(1 << 31))).run(skip, min(measured.values()), progress)
        runs.append(run)
        found.append(measure(context, run))
    simulated = {name: float(np.mean([f[name] for f in found])) for name in METRICS}
    interval = {name: _interval([f[name] for f in found]) for name in METRICS}
    deviation = {name: _deviation(predicted[name], simulated[name]) for name in METRICS}
    misses = tuple(name for name in METRICS if _missed(predicted[name], simulated[name], interval[name], deviation[name]))
    every = [record for run in runs for record in run.records]
    total = sum(r.pipeline.size for r in every)
    shares = {p: sum(int(np.sum(r.pipeline == i)) for r in every) / total for i, p in enumerate(PIPELINES)}
    return Comparison(
        predicted=predicted,
        simulated=simulated,
        interval=interval,
        deviation=deviation,
        misses=misses,
        pipelines={name: share for name, share in shares.items() if share > 0.0},
        pool_load={i: float(np.mean([run.pool_load[i] for run in runs])) for i in runs[0].pool_load},
        line_load={name: float(np.mean([run.line_load[name] for run in runs])) for name in runs[0].line_load},
        requests=total,
        seed=seed,
        seeds=seeds,
        evaluation=evaluation,
        warnings=_warnings(asked, evaluation),
    )


def with_queueing(context: PlanContext) -> PlanContext:
    """The context with waits predicted in every deployment, also where the plan was made for capacities only."""
    deployments = {name: replace(d, policy=d.policy.model_copy(update={"queueing": "full"})) for name, d in context.deployments.items()}
    return context.with_deployments(deployments)


def _warnings(context: PlanContext, evaluation: Evaluation) -> tuple[str, ...]:
    warnings = []
    if any(d.policy.queueing == "none" for d in context.deployments.values()):
        warnings.append("the plan was made for capacities only (queueing: none); here its waits are predicted and replayed")
    critical = [(f"pool {p.pool.configuration.role} at {p.pool.configuration.site}", p.utilisation) for p in evaluation.pools]
    critical += [(f"line {link.link.name}", link.utilisation) for link in evaluation.links]
    warnings += [
        f"{name} is at {100 * load:.1f} % of its capacity: no run of this length reaches the steady state that is predicted"
        for name, load in critical
        if CRITICAL <= load < 1.0
    ]
    if not evaluation.stable:
        warnings.append("the plan is unstable: what is simulated depends on how long it runs")
    return tuple(warnings)


def _warm(per_run: int, rate: float, evaluation: Evaluation) -> int:
    """Requests to skip: a share of the run, three times the time a request stays, and what the fullest queue remembers, if more."""
    stay = evaluation.metrics.e2e_p50_s
    load = max((p.utilisation for p in evaluation.pools if p.utilisation < 1.0), default=0.0)
    settle = max(3.0 * rate * stay if math.isfinite(stay) else 0.0, 10.0 / (1.0 - load) ** 2)
    return int(min(max(WARM_SHARE * per_run, settle), per_run))


def measure(context: PlanContext, run: Run) -> dict[str, float]:
    """Metrics of one run, over all deployments weighted by their rates."""
    rates = {r.deployment: context.deployments[r.deployment].mix.rate_per_s for r in run.records}
    total = sum(rates.values())
    weight = np.concatenate([np.full(r.ttft_s.size, rates[r.deployment] / total / max(r.ttft_s.size, 1)) for r in run.records])
    ttft, e2e, tpot, stall = (np.concatenate([getattr(r, name) for r in run.records]) for name in ("ttft_s", "e2e_s", "tpot_s", "stall_s"))
    several = ~np.isnan(tpot)
    good = np.concatenate([_good(context, r) for r in run.records])
    tokens = sum(rates[r.deployment] * float(r.output_tokens.mean()) for r in run.records)
    relayed = sum(rates[r.deployment] * float(r.relay_tokens.mean()) for r in run.records)
    p_good = float(weight @ good)
    return {
        "ttft_p50_s": quantile(ttft, weight, 0.5),
        "ttft_p90_s": quantile(ttft, weight, 0.9),
        "ttft_p99_s": quantile(ttft, weight, 0.99),
        "tpot_mean_s": float(np.average(tpot[several], weights=weight[several])) if several.any() else 0.0,
        "tpot_p99_s": quantile(tpot[several], weight[several], 0.99),
        "stall_p99_s": quantile(stall[several], weight[several], 0.99),
        "e2e_p50_s": quantile(e2e, weight, 0.5),
        "e2e_p99_s": quantile(e2e, weight, 0.99),
        "goodput_rps": p_good * total,
        "p_good": p_good,
        "rld_token_share": relayed / tokens if tokens > 0.0 else 0.0,
    }


def _good(context: PlanContext, records: Records) -> FloatArray:
    """1 for each request whose TTFT and TPOT are both within its class's limits, else 0."""
    good = np.zeros(records.ttft_s.size)
    for index, sla in enumerate(context.deployments[records.deployment].slas):
        mine = records.class_index == index
        in_time = records.ttft_s <= (math.inf if sla.ttft.limit is None else sla.ttft.limit)
        tpot = records.tpot_s
        paced = np.isnan(tpot) | (tpot <= (math.inf if sla.tpot.limit is None else sla.tpot.limit))
        good[mine] = (in_time & paced & np.isfinite(records.e2e_s))[mine]
    return good


def quantile(values: FloatArray, weight: FloatArray, q: float) -> float:
    """Weighted quantile: the smallest value that at least ``q`` of the weight does not exceed; 0 for no values."""
    if values.size == 0:
        return 0.0
    order = np.argsort(values)
    below = np.cumsum(weight[order])
    return float(values[order][min(int(np.searchsorted(below, q * below[-1])), values.size - 1)])


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's interval of the mean over seeds."""
    mean, n = float(np.mean(values)), len(values)
    if n < 2 or not math.isfinite(mean):
        return mean, mean
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2.0, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
    return mean - half, mean + half


def _deviation(predicted: float, simulated: float) -> float | None:
    if not (math.isfinite(predicted) and math.isfinite(simulated)) or simulated == 0.0:
        return None
    return predicted / simulated - 1.0


def _missed(predicted: float, simulated: float, interval: tuple[float, float], deviation: float | None) -> bool:
    if deviation is None:
        return math.isfinite(predicted) and math.isfinite(simulated) and abs(predicted - simulated) > 1e-3
    return abs(deviation) > MISS and not interval[0] <= predicted <= interval[1]
