"""Trials: counts of one set of configurations judged by the whole model, and what a solution of the program says of shares."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pddplan.optimize.box import Assessment
from pddplan.optimize.columns import Columns
from pddplan.optimize.judge import Judge, decision_of, goodness
from pddplan.optimize.polish import with_cache
from pddplan.optimize.program import Program, Solution
from pddplan.optimize.splits import Split, Splits
from pddplan.pdd.fixed_plan import md_room_bytes
from pddplan.pdd.plan import Decision, Evaluation


@dataclass
class Trial:
    """Verifies counts of one set of configurations, over the relay thresholds in question, ways to divide the traffic among routes, and
    shares of MD's memory that hold history; the threshold and the share that worked go first.

    caches: empty where no split is searched. Counts that fail with all history kept and no memory taken for it fail with every split.
    """

    judge: Judge
    columns: Columns
    splits: Splits
    thresholds: list[float | None]
    caches: list[float] = field(default_factory=list)
    nearest: Evaluation | None = None

    def decision(self, counts: Mapping[str, int], threshold: float | None, split: Split) -> Decision:
        settings = replace(self.columns.bounds.settings, relay_threshold_s=threshold)
        return decision_of(self.columns, counts, settings, self.splits.parts(split))

    def serving(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Counts without the instances kept for failures."""
        spare = {n: self.columns.slots[n].candidate.spare for n in counts if self.columns.slots[n].candidate is not None}  # type: ignore[union-attr]
        return {name: count - spare.get(name, 0) for name, count in counts.items()}

    def feasible(self, counts: Mapping[str, int], scale: float = 1.0) -> Decision | None:
        """The first decision that meets every limit with the serving instances alone; None where none does."""
        serving = self.serving(counts)
        for threshold, split in itertools.product(list(self.thresholds), self.splits.of(serving)):
            evaluation = self.judge.evaluate(self.decision(serving, threshold, split), scale)
            self.nearest = self.nearest or (None if evaluation.feasible else evaluation)
            for decision in self._cached(self.decision(serving, threshold, split)) if evaluation.feasible else ():
                if self.judge.evaluate(decision, scale).feasible:
                    self.thresholds.remove(threshold)
                    self.thresholds.insert(0, threshold)
                    return replace(self.decision(counts, threshold, split), settings=decision.settings)
        return None

    def _cached(self, decision: Decision) -> Iterator[Decision]:
        """The decision with every split of MD's memory in question; as it is where there is none."""
        if not self.caches or md_room_bytes(self.columns.context, decision) is None:
            yield decision
            return
        for share in list(self.caches):
            self.caches.remove(share)
            self.caches.insert(0, share)
            yield with_cache(self.columns.context, decision, share)

    def largest_scale(
        self, counts: Mapping[str, int], best: Decision, low: float, high: float, tolerance: float, steps: int
    ) -> tuple[Decision, float]:
        """Decision and largest multiple of the demand, up to ``high``, that meets every limit; ``best`` meets them at ``low``.

        Bisection to a relative ``tolerance``; where the share of good requests is what fails, its straight line between the ends
        gives the next guess, and the guess's own neighbourhood the one after; a pair of guesses that has not halved what is in
        question is followed by its middle.
        """
        good = {low: self._margin(counts, low)}
        scale, near, width = high, False, math.inf
        for _ in range(steps):
            decision = self.feasible(counts, scale)
            good[scale] = self._margin(counts, scale)
            best, low, high = (decision, scale, high) if decision is not None else (best, low, scale)
            if high - low <= tolerance * high:
                break
            over, under = good.get(low, math.nan), good.get(high, math.nan)
            if near:
                scale, near = (low * (1 + tolerance) if scale == low else high * (1 - tolerance)), False
            elif over > 0.0 > under and high - low <= 0.5 * width:
                width = high - low
                scale, near = low + (high - low) * min(max(over / (over - under), 0.02), 0.98), True
            else:
                scale, width = 0.5 * (low + high), math.inf
            if not low < scale < high:
                scale = 0.5 * (low + high)
        return best, low

    def _margin(self, counts: Mapping[str, int], scale: float) -> float:
        """Share of good requests over the highest attainment asked, at the threshold that goes first; nan where none is asked, and where
        none is good: an overload lies on no line with what is served.
        """
        asked = [sla.attainment for d in self.columns.context.deployments.values() for sla in d.slas if sla.attainment is not None]
        if not asked:
            return math.nan
        serving = self.serving(counts)
        decision = self.decision(serving, self.thresholds[0], self.splits.of(serving)[0])
        if self.caches:
            decision = with_cache(self.columns.context, decision, self.caches[0])
        share = goodness(self.judge.evaluate(decision, scale))
        return share - max(asked) if share > 0.0 else math.nan

    def assess(self, counts: Mapping[str, int]) -> Assessment:
        before = self.judge.evaluations
        decision = self.feasible(counts)
        share = goodness(self.judge.evaluate(decision)) if decision is not None else 0.0
        return Assessment(decision is not None, share, free=self.judge.evaluations == before)

    def best_settings(self, counts: Mapping[str, int]) -> Decision | None:
        """Of the thresholds, splits of the traffic and of MD's memory that work at ``counts`` the ones with most good requests."""
        best: tuple[float, Decision] | None = None
        serving = self.serving(counts)
        for threshold, split in itertools.product(self.thresholds, self.splits.of(serving)):
            for tried in self._cached(self.decision(serving, threshold, split)):
                if self.judge.evaluate(tried).feasible:
                    decision = replace(self.decision(counts, threshold, split), settings=tried.settings)
                    share = goodness(self.judge.evaluate(decision))
                    if best is None or share > best[0]:
                        best = (share, decision)
        return None if best is None else best[1]


def scales_of(program: Program, solution: Solution) -> dict[str, float]:
    """Market -> multiple of its demand that the solution serves."""
    market = {path.name: path.market for path in program.paths}
    scales: dict[str, float] = {}
    for path, scale in solution.scales.items():
        scales[market[path]] = scales.get(market[path], 0.0) + scale
    return scales
