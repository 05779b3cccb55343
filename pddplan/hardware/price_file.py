"""The price book's YAML file (power, PUE, amortisation, API tokens ...), read into a PriceBook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pddplan.hardware.profile_file import Reader
from pddplan.hardware.types import ApiPrice, PriceBook

_GROUPS = (
    "power_usd_per_kwh",
    "pue",
    "facility_kw_per_gpu",
    "colocation_usd_per_kw_month",
    "amortisation_years",
    "cost_of_capital",
    "network_storage_share",
    "maintenance_share_per_year",
)
_TOKENS = ("hit_usd_per_million", "miss_usd_per_million", "output_usd_per_million", "write_usd_per_million")


def read_prices(path: Path) -> PriceBook:
    """Price book of the file ``path``. Raises InputError with every problem of the file."""
    reader = Reader(path)
    reader.only(("usd_cny", *_GROUPS, "api_tokens"))
    groups = {
        group: {name: reader.sourced((group, name), raw, valued=False) for name, raw in reader.mapping(group).items()} for group in _GROUPS
    }
    tokens = {model: _api_price(reader, model, raw) for model, raw in reader.mapping("api_tokens").items()}
    book = PriceBook(usd_cny=reader.number("usd_cny"), **groups, api_tokens=tokens, path=str(path))
    reader.finish()
    return book


def _api_price(reader: Reader, model: str, raw: Any) -> ApiPrice:
    place = ("api_tokens", model)
    entries = raw if isinstance(raw, dict) else {}
    reader.only(_TOKENS, entries, place)
    hit, miss, output = (reader.sourced((*place, key), entries.get(key), positive=False) for key in _TOKENS[:3])
    write = reader.sourced((*place, _TOKENS[3]), entries[_TOKENS[3]]) if _TOKENS[3] in entries else None
    return ApiPrice(model, hit, miss, output, write)
