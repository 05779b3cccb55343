"""Why this plan: what holds it back and what one more unit of that is worth; what lost, and by which number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from pddplan.optimize.candidates import Candidate, layout
from pddplan.optimize.relax import Relaxation, relaxations_of
from pddplan.optimize.result import Baseline, BaselineName, Binding, Rejection
from pddplan.optimize.search import Incumbent, Search
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Decision, Evaluation, Violation

SAME = 1e-6
BEYOND: dict[BaselineName, str] = {
    "aggregated": "it may put every chip in one room and serve aggregated there, which the scenario does not allow",
    "one_room_one_chip": "it may put every chip in one room and in every role, which the scenario does not allow",
    "one_room_mixed": "it may put every chip in one room and in every role, which the scenario does not allow",
    "two_rooms_no_hiding": "it leaves out the relay that the scenario's policy asks for",
}
"""What a baseline may do that the scenario does not allow."""
RESOLVED = 4
"""Binding constraints that are valued by solving again; the others are named."""


def bindings(search: Search, best: Incumbent) -> tuple[Binding, ...]:
    """Every limit that one instance or circuit less would miss, and every cap that leaves no room for one more.

    A pool of one instance is held by the instance itself: it cannot be smaller.
    The worth of a step is found by solving again with the limit relaxed; better plans only, so it is never negative.
    """
    found: dict[str, Binding] = {}
    for smaller, what in _smaller(best.decision):
        evaluation = search.judge.evaluate(smaller, best.scale)
        missed = evaluation.violations
        if not evaluation.stable:  # what waits without end misses its latencies too: the load is what holds it
            missed = tuple(v for v in missed if v.constraint.startswith("load of ")) or missed
        for violation in missed:
            if violation.constraint not in found:
                found[violation.constraint] = _held(best.evaluation, violation, what)
    for cap in (*_caps(search, best), *_whole_instances(best.evaluation)):
        found.setdefault(cap.constraint, cap)
    looser = {name: r for name in found if (r := next(relaxations_of(search.context, name), None)) is not None}
    valued = {name: _valued(search, best, found[name], looser[name]) for name in list(looser)[:RESOLVED]}
    if not valued:
        valued = {binding.constraint: binding for binding in _tightest(search, best)}
    return tuple(sorted({**found, **valued}.values(), key=lambda b: -(b.worth or 0.0)))


def _tightest(search: Search, best: Incumbent) -> Iterator[Binding]:
    """Of the stated service levels the one that the plan comes nearest to, valued: where whole instances bind, does it?"""
    near: tuple[float, Binding, Relaxation] | None = None
    for name in _service_levels(search.context):
        for relaxation in relaxations_of(search.context, name):
            binding = _held(best.evaluation, Violation(name, math.nan, relaxation.limit), "")
            missing = name.endswith("attainment")
            share = (1.0 - binding.value) / (1.0 - binding.limit) if missing and binding.limit < 1.0 else binding.value / binding.limit
            if math.isfinite(share) and (near is None or share > near[0]):
                near = share, replace(binding, note="the service level that the plan comes nearest to"), relaxation
    if near is not None:
        yield _valued(search, best, near[1], near[2])


def _service_levels(context: PlanContext) -> Iterator[str]:
    """Names of the stated latency limits and attainments of every class, as violations name them."""
    several = len(context.deployments) > 1
    for name, deployment in context.deployments.items():
        for label, sla in zip(deployment.mix.class_names, deployment.slas, strict=True):
            owner = f"{name}.{label}" if several else label
            for kind in ("ttft", "tpot", "e2e"):
                yield from (f"{owner}.sla.{kind}.{field}" for field, value in getattr(sla, kind) if value is not None)
            if sla.attainment is not None:
                yield f"{owner}.sla.attainment"


def _whole_instances(evaluation: Evaluation) -> Iterator[Binding]:
    """Pools of a single instance: the role cannot be had in a smaller piece of this layout."""
    for result in evaluation.pools:
        c = result.pool.configuration
        if result.pool.instances == 1:
            note = f"{c.gpus_per_instance} GPUs is one instance of this layout, the least that serves"
            yield Binding(f"one {c.role} instance at {c.site}", 1.0, 1.0, "instances", note=note)


def _smaller(decision: Decision) -> Iterator[tuple[Decision, str]]:
    """The decision with one instance, or one circuit, less."""
    for i, pool in enumerate(decision.pools):
        c = pool.configuration
        if pool.instances > 1:
            pools = (*decision.pools[:i], replace(pool, instances=pool.instances - 1), *decision.pools[i + 1 :])
            yield replace(decision, pools=pools), f"one {c.role} instance less at {c.site}"
    for i, link in enumerate(decision.links):
        if link.circuits > 1:
            links = (*decision.links[:i], replace(link, circuits=link.circuits - 1), *decision.links[i + 1 :])
            yield replace(decision, links=links), f"one circuit less on {link.name}"


def _held(evaluation: Evaluation, violation: Violation, what: str) -> Binding:
    value, limit = _value_at(evaluation, violation), abs(violation.limit)
    unit = "s" if ".sla." in violation.constraint and not violation.constraint.endswith("attainment") else "share"
    return Binding(violation.constraint, value, limit, unit, note=f"{what} would miss it: {abs(violation.value):.3g}")


def _value_at(evaluation: Evaluation, violation: Violation) -> float:
    """What the plan itself has of the number that its smaller neighbour misses."""
    owner, _, target = violation.constraint.partition(".sla.")
    kind, _, percentile = target.partition(".")
    if target == "attainment":
        return evaluation.metrics.p_good
    if kind in evaluation.class_laws.get(owner, {}) and percentile.startswith("p"):
        return evaluation.class_laws[owner][kind].quantile(float(percentile[1:]) / 100)
    loads = [
        p.utilisation for p in evaluation.pools if f"{p.pool.configuration.role} at {p.pool.configuration.site}" in violation.constraint
    ]
    loads += [link.utilisation for link in evaluation.links if violation.constraint.endswith(link.link.name)]
    return max(loads, default=math.nan)


def _caps(search: Search, best: Incumbent) -> Iterator[Binding]:
    """Stock, power, budget and circuits that leave no room for one more unit."""
    scenario, context = search.context.scenario, search.context
    gpus: dict[tuple[str, str], int] = {}
    largest: dict[tuple[str, str], int] = {}
    for pool in best.decision.pools:
        key = (pool.configuration.site, pool.configuration.chip)
        gpus[key] = gpus.get(key, 0) + pool.gpus
        largest[key] = max(largest.get(key, 0), pool.configuration.gpus_per_instance)
    for (site, chip), (_, stock) in context.stocks.items():
        used, size = gpus.get((site, chip), 0), largest.get((site, chip), 1)
        if stock.stock is not None and used + size > stock.stock:
            yield Binding(f"stock of {chip} at {site}", used, stock.stock, "GPUs", note="no room for another instance")
    for site, room in scenario.sites.items():
        sizes = [size for (where, _), size in largest.items() if where == site]
        held = sum(count for (where, _), count in gpus.items() if where == site)
        if room.gpus_max is not None and sizes and held + min(sizes) > room.gpus_max:
            yield Binding(f"gpus_max at {site}", held, room.gpus_max, "GPUs", note="no room for another instance")
        each = {key: context.watts_per_gpu(*key) for key in largest if key[0] == site}
        drawn = sum(gpus[key] * watts for key, watts in each.items())
        if room.power is not None and each and drawn + min(watts * largest[key] for key, watts in each.items()) > room.power:
            yield Binding(f"power at {site}", drawn, room.power, "W", note="no power for another instance")
    for link in best.decision.links:
        most = context.lines[link.name].max_circuits
        if link.circuits >= most:
            yield Binding(f"circuits of {link.name}", link.circuits, most, "circuits", note="every circuit is bought")
    cost = best.evaluation.metrics.cost_usd_per_h
    cheapest = min((context.prices_usd_h[key] * size for key, size in largest.items()), default=0.0)
    if scenario.budget is not None and cost + cheapest > scenario.budget:
        yield Binding("budget", cost, scenario.budget, "USD/h", note="no money for another instance")


def _valued(search: Search, best: Incumbent, binding: Binding, relaxation: Relaxation) -> Binding:
    """The binding with the objective's change for a step of it; None where effort ended before anything better was found or ruled out."""
    again = search.relaxed(relaxation.context, best).run()
    value = again.best.value if again.best is not None else best.value
    gain = max(value - best.value, 0.0)
    if not gain and again.timed_out:
        return replace(binding, step=relaxation.step)
    return replace(binding, step=relaxation.step, worth=gain, worth_share=gain / abs(best.value) if best.value else None)


