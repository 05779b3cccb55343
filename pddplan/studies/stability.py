"""What becomes of sessions whose turns end on the relay: the three policies turn by turn, and the largest local share that stays
bounded."""

from __future__ import annotations

from dataclasses import dataclass

from pddplan.errors import InputError, Problem
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Decision
from pddplan.pdd.stability import TURNS, Stability, stability

CHECKED_TURNS = (1, 2, 3, 5, 10, 20, 40, 60)


@dataclass(frozen=True)
class StabilityStudy:
    """The plan's session feedback and its trajectories; ``verdict`` says in a sentence what stays bounded."""

    stability: Stability
    turns: int
    verdict: str


def stability_study(context: PlanContext, decision: Decision, turns: int = TURNS) -> StabilityStudy:
    """Follow sessions for ``turns`` turns. Raises InputError for a plan without a relay, which has no such feedback."""
    if context.rate_per_s <= 0:
        raise InputError(Problem("workload.rate", "no requests arrive, so no session is followed", "a rate over 0", "1 req/s"))
    found = stability(context, decision, turns)
    if found is None:
        accepted = "a plan with an RLD pool, a line, and a relay threshold"
        raise InputError(Problem("plan", "no request is relayed, so no turn can end on a relay", accepted, "policy.relay_threshold: 1 s"))
    return StabilityStudy(found, turns, _verdict(found))


def _verdict(found: Stability) -> str:
    """One sentence: the plan's own policy first, then the runaway."""
    own = found.feedback
    share = f"{100 * own.fresh_local_share:.3g} % of fresh and {100 * own.stale_local_share:.3g} % of stale turns end on the relay"
    state = f"{100 * own.stale_share:.3g} % of turns are stale in the long run, relay load {100 * own.rld_utilisation:.3g} %"
    verdict = "bounded" if own.bounded else "it runs away"
    runaway = next(t for t in found.trajectories if t.variant == "P-RLD")
    other = "stays under full load" if runaway.bounded else f"passes full load at turn {runaway.overload_turn}"
    return f"{verdict}: {share}; {state}. With P-RLD instead, the relay {other}."
