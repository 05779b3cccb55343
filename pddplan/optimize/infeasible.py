"""Why no plan exists: memory before SLA where memory is the cause; the least change of each limit that helps, found by solving again."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

from pddplan.errors import InfeasibleError, SolverError
from pddplan.model.memory import Reserves, smallest_fit
from pddplan.optimize.candidates import layout, longest_request_tokens
from pddplan.optimize.judge import TimeUpError
from pddplan.optimize.knobs import TRICKLE, Knob, knobs_of, with_scenario
from pddplan.optimize.outcome import QUICK_EVALUATIONS
from pddplan.optimize.relax import with_demand
from pddplan.optimize.result import Rejection
from pddplan.optimize.search import Effort, Incumbent, Search
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Evaluation
from pddplan.roofline.overlay_file import base_engine
from pddplan.units import GBPS_BYTES_PER_S

PRECISION = 0.004
"""Continuous limits are found to this share of themselves."""
DIGITS = 4
ASKING = ("served_share_min", "demand")
"""Limits that are loosened by asking for less."""


@dataclass
class _Oracle:
    """Whether contexts have a plan, by quick searches that stop at the first, until ``deadline`` (time.monotonic)."""

    deadline: float

    def plan(self, context: PlanContext, gap: float = math.inf) -> Incumbent | None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeUpError
        search = Search.of(context, Effort(QUICK_EVALUATIONS, left, gap, until=self.deadline))
        try:
            best = search.run().best
        except SolverError as error:
            raise TimeUpError from error
        if best is None and time.monotonic() > self.deadline:
            raise TimeUpError
        return best


@dataclass(frozen=True)
class _Way:
    """Knobs turned to ``values``, with which a plan exists. least: no less will do, but for PRECISION."""

    knobs: tuple[Knob, ...]
    values: tuple[float, ...]
    least: bool = True

    @property
    def text(self) -> str:
        said = " and ".join(knob.say(value) for knob, value in zip(self.knobs, self.values, strict=True))
        return said if self.least else f"{said}, or less: time ended the search for the least"

    @property
    def settings(self) -> dict[str, object]:
        merged: dict[str, object] = {}
        for knob, value in zip(self.knobs, self.values, strict=True):
            merged |= knob.settings(value)
        return merged


@dataclass
class _Relaxing:
    """Turns the knobs of a context one by one, then two at a time."""

    context: PlanContext
    oracle: _Oracle
    knobs: tuple[Knob, ...]
    ways: list[_Way] = field(default_factory=list)
    untried: tuple[str, ...] = ()

    def run(self) -> None:
        """Fill ``ways``: every single knob that helps; where none but asking for less does, the first pair too. ``untried``: what time
        left out. Asking for less is tried first, since it nearly always helps, and told last.
        """
        helping: dict[int, list[tuple[Knob, Incumbent]]] = {}
        order = sorted(range(len(self.knobs)), key=lambda i: self.knobs[i].constraint not in ASKING)
        try:
            for i in order:
                helping[i] = self._helping(self.knobs[i])
        except TimeUpError:
            self.untried = tuple(dict.fromkeys(knob.constraint for i, knob in enumerate(self.knobs) if i not in helping))
        self.ways += [self._least((), *found) for i in sorted(helping) for found in helping[i]]
        if not self.untried and all(way.knobs[0].constraint in ASKING for way in self.ways):
            self._pair()

    def _helping(self, knob: Knob) -> list[tuple[Knob, Incumbent]]:
        """The knob, or those of its parts, with which turned as far as it goes there is a plan; the narrowest that do alone."""
        plan = self.oracle.plan(knob.change(self.context, knob.loosest))
        if plan is None:
            return []
        narrower = [each for part in knob.parts for each in self._helping(part)]
        return narrower or [(knob, plan)]

    def _pair(self) -> None:
        """The first two knobs that help together, each turned no further than the other needs."""
        try:
            for one, other in combinations([knob for knob in self.knobs if knob.constraint not in ASKING], 2):
                plan = self.oracle.plan(other.change(one.change(self.context, one.loosest), other.loosest))
                if plan is not None:
                    first = self._least((), one, plan, beside=other)
                    second = self._least(((one, first.values[0]),), other, None)
                    both = (first.values[0], second.values[0])
                    self.ways.insert(0, _Way((one, other), both, first.least and second.least))
                    return
        except TimeUpError:
            self.untried = ("limits two by two",)

    def _least(self, turned: tuple[tuple[Knob, float], ...], knob: Knob, plan: Incumbent | None, beside: Knob | None = None) -> _Way:
        """The least turn of a knob that leaves a plan, others ``turned``, and ``beside`` as far as it goes. ``plan``: one that stands
        with the knob at its loosest.
        """
        base = self.context
        for other, value in (*turned, *(() if beside is None else ((beside, beside.loosest),))):
            base = other.change(base, value)
        low, high, least = knob.has, knob.loosest, True
        try:
            high = self._reached(base, knob, plan)
            while (middle := _between(knob, low, high)) is not None:
                found = self.oracle.plan(knob.change(base, middle))
                if found is None:
                    low = middle
                else:
                    high = _nearer(knob, middle, self._needs(base, knob, found))
        except TimeUpError:
            least = False
        return _Way((knob,), (_snapped(knob, high),), least)

    def _reached(self, base: PlanContext, knob: Knob, plan: Incumbent | None) -> float:
        """A finite value at which a plan exists."""
        if plan is None:
            plan = self.oracle.plan(knob.change(base, knob.loosest))
        if plan is not None and knob.needed is not None:
            if knob.constraint == "budget":
                plan = self.oracle.plan(knob.change(base, knob.loosest), PRECISION) or plan
            return _nearer(knob, knob.loosest, self._needs(base, knob, plan))
        value = knob.loosest
        if math.isinf(value):
            value = max(2 * knob.has, 1.0)
            while self.oracle.plan(knob.change(base, value)) is None:
                value *= 2
        return value

    def _needs(self, base: PlanContext, knob: Knob, plan: Incumbent) -> float:
        return knob.loosest if knob.needed is None else knob.needed(base, plan)


def _nearer(knob: Knob, value: float, needed: float) -> float:
    """Of two values that work the one that asks for less, and never one that the scenario has."""
    if not knob.loosest > knob.has:
        return value
    return min(value, needed) if needed > knob.has else value


def _between(knob: Knob, low: float, high: float) -> float | None:
    """A value to try next between one that fails and one that works; None where they are near enough."""
    if knob.whole:
        middle = (low + high) // 2 if high > low else -((-low - high) // 2)
        return None if middle in (low, high) else middle
    if high == 0.0:
        return None
    if low == 0.0:
        return high / 2
    if abs(high / low - 1.0) <= PRECISION:
        return None
    return math.sqrt(low * high)


def _snapped(knob: Knob, value: float) -> float:
    """The value in DIGITS digits, rounded towards what asks for less."""
    if knob.whole or value == 0 or math.isinf(value):
        return value
    step = 10.0 ** (math.floor(math.log10(value)) - DIGITS + 1)
    rounded = math.ceil(value / step - 1e-6) if knob.loosest > knob.has else math.floor(value / step + 1e-6)
    return float(f"{rounded * step:.{DIGITS}g}")


def explain_infeasible(search: Search, relax: bool = True) -> InfeasibleError:
    """The error that names the constraint at fault, the number that shows it, the limits in conflict, and the least change of each
    that helps; ``relax`` False: without the changes. It takes what the search has left of the scenario's time limit, at least half of it.
    """
    context, limit = search.context, search.context.scenario.search.time_limit
    deadline = max(search.started + limit, time.monotonic() + limit / 2)
    relaxing = _Relaxing(_asked(context), _Oracle(deadline), tuple(knobs_of(context, search.candidates)) if relax else ())
    relaxing.run()
    constraint, detail = _cause(search, relaxing.ways)
    if relaxing.untried:
        detail += f"; time ended the search for what would help (search.time_limit {limit:g} s), untried: {', '.join(relaxing.untried)}"
    elif relax and not relaxing.ways:
        detail += "; no one limit loosened helps, nor any two"
    elif relaxing.ways and len(relaxing.ways[0].knobs) > 1:
        detail += "; no one of them loosened helps alone"
    texts, settings = [way.text for way in relaxing.ways], [way.settings for way in relaxing.ways]
    if constraint == "memory":
        missing = next(name for name in context.deployments if not any(route.deployment == name for route in search.routes))
        texts += [f"of memory alone: {text}" for text in _what_fits(context, missing)]
    conflict = dict.fromkeys(knob.constraint for way in relaxing.ways for knob in way.knobs)
    return InfeasibleError(constraint, detail, texts, settings, conflict)


def _asked(context: PlanContext) -> PlanContext:
    """The context whose plans are those that the scenario allows, asked for as the least cost of the least demand."""
    scenario = context.scenario
    share = {"min-cost": 1.0, "max-bcr": scenario.served_share_min, "max-goodput": TRICKLE}[scenario.objective]
    asked = context if share == 1.0 else with_demand(context, share)
    return with_scenario(asked, objective="min-cost", served_share_min=1.0)


def _cause(search: Search, ways: list[_Way]) -> tuple[str, str]:
    """The constraint at fault with its number: what leaves a deployment without any instance or line, then a latency that no idle
    instance meets, then the first limit that helps.
    """
    for name in search.context.deployments:
        if not any(route.deployment == name for route in search.routes):
            return _no_route(search, name, ways)
    missed = _nearest(search.outcome.nearest)
    idle = _idle_miss(search)
    if idle is not None and search.outcome.nearest is None:
        return f"sla.{idle[0]}", f"{idle[1]}; more instances do not shorten it"
    helping = dict.fromkeys(" and ".join(knob.constraint for knob in way.knobs) for way in ways)
    constraint = next(iter(helping), "sla")
    rate = f"no plan serves {search.context.rate_per_s:.4g} req/s within every limit"
    return constraint, "; ".join(said for said in (rate, *_short_lines(search), missed) if said)


def _short_lines(search: Search) -> Iterator[str]:
    """Lines of which all circuits carry less than must cross them on every route, with both speeds."""
    context = search.context
    for name, line in context.lines.items():
        crossing = [route for route in search.routes if route.line == name]
        bounds = next((columns.bounds for columns in search.works), None)
        if not crossing or bounds is None:
            continue
        least = min(bounds.line_bytes_per_s(route, context.deployments[route.deployment]) for route in crossing)
        most = line.usable * line.max_circuits * max(line.prices_usd_h)
        if most < least:
            speeds = (f"{x / GBPS_BYTES_PER_S:.4g} Gbps" for x in (most, least))
            yield "{} carries {} with every circuit bought, and at least {} must cross it".format(name, *speeds)


def shortfall(search: Search) -> str:
    """In a line, why a search that ran found no plan: what its most generous plan missed, or what no idle instance meets."""
    if search.outcome.timed_out:
        return "time or evaluations ended before one was found"
    missed = _nearest(search.outcome.nearest)
    if missed:
        return missed
    idle = _idle_miss(search)
    return idle[1] if idle is not None else "no count within the stock carries the demand"


def _idle_miss(search: Search) -> tuple[str, str] | None:
    """Latency and sentence of the role of which every candidate misses a limit with nothing else to do, at its best candidate."""
    misses = list(search.service_misses())
    for role in ("P", "MD", "AGG"):
        members = [c for c in search.candidates.found if c.role == role]
        own = [(miss, candidate) for candidate, need, miss in misses if need.role == role]
        if (
            members
            and len({candidate.name for _, candidate in own}) == len(members)
            and any(r.aggregated == (role == "AGG") for r in search.routes)
        ):
            (what, value, limit), candidate = min(own, key=lambda item: item[0][1] / item[0][2])
            where = f"{role} on {candidate.configuration.chip}, {layout(candidate.configuration)}"
            kind = "ttft" if what.startswith("TTFT") else "tpot"
            return kind, f"{what} is {value:.4g} s against {limit:.4g} s at best ({where})"
    return None


def _no_route(search: Search, deployment: str, ways: list[_Way]) -> tuple[str, str]:
    """No instance can be deployed, or no two rooms that hold P and MD are joined."""
    candidates = search.candidates
    missing = [role for role in ("P", "MD") if not candidates.of(deployment, role)]
    if not missing:
        p, md = (sorted({c.configuration.site for c in candidates.of(deployment, role)}) for role in ("P", "MD"))
        return "links", f"P can stand at {', '.join(p)}, MD at {', '.join(md)}, and no link joins them"
    memory = [r for r in candidates.rejected if r.kind == "memory"]
    if memory:
        nearest = min(memory, key=lambda r: (r.value or math.inf) / (r.limit or 1.0))
        return "memory", f"{nearest.candidate}: {nearest.note}"
    refused = next((r for r in candidates.rejected if r.kind == "legality"), None)
    if refused is not None:
        return "legality", _told(refused)
    return "roles", f"no chip of the scenario may serve {' and '.join(missing)}, nor AGG"


def _told(rejection: Rejection) -> str:
    return f"{rejection.candidate}: {rejection.note or rejection.reason}"


def _what_fits(context: PlanContext, deployment: str) -> Iterator[str]:
    """Per chip, the smallest instance that holds the model and its longest request."""
    owner = context.deployments[deployment]
    longest = longest_request_tokens(context, deployment)
    options = context.scenario.each_deployment()[deployment].engine_options
    reserves = Reserves(options.memory_fraction, options.activation, options.cuda_graphs, options.framework)
    for (site, slug), (_, stock) in context.stocks.items():
        chip = context.chips[slug]
        engine = base_engine(stock.engine or owner.engine)
        held = float(chip.hbm_bytes.value or 0.0)
        fit = smallest_fit(owner.spec, chip, held, context_tokens=longest, engine=engine, reserves=reserves)
        mapping = fit.parallel or fit.alternative
        if mapping is not None:
            have = f" (the scenario has {stock.stock})" if stock.stock is not None else ""
            yield f"{mapping.gpus} x {slug} at {site} in one instance (tp {mapping.tp}){have}"


def _nearest(evaluation: Evaluation | None) -> str:
    if evaluation is None or not evaluation.violations:
        return ""
    missed = "; ".join(f"{v.constraint} ({abs(v.value):.4g} against {abs(v.limit):.4g})" for v in evaluation.violations[:2])
    return f"the most generous plan tried misses {missed}"
