"""Divisions of a deployment by class: some of its classes on pools of their own, as a deployment of their own beside the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Decision, Way

SUBSETS_OF = 4
"""Up to so many classes every division in two is tried; of more, those that cut the order of their uncached tokens."""


@dataclass(frozen=True)
class ClassDivision:
    """``context`` holds each part of deployment ``name`` as a deployment; ``parts``: its name -> indices of its classes."""

    name: str
    context: PlanContext
    parts: Mapping[str, tuple[int, ...]]

    @property
    def owners(self) -> Mapping[str, str]:
        """Part -> the deployment that it is of."""
        return dict.fromkeys(self.parts, self.name)

    def joined(self, decision: Decision, whole: PlanContext) -> Decision:
        """``decision`` on the parts as one on the deployment itself: every part is a way that takes its classes whole."""
        classes = len(whole.deployments[self.name].mix.class_names)
        pools = tuple(
            replace(pool, configuration=replace(pool.configuration, deployment=self.owners.get(pool.configuration.deployment, owner)))
            for pool in decision.pools
            for owner in (pool.configuration.deployment,)
        )
        ways = [self._whole_classes(way, decision, classes) for way in decision.ways]
        inside = {decision.pools[i].configuration.deployment for way in decision.ways for i in way.pools}
        for part in self.parts.keys() - inside:
            mine = tuple(i for i, pool in enumerate(decision.pools) if pool.configuration.deployment == part)
            ways.append(Way(mine, tuple(1.0 if c in self.parts[part] else 0.0 for c in range(classes))))
        return replace(decision, pools=pools, ways=tuple(sorted(ways, key=lambda way: way.pools)))

    def _whole_classes(self, way: Way, decision: Decision, classes: int) -> Way:
        part = self.parts.get(decision.pools[way.pools[0]].configuration.deployment)
        if part is None:
            return way
        shares = np.zeros(classes)
        shares[list(part)] = way.class_shares
        return replace(way, class_shares=tuple(shares.tolist()))


def class_divisions(context: PlanContext, name: str) -> Iterator[ClassDivision]:
    """Divisions of a deployment's classes in two. None where a standing fleet or a measured profile is tied to the deployment."""
    scenario, owner = context.scenario, context.deployments[name]
    tied = any(profile.deployment is not None for _, _, stock in scenario.chips() for profile in stock.profiles)
    if scenario.fleet is not None or tied:
        return
    mix = owner.mix
    asked = [c for c in range(len(mix.class_names)) if mix.weight[mix.class_index == c].sum() > 0.0]
    for one in _halves(asked, [float(mix.uncached_tokens[mix.class_index == c].mean()) for c in asked]):
        parts: dict[str, tuple[int, ...]] = {}
        for half in (one, tuple(c for c in asked if c not in one)):
            parts[f"{name}/{'+'.join(mix.class_names[c] for c in half)}"] = half
        deployments = {
            key: part
            for other, deployment in context.deployments.items()
            for key, part in (
                {p: replace(owner, name=p, mix=mix.of_classes(half), slas=tuple(owner.slas[c] for c in half)) for p, half in parts.items()}
                if other == name
                else {other: deployment}
            ).items()
        }
        each = scenario.each_deployment()
        sections = {key: each[name if key in parts else key] for key in deployments}
        written = scenario.model_copy(update={"deployments": sections})
        yield ClassDivision(name, replace(context.with_deployments(deployments), scenario=written), parts)


def _halves(classes: list[int], lengths: list[float]) -> Iterator[tuple[int, ...]]:
    """One side of every division in two, each pair of sides once."""
    if len(classes) > SUBSETS_OF:
        order = [classes[i] for i in np.argsort(lengths, kind="stable")]
        yield from (tuple(sorted(order[:cut])) for cut in range(1, len(order)))
        return
    for size in range(1, len(classes)):
        yield from (one for one in itertools.combinations(classes, size) if classes[0] in one)
