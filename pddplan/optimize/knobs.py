"""Knobs: every limit of a scenario that could be loosened, with the context in which it is, and how to say and set that."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, get_args

from pddplan.optimize.candidates import Candidates
from pddplan.optimize.relax import with_demand, with_limits, with_site, with_sla
from pddplan.optimize.search import Incumbent
from pddplan.pdd.context import PlanContext
from pddplan.pdd.line import Line
from pddplan.scenario.instances import Role
from pddplan.scenario.schema import ChipStock, Link, Site
from pddplan.scenario.sla import Sla
from pddplan.units import GBPS_BYTES_PER_S

SLA_KINDS = ("ttft", "tpot", "stall", "e2e", "task")
LOOSEST = 64.0
"""Latency limits are tried up to this multiple of themselves."""
TRICKLE = 1e-3
"""The smallest share of the demand that is tried."""
MORE_CIRCUITS = 8
FASTEST_GBPS, NEAREST_RTT_S = 1600.0, 1e-3
"""A circuit, and one transfer's share of it, are tried up to this speed; a round trip down to this time."""
NEW_LINE_GBPS, NEW_LINE_MOST, NEW_LINE_RTT_S = 10, 100, 0.020
"""A line where there is none is tried in circuits of this size, up to so many, at this round trip."""
CONFIGURATIONS_MOST = 4

Change = Callable[[PlanContext, float], PlanContext]
Settings = Mapping[str, Any]
Owner = tuple[str, int]
"""A class: its deployment, and its index there."""


@dataclass(frozen=True)
class Knob:
    """One limit, or several that move together. ``has`` fails; a value nearer to ``loosest`` asks for less.

    change: the context with the limit at a value. say: that value beside what the scenario has. settings: what to set for it, by
    path (empty where no single value does). needed: the value that a plan found needs. parts: narrower knobs, each of
    which may do alone. whole: values are integers; else found to PRECISION of themselves.
    """

    constraint: str
    has: float
    loosest: float
    change: Change
    say: Callable[[float], str]
    settings: Callable[[float], Settings]
    needed: Callable[[PlanContext, Incumbent], float] | None = None
    whole: bool = False
    parts: tuple[Knob, ...] = ()


def knobs_of(context: PlanContext, candidates: Candidates) -> Iterator[Knob]:
    """Every knob of a context, in the order in which they are told."""
    yield from _chips(context)
    yield from _sites(context)
    yield from _budget(context)
    yield from _circuits(context)
    yield from _roles(context)
    yield from _counts(context)
    yield from _lines(context)
    yield from _fleet(context)
    yield from _slas(context)
    yield from _space(context, candidates)
    yield from _demand(context)


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else f'"{name}"'


def _cap(value: float) -> int | None:
    return None if math.isinf(value) else int(value)


def with_entry(context: PlanContext, site: str, chip: str, **update: Any) -> PlanContext:
    """The context with other values in a chip's entry."""
    index, stock = context.stocks[site, chip]
    return replace(context, stocks={**context.stocks, (site, chip): (index, stock.model_copy(update=update))})


def with_scenario(context: PlanContext, **update: Any) -> PlanContext:
    """The context with other values at the top of its scenario."""
    return replace(context, scenario=context.scenario.model_copy(update=update))


def _with_search(context: PlanContext, **update: Any) -> PlanContext:
    return with_scenario(context, search=context.scenario.search.model_copy(update=update))


def _with_fleet(context: PlanContext, **update: Any) -> PlanContext:
    assert context.scenario.fleet is not None
    return with_scenario(context, fleet=context.scenario.fleet.model_copy(update=update))


def _gpus(best: Incumbent, site: str, chip: str | None = None) -> int:
    return sum(p.gpus for p in best.decision.pools if p.configuration.site == site and chip in (None, p.configuration.chip))


def _watts(context: PlanContext, best: Incumbent, site: str) -> float:
    here = (pool for pool in best.decision.pools if pool.configuration.site == site)
    return sum(pool.gpus * context.watts_per_gpu(site, pool.configuration.chip) for pool in here)


def _whole(
    constraint: str,
    has: int,
    loosest: float,
    path: str,
    name: str,
    change: Callable[[PlanContext, int | None], PlanContext],
    needed: Callable[[PlanContext, Incumbent], float] | None = None,
) -> Knob:
    """A knob on one integer of the scenario at ``path``; ``change`` gets None for no limit."""
    return Knob(
        constraint,
        has,
        loosest,
        lambda c, v: change(c, _cap(v)),
        lambda v: f"{name.format(f'{v:g}')} (has {has})",
        lambda v: {path: int(v)},
        needed,
        whole=True,
    )


