"""Which stream of requests a deployment's workload asks for."""

from __future__ import annotations

import math

import numpy as np

from pddplan.pdd.context import Deployment, PlanContext
from pddplan.scenario import workload as words
from pddplan.simulate.requests import Arrivals, from_mix, from_sessions, from_trace
from pddplan.workload.from_scenario import load_trace, session_laws
from pddplan.workload.sessions import draw_sessions
from pddplan.workload.trace_mix import Cache, trace_hits


def streams(context: PlanContext, deployment: Deployment, count: int, answer_s: float, rng: np.random.Generator) -> Arrivals:
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
    return from_mix(deployment.mix, count, rng)


def replayed_trace(context: PlanContext, given: words.Trace, rate: float, rng: np.random.Generator) -> Arrivals:
    """The trace in its own order at ``rate``, with the hits of its blocks in caches of the given capacities."""
    trace = load_trace(given, context.scenario.resolve("."))
    if trace.blocks is None or given.hit_rate is not None:
        return from_trace(trace, given, rate, None, None, rng)
    p = Cache(_or_inf(given.p_cache.tokens), _or_inf(given.p_cache.ttl))
    limit = given.p_cache if given.md_cache is None else given.md_cache
    md = Cache(_or_inf(limit.tokens), _or_inf(limit.ttl))
    hits = trace_hits(trace, p_cache=p, md_cache=md, keeps_answers=given.md_keeps_answers, rate_per_s=rate)
    return from_trace(trace, given, rate, hits.cached_p, hits.cached_md, rng)


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value
