"""The search: integer programs over optimistic columns propose, the whole model disposes, until nothing better can be left.

For every choice of chunk size and P threshold: solve the program; compute the tables that its solution used and were loose;
when the solution stands on computed tables, find the best counts of its configurations with the whole model (optimize/box.py),
cut those configurations off, and go on until the program's bound is no better than the best verified plan.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pddplan.errors import SolverError
from pddplan.optimize.bounds import StageBounds
from pddplan.optimize.box import Assessment, Found, Point, best_in_box
from pddplan.optimize.candidates import Candidate, Candidates, enumerate_candidates, fastest_relays
from pddplan.optimize.columns import Columns
from pddplan.optimize.divide import by_class, by_share
from pddplan.optimize.dominance import drop_dominated
from pddplan.optimize.judge import Judge, TimeUpError, goodness, value_of
from pddplan.optimize.milp import Limits, solve_cost, solve_goodput, solve_ratio
from pddplan.optimize.objective import UNITS, gap_of, objective_value
from pddplan.optimize.outcome import QUICK_EVALUATIONS, QUICK_GAP, Effort, Incumbent, Outcome
from pddplan.optimize.polish import cache_shares, smaller, variants
from pddplan.optimize.program import Cut, GrowCut, PairCut, PointCut, Program, Solution, UpCut
from pddplan.optimize.result import SearchLog
from pddplan.optimize.routes import Need, Route, routes_of
from pddplan.optimize.settings import finer_settings, outer_settings, relay_thresholds_s
from pddplan.optimize.splits import Splits
from pddplan.optimize.trial import Trial, scales_of
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Decision, Evaluation, LinkPlan, Pool, Settings
from pddplan.scenario.schema import Goal

__all__ = ["Effort", "Incumbent", "Outcome", "Search"]

TUPLE_CALLS = 60
"""Assessments by the whole model that one set of configurations is given."""
NO_PLAN_YET = 4
MANY_COLUMNS = 300
"""Programs of fewer columns are solved sooner than dominated columns are found."""
PROMISES = 0.3
"""Share of the time that may go into the bounds of all outer settings before the first is searched."""
FINER_BY = 0.5
"""Share of the time by which finer P thresholds must begin."""
EXPLAINED_BY = 2.0
"""Multiple of the time after which no more bounds of alternatives are asked."""
LEAST_SOLVE_S = 0.5
SCALE_STEPS = 20
SCALE_TOLERANCE = 5e-4
"""Served share of the demand is found to this share of what the program promised."""
PLENTY, PLENTY_LEAST = 6.0, 4
"""Instances in plenty: this many times the loose need, and no fewer than this."""
THRESHOLDS_TRIED = 4
"""Relay thresholds that counts are judged at: of those that work in plenty, the ones with most good requests."""
LITTLE = 1e-3
"""Share of the demand at which plenty is judged where the served share is free."""
GROWTH = 4
"""The box of counts reaches this many times beyond the bound's counts before it is called hopeless."""