def _flag(constraint: str, change: Callable[[PlanContext], PlanContext], said: str, settings: Settings) -> Knob:
    """A knob that is turned or not."""
    return Knob(constraint, 0, 1, lambda c, v: change(c) if v else c, lambda _: said, lambda _: settings, whole=True)


def _chips(context: PlanContext) -> Iterator[Knob]:
    """Stock, reservations, most and least instances of every chip of every site."""
    for (site, chip), (index, stock) in context.stocks.items():
        yield from _chip(context, site, chip, stock, f"sites.{_key(site)}.chips[{index}]")


def _chip(context: PlanContext, site: str, chip: str, stock: ChipStock, place: str) -> Iterator[Knob]:
    def of(_: PlanContext, best: Incumbent) -> float:
        return _gpus(best, site, chip)

    def capped(field: str, role: Role) -> Callable[[PlanContext, int | None], PlanContext]:
        def change(c: PlanContext, value: int | None) -> PlanContext:
            caps = {**getattr(c.stocks[site, chip][1], field), role: value}
            return with_entry(c, site, chip, **{field: {r: n for r, n in caps.items() if n}})

        return change

    def reserving(c: PlanContext, value: int | None) -> PlanContext:
        prices = c.terms[site, chip].model_copy(update={"reserved_max": value})
        return replace(c, terms={**c.terms, (site, chip): prices})

    if stock.stock is not None:
        name = f"stock of {{}} {chip} at {site}"
        yield _whole("stock", stock.stock, math.inf, f"{place}.stock", name, lambda c, v: with_entry(c, site, chip, stock=v), of)
    most = context.terms[site, chip].reserved_max if (site, chip) in context.terms else None
    if most is not None:
        name = f"reserved_max of {{}} {chip} at {site}"
        yield _whole("reserved_max", most, math.inf, f"{place}.prices.reserved_max", name, reserving, of)
    for field, loosest in (("instances_max", math.inf), ("instances_min", 0)):
        for role, count in getattr(stock, field).items():
            name = f"{field} of {{}} {role} on {chip} at {site}"
            yield _whole(field, count, loosest, f"{place}.{field}.{role}", name, capped(field, role))


def _sites(context: PlanContext) -> Iterator[Knob]:
    for name, site in context.scenario.sites.items():
        yield from _room(name, site)


def _room(name: str, site: Site) -> Iterator[Knob]:
    if site.gpus_max is not None:
        path, said = f"sites.{_key(name)}.gpus_max", f"gpus_max of {{}} at {name}"
        yield _whole(
            "gpus_max", site.gpus_max, math.inf, path, said, lambda c, v: with_site(c, name, gpus_max=v), lambda _, best: _gpus(best, name)
        )
    power = site.power
    if power is not None:
        yield Knob(
            "power",
            power,
            math.inf,
            lambda c, v: with_site(c, name, power=None if math.isinf(v) else v),
            lambda v: f"power of {v / 1e3:.4g} kW at {name} (has {power / 1e3:.4g} kW)",
            lambda v: {f"sites.{_key(name)}.power": f"{v:.10g} W"},
            lambda c, best: _watts(c, best, name),
        )


def _budget(context: PlanContext) -> Iterator[Knob]:
    budget, money = context.scenario.budget, context.scenario.currency
    if budget is not None:
        yield Knob(
            "budget",
            budget,
            math.inf,
            lambda c, v: with_scenario(c, budget=None if math.isinf(v) else v),
            lambda v: f"budget of {v:.4g} {money}/h (has {budget:.4g})",
            lambda v: {"budget": f"{v:.10g} {money}/h"},
            lambda _, best: best.paid_usd_per_h,
        )


def _circuits(context: PlanContext) -> Iterator[Knob]:
    for name, line in context.lines.items():
        link = context.scenario.links[name]
        yield _circuits_of(name, line.max_circuits)
        yield from _speed(name, "circuit", link.circuit)
        if link.per_flow is not None and link.per_flow <= line.flow_bytes_per_s:
            yield from _speed(name, "per_flow", link.per_flow)
        if link.rtt > NEAREST_RTT_S:
            yield _nearer(name, link.rtt)


