"""PlanContext: everything that stays the same while plans of one scenario are compared, resolved once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pddplan.economics.gpu_price import gpu_price, term_prices
from pddplan.economics.terms import price_per_gpu
from pddplan.errors import InputError, Problem
from pddplan.hardware.catalog import load_chip
from pddplan.hardware.types import Chip
from pddplan.model.acceptance import acceptance_length
from pddplan.model.catalog import load_model
from pddplan.model.config import with_weights
from pddplan.model.kv_cache import kv_cache
from pddplan.model.memory import Reserves
from pddplan.model.spec import ModelSpec
from pddplan.pdd.day import Day, day_of
from pddplan.pdd.decode_pool import DecodeTables
from pddplan.pdd.line import Line
from pddplan.pdd.plan import Configuration, Settings
from pddplan.pdd.prefill_queue import Passes, QueueLaw, passes_of, queue_law
from pddplan.queueing.ggc import Dispatch
from pddplan.roofline.overlay_file import overlay_beside
from pddplan.roofline.speculation import Speculation
from pddplan.scenario.schema import ChipStock, Fabric, Model, Policy, Scenario, Singular, TermPrices
from pddplan.scenario.sla import Sla
from pddplan.stages.profiled import ProfiledStage, profiled_stage
from pddplan.stages.protocol import AggregatedStage, KvTransfer
from pddplan.stages.roofline import RooflineInstance, roofline_instance
from pddplan.workload.from_scenario import request_mix
from pddplan.workload.mix import RequestMix

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Deployment:
    """One model with its own traffic and policy. ``slas``: one per class of ``mix.class_names``."""

    name: str
    spec: ModelSpec
    kv: KvTransfer
    kv_format: str
    mix: RequestMix
    slas: tuple[Sla, ...]
    policy: Policy
    engine: str
    speculation: Speculation | None = None

    @property
    def singular(self) -> Singular | None:
        return None if self.policy.singular == "none" else self.policy.singular


@dataclass(frozen=True)
class StageRows:
    """Prefill of every row of a deployment's mix on one instance, shape (rows,): seconds alone, and seconds of capacity used."""

    latency_s: FloatArray
    occupancy_s: FloatArray


