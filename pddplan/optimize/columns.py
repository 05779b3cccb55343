"""The program of a context: routes as paths, candidates and circuits as options with a column per count."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pddplan.economics.terms import cheapest_mix
from pddplan.optimize.bounds import StageBounds
from pddplan.optimize.candidates import Candidate, Candidates
from pddplan.optimize.program import Market, Option, Path, Program, Purchase, Resource, Row
from pddplan.optimize.routes import Need, Route
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.day import Day
from pddplan.pdd.line import Line
from pddplan.pdd.terms import in_service

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

COUNT_LIMIT = 4096
"""Most instances of one configuration where neither stock nor demand says less."""
HEADROOM = 1.5
"""Counts go this far beyond what the loose bound needs, until the theory of queues says how far they must."""
SHORT = 1e-6
"""What falls short of a demand does so by at least this share of it."""
PART_MIN = 0.02
"""Least share of a divided deployment's traffic that a route takes."""


@dataclass(frozen=True)
class Slot:
    """What an option of the program stands for: a candidate in a need, or circuits of one size on a line."""

    need: Need | None = None
    candidate: Candidate | None = None
    line: str | None = None
    circuit_bytes_per_s: float = 0.0

    @property
    def instance(self) -> tuple[Candidate, Need]:
        """Candidate and need of a slot that is no line."""
        assert self.candidate is not None
        assert self.need is not None
        return self.candidate, self.need


