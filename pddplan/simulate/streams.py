"""Which stream of requests a deployment's workload asks for."""

from __future__ import annotations

import math

import numpy as np

from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.md_cache import md_history
from pddplan.pdd.plan import Decision
from pddplan.scenario import workload as words
from pddplan.simulate.requests import Arrivals, from_mix, from_sessions, from_trace
from pddplan.workload.from_scenario import hits_of_trace, load_trace, session_laws
from pddplan.workload.sessions import draw_sessions


def streams(
    context: PlanContext, decision: Decision, deployment: Deployment, count: int, answer_s: float, rng: np.random.Generator
) -> Arrivals:
    """About ``count`` requests: a workload of one trace or one kind of session is replayed as such, any other is drawn from the mix.

    ``answer_s``: a typical end-to-end time, which spaces the turns of sessions that are under way when the replay begins.
    """
    workload = context.scenario.each_deployment()[deployment.name].workload
    classes = list(workload.all_classes().values())
    rate = deployment.mix.rate_per_s
    if len(classes) == 1 and classes[0].trace is not None:
        return replayed_trace(context, classes[0].trace, rate, rng)
    if len(classes) == 1 and classes[0].sessions is not None:
        turns = draw_sessions(session_laws(classes[0].sessions))
        return from_sessions(turns, rate, count, answer_s if math.isfinite(answer_s) else 0.0, rng)
    decoders = [pool for pool in decision.pools if pool.configuration.role == "MD" and pool.configuration.deployment == deployment.name]
    history = md_history(context, decision, deployment, decoders)
    return from_mix(history.mix, history.origin, history.load_s, count, rng)


def replayed_trace(context: PlanContext, given: words.Trace, rate: float, rng: np.random.Generator) -> Arrivals:
    """The trace in its own order at ``rate``, with the hits of its blocks in caches of the given capacities."""
    trace = load_trace(given, context.scenario.resolve("."))
    hits = hits_of_trace(given, trace, rate_per_s=rate)
    cached_p, cached_md = (None, None) if hits is None else (hits.cached_p, hits.cached_md)
    return from_trace(trace, given, rate, cached_p, cached_md, rng)
