"""How a fixed plan answers to its traffic: the full model evaluated over demand, hit rate and output length, one at a time.

The what-if spreadsheet interpolates these tables; they hold for the plan's counts and settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pddplan.errors import InputError
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Decision, Evaluation
from pddplan.studies.bandwidth import at_hit_rate, hit_rate_of

Driver = Literal["rate", "hit_rate", "output_tokens"]
DRIVERS: tuple[Driver, ...] = ("rate", "hit_rate", "output_tokens")


@dataclass(frozen=True)
class Response:
    """Evaluations at ``points`` of one driver, in its unit (requests/s, fraction, tokens); ``base`` is the plan's own value among them.

    Points that measured profiles do not cover are left out.
    """

    driver: Driver
    points: tuple[float, ...]
    base: float
    evaluations: tuple[Evaluation, ...]


def with_traffic(context: PlanContext, *, uncached_scale: float = 1.0, output_scale: float = 1.0) -> PlanContext:
    """The same scenario with every request's uncached and MD-missing tokens, and its output, scaled (kept within
    its length, output at least 1).
    """

    def scaled(deployment: Deployment) -> Deployment:
        mix = deployment.mix
        uncached = np.minimum(mix.uncached_tokens * uncached_scale, mix.input_tokens)
        missing = np.minimum(mix.md_missing_tokens * uncached_scale, mix.input_tokens)
        output = np.maximum(mix.output_tokens * output_scale, 1.0)
        return replace(deployment, mix=replace(mix, uncached_tokens=uncached, md_missing_tokens=missing, output_tokens=output))

    return context.with_deployments({name: scaled(deployment) for name, deployment in context.deployments.items()})


def with_hit_rate(context: PlanContext, hit_rate: float) -> PlanContext:
    """The same scenario with its first deployment at another token-weighted hit rate: uncached tokens of every request scaled alike."""
    name, deployment = next(iter(context.deployments.items()))
    return context.with_deployments({**context.deployments, name: replace(deployment, mix=at_hit_rate(deployment.mix, hit_rate))})


def responses(context: PlanContext, decision: Decision, grids: Mapping[Driver, Sequence[float]] | None = None) -> dict[Driver, Response]:
    """Evaluate ``decision`` over each driver's grid, the others held at the scenario's values.

    Grids default to 25-150 % of the rate, hit rates from a quarter of today's misses to twice them, and 25-200 % of the output length.
    """
    deployment = next(iter(context.deployments.values()))
    base = {
        "rate": context.rate_per_s,
        "hit_rate": hit_rate_of(deployment.mix),
        "output_tokens": deployment.mix.mean(deployment.mix.output_tokens),
    }
    chosen = grids or default_grids(base)
    answers: dict[Driver, Response] = {}
    for driver in DRIVERS:
        found: dict[float, Evaluation] = {}
        for point in sorted({*chosen[driver], base[driver]}):
            try:
                found[point] = _at(context, decision, driver, point, base[driver])
            except InputError:
                if point == base[driver]:
                    raise
        answers[driver] = Response(driver, tuple(found), base[driver], tuple(found.values()))
    return answers


def default_grids(base: Mapping[str, float]) -> dict[Driver, tuple[float, ...]]:
    hit = base["hit_rate"]
    misses = 1.0 - hit
    hits = (
        {max(0.0, 1.0 - misses * factor) for factor in (0.25, 0.5, 0.75, 1.25, 1.5, 2.0)} | {0.0, 0.5}
        if misses > 0
        else {0.0, 0.5, 0.9, 0.95}
    )
    return {
        "rate": tuple(base["rate"] * factor for factor in (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.2, 1.5)),
        "hit_rate": tuple(sorted(hits)),
        "output_tokens": tuple(base["output_tokens"] * factor for factor in (0.25, 0.5, 0.75, 1.25, 1.5, 2.0)),
    }


def _at(context: PlanContext, decision: Decision, driver: Driver, point: float, base: float) -> Evaluation:
    if point == base:
        return evaluate(context, decision)
    if driver == "rate":
        return evaluate(context, decision, point / base)
    if driver == "hit_rate":
        return evaluate(with_hit_rate(context, point), decision)
    return evaluate(with_traffic(context, output_scale=point / base), decision)
