"""How long a search may take, the plan it holds, and what it comes to."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pddplan.optimize.objective import gap_of
from pddplan.optimize.result import SearchLog
from pddplan.pdd.plan import Decision, Evaluation
from pddplan.scenario.schema import Goal

QUICK_EVALUATIONS, QUICK_GAP = 80, 0.005


@dataclass(frozen=True)
class Effort:
    """How long to search: evaluations of the whole model, seconds (None: no limit), and the relative gap that is good enough; whether a
    deployment's traffic may be divided among routes. until: time (time.monotonic) at which it ends whatever the seconds say.
    """

    evaluations: int = 400
    seconds: float | None = 60.0
    gap: float = 0.001
    mixed: bool = True
    until: float = math.inf

    def quick(self) -> Effort:
        """For searches beside the main one: baselines, relaxations. One route per deployment."""
        seconds = None if self.seconds is None else self.seconds / 4
        return replace(self, evaluations=QUICK_EVALUATIONS, seconds=seconds, gap=max(self.gap, QUICK_GAP), mixed=False)


@dataclass(frozen=True)
class Incumbent:
    """Best verified plan so far; ``scale``: share of the demand it serves; ``value``: more is better. paid_usd_per_h: cost without
    what is sunk.
    """

    decision: Decision
    evaluation: Evaluation
    value: float
    scale: float
    paid_usd_per_h: float


@dataclass
class Outcome:
    """best None: nothing feasible was found. bound: no plan is better (more is better, same sign as Incumbent.value).

    nearest: the evaluation of the most generous plan that still failed, for the explanation. timed_out: effort ended first.
    """

    best: Incumbent | None
    bound: float
    nearest: Evaluation | None = None
    programs: int = 0
    cuts: int = 0
    columns: int = 0
    columns_kept: int = 0
    settings_tried: int = 0
    settings_pruned: int = 0
    timed_out: bool = False
    ratio_bound_step: float = 0.0

    def log(self, enumerated: int, legal: int, evaluations: int) -> SearchLog:
        """How the search went, over so many candidates and evaluations of the whole model."""
        return SearchLog(
            candidates=enumerated,
            legal=legal,
            columns=self.columns,
            columns_kept=self.columns_kept,
            programs=self.programs,
            evaluations=evaluations,
            cuts=self.cuts,
            settings_tried=self.settings_tried,
            settings_pruned=self.settings_pruned,
            timed_out=self.timed_out,
        )

    def gap(self, goal: Goal) -> float:
        if self.best is None:
            return math.inf
        sign = -1.0 if goal == "min-cost" else 1.0
        gap = gap_of(goal, sign * self.best.value, sign * self.bound)
        return 0.0 if gap < 1e-9 else gap
