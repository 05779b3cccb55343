"""The P:D section: GPU-seconds of work that a mean request costs in each role, and the integer ratios that waste least."""

from __future__ import annotations

import math

from pddplan.optimize.result import PdRatio, RoleWork
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Evaluation, PoolResult

LARGEST = 12
"""Integers of a ratio are at most this."""
SHOWN = 4


def pd_ratio(context: PlanContext, evaluation: Evaluation) -> PdRatio | None:
    """Work per role of an evaluated plan; None without pools or traffic.

    A pool's work is utilisation x GPUs / requests per second: GPU-seconds that a mean request of the whole traffic costs there.
    ``balanced``: MD instances per P instance at which both are equally loaded; a ratio (p, d) loses the share of throughput
    by which the scarcer side falls short of the balance.
    """
    scale = evaluation.metrics.goodput_rps / evaluation.metrics.p_good if evaluation.metrics.p_good > 0 else context.rate_per_s
    if not evaluation.pools or scale <= 0:
        return None
    total = sum(_gpu_s(pool, scale) for pool in evaluation.pools)
    work = tuple(_work(context, pool, scale, total) for pool in evaluation.pools)
    p = sum(w.instance_s_per_request for w in work if w.role == "P")
    d = sum(w.instance_s_per_request for w in work if w.role == "MD")
    balanced = d / p if p > 0 and d > 0 and math.isfinite(d / p) else None
    best = best_ratios(balanced) if balanced is not None else ()
    return PdRatio(work, balanced, best, _advice(work, balanced, best))


def best_ratios(balanced: float) -> tuple[tuple[int, int, float], ...]:
    """(P instances, MD instances, share of throughput lost) of the small integer ratios nearest ``balanced`` (MD per P)."""
    ratios: dict[tuple[int, int], float] = {}
    for p in range(1, LARGEST + 1):
        for d in range(1, LARGEST + 1):
            if math.gcd(p, d) == 1:
                carried = min(p, d / balanced)
                ratios[p, d] = 1.0 - carried * (1.0 + balanced) / (p + d)
    ordered = sorted(ratios.items(), key=lambda item: (round(item[1], 4), sum(item[0])))
    return tuple((p, d, loss) for (p, d), loss in ordered[:SHOWN])


def _gpu_s(pool: PoolResult, rate_per_s: float) -> float:
    return pool.utilisation * pool.pool.gpus / rate_per_s


def _work(context: PlanContext, pool: PoolResult, rate_per_s: float, total: float) -> RoleWork:
    configuration = pool.pool.configuration
    stock = context.stocks[configuration.site, configuration.chip][1]
    node = stock.node_gpus or context.chips[configuration.chip].gpus_per_node
    work = _gpu_s(pool, rate_per_s)
    return RoleWork(
        role=configuration.role,
        configuration=configuration,
        instances=pool.pool.instances,
        gpus=pool.pool.gpus,
        nodes=math.ceil(pool.pool.gpus / node),
        chip_s_per_request=work,
        instance_s_per_request=work / configuration.gpus_per_instance,
        share_of_work=work / total if total > 0 else 0.0,
        utilisation=pool.utilisation,
    )


def _advice(work: tuple[RoleWork, ...], balanced: float | None, best: tuple[tuple[int, int, float], ...]) -> str:
    if balanced is None:
        aggregated = any(w.role == "AGG" for w in work)
        return "aggregated serving: both phases share each instance, so there is no ratio to set" if aggregated else ""
    prefill = sum(w.chip_s_per_request for w in work if w.role == "P")
    share = prefill / sum(w.chip_s_per_request for w in work)
    p, d, loss = best[0]
    text = f"prefill is {share:.1%} of the GPU time of a request; balanced at {balanced:.3g} MD instances per P instance"
    return f"{text}, nearest small ratio {p}P:{d}D (wastes {loss:.1%})"
