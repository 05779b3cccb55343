"""Why no plan exists: memory before SLA where memory is the cause, then stock, budget, line; and the least relaxation that helps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from pddplan.errors import InfeasibleError
from pddplan.model.memory import Reserves, smallest_fit
from pddplan.optimize.candidates import Candidates, layout
from pddplan.optimize.relax import scaled, with_circuits, with_slas, with_stock
from pddplan.optimize.result import Rejection
from pddplan.optimize.search import Effort, Outcome, Search
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Evaluation
from pddplan.roofline.overlay_file import base_engine
from pddplan.scenario.sla import Sla

SLA_KINDS = ("ttft", "tpot", "stall", "e2e")
LOOSEST = 64.0
"""Latency limits are tried up to this multiple of themselves."""
BISECTIONS = 6
ROUGH_GAP = 0.02
"""Searches for an explanation stop this near to the best."""


def explain_infeasible(search: Search) -> InfeasibleError:
    """The error that names the constraint at fault, the number that shows it, and relaxations found by solving again."""
    context, candidates, routes = search.context, search.candidates, search.routes
    for name in context.deployments:
        if not any(route.deployment == name for route in routes):
            return _no_route(context, candidates, name)
    relaxations = list(_relaxations(context, search))
    constraint, detail = _cause(context, search, relaxations)
    idle = _idle_miss(search)
    if idle is not None and search.outcome.nearest is None and constraint == "sla":
        kind, detail = idle
        return InfeasibleError(f"sla.{kind}", f"{detail}; more instances do not shorten it", relaxations)
    return InfeasibleError(constraint, detail, relaxations)


def shortfall(search: Search) -> str:
    """In a line, why a search that ran found no plan: what its most generous plan missed, or what no idle instance meets."""
    if search.outcome.timed_out:
        return "the search ended before it found one"
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


def _no_route(context: PlanContext, candidates: Candidates, deployment: str) -> InfeasibleError:
    """No instance can be deployed, or no two rooms that hold P and MD are joined."""
    refused = [r for r in candidates.rejected if r.kind in ("memory", "legality")]
    missing = [role for role in ("P", "MD") if not candidates.of(deployment, role)]
    if not missing:
        p, md = (sorted({c.configuration.site for c in candidates.of(deployment, role)}) for role in ("P", "MD"))
        detail = f"P can stand at {', '.join(p)}, MD at {', '.join(md)}, and no link joins them"
        return InfeasibleError("links", detail, [f"a link between {p[0]} and {md[0]}"])
    memory = [r for r in refused if r.kind == "memory"]
    if memory:
        nearest = min(memory, key=lambda r: (r.value or math.inf) / (r.limit or 1.0))
        return InfeasibleError("memory", f"{nearest.candidate}: {nearest.note}", _what_fits(context, deployment))
    if refused:
        return InfeasibleError("legality", _told(refused[0]), ())
    roles = " and ".join(missing)
    return InfeasibleError("roles", f"no chip of the scenario may serve {roles}, nor AGG", [f"roles: [{', '.join(missing)}] on some chip"])


def _told(rejection: Rejection) -> str:
    return f"{rejection.candidate}: {rejection.note or rejection.reason}"


def _what_fits(context: PlanContext, deployment: str) -> Iterator[str]:
    """Per chip, the smallest instance that holds the model and its longest request."""
    owner = context.deployments[deployment]
    longest = float((owner.mix.input_tokens + owner.mix.output_tokens).max())
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


def _cause(context: PlanContext, search: Search, relaxations: list[str]) -> tuple[str, str]:
    """The constraint at fault with its number: the first whose relaxation alone makes a plan possible, else what was missed most."""
    for kind in ("stock", "budget", "circuits"):
        helping = [text for text in relaxations if text.startswith(kind)]
        if helping:
            return kind, f"the demand of {context.rate_per_s:.4g} req/s does not fit; {_nearest(search.outcome.nearest)}".rstrip("; ")
    return "sla", _nearest(search.outcome.nearest) or "no instance carries any load within the limits"


def _nearest(evaluation: Evaluation | None) -> str:
    if evaluation is None or not evaluation.violations:
        return ""
    missed = "; ".join(f"{v.constraint} ({abs(v.value):.4g} against {abs(v.limit):.4g})" for v in evaluation.violations[:2])
    return f"the most generous plan tried misses {missed}"


def _relaxations(context: PlanContext, search: Search) -> Iterator[str]:
    """Single changes that make a plan possible, each with the least of it that was found."""
    for (site, chip), (_, stock) in context.stocks.items():
        if stock.stock is not None:
            found = _planned(with_stock(_cheapest(context), site, chip, None))
            if found.best is not None:
                pools = found.best.decision.pools
                needed = sum(p.gpus for p in pools if (p.configuration.site, p.configuration.chip) == (site, chip))
                yield f"stock of {needed} {chip} at {site} (has {stock.stock})"
    if context.scenario.budget is not None:
        free = replace(context, scenario=context.scenario.model_copy(update={"budget": None}))
        found = _planned(_cheapest(free))
        if found.best is not None:
            yield f"budget of {found.best.evaluation.metrics.cost_usd_per_h:.4g} USD/h (has {context.scenario.budget:.4g})"
    for line, spec in context.lines.items():
        found = _planned(with_circuits(context, line, 7 * spec.max_circuits + 8))
        if found.best is not None:
            circuits = next((x.circuits for x in found.best.decision.links if x.name == line), 0)
            if circuits > spec.max_circuits:
                yield f"circuits: {circuits} on {line} (has {spec.max_circuits})"
    for kind in SLA_KINDS:
        factor = _least_factor(lambda f, kind=kind: _loosened(context, kind, f))  # type: ignore[misc]
        if factor is not None:
            limits = {x for d in context.deployments.values() for sla in d.slas for x in _limits(sla, kind)}
            yield f"{kind} limits {factor:.3g} times as long ({', '.join(f'{x * factor:.3g} s' for x in sorted(limits))})"
    share = _largest_share(context)
    if share > 0:
        yield f"a demand of {context.rate_per_s * share:.4g} req/s (asked: {context.rate_per_s:.4g})"


def _limits(sla: Sla, kind: str) -> list[float]:
    return [value for _, value in getattr(sla, kind) if value is not None]


def _loosened(context: PlanContext, kind: str, factor: float) -> PlanContext | None:
    """Context with every limit of a latency multiplied; None when the scenario has no such limit."""
    if not any(_limits(sla, kind) for d in context.deployments.values() for sla in d.slas):
        return None
    return with_slas(context, lambda sla: scaled(sla, kind, factor))


def _least_factor(loosened: Callable[[float], PlanContext | None]) -> float | None:
    """Least multiple of a limit with which a plan exists (to a few per cent); None where even LOOSEST does not help."""

    def works(factor: float) -> bool:
        context = loosened(factor)
        return context is not None and _planned(context).best is not None

    if not works(LOOSEST):
        return None
    low, high = 1.0, LOOSEST
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if works(middle) else (middle, high)
    return high


def _largest_share(context: PlanContext) -> float:
    """Share of the demand that can be served within every limit, 0 where none can."""
    scenario = context.scenario
    bounded = scenario.budget is not None or all(stock.stock is not None for _, stock in context.stocks.values())
    if not bounded:
        return 0.0
    found = _planned(replace(context, scenario=scenario.model_copy(update={"objective": "max-goodput"})))
    return found.best.scale if found.best is not None else 0.0


def _cheapest(context: PlanContext) -> PlanContext:
    """The context with the least cost as its objective, since the least relaxation is asked for."""
    return replace(context, scenario=context.scenario.model_copy(update={"objective": "min-cost"}))


def _planned(context: PlanContext) -> Outcome:
    """Quick search of another context."""
    return Search.of(context, Effort(seconds=context.scenario.search.time_limit, gap=ROUGH_GAP).quick()).run()
