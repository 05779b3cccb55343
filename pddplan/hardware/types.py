"""Chips, links and prices as values; every number knows its kind, source and date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["datasheet", "measured", "secondary", "assumed"]
KINDS: tuple[Kind, ...] = ("datasheet", "measured", "secondary", "assumed")


@dataclass(frozen=True)
class Sourced:
    """A number with its provenance.

    ``low``/``high`` hold a published range; then ``value`` may be None: there is no default.
    """

    value: float | None
    kind: Kind
    source: str
    date: str = ""
    note: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def known(self) -> bool:
        return self.value is not None or self.low is not None


@dataclass(frozen=True)
class Chip:
    """One accelerator.

    peak_flops: dense FLOP/s per dtype (bf16, fp16, fp8, int8, fp4; a dtype the chip lacks has no key).
    hbm_bytes: usable bytes. scaleup_bytes_per_s: per GPU per direction inside a domain of ``scaleup_domain`` GPUs;
    scaleout_bytes_per_s: NIC per GPU per direction. efficiency_of: the measured chip whose kernel constants apply;
    efficiency_kind: ``measured`` when it is this chip itself, ``assumed`` when inherited from the nearest one.
    prices: USD/h, USD or CNY by term (on_demand_usd_h, reserved_usd_h, purchase_usd ...), usually ranges.
    path: the file it was read from.
    """

    slug: str
    name: str
    vendor: str
    aliases: tuple[str, ...]
    peak_flops: Mapping[str, Sourced]
    hbm_bytes: Sourced
    hbm_bytes_per_s: Sourced
    scaleup_bytes_per_s: Sourced
    scaleup_domain: Sourced
    scaleout_bytes_per_s: Sourced
    tdp_w: Sourced
    gpus_per_node: int
    efficiency_of: str
    efficiency_kind: Kind
    prices: Mapping[str, Sourced] = field(default_factory=dict)
    contradictions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    status: str = "shipping"
    path: str = ""

    @property
    def half_dtype(self) -> str:
        """The 16-bit format of its matrices: bf16, or fp16 on chips older than it."""
        return "bf16" if "bf16" in self.peak_flops else "fp16"


@dataclass(frozen=True)
class LinkProfile:
    """A kind of line between rooms.

    price_usd_per_gbps_month: for capacity bought; price_usd_per_gb: for volume billed; either may be unknown (None).
    usable: share of the circuit that TCP payload can use. per_flow_bytes_per_s: what one connection reaches on an
    untuned host.
    """

    slug: str
    name: str
    aliases: tuple[str, ...]
    circuit_bytes_per_s: Sourced
    rtt_s: Sourced
    usable: Sourced
    per_flow_bytes_per_s: Sourced
    price_usd_per_gbps_month: Sourced
    price_usd_per_gb: Sourced
    notes: tuple[str, ...] = ()
    path: str = ""


@dataclass(frozen=True)
class ApiPrice:
    """What an API charges, USD per million tokens: cached input (hit), uncached input (miss), output, cache write."""

    model: str
    hit_usd_per_million: Sourced
    miss_usd_per_million: Sourced
    output_usd_per_million: Sourced
    write_usd_per_million: Sourced | None = None

    @property
    def hit_ratio(self) -> float | None:
        """Cached over uncached input price; None when either is unknown."""
        hit, miss = self.hit_usd_per_million.value, self.miss_usd_per_million.value
        return None if hit is None or not miss else hit / miss


@dataclass(frozen=True)
class PriceBook:
    """Prices that belong to no chip and no line: by name, each with its source and date."""

    usd_cny: Sourced
    power_usd_per_kwh: Mapping[str, Sourced]
    pue: Mapping[str, Sourced]
    facility_kw_per_gpu: Mapping[str, Sourced]
    colocation_usd_per_kw_month: Mapping[str, Sourced]
    amortisation_years: Mapping[str, Sourced]
    cost_of_capital: Mapping[str, Sourced]
    network_storage_share: Mapping[str, Sourced]
    maintenance_share_per_year: Mapping[str, Sourced]
    api_tokens: Mapping[str, ApiPrice]
    path: str = ""