@dataclass(frozen=True)
class PlanContext:
    """Values of one scenario that no decision changes. Build it with ``PlanContext.from_scenario``; stage objects are cached.

    stocks: the scenario's chip entries by (site, slug), with their index in the site's list. prices_usd_h: per GPU by (site, slug).
    terms: prices of each term, all parts included, where a chip is priced by term; its entry in ``prices_usd_h`` is then what a GPU of
    the full fleet costs at least, by the cheapest mix over the day.
    """

    scenario: Scenario
    deployments: Mapping[str, Deployment]
    lines: Mapping[str, Line]
    chips: Mapping[str, Chip]
    stocks: Mapping[tuple[str, str], tuple[int, ChipStock]]
    prices_usd_h: Mapping[tuple[str, str], float]
    warnings: tuple[str, ...] = ()
    terms: Mapping[tuple[str, str], TermPrices] = field(default_factory=dict)
    _stages: dict[tuple[Configuration, int, bool], AggregatedStage] = field(default_factory=dict, repr=False, compare=False)
    _instances: dict[object, RooflineInstance] = field(default_factory=dict, repr=False, compare=False)
    _rows: dict[tuple[int, str], StageRows] = field(default_factory=dict, repr=False, compare=False)
    _tables: dict[int, DecodeTables] = field(default_factory=dict, repr=False, compare=False)
    _passes: dict[tuple[Configuration, int, bool], Passes] = field(default_factory=dict, repr=False, compare=False)
    _queues: dict[object, QueueLaw] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_scenario(cls, scenario: Scenario) -> PlanContext:
        """Resolve chips, models, mixes, links, prices and SLAs of ``scenario``. Raises InputError with all problems found."""
        problems: list[Problem] = []
        chips: dict[str, Chip] = {}
        stocks: dict[tuple[str, str], tuple[int, ChipStock]] = {}
        prices: dict[tuple[str, str], float] = {}
        terms: dict[tuple[str, str], TermPrices] = {}
        for site, index, stock in scenario.chips():
            place = f"sites.{site}.chips[{index}]"
            try:
                chip = load_chip(stock.chip, scenario.base)
            except InputError as error:
                problems += [Problem(f"{place}.chip", p.found, p.accepted, p.example) for p in error.problems]
                continue
            chips[chip.slug] = chip
            if (site, chip.slug) in stocks:
                problems.append(
                    Problem(f"{place}.chip", f"{chip.slug} stands twice at site {site}", "one entry per chip and site")
                )
                continue
            own = None if stock.engine is None else overlay_beside(stock.engine, scenario.base)
            stocks[site, chip.slug] = (index, stock.model_copy(update={"engine": own}))
            try:
                price = gpu_price(chip, stock, scenario.sites[site], scenario.cost, place, scenario.currency)
                prices[site, chip.slug] = price.per_hour
                if (by_term := term_prices(price, stock, scenario.cost)) is not None:
                    terms[site, chip.slug] = by_term
            except InputError as error:
                problems += error.problems
        deployments: dict[str, Deployment] = {}
        for name in scenario.each_deployment():
            try:
                deployments[name] = _deployment(scenario, name)
            except InputError as error:
                problems += [replace(p, place=_place(scenario, name, p.place)) for p in error.problems]
        if problems:
            raise InputError(problems)
        lines = {name: Line.from_link(name, link) for name, link in scenario.links.items()}
        day = day_of({name: d.mix.demand for name, d in deployments.items()})
        prices |= {key: _least_price(by_term, day) for key, by_term in terms.items()}
        hints = [
            f"{d.spec.name} has {len(d.spec.mtp_layers)} MTP layer(s); speculation is off, since the scenario is silent on it "
            "(speculation: {draft_tokens: 1, acceptance_length: ...} turns it on)"
            for name, d in deployments.items()
            if d.spec.mtp_layers and scenario.each_deployment()[name].model.speculation == "none"
        ]
        unpriced = [
            f"link {name} has no price: it is counted as free"
            for name, line in lines.items()
            if not any(line.prices_usd_h.values())
        ]
        beyond = [text for deployment in deployments.values() for text in _beyond_positions(deployment)]
        return cls(scenario, deployments, lines, chips, stocks, prices, (*hints, *unpriced, *beyond), terms)

    def watts_per_gpu(self, site: str, chip: str) -> float:
        """What a GPU draws against the power of its site; 0 where nobody says."""
        return float(self.stocks[site, chip][1].power or self.chips[chip].tdp_w.value or 0.0)

    @property
    def day(self) -> Day:
        """The day of all deployments."""
        return day_of({name: d.mix.demand for name, d in self.deployments.items()})

    def with_deployments(self, deployments: Mapping[str, Deployment]) -> PlanContext:
        """The same rooms, chips and prices under other traffic; stages are shared, since no traffic is in them."""
        return replace(self, deployments=deployments, _rows={}, _passes={}, _queues={})

    def sharing(self, other: PlanContext) -> PlanContext:
        """This context with the traffic of ``other``, whose instances on the same chips it need not build again."""
        return replace(
            self,
            deployments=other.deployments,
            _instances=other._instances,
            _rows=other._rows,
            _tables=other._tables,
            _passes=other._passes,
            _queues=other._queues,
        )

    def settings(self, deployment: str, relay_threshold_s: float | None = None) -> Settings:
        """The scenario's policy of one deployment as Settings; where the policy says auto, ``relay_threshold_s`` and 8192-token chunks
        stand."""
        policy, singular = self.deployments[deployment].policy, self.deployments[deployment].singular
        threshold = {"auto": relay_threshold_s, "never": None}.get(str(policy.relay_threshold), policy.relay_threshold)
        assert not isinstance(threshold, str)
        return Settings(
            relay_threshold_s=threshold,
            handoff=policy.handoff,
            prefill_chunk_tokens=8192 if policy.prefill_chunk == "auto" else int(policy.prefill_chunk),
            tail_packing=policy.tail_packing,
            p_threshold_tokens=None if policy.p_routing.threshold == "auto" else float(policy.p_routing.threshold),
            md_cache_bytes=policy.md_cache.per_instance,
            singular_uncached_over=singular.uncached_over if singular else math.inf,
            singular_output_under=singular.output_under if singular else 0.0,
        )

    def instance(self, configuration: Configuration, settings: Settings | None = None) -> AggregatedStage:
        """Stage times of one instance: roofline, or the scenario's profile when ``configuration.profile`` is set.

        ``settings`` gives chunk and tail packing; None takes the deployment's policy.
        """
        settings = settings or self.settings(configuration.deployment)
        key = (configuration, settings.prefill_chunk_tokens, settings.tail_packing)
        if key not in self._stages:
            self._stages[key] = self._build(configuration, settings)
        return self._stages[key]

    def _build(self, configuration: Configuration, settings: Settings) -> AggregatedStage:
        deployment = self.deployments[configuration.deployment]
        index, stock = self.stocks[configuration.site, configuration.chip]
        if configuration.profile is not None:
            place = f"sites.{configuration.site}.chips[{index}].profiles[{configuration.profile}]"
            tokens = deployment.speculation.acceptance_length if deployment.speculation else 1.0
            return profiled_stage(stock.profiles[configuration.profile], place, deployment.kv, tokens)
        options = self.scenario.each_deployment()[configuration.deployment].engine_options
        speculation = deployment.speculation if configuration.role != "P" else None
        key = (
            configuration.deployment,
            configuration.chip,
            configuration.engine,
            configuration.parallel,
            settings.prefill_chunk_tokens,
            settings.tail_packing,
            speculation,
        )
        if key in self._instances:
            return self._instances[key]
        stage = roofline_instance(
            deployment.spec,
            self.chips[configuration.chip],
            configuration.engine,
            configuration.parallel,
            kv_format=deployment.kv_format,
            prefill_chunk_tokens=settings.prefill_chunk_tokens,
            tail_packing=settings.tail_packing,
            speculation=speculation,
            reserves=Reserves(options.memory_fraction, options.activation, options.cuda_graphs, options.framework),
        )
        if options.max_sequences is not None:
            stage = replace(stage, batch_max=min(stage.batch_max, float(options.max_sequences * configuration.parallel.dp)))
        self._instances[key] = stage
        return stage

    def prefill_rows(self, configuration: Configuration, settings: Settings | None = None) -> StageRows:
        """Prefill of every row of the configuration's deployment, computed once."""
        stage, mix = self.instance(configuration, settings), self.deployments[configuration.deployment].mix
        key = (id(stage), configuration.deployment)
        if key not in self._rows:
            uncached, cached = mix.uncached_tokens, mix.input_tokens - mix.uncached_tokens
            self._rows[key] = StageRows(stage.prefill_s(uncached, cached), stage.prefill_occupancy_s(uncached, cached))
        return self._rows[key]

    def decode_tables(self, configuration: Configuration, settings: Settings | None = None) -> DecodeTables:
        """Step tables of an instance, kept with it. Raises InputError for a profile that only prefills."""
        stage = self.instance(configuration, settings)
        key = id(stage)
        if key not in self._tables:
            if not hasattr(stage, "step_s"):
                place = f"sites.{configuration.site}.chips.{configuration.chip}.profiles[{configuration.profile}]"
                raise InputError(
                    Problem(
                        place,
                        f"no step_s, but role {configuration.role} decodes",
                        "step_s",
                        "step_s: {batch: [1, 20], seconds: [0.02, 0.025]}",
                    )
                )
            self._tables[key] = DecodeTables(stage)
        return self._tables[key]

    def passes(self, configuration: Configuration, settings: Settings | None = None) -> Passes:
        """How the instance's prefill passes last for the rows of its deployment, computed once."""
        settings = settings or self.settings(configuration.deployment)
        key = (configuration, settings.prefill_chunk_tokens, settings.tail_packing)
        if key not in self._passes:
            stage = self.instance(configuration, settings)
            mix, rows = self.deployments[configuration.deployment].mix, self.prefill_rows(configuration, settings)
            self._passes[key] = passes_of(
                stage,
                mix,
                rows.latency_s,
                rows.occupancy_s,
                float(settings.prefill_chunk_tokens),
                configuration.parallel.dp * configuration.parallel.pp,
                settings.tail_packing and not isinstance(stage, ProfiledStage),  # a profile was measured one request at a time
            )
        return self._passes[key]

    def prefill_queue(
        self,
        configuration: Configuration,
        settings: Settings,
        instances: int,
        rate_per_s: float,
        weight: FloatArray,
        arrival_scv: float,
        dispatch: Dispatch | None = None,
        beside_s: float = 0.0,
    ) -> QueueLaw:
        """What is added to a lone prefill in a pool (prefill_queue.queue_law), kept for the next plan that asks the same."""
        chosen = dispatch or self.deployments[configuration.deployment].policy.dispatch
        passes = self.passes(configuration, settings)
        key = (id(passes), instances, rate_per_s, arrival_scv, chosen, beside_s, weight.tobytes())
        if key not in self._queues:
            self._queues[key] = queue_law(passes, weight, rate_per_s, instances, arrival_scv, chosen, beside_s)
        return self._queues[key]

    def line_between(self, a: str, b: str) -> Line | None:
        """The scenario's link between two sites, None when there is none."""
        return next((line for line in self.lines.values() if set(line.between) == {a, b}), None)

    def fabric(self, site: str) -> Fabric:
        return self.scenario.sites[site].fabric

    def nic_bytes_per_s(self, configuration: Configuration) -> float:
        """Bytes/s that an instance moves over its room's RDMA fabric, all its NICs together."""
        fabric = self.fabric(configuration.site)
        per_gpu = fabric.per_gpu if fabric.per_gpu is not None else self.chips[configuration.chip].scaleout_bytes_per_s.value
        if per_gpu is None:
            place = f"sites.{configuration.site}.fabric.per_gpu"
            raise InputError(
                Problem(place, f"the NIC rate of {configuration.chip} is not known", "bytes/s of one GPU's NIC", "400 Gbps")
            )
        return per_gpu * fabric.usable * configuration.gpus_per_instance

    @property
    def rate_per_s(self) -> float:
        """Requests/s of all deployments together."""
        return sum(deployment.mix.rate_per_s for deployment in self.deployments.values())