def _with_link(context: PlanContext, name: str, **update: Any) -> PlanContext:
    """The context with other values of a line, but for the circuits on offer."""
    link = context.scenario.links[name].model_copy(update=update)
    line = replace(Line.from_link(name, link), max_circuits=context.lines[name].max_circuits)
    changed = with_scenario(context, links={**context.scenario.links, name: link})
    return replace(changed, lines={**context.lines, name: line})


def _speed(name: str, field: str, bytes_per_s: float) -> Iterator[Knob]:
    """Speed of a line's circuits, or of one transfer, in Gbps."""
    has = bytes_per_s / GBPS_BYTES_PER_S
    if has < FASTEST_GBPS:
        yield Knob(
            field,
            has,
            FASTEST_GBPS,
            lambda c, v: _with_link(c, name, **{field: v * GBPS_BYTES_PER_S}),
            lambda v: f"{field} of {v:.4g} Gbps on {name} (has {has:.4g} Gbps)",
            lambda v: {f"links.{_key(name)}.{field}": f"{v:.10g} Gbps"},
        )


def _nearer(name: str, has_s: float) -> Knob:
    """The round trip of a line."""
    return Knob(
        "rtt",
        has_s,
        NEAREST_RTT_S,
        lambda c, v: _with_link(c, name, rtt=v),
        lambda v: f"rtt of {1e3 * v:.4g} ms on {name} (has {1e3 * has_s:.4g} ms)",
        lambda v: {f"links.{_key(name)}.rtt": f"{v:.10g} s"},
    )


def _circuits_of(name: str, has: int) -> Knob:
    def change(c: PlanContext, value: int | None) -> PlanContext:
        return replace(c, lines={**c.lines, name: replace(c.lines[name], max_circuits=value or has)})

    def needed(_: PlanContext, best: Incumbent) -> float:
        return sum(link.circuits for link in best.decision.links if link.name == name)

    most = MORE_CIRCUITS * (has + 1)
    return _whole("circuits", has, most, f"links.{_key(name)}.max_circuits", f"circuits: {{}} on {name}", change, needed)


def _lines(context: PlanContext) -> Iterator[Knob]:
    joined = {frozenset(line.between) for line in context.lines.values()}
    for pair in combinations(context.scenario.sites, 2):
        if frozenset(pair) not in joined:
            yield _line(pair)


def _line(pair: tuple[str, str]) -> Knob:
    """A line between two rooms that have none, in circuits of NEW_LINE_GBPS."""
    name = "-".join(pair)

    def change(c: PlanContext, circuits: float) -> PlanContext:
        if circuits == 0:
            return c
        size = NEW_LINE_GBPS * GBPS_BYTES_PER_S
        link = Link.model_construct(between=pair, circuit=size, max_circuits=int(circuits), rtt=NEW_LINE_RTT_S)
        changed = with_scenario(c, links={**c.scenario.links, name: link})
        return replace(changed, lines={**c.lines, name: Line.from_link(name, link)})

    def settings(circuits: float) -> Settings:
        sizes = {"circuit": f"{NEW_LINE_GBPS} Gbps", "max_circuits": int(circuits), "rtt": f"{NEW_LINE_RTT_S * 1e3:g} ms"}
        return {f"links.{_key(name)}": {"between": list(pair), **sizes}}

    return Knob(
        "links",
        0,
        NEW_LINE_MOST,
        change,
        lambda v: f"a link between {pair[0]} and {pair[1]} of {v * NEW_LINE_GBPS:g} Gbps at {NEW_LINE_RTT_S * 1e3:g} ms",
        settings,
        lambda _, best: sum(link.circuits for link in best.decision.links if link.name == name),
        whole=True,
    )


def _roles(context: PlanContext) -> Iterator[Knob]:
    """One knob that allows every role everywhere, in parts of one role of one chip."""
    shut = [(site, chip, r) for (site, chip), (_, stock) in context.stocks.items() for r in get_args(Role) if not stock.allows(r)]
    if shut:
        parts = tuple(_roles_of(context, [one], f"roles: {one[2]} allowed on {one[1]} at {one[0]}") for one in shut)
        yield replace(_roles_of(context, shut, "roles: every role allowed on every chip"), parts=parts)


