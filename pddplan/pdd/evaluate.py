"""What the whole model says of a fixed plan."""

from __future__ import annotations

from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Decision, Evaluation


def evaluate(context: PlanContext, decision: Decision, rate_scale: float = 1.0) -> Evaluation:
    """Evaluate ``decision`` under ``context``'s demand times ``rate_scale``.

    An unstable plan is an answer: ``stable`` is False, latencies are inf, goodput 0. Raises InputError for a decision that no
    model can read (no decode pool, no line between the rooms it spans).
    """
    raise NotImplementedError
