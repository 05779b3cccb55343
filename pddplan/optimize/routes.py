"""The ways in which a deployment can be served: aggregated, P and MD in one room, or P in one room and MD in another."""

from __future__ import annotations

from dataclasses import dataclass

from pddplan.optimize.candidates import Candidates
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Role
from pddplan.stages.profiled import ProfiledStage


@dataclass(frozen=True)
class Need:
    """A role that a route fills at a site. ``rows``: which requests enter (all; long or short ones by uncached tokens)."""

    role: Role
    site: str
    rows: str = "all"


@dataclass(frozen=True)
class Route:
    """One way to serve a deployment. md_site None: aggregated, at any site.

    local_p_site: a second P pool in MD's room that takes the short requests. relay: RLD beside the remote P hides
    the line, in a pool of its own unless ``colocated`` (on P's own instances).
    """

    deployment: str
    p_site: str | None = None
    md_site: str | None = None
    local_p_site: str | None = None
    line: str | None = None
    relay: bool = False
    colocated: bool = False

    @property
    def aggregated(self) -> bool:
        return self.md_site is None

    @property
    def name(self) -> str:
        if self.aggregated:
            return f"{self.deployment} aggregated"
        extra = f"+{self.local_p_site}" if self.local_p_site else ""
        relay = "" if not self.relay else " with RLD" if self.colocated else ", RLD"
        return f"{self.deployment} P {self.p_site}{extra}{relay}, MD {self.md_site}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """Roles of a disaggregated route (an aggregated one needs AGG, row by row: see columns)."""
        if self.p_site is None or self.md_site is None:
            return ()
        split = self.local_p_site is not None
        found = [Need("P", self.p_site, "long" if split else "all")]
        if self.local_p_site is not None:
            found.append(Need("P", self.local_p_site, "short"))
        if self.relay and not self.colocated:
            found.append(Need("RLD", self.p_site))
        return (*found, Need("MD", self.md_site, "relayed" if self.relay else "all"))


def routes_of(context: PlanContext, candidates: Candidates, deployment: str) -> tuple[Route, ...]:
    """Every route whose roles all have a candidate, in the scenario's order of sites. A room pair without a line is no route;
    RLD is offered only across rooms, and not where the policy never relays.
    """
    policy = context.deployments[deployment].policy
    found = [Route(deployment)] if candidates.of(deployment, "AGG") else []
    sites = list(context.scenario.sites)
    p_sites = [site for site in sites if candidates.of(deployment, "P", site)]
    md_sites = [site for site in sites if candidates.of(deployment, "MD", site)]
    for p in p_sites:
        for md in md_sites:
            if p == md:
                found.append(Route(deployment, p, md))
                continue
            line = context.line_between(p, md)
            if line is None:
                continue
            colocated = policy.rld == "colocated"
            able = _can_decode(context, candidates, deployment, p) if colocated else bool(candidates.of(deployment, "RLD", p))
            for relay in (False, True) if able and policy.relay_threshold != "never" else (False,):
                if relay or policy.relay_threshold in ("auto", "never"):
                    found.append(Route(deployment, p, md, None, line.name, relay, relay and colocated))
                if md in p_sites and policy.p_routing.long in (None, p):
                    found.append(Route(deployment, p, md, md, line.name, relay, relay and colocated))
    return tuple(found)


def _can_decode(context: PlanContext, candidates: Candidates, deployment: str, site: str) -> bool:
    """Whether every P instance of a site also decodes, as colocated relays need: a profile may only have been measured as P."""
    stages = [context.instance(c.configuration) for c in candidates.of(deployment, "P", site)]
    return all(not isinstance(stage, ProfiledStage) or stage.step is not None for stage in stages)