def _roles_of(context: PlanContext, opened: list[tuple[str, str, Role]], said: str) -> Knob:
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for site, chip in dict.fromkeys((site, chip) for site, chip, _ in opened):
        stock, more = context.stocks[site, chip][1], [r for s, k, r in opened if (s, k) == (site, chip)]
        roles = None if stock.roles is None else tuple(dict.fromkeys((*stock.roles, *more)))
        entries[site, chip] = {"roles": roles, "forbidden_roles": tuple(r for r in stock.forbidden_roles if r not in more)}

    def change(c: PlanContext) -> PlanContext:
        for (site, chip), update in entries.items():
            c = with_entry(c, site, chip, **update)
        return c

    settings = {
        f"sites.{_key(site)}.chips[{context.stocks[site, chip][0]}].{field}": list(value)
        for (site, chip), update in entries.items()
        for field, value in update.items()
        if value != getattr(context.stocks[site, chip][1], field)
    }
    return _flag("roles", change, said, settings)


def _counts(context: PlanContext) -> Iterator[Knob]:
    """Most replicas, and spare ones."""
    search = context.scenario.search
    if search.replicas_max is not None:
        yield _whole(
            "replicas_max",
            search.replicas_max,
            math.inf,
            "search.replicas_max",
            "replicas_max of {}",
            lambda c, v: _with_search(c, replicas_max=v),
            lambda _, best: max((p.instances for p in best.decision.pools), default=0),
        )
    spare = search.redundancy
    most_spare = max(search.spare(role) for role in get_args(Role))
    if most_spare:

        def fewer(value: float) -> int | dict[Role, int]:
            return int(value) if isinstance(spare, int) else {role: min(k, int(value)) for role, k in spare.items()}

        yield Knob(
            "redundancy",
            most_spare,
            0,
            lambda c, v: _with_search(c, redundancy=fewer(v)),
            lambda v: f"redundancy of {v:g} spare instances a role (has {most_spare})",
            lambda v: {"search.redundancy": fewer(v)},
            whole=True,
        )


def _space(context: PlanContext, candidates: Candidates) -> Iterator[Knob]:
    """What the search may choose from: aggregated serving, parallel sizes, configurations of a role."""
    search = context.scenario.search
    if not search.aggregated:
        aggregated = {"search.aggregated": True}
        yield _flag("aggregated", lambda c: _with_search(c, aggregated=True), "search.aggregated: true", aggregated)
    sizes = [name for name in ("tp", "dp", "ep") if getattr(search, name) != "auto"]
    if sizes:
        said = ", ".join(f"search.{name}: auto" for name in sizes)
        settings = {f"search.{name}": "auto" for name in sizes}
        yield _flag("sizes", lambda c: _with_search(c, **dict.fromkeys(sizes, "auto")), f"{said} (other parallel sizes)", settings)
    kinds: dict[tuple[str, str], int] = {}
    for candidate in candidates.found:
        key = (candidate.configuration.deployment, candidate.role)
        kinds[key] = kinds.get(key, 0) + 1
    most, has = min(max(kinds.values(), default=1), CONFIGURATIONS_MOST), search.configurations_per_role
    if most > has:
        yield _whole(
            "configurations_per_role",
            has,
            most,
            "search.configurations_per_role",
            "configurations_per_role of {}",
            lambda c, v: _with_search(c, configurations_per_role=v),
        )


def _fleet(context: PlanContext) -> Iterator[Knob]:
    fleet = context.scenario.fleet
    if fleet is None:
        return
    if fleet.change_max is not None:
        said = "change_max of {} GPUs added or taken away"
        yield _whole("change_max", fleet.change_max, math.inf, "fleet.change_max", said, lambda c, v: _with_fleet(c, change_max=v))
    if fleet.keep:
        said = "fleet.keep: false (what stands may go)"
        yield _flag("fleet.keep", lambda c: _with_fleet(c, keep=False), said, {"fleet.keep": False})


def _slas(context: PlanContext) -> Iterator[Knob]:
    """Per latency a knob over all classes and limits, in parts of one class, in parts of one limit; and the attainments."""
    owners: list[Owner] = [(name, i) for name, d in context.deployments.items() for i in range(len(d.mix.class_names))]
    for kind in SLA_KINDS:
        having = [owner for owner in owners if _limits(context, owner, kind)]
        by_class = []
        for owner in having:
            fields = tuple(_limits(context, owner, kind))
            singles = tuple(_latency(context, kind, [owner], (field,)) for field in fields) if len(fields) > 1 else ()
            by_class.append(replace(_latency(context, kind, [owner], fields), parts=singles))
        if len(having) > 1:
            yield replace(_latency(context, kind, having, ()), parts=tuple(by_class))
        else:
            yield from by_class
    for owner in owners:
        floor = _sla(context, owner).attainment
        if floor:
            yield _attainment(context, owner, floor)


