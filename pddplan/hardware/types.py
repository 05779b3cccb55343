"""Chips, links and engines as values; every number knows its kind, source and date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["datasheet", "measured", "secondary", "assumed"]


@dataclass(frozen=True)
class Sourced:
    """A number with its provenance. ``low``/``high`` hold a published range; then ``value`` may be None (no default)."""

    value: float | None
    kind: Kind
    source: str
    date: str = ""
    note: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Chip:
    """One accelerator.

    peak_flops: dense FLOP/s per dtype (bf16, fp8, int8, fp4). hbm_bytes: usable bytes. scaleup_bytes_per_s: per GPU per direction
    inside a domain of ``scaleup_domain`` GPUs; scaleout_bytes_per_s: NIC per GPU per direction. family: efficiency family whose
    measured constants apply (``hopper``, ``blackwell``, ``ampere`` ...), ``family_kind`` measured or assumed.
    prices: USD/h, USD or CNY by term (on_demand_usd_h, reserved_usd_h, purchase_usd ...), usually ranges.
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
    efficiency_of: str  # the measured chip whose kernel constants apply
    efficiency_kind: Kind
    prices: Mapping[str, Sourced] = field(default_factory=dict)
    contradictions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
