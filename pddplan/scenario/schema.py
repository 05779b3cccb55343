"""A scenario: model, sites, links, workload, policy, search and objective, as immutable values in base units.

Field names are the keys of the YAML file (so that every value has a path for ``--set``); values are in base units:
seconds, bytes, bytes/s, requests/s, tokens, watts, fractions of 1, currency per hour (see quantities.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BeforeValidator, PrivateAttr, StringConstraints, model_validator

from pddplan.scenario.base import Section, teach
from pddplan.scenario.document import Document
from pddplan.scenario.instances import ProfiledInstance, Role
from pddplan.scenario.quantities import (
    Bytes,
    BytesPerSecond,
    Fraction,
    Money,
    PricePerGb,
    PricePerGbMonth,
    PricePerGbpsMonth,
    PricePerHour,
    PricePerKwh,
    PricePerKwMonth,
    PricePerMillionTokens,
    Seconds,
    SecondsOrNumber,
    Tokens,
    Watts,
    Years,
)
from pddplan.scenario.workload import Workload

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Count = Annotated[int, Ge(0), Le(1_000_000_000)]
Positive = Annotated[int, Gt(0), Le(1_000_000_000)]
PositiveTokens = Annotated[Tokens, Gt(0)]
ParallelSizes = Literal["auto"] | Annotated[tuple[Positive, ...], MinLen(1)]
Goal = Literal["max-bcr", "min-cost", "max-goodput"]
Dispatch = Literal["central", "shortest_queue", "round_robin", "cache_affinity"]


class Speculation(Section):
    """Speculative decoding. acceptance_length: mean tokens accepted per step (measured), or ``measured``: a shipped acceptance table."""

    draft_tokens: Positive
    acceptance_length: Annotated[float, Ge(1)] | None = None
    measured: Name | None = None

    @model_validator(mode="after")
    def _needs_acceptance(self) -> Speculation:
        if self.acceptance_length is None and self.measured is None:
            raise teach(
                "speculation is on without an acceptance length",
                "give the measured mean number of tokens accepted per step",
                "{draft_tokens: 1, acceptance_length: 1.8}",
            )
        if self.acceptance_length is not None and self.acceptance_length > self.draft_tokens + 1:
            raise teach(
                f"acceptance_length {self.acceptance_length:g} is more than draft_tokens + 1 = {self.draft_tokens + 1}",
                "a step yields at most one token per draft token and one more",
                f"{{draft_tokens: {self.draft_tokens}, acceptance_length: {1 + 0.8 * self.draft_tokens:g}}}",
            )
        return self


class Model(Section):
    """The model served. name: a shipped model, or a path to a config.json. weights: ``checkpoint`` as published, or a dtype.

    kv_format: one the model allows (None: its native one). context_max: longest request that must fit.
    """

    name: Name
    weights: Name = "checkpoint"
    kv_format: Name | None = None
    speculation: Literal["none"] | Speculation = "none"
    context_max: PositiveTokens | None = None
    redundant_experts: Count = 0


class EngineOptions(Section):
    """What overrides the engine's preset: memory fraction, reserves per GPU, and batch limits."""

    memory_fraction: Annotated[Fraction, Gt(0)] | None = None
    activation: Bytes | None = None
    cuda_graphs: Bytes | None = None
    framework: Bytes | None = None
    max_sequences: Positive | None = None
    page_tokens: Positive | None = None


class TermPrices(Section):
    """Prices of one chip per hour by term, in place of ``price``: the plan's cost is that of the cheapest mix over the day.

    Reserved GPUs (at most ``reserved_max``) are paid all day, the others by use; spot is at most ``spot_share_max`` of those in use.
    """

    reserved: PricePerHour | None = None
    on_demand: PricePerHour | None = None
    spot: PricePerHour | None = None
    reserved_max: Count | None = None
    spot_share_max: Fraction = 1.0


class ChipStock(Section):
    """Chips of one kind at a site.

    chip: slug or alias. stock: how many there are (None: as many as wanted). price: per chip and hour. price_source: names a price of
    the chip's profile to use instead (``on_demand_usd_h.low``). roles: allowed roles (None: all). profiles: measured instances that
    replace the roofline. node_gpus: GPUs per node if other than the profile's. instances_max / instances_min: per role.
    """

    chip: Name
    stock: Positive | None = None
    price: PricePerHour | None = None
    price_source: Name | None = None
    prices: TermPrices | None = None
    purchase: Money | None = None
    roles: Annotated[tuple[Role, ...], MinLen(1)] | None = None
    forbidden_roles: tuple[Role, ...] = ()
    profiles: tuple[ProfiledInstance, ...] = ()
    engine: Name | None = None
    node_gpus: Positive | None = None
    power: Watts | None = None
    host_price: Money | None = None
    instances_max: Mapping[Role, Positive] = {}
    instances_min: Mapping[Role, Positive] = {}

    def allows(self, role: Role) -> bool:
        return role not in self.forbidden_roles and (self.roles is None or role in self.roles)