def rejections(search: Search, best: Incumbent, baselines: tuple[Baseline, ...]) -> tuple[Rejection, ...]:
    """One refusal per chip, role and kind, one per route that lost, and the baselines."""
    return (
        *_structures(search, best, baselines),
        *_single_types(search, best),
        *_classes(search, best),
        *_alone(search),
        *search.candidates.rejected,
        *_forbidden(search),
    )


def _structures(search: Search, best: Incumbent, baselines: tuple[Baseline, ...]) -> Iterator[Rejection]:
    unit = search.unit
    for baseline in baselines:
        name = baseline.name.replace("_", " ")
        if baseline.evaluation is None:
            yield Rejection(name, "no feasible plan", None, None, "", "sla", f"no feasible plan: {baseline.reason}")
            continue
        value, mine = search.shown(baseline.evaluation), search.shown(best.evaluation)
        if value == mine:
            continue
        note = f"{value:.4g} {unit} against {mine:.4g}"
        if abs(value / mine - 1.0) > search.effort.gap and search.signed(baseline.evaluation) > search.signed(best.evaluation):
            note += f": better than the plan, but {BEYOND[baseline.name]}"
        yield Rejection(name, search.goal, value, mine, unit, "objective", note)
    chosen = search.routes_of(best.decision)
    for route in search.routes:
        if route in chosen:
            continue
        bound = search.bound_with(routes=tuple(r for r in search.routes if r.deployment != route.deployment or r == route))
        yield _against(search, best, route.name, bound)


