"""The multiplicative ladder of savings: each lever's factor on the cost of a token, and their product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from pddplan.errors import InputError, Problem


@dataclass(frozen=True)
class Step:
    """One rung: the levers pulled up to here, and what a million tokens cost then. alone: its cost as the only lever pulled."""

    name: str
    cost_per_million: float
    alone_per_million: float | None = None


@dataclass(frozen=True)
class Rung:
    """A step with its factors. factor: cost before / cost after, over 1 where the lever saves. alone: the same against the first step."""

    name: str
    cost_per_million: float
    factor: float
    cumulative: float
    alone: float | None


def ladder(steps: Sequence[Step]) -> tuple[Rung, ...]:
    """Factors of ``steps``; the first is the start (factor 1). The product of all factors is the last cumulative one.

    Raises InputError where a step has no positive cost: a plan that serves nothing has no factor.
    """
    problems = [
        Problem(f"step {step.name}", f"{step.cost_per_million} per million tokens", "a cost over 0")
        for step in steps
        if not (step.cost_per_million > 0 and isfinite(step.cost_per_million))
    ]
    if problems or not steps:
        raise InputError(problems or Problem("steps", "none", "at least the start"))
    start = before = steps[0].cost_per_million
    rungs = []
    for step in steps:
        alone = None if step.alone_per_million is None else start / step.alone_per_million
        rungs.append(Rung(step.name, step.cost_per_million, before / step.cost_per_million, start / step.cost_per_million, alone))
        before = step.cost_per_million
    return tuple(rungs)