class CacheTier(Section):
    """A KV tier behind HBM. capacity per GPU; bandwidth per GPU; price per GB-month."""

    capacity: Bytes
    bandwidth: BytesPerSecond
    latency: Seconds = 0.0
    overlap: Fraction = 0.0
    shared: bool = False
    price: PricePerGbMonth | None = None


class Fabric(Section):
    """RDMA network inside a site. per_gpu: bytes/s of one GPU's NIC (None: the chip's); usable: share of it that transfers reach."""

    per_gpu: BytesPerSecond | None = None
    latency: Seconds = 10e-6
    usable: Annotated[Fraction, Gt(0)] = 0.8


class Site(Section):
    """A machine room. power: its limit. gpus_max: over all chips. whole_nodes: instances take whole nodes. cache: KV tiers by name."""

    chips: Annotated[tuple[ChipStock, ...], MinLen(1)]
    power: Watts | None = None
    gpus_max: Positive | None = None
    whole_nodes: bool = False
    fabric: Fabric = Fabric()
    cache: Mapping[Name, CacheTier] = {}
    electricity: PricePerKwh | None = None
    pue: Annotated[float, Ge(1)] | None = None


class CircuitSize(Section):
    """Another circuit size the link can be bought in."""

    circuit: BytesPerSecond
    price: PricePerGbpsMonth | None = None
    circuit_price: PricePerHour | None = None


class Link(Section):
    """A line between two sites, bought in circuits.

    usable: share of the line that transfers can fill. target_utilisation: load at which ``line_gbps_needed`` is stated. per_flow: cap
    of one
    transfer (with ``window`` / rtt and ``loss`` the lower wins), ``per_flow_sigma``: log-normal spread of it. connections: transfers
    at once.
    price per Gbps and month, or circuit_price per circuit; egress per GB moved.
    """

    between: tuple[Name, Name]
    circuit: BytesPerSecond
    max_circuits: Positive = 1
    min_circuits: Count = 0
    other_sizes: tuple[CircuitSize, ...] = ()
    rtt: Seconds
    per_flow: BytesPerSecond | None = None
    per_flow_sigma: Annotated[float, Ge(0)] = 0.0
    window: Annotated[Bytes, Gt(0)] | None = None
    loss: Annotated[Fraction, Lt(1)] | None = None
    segment: Annotated[Bytes, Gt(0)] = 8948.0
    streams: Positive = 1
    connections: Positive | None = None
    usable: Annotated[Fraction, Gt(0)] = 0.9
    target_utilisation: Annotated[Fraction, Gt(0)] = 0.8
    price: PricePerGbpsMonth | None = None
    circuit_price: PricePerHour | None = None
    egress: PricePerGb | None = None

    @model_validator(mode="after")
    def _coherent(self) -> Link:
        if self.between[0] == self.between[1]:
            raise teach(f"both ends are {self.between[0]!r}", "a link joins two different sites", "[A, B]")
        if self.min_circuits > self.max_circuits:
            raise teach(f"min_circuits {self.min_circuits} is over max_circuits {self.max_circuits}", "write at most max_circuits")
        if self.price is not None and self.circuit_price is not None:
            raise teach("both price and circuit_price are given", "write one of them")
        return self


class Singular(Section):
    """Requests finished where they started. transfer: the long transfer is stopped when the answer ends; oracle: it never starts."""

    uncached_over: Tokens = 32768.0
    output_under: Tokens = 500.0
    mode: Literal["transfer", "oracle"] = "transfer"


class PRouting(Section):
    """Which of several P pools takes a request: those with more uncached tokens than ``threshold`` go to the first P site named in
    ``long``.
    """

    by: Literal["uncached_tokens"] = "uncached_tokens"
    threshold: Literal["auto"] | Tokens = "auto"
    long: Name | None = None


class MdCache(Section):
    """Split of MD's memory between running requests and the history kept for later turns: a share of it, or bytes per instance."""

    share: Literal["auto"] | Fraction = "auto"
    per_instance: Bytes | None = None
    tier: Name | None = None


