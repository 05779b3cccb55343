"""Chips, links, prices: what the machines and lines are, with the provenance of each number."""

from pddplan.hardware.catalog import list_chips, list_links, load_chip, load_link, load_prices
from pddplan.hardware.dtypes import compute_dtype
from pddplan.hardware.price_source import NamedPrice, chip_price, link_price
from pddplan.hardware.types import ApiPrice, Chip, Kind, LinkProfile, PriceBook, Sourced

__all__ = [
    "ApiPrice",
    "Chip",
    "Kind",
    "LinkProfile",
    "NamedPrice",
    "PriceBook",
    "Sourced",
    "chip_price",
    "compute_dtype",
    "link_price",
    "list_chips",
    "list_links",
    "load_chip",
    "load_link",
    "load_prices",
]