@dataclass
class Columns:
    """Builds the programs of one choice of chunk size and P threshold, and remembers what queueing has said so far.

    fixed_scale: exactly the demand is served, so that where one configuration carries it alone its least count says all.
    least, tables: option -> least count, or capacity by serving count, of the options that a solution has used.
    scale_max: largest multiple of the demand that may be served. slots: option -> what it stands for, of the last program.
    owners: part of a deployment -> the deployment, whose configurations count together. carried: option -> serving count -> capacity,
    of a divided deployment's options.
    mixed: the deployment whose traffic is divided among ``parts`` routes; the bounds must then hold for any share of it.
    """

    context: PlanContext
    candidates: Candidates
    routes: tuple[Route, ...]
    bounds: StageBounds
    fixed_scale: bool
    mixed: str = ""
    owners: Mapping[str, str] = field(default_factory=dict)
    parts: int = 1
    scale_max: float = 1.0
    slots: dict[str, Slot] = field(default_factory=dict)
    least: dict[str, int | None] = field(default_factory=dict)
    tables: dict[str, FloatArray] = field(default_factory=dict)
    carried: dict[str, dict[int, float]] = field(default_factory=dict)

    def program(self, scale_min: float, scale_max: float) -> Program:
        """Routes as exclusive paths of one market per deployment, whose demand is served between the two scales."""
        scenario = self.context.scenario
        self.scale_max = scale_max
        markets, paths = [], []
        rows: dict[str, dict[str, float]] = {}
        options: dict[str, Option] = {}
        built: dict[str, tuple[float, list[Option]]] = {}
        for name, deployment in self.context.deployments.items():
            mine = [route for route in self.routes if route.deployment == name]
            if deployment.mix.rate_per_s <= 0 or not mine:
                continue
            parts = self.parts if name == self.mixed else 1
            least = PART_MIN * scale_min if parts > 1 else 0.0
            markets.append(Market(name, deployment.mix.rate_per_s, scale_min, scale_max, True, parts, least))
            for route in mine:
                paths.append(Path(route.name, name))
                for row, demand, members in self._needs(route, deployment, built):
                    rows.setdefault(row, {})[route.name] = demand
                    options.update({option.name: option for option in members})
        lines = {option.pool for option in options.values() if option.pool.startswith("line ")}
        configurations = {option.pool: scenario.search.configurations_per_role for option in options.values()}
        return Program(
            markets=tuple(markets),
            paths=tuple(paths),
            rows=tuple(Row(name, rates) for name, rates in rows.items()),
            options=tuple(options.values()),
            resources=self._resources(tuple(options.values())),
            max_options={**configurations, **dict.fromkeys(lines, 1)},
            budget_usd_per_h=scenario.budget,
            purchases=self._purchases(tuple(options.values())),
            keep=self._kept(options),
            idle=frozenset(name for group in self._kept(options) for name in group),
            one_scale=len(markets) > 1,
        )

    def tighten(self, counts: Mapping[str, int]) -> bool:
        """Ask the theory of queues about those options that have only their loose bound, where traffic is divided then about their
        counts; whether there was any.
        """
        loose = [n for n in counts if n not in self.least and n not in self.tables and self._queues(self.slots[n])]
        if self.mixed and not loose:
            return self._tighten_counts(counts)
        for name in loose:
            candidate, need = self.slots[name].instance
            demand, ceiling = self._demand(candidate, need), min(self._ceiling(candidate), COUNT_LIMIT) - candidate.spare
            if self._counted:
                self.least[name] = self.bounds.least_count(candidate, need, demand, ceiling)
                continue
            most = self._serving_max(candidate, demand, self.bounds.loose(candidate, need))
            while most < ceiling and not self.bounds.carries(candidate, need, most, demand):
                most = min(2 * most, ceiling)
            self.tables[name] = self.bounds.capacities(candidate, need, most)
        return bool(loose)

    def _tighten_counts(self, counts: Mapping[str, int]) -> bool:
        """What exactly so many instances of an option carry, for those of ``counts`` where it is not known yet."""
        fresh = False
        for name, count in counts.items():
            slot = self.slots[name]
            if not self._queues(slot) or slot.instance[0].configuration.deployment != self.mixed:
                continue
            candidate, need = slot.instance
            serving, known, least = count - candidate.spare, self.carried.setdefault(name, {}), self.least.get(name)
            if serving in known or (least is not None and serving >= least):
                continue
            option = self._option(slot, (name,), name)
            high = float(option.capacity[np.searchsorted(option.replicas, count)])
            known[serving] = self.bounds.capacity(candidate, need, serving, high)
            fresh = True
        return fresh

    @property
    def _counted(self) -> bool:
        """Whether a least count for the whole, known demand says what a configuration carries: a role has no other beside it."""
        return self.fixed_scale and self.context.scenario.search.configurations_per_role == 1

    def _alone(self, candidate: Candidate) -> bool:
        """Whether a candidate carries its role's whole, known demand: then only its least count matters."""
        return self._counted and candidate.configuration.deployment != self.mixed

    def _queues(self, slot: Slot) -> bool:
        """Whether its table helps to choose an option: not for a line, a relay pool or a measured rate, nor for a lone aggregated
        pool that serves as much as it can, which the search bisects anyway.
        """
        if slot.candidate is None or slot.candidate.role == "RLD" or self.bounds.rates(slot.candidate) is not None:
            return False
        scenario = self.context.scenario
        lone = scenario.objective == "max-goodput" and scenario.search.configurations_per_role == 1 and not self.mixed
        return not (lone and slot.candidate.role == "AGG" and len(self.context.deployments) == 1)

    def _deployment(self, candidate: Candidate) -> Deployment:
        return self.context.deployments[candidate.configuration.deployment]

    def _demand(self, candidate: Candidate, need: Need) -> float:
        return self.bounds.rate_per_s(need, self._deployment(candidate)) * self.scale_max

    def _needs(
        self, route: Route, deployment: Deployment, built: dict[str, tuple[float, list[Option]]]
    ) -> Iterator[tuple[str, float, list[Option]]]:
        """(row, demand per unit scale, options) of every need of a route; ``built``: what routes before it have needed."""
        if route.aggregated:
            yield from self._aggregated(deployment)
            return
        for need in route.needs:
            row = f"{deployment.name} {need.role} {need.site} {need.rows}"
            if row not in built:
                pool = f"{self.owners.get(deployment.name, deployment.name)} {need.role} {need.site}"
                found = [self._option(Slot(need, c), (row,), pool) for c in self.candidates.of(deployment.name, need.role, need.site)]
                least = SHORT * deployment.mix.rate_per_s  # a role stands even where nothing is left for it to do
                demand = 1.0 / (self.scale_max or 1.0) if need.role == "RLD" else max(self.bounds.rate_per_s(need, deployment), least)
                built[row] = demand, [option for option in found if option.replicas.size]
            yield row, *built[row]
        if route.line is not None:
            line = self.context.lines[route.line]
            yield f"line {route.line}", max(self.bounds.line_bytes_per_s(route, deployment), 1.0), self._circuits(line)

    def _aggregated(self, deployment: Deployment) -> Iterator[tuple[str, float, list[Option]]]:
        """One row per class where a profile knows rates by length (classes then divide between chips), else one for all."""
        name, mix = f"{deployment.name} AGG", deployment.mix
        pool = f"{self.owners.get(deployment.name, deployment.name)} AGG"
        members = self.candidates.of(deployment.name, "AGG")
        divided = any(self.bounds.rates(candidate) is not None for candidate in members)
        rows = [mix.class_index == c for c in range(len(mix.class_names))] if divided else [np.ones(mix.rows, dtype=bool)]
        names = [f"{name} {c}" for c in range(len(rows))]
        options = []
        for candidate in members:
            slot = Slot(Need("AGG", candidate.configuration.site), candidate)
            grid = self.bounds.rates(candidate)
            if grid is None:
                options.append(self._option(slot, tuple(names), pool))
                continue
            seconds = grid.seconds_per_request(mix.input_tokens, mix.output_tokens)
            loads = {n: float(mix.weight[r] @ seconds[r]) / float(mix.weight[r].sum()) for n, r in zip(names, rows, strict=True)}
            options.append(self._rated(slot, pool, {n: load for n, load in loads.items() if math.isfinite(load)}))
        for row, members_of_class in zip(names, rows, strict=True):
            demand = mix.rate_per_s * float(mix.weight[members_of_class].sum())
            yield row, demand, [option for option in options if row in option.loads and option.replicas.size]

    def _option(self, slot: Slot, rows: tuple[str, ...], pool: str) -> Option:
        """A candidate whose capacity is requests/s, the same for all ``rows``."""
        candidate, need = slot.instance
        name = f"{candidate.name} [{need.rows}]"
        self.slots[name] = slot
        if need.role == "RLD":
            counts = candidate.counts(self._ceiling(candidate))[: 1 if self._counted else None]
            return self._priced(name, pool, dict.fromkeys(rows, 1.0), counts, np.ones(counts.shape), candidate)
        each = self.bounds.loose(candidate, need)
        if each <= 0:
            return self._priced(name, pool, {}, np.empty(0, dtype=np.int64), np.empty(0), candidate)
        known = max(self.least.get(name) or 0, self.tables[name].size if name in self.tables else 0)
        wanted = max(self._serving_max(candidate, self._demand(candidate, need), each), known)
        counts = candidate.counts(max(wanted + candidate.spare, self._floor(candidate)))
        serving = counts - candidate.spare
        capacity = np.minimum(serving * each, 1e12)
        if name in self.tables:
            table = self.tables[name]
            capacity = np.minimum(capacity, table[np.minimum(serving, table.size) - 1])
        for most, carried in self.carried.get(name, {}).items():
            capacity = np.where(serving <= most, np.minimum(capacity, serving * (carried / most)), capacity)
        if name in self.least:
            capacity = self._up_to_least(name, serving, capacity, self._demand(candidate, need))
        if self._counted:
            enough = np.nonzero(capacity >= self._demand(candidate, need) * (1 - 1e-9))[0][:1]
            kept = enough if self._alone(candidate) else slice(0, int(enough[0]) + 1 if enough.size else None)
            counts, capacity = counts[kept], capacity[kept]
        return self._priced(name, pool, dict.fromkeys(rows, 1.0), counts, capacity, candidate)

    def _up_to_least(self, name: str, serving: IntArray, capacity: FloatArray, demand: float) -> FloatArray:
        """Capacities that know the least count for the whole demand: one fewer falls short of it, and smaller pools carry less per
        instance than that one.
        """
        least = self.least[name]
        short = serving < (COUNT_LIMIT + 1 if least is None else least)
        fails = max(int(np.max(serving, initial=1)) if least is None else least - 1, 1)
        under = np.minimum(capacity, serving * (demand / fails) * (1 - SHORT))
        return np.asarray(np.where(short, under, np.maximum(capacity, demand)))

    def _rated(self, slot: Slot, pool: str, loads: dict[str, float]) -> Option:
        """An aggregated profile: capacity in instance-seconds per second, each class with its seconds per request."""
        candidate, _ = slot.instance
        mix = self._deployment(candidate).mix
        name = f"{candidate.name} [all]"
        self.slots[name] = slot
        work = sum(load for load in loads.values()) * mix.rate_per_s * self.scale_max
        counts = candidate.counts(max(min(math.ceil(work) + candidate.spare, self._ceiling(candidate)), self._floor(candidate)))
        return self._priced(name, pool, loads, counts, (counts - candidate.spare).astype(float), candidate, True)

    def _priced(
        self,
        name: str,
        pool: str,
        loads: dict[str, float],
        counts: IntArray,
        capacity: FloatArray,
        candidate: Candidate,
        divisible: bool = False,
    ) -> Option:
        uses = {resource: used for resource, used in _uses(candidate, counts).items() if resource in self.limits}
        cost = _cost_usd_per_h(candidate, counts)
        if (candidate.configuration.site, candidate.configuration.chip) in self.context.terms:
            uses |= dict(zip(self._periods(candidate), self._in_use(candidate, counts).T, strict=True))
            cost = np.zeros(counts.shape)
        return Option(name, pool, loads, counts, capacity, cost, uses, divisible)

    def _periods(self, candidate: Candidate) -> tuple[str, ...]:
        """Names of the GPUs in use of a chip priced by term, one per period."""
        where = f"{candidate.configuration.chip} at {candidate.configuration.site}"
        return tuple(f"{where} in period {t}" for t in range(self.day.time_share.size))

    def _in_use(self, candidate: Candidate, counts: IntArray) -> FloatArray:
        """GPUs that are paid for in every period, shape (counts, periods)."""
        factors = self.day.factors[candidate.configuration.deployment]
        stand = in_service(self.context, candidate.configuration, counts, factors)
        return np.asarray(np.maximum(stand - candidate.sunk, 0) * candidate.gpus, dtype=np.float64)

    def _purchases(self, options: tuple[Option, ...]) -> tuple[Purchase, ...]:
        """What is bought by term, of the chips that an option may take."""
        found: dict[tuple[str, str], Purchase] = {}
        for option in options:
            candidate = self.slots[option.name].candidate
            key = (candidate.configuration.site, candidate.configuration.chip) if candidate is not None else ("", "")
            if candidate is not None and key in self.context.terms and key not in found:
                p = self.context.terms[key]
                found[key] = Purchase(
                    f"{key[1]} at {key[0]}", self._periods(candidate), tuple(self.day.time_share.tolist()),
                    p.reserved, p.reserved_max, p.on_demand, p.spot, p.spot_share_max,
                )  # fmt: skip
        return tuple(found.values())

    @cached_property
    def day(self) -> Day:
        return self.context.day

    def cost_usd_per_h(self, counts: Mapping[str, int]) -> float:
        """What ``counts`` of the options cost, whether or not the program has a column for them."""
        used: dict[tuple[str, str], FloatArray] = {}
        cost = 0.0
        for name, count in counts.items():
            candidate = self.slots[name].candidate
            key = (candidate.configuration.site, candidate.configuration.chip) if candidate is not None else ("", "")
            if candidate is not None and key in self.context.terms:
                used[key] = used.get(key, 0.0) + self._in_use(candidate, np.array([count]))[0]
            else:
                cost += self._cost(self.slots[name], count)
        mixes = (cheapest_mix(self.context.terms[key], gpus, self.day.time_share) for key, gpus in used.items())
        return cost + sum(mix.per_hour for mix in mixes)

    def _cost(self, slot: Slot, count: int) -> float:
        if slot.line is not None:
            return count * self.context.lines[slot.line].prices_usd_h[slot.circuit_bytes_per_s]
        return float(_cost_usd_per_h(slot.instance[0], np.array([count]))[0])

    def within_limits(self, counts: Mapping[str, int]) -> bool:
        """Whether stock, power, budget and the other hard caps allow ``counts``."""
        used = dict.fromkeys(self.limits, 0.0)
        for name, count in counts.items():
            if self.slots[name].candidate is not None:
                for resource, use in _uses(self.slots[name].instance[0], np.array([count])).items():
                    if resource in used:
                        used[resource] += float(use[0])
        budget = self.context.scenario.budget
        affordable = budget is None or self.cost_usd_per_h(counts) <= budget * (1 + 1e-9)
        return affordable and all(use <= self.limits[resource] * (1 + 1e-9) for resource, use in used.items())

    def largest_scale(self) -> float:
        """A multiple of the demand that no plan can exceed: of each route its scarcest role, at every count it can have."""
        per_deployment: dict[str, float] = {}
        for route in self.routes:
            owner = self.context.deployments[route.deployment]
            needs = route.needs or (Need("AGG", ""),)
            scale = min(self._reach(need, owner) for need in needs if need.role != "RLD")
            per_deployment[route.deployment] = max(per_deployment.get(route.deployment, 0.0), scale)
        return max((scale * (self.parts if name == self.mixed else 1) for name, scale in per_deployment.items()), default=0.0)

    def _reach(self, need: Need, owner: Deployment) -> float:
        """Largest multiple of the demand that all candidates of a need could carry together."""
        members = self.candidates.of(owner.name, need.role, need.site or None)
        carried = 0.0
        for candidate in members:
            grid = self.bounds.rates(candidate)
            own = Need(need.role, candidate.configuration.site, need.rows)
            if grid is None:
                each = self.bounds.loose(candidate, own)
            else:
                seconds = grid.seconds_per_request(owner.mix.input_tokens, owner.mix.output_tokens)
                each = 1.0 / max(float(np.min(seconds)), 1e-9)
            carried += min(each, 1e9) * (self._ceiling(candidate) - candidate.spare)
        demand = owner.mix.rate_per_s if need.role == "AGG" else self.bounds.rate_per_s(need, owner)
        return carried / demand if demand > 0 else math.inf

    def ceiling(self, name: str) -> int:
        """Most replicas (or circuits) of an option."""
        slot = self.slots[name]
        return self.context.lines[slot.line].max_circuits if slot.line is not None else self._ceiling(slot.instance[0])

    def step(self, name: str) -> int:
        """Replicas of an option come in multiples of this."""
        candidate = self.slots[name].candidate
        return 1 if candidate is None else candidate.step

    def _ceiling(self, candidate: Candidate) -> int:
        budget, most = self.context.scenario.budget, candidate.counts_max or COUNT_LIMIT
        if candidate.counts_max == 0:
            return 0
        if budget is not None and candidate.usd_per_h > 0:
            most = min(most, int(budget / candidate.usd_per_h * (1 + 1e-9)) + candidate.sunk)
        return most

    def _floor(self, candidate: Candidate) -> int:
        """Instances that must stand where the configuration is used, in whole steps, whether or not the demand needs them."""
        return math.ceil(candidate.counts_min / candidate.step) * candidate.step

    def _serving_max(self, candidate: Candidate, demand: float, each: float) -> int:
        wanted = math.ceil(min(demand / each * HEADROOM, COUNT_LIMIT)) + 2 if each > 0 else 0
        return max(min(wanted, self._ceiling(candidate) - candidate.spare), 0)

    def _circuits(self, line: Line) -> list[Option]:
        least = max(self.context.scenario.links[line.name].min_circuits, 1)
        counts = np.arange(least, line.max_circuits + 1, dtype=np.int64)
        options = []
        for circuit, price in line.prices_usd_h.items():
            name = f"line {line.name} {circuit * 8 / 1e9:g} Gbps"
            self.slots[name] = Slot(line=line.name, circuit_bytes_per_s=circuit)
            bought: FloatArray = counts.astype(np.float64)
            pool = f"line {line.name}"
            options.append(Option(name, pool, {pool: 1.0}, counts, bought * circuit * line.usable, bought * price))
        return options

    @cached_property
    def limits(self) -> dict[str, float]:
        """Resources that the scenario limits, with the limit."""
        scenario = self.context.scenario
        limits = {f"{chip} at {site}": float(s.stock) for (site, chip), (_, s) in self.context.stocks.items() if s.stock is not None}
        for name, site in scenario.sites.items():
            if site.gpus_max is not None:
                limits[f"GPUs at {name}"] = float(site.gpus_max)
            if site.power is not None:
                limits[f"power at {name}"] = site.power
        if scenario.fleet is not None and scenario.fleet.change_max is not None:
            standing = sum(c.existing * c.gpus for c in self.candidates.found)
            limits["change"] = float(scenario.fleet.change_max) - standing
        return limits

    def _resources(self, options: tuple[Option, ...]) -> tuple[Resource, ...]:
        used = {name for option in options for name in option.uses}
        return tuple(Resource(name, limit) for name, limit in self.limits.items() if name in used)

    def _kept(self, options: dict[str, Option]) -> tuple[tuple[str, ...], ...]:
        """What stands and is kept: one of the options of each existing candidate must be taken."""
        fleet = self.context.scenario.fleet
        if fleet is None or not fleet.keep:
            return ()
        standing = [c for c in self.candidates.found if c.existing]
        groups = (tuple(n for n in options if self.slots[n].candidate == c) for c in standing)
        return tuple(group for group in groups if group)


def _uses(candidate: Candidate, counts: IntArray) -> dict[str, FloatArray]:
    """What each count uses of every resource that a scenario may limit, shape of ``counts``."""
    chip, site, n = candidate.configuration.chip, candidate.configuration.site, counts.astype(np.float64)
    return {
        f"{chip} at {site}": n * candidate.gpus,
        f"GPUs at {site}": n * candidate.gpus,
        f"power at {site}": n * candidate.watts,
        "change": (np.abs(n - candidate.existing) - candidate.existing) * candidate.gpus,
    }


def _cost_usd_per_h(candidate: Candidate, counts: IntArray) -> FloatArray:
    return np.asarray(np.maximum(counts - candidate.sunk, 0) * candidate.usd_per_h, dtype=np.float64)