class Policy(Section):
    """How requests are run.

    relay_threshold: predicted transfer seconds above which a request goes through RLD; ``never`` sends all P-MD. handoff_below: RLD
    utilisation under which ``auto`` uses catch-up. catch_up_threshold: tokens left at which catch-up ends. overlap: transfer beside
    prefill.
    rld: own instances, or sharing P's (colocated). relayed_end: where relayed requests end (``rld`` is the unstable P-RLD pipeline,
    for study).
    dispatch: how a pool spreads requests. fixed_ttft: seconds added to every TTFT (tokeniser, gateway), a stated input.
    """

    prefill_chunk: Literal["auto"] | PositiveTokens = 8192.0
    tail_packing: Annotated[bool, BeforeValidator(lambda value: False if value == "none" else value)] = True
    relay_threshold: Literal["auto", "never"] | SecondsOrNumber = "auto"
    handoff: Literal["one-shot", "catch-up", "auto", "ship-kv"] = "auto"
    handoff_below: Fraction = 0.7
    catch_up_threshold: PositiveTokens = 64.0
    singular: Literal["none"] | Singular = Singular()
    p_routing: PRouting = PRouting()
    queueing: Literal["full", "none"] = "full"
    dispatch: Dispatch = "cache_affinity"
    decode_dispatch: Dispatch = "shortest_queue"
    overlap: Literal["none", "layer", "chunk"] = "none"
    rld: Literal["separate", "colocated"] = "separate"
    relayed_end: Literal["md", "rld"] = "md"
    md_cache: MdCache = MdCache()
    fixed_ttft: Seconds = 0.0
    utilisation_max: Annotated[Fraction, Gt(0)] = 0.95


class Search(Section):
    """What the optimiser may choose from, and how long. redundancy: k spare instances per role (N+k). gap: relative, proven.
    routes_per_deployment: complete ways to serve (aggregated, or P and MD in some rooms) that may divide a deployment's traffic.
    """

    tp: ParallelSizes = "auto"
    pp: ParallelSizes = (1,)
    dp: ParallelSizes = "auto"
    ep: ParallelSizes = "auto"
    configurations_per_role: Positive = 1
    routes_per_deployment: Positive = 3
    redundancy: Count | Mapping[Role, Count] = 0
    gap: Fraction = 0.001
    time_limit: Annotated[Seconds, Gt(0)] = 60.0
    aggregated: bool = True
    replicas_max: Positive | None = None

    def spare(self, role: Role) -> int:
        """Spare instances asked of a role."""
        return self.redundancy if isinstance(self.redundancy, int) else self.redundancy.get(role, 0)


class PoolCount(Section):
    """A pool of a fixed plan or an existing fleet. profile: index into ``profiles`` of the chip when a profiled instance is meant."""

    site: Name
    role: Role
    chip: Name
    instances: Count
    tp: Positive = 1
    pp: Positive = 1
    dp: Positive = 1
    ep: Positive | None = None
    profile: Count | None = None
    deployment: Name | None = None


class WayCount(Section):
    """A part of a deployment's traffic on pools of a fixed plan (counted from 0, as written), with its share of each class: one for all, or
    by name."""

    pools: Annotated[tuple[Count, ...], MinLen(1)]
    share: Fraction | Mapping[Name, Fraction]


class FixedPlan(Section):
    """Counts for ``evaluate``: pools (none where nothing arrives), and circuits per link. Settings that the plan fixes stand in
    ``policy``. ways: how traffic is divided among the pools; in proportion to what they carry where nothing is said."""

    pools: tuple[PoolCount, ...]
    links: Mapping[Name, Count] = {}
    ways: tuple[WayCount, ...] = ()


class Fleet(Section):
    """What already stands: may be kept or extended. change_max: GPUs that may be added or taken away. sunk: existing GPUs cost
    nothing more.
    """

    pools: Annotated[tuple[PoolCount, ...], MinLen(1)]
    links: Mapping[Name, Count] = {}
    keep: bool = True
    change_max: Count | None = None
    sunk: bool = False


class TokenPrices(Section):
    """What a provider bills per million tokens."""

    input: PricePerMillionTokens
    cached: PricePerMillionTokens | None = None
    output: PricePerMillionTokens