def _single_types(search: Search, best: Incumbent) -> Iterator[Rejection]:
    """Where a role mixes chips: what each of them alone would give."""
    chips: dict[tuple[str, str], set[str]] = {}
    for pool in best.decision.pools:
        c = pool.configuration
        chips.setdefault((c.deployment, c.role), set()).add(c.chip)
    for (deployment, role), mixed in chips.items():
        for chip in sorted(mixed) if len(mixed) > 1 else ():
            alone = tuple(
                c
                for c in search.candidates.found
                if (c.configuration.deployment, c.role) != (deployment, role) or c.configuration.chip == chip
            )
            bound = search.bound_with(only=replace(search.candidates, found=alone))
            yield _against(search, best, f"{role} on {chip} alone", bound)


def _classes(search: Search, best: Incumbent) -> Iterator[Rejection]:
    """The best that each site, chip and role could give that the plan does not use, and the plan's own chips in another layout."""
    used = {pool.configuration for pool in best.decision.pools}
    places = {(c.site, c.chip, c.role, c.deployment) for c in used}
    groups: dict[tuple[str, str, str, str], list[Candidate]] = {}
    for candidate in search.candidates.found:
        c = candidate.configuration
        if c not in used:
            groups.setdefault((c.site, c.chip, c.role, c.deployment), []).append(candidate)
    for key, members in groups.items():
        site, chip, role, deployment = key
        needed = {(need.role, need.site) for route in search.routes if route.deployment == deployment for need in route.needs}
        if role != "AGG" and (role, site) not in needed:
            note = "relays hide a line, and no line leads from here to an MD pool" if role == "RLD" else f"no route has its {role} here"
            yield Rejection(f"{role} on {chip} at {site}", "no route", None, None, "", "line", note)
            continue
        bound = search.bound_with(use=tuple(members))
        label = "in another layout, " if key in places else ""
        nearest = f" (nearest {layout(members[0].configuration)})" if len(members) == 1 else ""
        yield _against(search, best, f"{role} on {chip} at {site}, {label}{len(members)} layouts{nearest}", bound)


def _against(search: Search, best: Incumbent, name: str, bound: float) -> Rejection:
    mine, unit = search.shown(best.evaluation), search.unit
    if bound == -math.inf:
        return Rejection(
            name, "cannot carry the demand within its limits", None, None, unit, "sla", "cannot carry the demand within limits and stock"
        )
    if bound == math.inf:
        return Rejection(name, search.goal, None, mine, unit, "objective", "time ended before its bound was known")
    value = abs(bound)
    reason = f"{value:.4g} {unit} at best, against {mine:.4g} of the plan"
    if math.isclose(value, mine, rel_tol=SAME):
        reason = f"{value:.4g} {unit} at best, no better than the plan"
    elif bound > best.value:
        reason = f"no verified plan with it beats {mine:.4g} {unit} (its optimistic bound is {value:.4g})"
    return Rejection(name, search.goal, value, mine, unit, "objective", reason)


def _alone(search: Search) -> Iterator[Rejection]:
    """Per site, chip and role, the instance that comes nearest to its latency limit when it has nothing else to do, and still misses."""
    nearest: dict[tuple[str, str, str], tuple[float, Rejection]] = {}
    for candidate, need, miss in search.service_misses():
        what, value, limit = miss
        c = candidate.configuration
        rejection = Rejection(
            f"{c.role} on {c.chip} at {c.site}, {layout(c)}",
            what,
            value,
            limit,
            "s",
            "sla",
            f"{what} is {value:.3g} s, limit {limit:.3g} s",
        )
        key = (c.site, c.chip, need.role)
        if key not in nearest or value / limit < nearest[key][0]:
            nearest[key] = (value / limit, rejection)
    yield from (rejection for _, rejection in nearest.values())


def _forbidden(search: Search) -> Iterator[Rejection]:
    """Roles that the scenario does not allow on a chip."""
    for (site, chip), (index, stock) in search.context.stocks.items():
        roles = [role for role in ("P", "RLD", "MD", "AGG") if not stock.allows(role)]
        if roles:
            note = f"sites.{site}.chips[{index}].roles does not allow it"
            yield Rejection(f"{', '.join(roles)} on {chip} at {site}", "not allowed", None, None, "", "policy", note)