def _attainment(context: PlanContext, owner: Owner, has: float) -> Knob:
    return Knob(
        "attainment",
        has,
        TRICKLE,
        lambda c, v: with_sla(c, owner, lambda sla: sla.model_copy(update={"attainment": v})),
        lambda v: f"{_label(context, owner)}sla.attainment of {100 * v:.4g} % (has {100 * has:.4g} %)",
        lambda v: {f"{_class_path(context, owner)}.sla.attainment": v},
    )


def _sla(context: PlanContext, owner: Owner) -> Sla:
    return context.deployments[owner[0]].slas[owner[1]]


def _limits(context: PlanContext, owner: Owner, kind: str) -> dict[str, float]:
    return {name: value for name, value in getattr(_sla(context, owner), kind) if value is not None}


def _label(context: PlanContext, owner: Owner) -> str:
    names = context.deployments[owner[0]].mix.class_names
    parts = ([owner[0]] if len(context.deployments) > 1 else []) + ([names[owner[1]]] if len(names) > 1 else [])
    return "".join(f"{part}." for part in parts)


def _workload_path(context: PlanContext, deployment: str) -> str:
    return f"deployments.{_key(deployment)}.workload" if context.scenario.deployments else "workload"


def _class_path(context: PlanContext, owner: Owner) -> str:
    workload, root = context.scenario.each_deployment()[owner[0]].workload, _workload_path(context, owner[0])
    return f"{root}.classes.{_key(context.deployments[owner[0]].mix.class_names[owner[1]])}" if workload.classes else root


def rounded_up(value: float, digits: int = 4) -> float:
    """``value`` > 0 with so many digits, rounded up."""
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.ceil(value / step - 1e-9) * step:.{digits}g}")


def _latency(context: PlanContext, kind: str, owners: list[Owner], fields: tuple[str, ...]) -> Knob:
    """Limits ``fields`` (none: all) of one latency of some classes, multiplied."""
    stated = {owner: _limits(context, owner, kind) for owner in owners}

    def at(owner: Owner, factor: float) -> dict[str, float]:
        return {n: rounded_up(x * factor) if factor != 1 and (not fields or n in fields) else x for n, x in stated[owner].items()}

    def loosened(c: PlanContext, owner: Owner, factor: float) -> PlanContext:
        return with_sla(c, owner, lambda sla: with_limits(sla, kind, at(owner, factor)))

    def change(c: PlanContext, factor: float) -> PlanContext:
        for owner in owners:
            c = loosened(c, owner, factor)
        return c

    def say(factor: float) -> str:
        one = owners[0]
        name = f"{_label(context, one)}sla.{kind}" if len(owners) == 1 else f"sla.{kind} of all classes"
        if len(owners) == len(fields) == 1:
            (field,) = fields
            return f"{name}.{field} of {at(one, factor)[field]:g} s (has {stated[one][field]:g} s)"
        values = ", ".join(sorted({f"{x:g} s" for owner in owners for x in at(owner, factor).values()}))
        return f"{name} limits {factor:.3g} times as long ({values})"

    def settings(factor: float) -> Settings:
        return {f"{_class_path(context, owner)}.sla.{kind}": {n: f"{x:g} s" for n, x in at(owner, factor).items()} for owner in owners}

    return Knob(f"sla.{kind}", 1.0, LOOSEST, change, say, settings)


def _demand(context: PlanContext) -> Iterator[Knob]:
    rates = {name: d.workload.rate for name, d in context.scenario.each_deployment().items()}
    floor, whole = context.scenario.served_share_min, context.rate_per_s
    if floor < 1.0 and context.scenario.objective == "max-bcr":
        yield Knob(
            "served_share_min",
            floor,
            TRICKLE,
            lambda c, v: with_demand(c, v / floor),
            lambda v: f"served_share_min of {100 * v:.4g} % (has {100 * floor:.4g} %)",
            lambda v: {"served_share_min": v},
        )

    def settings(rate: float) -> Settings:
        known = {name: stated for name, stated in rates.items() if stated is not None}
        return {f"{_workload_path(context, name)}.rate": f"{x * rate / whole:.10g} req/s" for name, x in known.items()}

    if context.scenario.objective != "max-goodput":
        yield Knob(
            "demand",
            whole,
            TRICKLE * whole,
            lambda c, v: with_demand(c, v / whole),
            lambda v: f"a demand of {v:.4g} req/s (asked: {whole:.4g})",
            settings,
        )