class Cost(Section):
    """Beyond rent: purchase amortised over ``amortisation`` at ``cost_of_capital`` to ``residual``; power x PUE x electricity;
    colocation.
    """

    basis: Literal["rent", "purchase"] = "rent"
    amortisation: Years = 4.0
    cost_of_capital: Fraction = 0.10
    residual: Fraction = 0.0
    electricity: PricePerKwh | None = None
    pue: Annotated[float, Ge(1)] = 1.25
    power_utilisation: Fraction = 0.8
    colocation: PricePerKwMonth | None = None
    host: Money | None = None
    nic: Money | None = None
    attribution: Literal["role", "tokens"] = "role"


class Deployment(Section):
    """One model with its own traffic; several share the stock of the sites."""

    model: Model
    workload: Workload
    engine: Name = "generic"
    engine_options: EngineOptions = EngineOptions()
    policy: Policy = Policy()


class Scenario(Section):
    """Everything a plan is made from. Either ``model`` and ``workload`` at the top (one deployment, named ``main``), or ``deployments``."""

    name: Name = "scenario"
    description: str = ""
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = "USD"
    model: Model | None = None
    engine: Name = "generic"
    engine_options: EngineOptions = EngineOptions()
    workload: Workload | None = None
    policy: Policy = Policy()
    deployments: Mapping[Name, Deployment] = {}
    sites: Annotated[Mapping[Name, Site], MinLen(1)]
    links: Mapping[Name, Link] = {}
    search: Search = Search()
    objective: Goal = "max-bcr"
    budget: PricePerHour | None = None
    served_share_min: Annotated[Fraction, Gt(0)] = 1.0
    plan: FixedPlan | None = None
    fleet: Fleet | None = None
    cost: Cost = Cost()
    token_prices: TokenPrices | None = None
    variants: Mapping[Name, Mapping[str, Any]] = {}

    _base: Path = PrivateAttr(default_factory=Path)
    _origin: Document = PrivateAttr(default_factory=lambda: Document({}, {}, "scenario"))

    @model_validator(mode="before")
    @classmethod
    def _objective_mapping(cls, value: Any) -> Any:
        """``objective: {goal: max-bcr, budget: ...}`` says the same as the three keys at the top."""
        if isinstance(value, dict) and isinstance(value.get("objective"), dict):
            inner = dict(value["objective"])
            goal = inner.pop("goal", "max-bcr")
            return {**value, **inner, "objective": goal}
        return value

    @model_validator(mode="after")
    def _one_form(self) -> Scenario:
        if self.deployments and (self.model is not None or self.workload is not None):
            raise teach(
                "both deployments and a top-level model or workload are given", "write one model at the top, or all under deployments"
            )
        if not self.deployments:
            missing = [key for key in ("model", "workload") if getattr(self, key) is None]
            if missing:
                raise teach(
                    f"{' and '.join(missing)} missing",
                    "a scenario needs a model and a workload (or deployments)",
                    "model: {name: Qwen/Qwen3-32B}",
                )
        return self

    def each_deployment(self) -> Mapping[str, Deployment]:
        """Deployments by name; the top-level form is the one deployment ``main``."""
        if self.deployments:
            return self.deployments
        assert self.model is not None
        assert self.workload is not None
        return {
            "main": Deployment.model_construct(
                model=self.model, workload=self.workload, engine=self.engine, engine_options=self.engine_options, policy=self.policy
            )
        }

    def chips(self) -> Iterator[tuple[str, int, ChipStock]]:
        """(site, index in its list, stock) of every chip entry, in file order."""
        for site, entry in self.sites.items():
            for index, stock in enumerate(entry.chips):
                yield site, index, stock

    def link_between(self, one: str, other: str) -> tuple[str, Link] | None:
        """Name and link that joins two sites, in either direction."""
        return next(((name, link) for name, link in self.links.items() if set(link.between) == {one, other}), None)

    def resolve(self, path: str) -> Path:
        """A file named in the scenario, relative to the scenario's own folder."""
        return self._base / Path(path).expanduser()

    @property
    def base(self) -> Path:
        """Folder that relative paths of the scenario start from."""
        return self._base

    @property
    def origin(self) -> Document:
        """The file the scenario was read from, with its lines."""
        return self._origin

    def place(self, *path: str | int) -> str:
        """``file:line path`` for an error message about the value at ``path``."""
        return self._origin.place(path)

    def document(self) -> dict[str, Any]:
        """The scenario as plain data that ``load_scenario`` reads back to an equal one; defaults left out."""
        return self.model_dump(mode="json", exclude_defaults=True, context={"currency": self.currency})

    @property
    def digest(self) -> str:
        """Sixteen hex digits that stay the same however the same values are written."""
        text = json.dumps(self.document(), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