def traffic_of(context: PlanContext) -> PlanContext:
    """The context itself. Raises InputError where nothing arrives: for studies that ask what serving a request takes."""
    if context.rate_per_s > 0.0:
        return context
    raise InputError(Problem("workload.rate", "no request arrives", "a rate over 0", "10 req/s"))


def _least_price(prices: TermPrices, day: Day) -> float:
    """What a GPU costs per hour at least, whatever else is bought: where deployments rise and fall apart, by use at the lowest price."""
    if day.together:
        return price_per_gpu(prices, next(iter(day.factors.values())), day.time_share)
    offered = [price for price in (prices.reserved, prices.on_demand, prices.spot) if price is not None]
    return min(offered) * min(float(factors @ day.time_share) for factors in day.factors.values())


def published_model(scenario: Scenario, name: str) -> ModelSpec:
    """The model that a scenario names, a shipped one or a file beside the scenario, with the weights it was published with."""
    local = scenario.resolve(name)
    return load_model(local if local.exists() else name)


def _deployment(scenario: Scenario, name: str) -> Deployment:
    given = scenario.each_deployment()[name]
    spec = with_weights(published_model(scenario, given.model.name), given.model.weights)
    kv = kv_cache(spec, given.model.kv_format)
    classes = given.workload.all_classes()
    return Deployment(
        name=name,
        spec=spec,
        kv=kv,
        kv_format=kv.format,
        mix=request_mix(given.workload, base_path=scenario.base),
        slas=tuple(entry.sla for entry in classes.values()),
        policy=given.policy,
        engine=overlay_beside(given.engine, scenario.base),
        speculation=_speculation(given.model),
    )


def _place(scenario: Scenario, deployment: str, place: str) -> str:
    """Path in the scenario of a problem with one deployment's model or workload."""
    inner = f"model.{place}" if place == "kv_format" else place
    return f"deployments.{deployment}.{inner}" if scenario.deployments and inner.startswith(("model.", "workload.")) else inner


def _beyond_positions(deployment: Deployment) -> Iterator[str]:
    """A warning for every class with requests longer than the model has positions for."""
    mix, positions = deployment.mix, deployment.spec.max_position_embeddings
    total = mix.input_tokens + mix.output_tokens
    for index, name in enumerate(mix.class_names):
        rows = (mix.class_index == index) & (mix.weight > 0.0)
        if positions and rows.any() and (longest := float(total[rows].max())) > positions:
            yield f"class {name}: requests of up to {longest:,.0f} tokens exceed the {positions:,} positions of {deployment.spec.name}"


def _speculation(model: Model) -> Speculation | None:
    if model.speculation == "none":
        return None
    accepted = model.speculation.acceptance_length
    if accepted is None:
        accepted = acceptance_length(model.speculation.measured or model.name, model.speculation.draft_tokens)
    return Speculation(model.speculation.draft_tokens, accepted)
