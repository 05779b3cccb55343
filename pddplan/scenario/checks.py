"""Checks between sections of a scenario: names that must exist, counts that must fit, things that must be there to plan at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pddplan.errors import Problem
from pddplan.scenario.document import KeyPath
from pddplan.scenario.keys import listed, suggestion
from pddplan.scenario.schema import FixedPlan, Fleet, Scenario

Place = Callable[[KeyPath], str]
Slug = Callable[[str], str]


def cross_checks(scenario: Scenario, place: Place, slug: Slug | None = None) -> list[Problem]:
    """Every fault between sections of a scenario whose sections are each valid. slug: what a chip's name or alias stands for (None: it
    cannot be told here, and a pool's chip that the site does not spell alike is left to whoever can).
    """
    return [
        *_links(scenario, place),
        *_chips(scenario, place),
        *_counts(scenario, scenario.plan, ("plan",), place, slug),
        *_counts(scenario, scenario.fleet, ("fleet",), place, slug),
        *_deployments(scenario, place),
    ]


def _unknown(place: str, what: str, name: str, known: list[str]) -> Problem:
    near = suggestion(name, known)
    return Problem(
        place, f"there is no {what} {name!r}", (f"did you mean {near!r}? " if near else "") + f"there are: {listed(known) or 'none'}"
    )


def _links(scenario: Scenario, place: Place) -> Iterator[Problem]:
    seen: dict[frozenset[str], str] = {}
    for name, link in scenario.links.items():
        for end, site in enumerate(link.between):
            if site not in scenario.sites:
                yield _unknown(place(("links", name, "between", end)), "site", site, list(scenario.sites))
        ends = frozenset(link.between)
        if ends in seen:
            yield Problem(
                place(("links", name)),
                f"joins the same sites as link {seen[ends]!r}",
                "write one link per pair of sites, with other_sizes if need be",
            )
        seen.setdefault(ends, name)


def _chips(scenario: Scenario, place: Place) -> Iterator[Problem]:
    for site, entry in scenario.sites.items():
        seen: dict[str, int] = {}
        for index, stock in enumerate(entry.chips):
            path = ("sites", site, "chips", index)
            key = stock.chip.lower().replace("_", "-").replace(" ", "-")
            if key in seen:
                yield Problem(
                    place((*path, "chip")),
                    f"chip {stock.chip!r} stands twice at site {site!r}",
                    "write one entry per chip and site, with all its profiles",
                )
            seen.setdefault(key, index)
            for number, profile in enumerate(stock.profiles):
                if not stock.allows(profile.role):
                    yield Problem(
                        place((*path, "profiles", number, "role")),
                        f"role {profile.role} is not allowed for this chip here",
                        "add it to roles, or take the profile out",
                    )
                if profile.deployment is not None and profile.deployment not in scenario.each_deployment():
                    yield _unknown(
                        place((*path, "profiles", number, "deployment")), "deployment", profile.deployment, list(scenario.each_deployment())
                    )
    if all(stock.roles is not None and not {"MD", "AGG"} & set(stock.roles) for _, _, stock in scenario.chips()):
        yield Problem(place(("sites",)), "no chip may decode (role MD or AGG)", "allow MD or AGG on at least one chip", "roles: [MD]")


def _counts(scenario: Scenario, plan: FixedPlan | Fleet | None, root: KeyPath, place: Place, slug: Slug | None) -> Iterator[Problem]:
    if plan is None:
        return
    for index, pool in enumerate(plan.pools):
        path = (*root, "pools", index)
        if pool.site not in scenario.sites:
            yield _unknown(place((*path, "site")), "site", pool.site, list(scenario.sites))
            continue
        chips = [stock.chip for stock in scenario.sites[pool.site].chips]
        entries = scenario.sites[pool.site].chips
        stock = next((entry for entry in entries if _same(entry.chip, pool.chip)), None)
        if stock is None and slug is not None:
            stock = next((entry for entry in entries if slug(entry.chip) == slug(pool.chip)), None)
        if stock is None and slug is None:
            continue
        if stock is None:
            yield _unknown(place((*path, "chip")), f"chip at site {pool.site!r} named", pool.chip, chips)
            continue
        if pool.profile is not None and pool.profile >= len(stock.profiles):
            yield Problem(
                place((*path, "profile")),
                f"profile {pool.profile}",
                f"chip {pool.chip!r} at {pool.site!r} has {len(stock.profiles)}, counted from 0",
            )
        if pool.deployment is not None and pool.deployment not in scenario.each_deployment():
            yield _unknown(place((*path, "deployment")), "deployment", pool.deployment, list(scenario.each_deployment()))
    for index, way in enumerate(plan.ways if isinstance(plan, FixedPlan) else ()):
        path = (*root, "ways", index)
        beyond = [pool for pool in way.pools if pool >= len(plan.pools)]
        if beyond:
            yield Problem(place((*path, "pools")), f"pool {beyond[0]}", f"the plan has {len(plan.pools)}, counted from 0")
            continue
        owners = {plan.pools[pool].deployment or next(iter(scenario.each_deployment())) for pool in way.pools}
        if len(owners) > 1:
            yield Problem(place((*path, "pools")), f"pools of {listed(sorted(owners))}", "pools of one deployment in each way")
        known = {name for owner in owners if owner in scenario.each_deployment() for name in _classes(scenario, owner)}
        for name in way.share if isinstance(way.share, Mapping) else ():
            if name not in known:
                yield _unknown(place((*path, "share", name)), "class", name, sorted(known))
    for name, circuits in plan.links.items():
        if name not in scenario.links:
            yield _unknown(place((*root, "links", name)), "link", name, list(scenario.links))
        elif circuits > scenario.links[name].max_circuits:
            yield Problem(
                place((*root, "links", name)),
                f"{circuits} circuits",
                f"link {name!r} has at most {scenario.links[name].max_circuits} (max_circuits)",
            )


def _classes(scenario: Scenario, deployment: str) -> list[str]:
    return list(scenario.each_deployment()[deployment].workload.all_classes())


def _same(one: str, other: str) -> bool:
    return one.lower().replace("_", "-").replace(" ", "-") == other.lower().replace("_", "-").replace(" ", "-")


def _deployments(scenario: Scenario, place: Place) -> Iterator[Problem]:
    for name, deployment in scenario.each_deployment().items():
        root: KeyPath = ("deployments", name) if scenario.deployments else ()
        long = deployment.policy.p_routing.long
        if long is not None and long not in scenario.sites:
            yield _unknown(place((*root, "policy", "p_routing", "long")), "site", long, list(scenario.sites))