@dataclass
class Search:
    """One search over ``routes`` of a context. ``judge`` may be shared between searches of the same context."""

    context: PlanContext
    candidates: Candidates
    routes: tuple[Route, ...]
    judge: Judge
    effort: Effort = field(default_factory=Effort)
    incumbent: Incumbent | None = None
    outcome: Outcome = field(default_factory=lambda: Outcome(None, -math.inf))
    works: list[Columns] = field(default_factory=list)
    owners: Mapping[str, str] = field(default_factory=dict)
    _thresholds: list[float | None] = field(default_factory=list)
    _plenty: dict[tuple[Route, Settings, bool], tuple[float | None, ...]] = field(default_factory=dict)
    _closed: float = -math.inf
    started: float = 0.0
    asked: int = 0

    @property
    def goal(self) -> Goal:
        return self.context.scenario.objective

    @property
    def fixed_scale(self) -> bool:
        """Whether exactly the scenario's demand is served."""
        return self.goal == "min-cost" or (self.goal == "max-bcr" and self.context.scenario.served_share_min >= 1.0)

    @classmethod
    def of(cls, context: PlanContext, effort: Effort) -> Search:
        """A search over every candidate and route of a context, not yet run."""
        candidates = fastest_relays(context, enumerate_candidates(context))
        routes = tuple(route for name in context.deployments for route in routes_of(context, candidates, name))
        return cls(context, candidates, routes, Judge(context), effort)

    @property
    def servable(self) -> bool:
        """Whether every deployment has a route."""
        return {route.deployment for route in self.routes} >= set(self.context.deployments)

    def run(self) -> Outcome:
        """The best plan and its bound. Deterministic unless the time limit ends it."""
        if not self.servable:
            return self.outcome
        self.started, self.asked = time.monotonic(), self.judge.evaluations
        if self.late():
            self.outcome.timed_out = True
            return self.outcome
        thresholds = relay_thresholds_s(self.context, self.routes)
        self._thresholds = list(thresholds)
        remaining = self._try(outer_settings(self.context, self.routes), thresholds)
        if self.incumbent is None and self.outcome.timed_out:
            self._in_one_room()
        if self.incumbent is not None:
            tried = tuple(columns.bounds.settings for columns in self.works)
            chosen = self.outer(self.incumbent)
            finer = finer_settings(self.context, self.routes, chosen, tried) if not self.late(FINER_BY) else ()
            remaining += [bound for bound in self._try(finer, thresholds) if bound < math.inf]
        if self.effort.mixed:
            remaining += by_share(self) + by_class(self)
        self._polish()
        best = self.incumbent
        self.outcome.best = best
        self.outcome.bound = max([*remaining, self._closed if best else -math.inf, best.value if best else -math.inf])
        return self.outcome

    def _in_one_room(self) -> None:
        """Where time ended before any plan was found: a plan that crosses no line, if half of the time again finds one."""
        routes = tuple(route for route in self.routes if route.line is None)
        if self.effort.seconds is None or len(routes) == len(self.routes):
            return
        effort = replace(self.effort, evaluations=QUICK_EVALUATIONS, seconds=self.effort.seconds / 2, gap=QUICK_GAP, mixed=False)
        self.incumbent = Search(self.context, self.candidates, routes, self.judge, effort, owners=self.owners).run().best

    def _polish(self) -> None:
        """The best plan at every setting that the search took as decided; at a known demand also with an instance less of a pool, which
        another setting may allow, as long as that helps.
        """
        best = self.incumbent
        while best is not None and self.own(best) and not self._exhausted():
            sunk = best.evaluation.metrics.cost_usd_per_h - best.paid_usd_per_h
            plans = [best.decision, *(smaller(best.decision, self.candidates) if self.fixed_scale and not sunk else ())]
            for plan in plans:
                for decision in variants(self.context, plan, self._thresholds if plan is best.decision else ()):
                    if self.late():
                        return
                    self.take(decision, best.scale, sunk)
            if self.incumbent is best or self.incumbent is None or self.incumbent.paid_usd_per_h >= best.paid_usd_per_h:
                return
            best = self.incumbent

    def _try(self, choices: tuple[Settings, ...], thresholds: tuple[float, ...]) -> list[float]:
        """Search every choice of outer settings, most promising first; returns the bound on what each can still give."""
        works = []
        for settings in choices:
            bounds = StageBounds(self.context, self.candidates, settings, thresholds, self.judge.probe)
            works.append(Columns(self.context, self.candidates, self.routes, bounds, self.fixed_scale, owners=self.owners))
        self.works += works
        promised = [(math.inf if i and self.late(PROMISES) else self._promise(columns), i) for i, columns in enumerate(works)]
        remaining = []
        for promise, i in sorted(promised, key=lambda item: (item[0] == math.inf, -item[0], item[1])):
            if promise == -math.inf or not self._worth_trying(promise):
                self.outcome.settings_pruned += 1
                remaining.append(promise)
                continue
            self.outcome.settings_tried += 1
            remaining.append(self.work(works[i]))
        return remaining

    @property
    def any_will_do(self) -> bool:
        """Whether a plan was all that is asked, and there is one."""
        return self.incumbent is not None and self.effort.gap >= 1.0

    def outer(self, plan: Incumbent) -> Settings:
        """The outer settings that a plan was found at: what is tried plan by plan left open."""
        stated = next(iter(self.works)).bounds.settings
        return replace(plan.decision.settings, relay_threshold_s=None, handoff=stated.handoff, md_cache_bytes=stated.md_cache_bytes)

    def own(self, plan: Incumbent) -> bool:
        """Whether a plan is one of this search's context, and no price to beat from outside."""
        return all(pool.configuration.deployment in self.context.deployments for pool in plan.decision.pools)

    def log(self) -> SearchLog:
        """How the search went."""
        return self.outcome.log(self.candidates.enumerated, len(self.candidates.found), self.judge.evaluations)

    @property
    def unit(self) -> str:
        return UNITS[self.goal]

    def signed(self, evaluation: Evaluation) -> float:
        """The objective, more being better."""
        return value_of(self.goal, evaluation, 0.0)

    def shown(self, evaluation: Evaluation) -> float:
        """The objective in its own unit."""
        return objective_value(self.goal, evaluation)

    def routes_of(self, decision: Decision) -> tuple[Route, ...]:
        """The routes that a decision uses."""
        relayed = decision.settings.relay_threshold_s is not None
        parts = [way.pools for way in decision.ways]
        divided = {decision.pools[i].configuration.deployment for pools in parts for i in pools}
        for owner in self.context.deployments.keys() - divided:
            parts.append(tuple(i for i, pool in enumerate(decision.pools) if pool.configuration.deployment == owner))
        held = [{(c.deployment, c.role, c.site) for c in (decision.pools[i].configuration for i in pools)} for pools in parts]
        chosen = []
        for route in self.routes:
            needed = {(route.deployment, need.role, need.site) for need in route.needs}
            for roles in held:
                aggregated = route.aggregated and any(owner == route.deployment and role == "AGG" for owner, role, _ in roles)
                if aggregated or (needed and needed == roles and route.relay == (relayed and route.line is not None)):
                    chosen.append(route)
                    break
        return tuple(chosen)

    def bound_with(self, routes: tuple[Route, ...] | None = None, use: tuple[Candidate, ...] = (), only: Candidates | None = None) -> float:
        """Bound on the objective (more is better) of plans on ``routes`` that deploy one of ``use``, choosing among ``only``; -inf
        where there is none, inf where time ended before it was known.
        """
        best = -math.inf
        for columns in self.works:
            if self.late(EXPLAINED_BY):
                return math.inf
            kept = columns.routes if routes is None else routes
            other = replace(columns, routes=kept, candidates=only or columns.candidates)
            program = other.program(*self._scales(other))
            if use:
                names = tuple(name for name, slot in other.slots.items() if slot.candidate in use)
                program = replace(program, keep=(*program.keep, names))
            try:
                solution = self._solve(program)
            except SolverError:
                if self.late():
                    return math.inf
                raise
            best = max(best, -math.inf if solution is None else self._bound(solution))
        return best

    def service_misses(self) -> Iterator[tuple[Candidate, Need, tuple[str, float, float]]]:
        """Candidates that miss a latency limit with nothing else to do: (candidate, need, (what, seconds, limit))."""
        columns = self.works[0]
        needs = dict.fromkeys(need for route in self.routes for need in route.needs)
        sites = dict.fromkeys(c.configuration.site for c in self.candidates.found if c.role == "AGG")
        for need in (*needs, *(Need("AGG", site) for site in sites)):
            for candidate in self.candidates.found:
                if (candidate.role, candidate.configuration.site) == (need.role, need.site):
                    miss = columns.bounds.service_misses(candidate, need)
                    if miss is not None:
                        yield candidate, need, miss

    def relaxed(self, context: PlanContext, best: Incumbent | None) -> Search:
        """A quick search of a context with a looser limit, that starts from a plan known to be feasible there."""
        candidates = self.candidates
        if context.stocks is not self.context.stocks or context.scenario.sites is not self.context.scenario.sites:
            candidates = fastest_relays(context, enumerate_candidates(context))
        judge = Judge(context)
        start = None
        if best is not None:
            evaluation = judge.by_the_hour(best.decision, best.scale)
            start = replace(best, evaluation=evaluation) if evaluation.feasible else None
        workable = {key: thresholds for key, thresholds in self._plenty.items() if thresholds}
        return Search(context, candidates, self.routes, judge, self.beside(), start, _plenty=workable)

    def beside(self) -> Effort:
        """The effort of searches beside this one, which explain its plan: they end when EXPLAINED_BY times its time is over."""
        seconds = self.effort.seconds
        return replace(self.effort.quick(), until=math.inf if seconds is None else self.started + EXPLAINED_BY * seconds)

    def work(self, columns: Columns) -> float:
        """Search one choice of settings; returns the bound on what it can still give."""
        self.judge.deadline = self.deadline
        try:
            return self._work(columns)
        finally:
            self.judge.deadline = math.inf

    def _work(self, columns: Columns) -> float:
        cuts: list[Cut] = []
        bound = math.inf
        while True:
            program = replace(columns.program(*self._scales(columns)), cuts=tuple(cuts))
            if (columns.mixed or self.owners) and self.fixed_scale and self.incumbent is not None and not self.any_will_do:
                cheaper = self.incumbent.paid_usd_per_h * (1 - self.effort.gap)
                program = replace(program, budget_usd_per_h=min(cheaper, program.budget_usd_per_h or cheaper))
            try:
                solution = self._solve(program)
            except SolverError:
                if not self.late():
                    raise
                self.outcome.timed_out = True
                return bound
            bound = -math.inf if solution is None else self._bound(solution)
            if solution is None or not solution.counts or not self._worth_trying(bound):
                return bound
            if self._exhausted():
                self.outcome.timed_out = True
                return bound
            try:
                if columns.tighten(solution.counts):
                    continue
                hopeless = [route for route in self._used(columns, solution) if not self._workable(columns, route)]
            except TimeUpError:
                self.outcome.timed_out = True
                return bound
            if hopeless:
                columns.routes = tuple(route for route in columns.routes if route not in hopeless)
                if not {route.deployment for route in columns.routes} >= set(self.context.deployments):
                    return -math.inf
                continue
            left = self._explore(columns, program, solution)
            cuts.append(self._cut(columns, solution))
            self.outcome.cuts += 1
            if left > (self.incumbent.value if self.incumbent else -math.inf):
                self.outcome.timed_out = True
                return max(left, bound) if self.fixed_scale else bound

    def _cut(self, columns: Columns, solution: Solution) -> Cut:
        """What exploring a solution has settled: its configurations at the scenario's demand (its counts and all over them where traffic
        is divided); where the served share is free, the counts under it for goodput (fewer serve no more), and the point itself for a
        ratio.
        """
        if self.fixed_scale:
            return UpCut(solution.counts) if columns.mixed else PairCut(tuple(solution.counts))
        return GrowCut(solution.counts, tuple(solution.scales)) if self.goal == "max-goodput" else PointCut(solution.counts)

    def _used(self, columns: Columns, solution: Solution) -> tuple[Route, ...]:
        return tuple(route for route in columns.routes if solution.scales.get(route.name, 0.0) > 0)

    def _workable(self, columns: Columns, route: Route) -> tuple[float | None, ...]:
        """Relay thresholds at which a route meets every limit with the fastest instances of every role in plenty and every circuit
        bought, those with most good requests first; none where no plan on it need be tried (a line may be too slow whatever
        stands at its ends).
        """
        thresholds: list[float | None] = list(self._thresholds) if route.relay else [None]
        if route.line is None or len(self.context.deployments) > 1:
            return tuple(thresholds)
        key = (route, columns.bounds.settings, bool(columns.mixed))
        if key not in self._plenty:
            pools = self._in_plenty(columns, route)
            spec = self.context.lines[route.line]
            link = LinkPlan(spec.name, *spec.between, spec.max_circuits, max(spec.prices_usd_h))
            scale = 1.0 if self.fixed_scale and not columns.mixed else LITTLE
            found = []
            for threshold in thresholds if pools else []:
                settings = replace(columns.bounds.settings, relay_threshold_s=threshold)
                answer = self.judge.evaluate(Decision(pools, (link,), settings), scale)
                if answer.feasible:
                    found.append((goodness(answer), threshold))
                elif self.outcome.nearest is None:
                    self.outcome.nearest = answer
            ordered = sorted(found, key=lambda item: -round(item[0], 4))
            self._plenty[key] = tuple(threshold for _, threshold in ordered)[:THRESHOLDS_TRIED]
        return self._plenty[key]

    def _in_plenty(self, columns: Columns, route: Route) -> tuple[Pool, ...]:
        """The fastest instance of every need of a route, many times over; empty where a need has none that can do anything."""
        pools = []
        for need in route.needs:
            members = [c for c in self.candidates.of(route.deployment, need.role, need.site) if columns.bounds.loose(c, need) > 0]
            if not members:
                return ()
            fastest = min(members, key=lambda c, need=need: columns.bounds.idle_s(c, need))  # type: ignore[misc]
            demand = columns.bounds.rate_per_s(need, self.context.deployments[route.deployment])
            count = math.ceil(PLENTY * demand / columns.bounds.loose(fastest, need))
            pools.append(Pool(fastest.configuration, max(count, PLENTY_LEAST)))
        return tuple(pools)

    def _trial(self, columns: Columns, program: Program, solution: Solution) -> Trial:
        used = self._used(columns, solution)
        relaying = [route for route in used if route.relay]
        thresholds = self._workable(columns, relaying[0]) if relaying else (None,)
        splits = Splits(columns, program, solution, self.fixed_scale)
        return Trial(self.judge, columns, splits, list(thresholds), list(cache_shares(self.context)))

    def _promise(self, columns: Columns) -> float:
        """Bound of a choice of settings before any table is computed."""
        program = columns.program(*self._scales(columns))
        self.outcome.columns = max(self.outcome.columns, program.columns)
        try:
            solution = self._solve(program)
        except SolverError:
            if not self.late():
                raise
            return math.inf
        return -math.inf if solution is None else self._bound(solution)

    def _scales(self, columns: Columns) -> tuple[float, float]:
        if self.goal == "max-goodput":
            return 0.0, columns.largest_scale()
        return (1.0 if self.fixed_scale else self.context.scenario.served_share_min), 1.0

    def _solve(self, program: Program) -> Solution | None:
        self.outcome.programs += 1
        left = None if math.isinf(self.deadline) else max(self.deadline - time.monotonic(), LEAST_SOLVE_S)
        program = drop_dominated(program) if program.columns > MANY_COLUMNS else program
        self.outcome.columns_kept = max(self.outcome.columns_kept, program.columns)
        limits = Limits(0.0, left)
        if self.fixed_scale:
            return solve_cost(program, limits)
        return solve_goodput(program, limits) if self.goal == "max-goodput" else solve_ratio(program, limits)

    def _bound(self, solution: Solution) -> float:
        """The solution's bound on the objective, more being better; at a fixed scale cost is all that the program can move."""
        if self.goal == "min-cost":
            return -solution.bound
        if self.fixed_scale:
            return self.context.rate_per_s / solution.bound if solution.bound > 0 else math.inf
        return solution.bound

    def _worth_trying(self, bound: float) -> bool:
        if self.incumbent is None:
            return True
        return gap_of(self.goal, abs(self.incumbent.value), abs(bound)) > self.effort.gap and bound > self.incumbent.value

    def late(self, share: float = 1.0) -> bool:
        """Whether a share of the time is used up."""
        seconds, now = self.effort.seconds, time.monotonic()
        return now > self.effort.until or (seconds is not None and now - self.started > share * seconds)

    @property
    def deadline(self) -> float:
        """When the search ends, time.monotonic."""
        seconds = math.inf if self.effort.seconds is None else self.effort.seconds
        return min(self.started + seconds, self.effort.until)

    def _exhausted(self) -> bool:
        """Whether time or evaluations are used up; without a plan so far only NO_PLAN_YET times as many evaluations end the search."""
        most = self.effort.evaluations * (1 if self.incumbent is not None else NO_PLAN_YET)
        return self.late() or self.judge.evaluations - self.asked >= most

    def _explore(self, columns: Columns, program: Program, solution: Solution) -> float:
        """Best counts of the solution's configurations; returns the bound on what they can still give."""
        if self.fixed_scale:
            return self._explore_counts(columns, program, solution)
        self._explore_scale(columns, program, solution)
        return -math.inf

    def _explore_counts(self, columns: Columns, program: Program, solution: Solution) -> float:
        names = tuple(solution.counts)
        lower = self._lower(columns, program, solution)
        steps = tuple(columns.step(name) for name in names)
        shared = {option.name for option in program.options if option.shared}
        span = tuple(
            0 if name in shared else max(min(GROWTH * max(low, count) + 8, columns.ceiling(name)) - low, 0) // step
            for (name, count), low, step in zip(solution.counts.items(), lower, steps, strict=True)
        )
        trial = self._trial(columns, program, solution)

        def counts_of(point: Point) -> dict[str, int]:
            return {name: low + step * x for name, low, step, x in zip(names, lower, steps, point, strict=True)}

        def worth(point: Point, share: float) -> float:
            counts = counts_of(point)
            if not columns.within_limits(counts):
                return -math.inf
            cost = columns.cost_usd_per_h(counts)
            return -cost if self.goal == "min-cost" else self.context.rate_per_s * share / max(cost, 1e-12)

        cutoff = self.incumbent.value if self.incumbent else -math.inf
        met: list[tuple[float, Point, Decision | None]] = []

        def assess(point: Point) -> Assessment:
            answer = trial.assess(counts_of(point))
            value = worth(point, answer.share) if answer.feasible else -math.inf
            if value > cutoff:
                met.append((value, point, trial.feasible(counts_of(point))))
            return answer

        try:
            found = best_in_box((0,) * len(names), span, worth, assess, cutoff, TUPLE_CALLS, self.effort.gap)
            decision = None if found.best is None else trial.best_settings(counts_of(found.best))
        except TimeUpError:
            value, point, decision = max(met, key=lambda m: m[0], default=(-math.inf, None, None))
            found = Found(point, value, self._bound(solution), False)
        self.outcome.nearest = self.outcome.nearest or trial.nearest
        if found.best is not None:
            assert decision is not None
            self._offer(columns, counts_of(found.best), decision, 1.0)
        if found.complete:
            self._closed = max(self._closed, found.bound)
            return -math.inf
        return found.bound

    def _lower(self, columns: Columns, program: Program, solution: Solution) -> tuple[int, ...]:
        """Counts under which no plan of these configurations can go: where a pool has one, its table's; else the least of all. The
        solution's own where traffic is divided.
        """
        if columns.mixed:
            return tuple(solution.counts.values())
        options = {option.name: option for option in program.options if option.name in solution.counts}
        pools = [option.pool for option in options.values()]
        rows = {row.name: row for row in program.rows}
        found = []
        for name, count in solution.counts.items():
            option = options[name]
            if option.shared:
                found.append(count)
            elif pools.count(option.pool) > 1:
                found.append(int(option.replicas[0]))
            else:
                ((row, load),) = option.loads.items()
                asked = sum(rows[row].rates.get(path, 0.0) * scale for path, scale in solution.scales.items())
                enough = option.capacity / load >= asked * (1 - 1e-9)
                found.append(int(option.replicas[int(np.argmax(enough))]))
        return tuple(found)

    def _explore_scale(self, columns: Columns, program: Program, solution: Solution) -> None:
        """Largest share of the demand that the solution's counts serve within every limit; given up at once where they cannot serve
        what would beat the incumbent.
        """
        trial = self._trial(columns, program, solution)
        high = max(scales_of(program, solution).values())
        low = max(self._needed_scale(columns.cost_usd_per_h(solution.counts)), SCALE_TOLERANCE * high)
        best = None
        try:
            best = trial.feasible(solution.counts, low) if low < high else None
            self.outcome.nearest = self.outcome.nearest or trial.nearest
            if best is None:
                return
            best, low = trial.largest_scale(solution.counts, best, low, high, SCALE_TOLERANCE, SCALE_STEPS)
        except TimeUpError:
            self.outcome.timed_out = True
            if best is None:
                return
        self._offer(columns, dict(solution.counts), best, low)

    def _needed_scale(self, cost_usd_per_h: float) -> float:
        """Share of the demand that a plan of this cost must serve to beat the incumbent, and at least the floor."""
        floor = self.context.scenario.served_share_min if self.goal == "max-bcr" else 0.0
        if self.incumbent is None:
            return floor
        wanted = self.incumbent.value * (1 + self.effort.gap) * (cost_usd_per_h if self.goal == "max-bcr" else 1.0)
        return max(wanted / self.context.rate_per_s, floor)

    def _offer(self, columns: Columns, counts: Mapping[str, int], decision: Decision, scale: float) -> None:
        """Take a verified plan as incumbent when it is better; it is judged with its spare instances in service, whatever the time."""
        self.judge.deadline = math.inf
        evaluation = self.judge.evaluate(decision, scale)
        paid = self._paid(columns, counts, evaluation)
        self.take(decision, scale, max(evaluation.metrics.cost_usd_per_h - paid, 0.0))
        self.judge.deadline = self.deadline

    def take(self, decision: Decision, scale: float, sunk: float = 0.0) -> None:
        """Take a decision as incumbent where it meets every limit and is better."""
        evaluation = self.judge.by_the_hour(decision, scale)
        value = value_of(self.goal, evaluation, sunk)
        if evaluation.feasible and (self.incumbent is None or value > self.incumbent.value):
            whole = self.judge.whole(decision, scale)
            self.incumbent = Incumbent(decision, whole, value, scale, whole.metrics.cost_usd_per_h - sunk)

    def _paid(self, columns: Columns, counts: Mapping[str, int], evaluation: Evaluation) -> float:
        """Cost per hour without what is sunk: columns' prices, and what the lines cost by volume."""
        egress = sum(link.cost_usd_per_h for link in evaluation.links)
        egress -= sum(columns.cost_usd_per_h({n: c}) for n, c in counts.items() if columns.slots[n].line is not None)
        return columns.cost_usd_per_h(counts) + egress
