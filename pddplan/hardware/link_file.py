"""One kind of line's YAML file, read into a LinkProfile."""

from __future__ import annotations

from pathlib import Path

from pddplan.hardware.profile_file import Reader
from pddplan.hardware.types import LinkProfile
from pddplan.units import GBPS_BYTES_PER_S

KEYS = (
    "name",
    "aliases",
    "circuit_gbit_per_s",
    "rtt_ms",
    "usable",
    "per_flow_gbit_per_s",
    "price_usd_per_gbps_month",
    "price_usd_per_gb",
    "notes",
)


def read_link(path: Path) -> LinkProfile:
    """Line of the file ``path``; its slug is the file's stem. Raises InputError with every problem of the file."""
    reader = Reader(path)
    reader.only(KEYS)
    link = LinkProfile(
        slug=path.stem,
        name=reader.text("name"),
        aliases=reader.texts("aliases"),
        circuit_bytes_per_s=reader.number("circuit_gbit_per_s", GBPS_BYTES_PER_S),
        rtt_s=reader.number("rtt_ms", 1e-3, required=False),
        usable=reader.number("usable", required=False),
        per_flow_bytes_per_s=reader.number("per_flow_gbit_per_s", GBPS_BYTES_PER_S, required=False),
        price_usd_per_gbps_month=reader.number("price_usd_per_gbps_month", required=False, positive=False),
        price_usd_per_gb=reader.number("price_usd_per_gb", required=False, positive=False),
        notes=reader.texts("notes"),
        path=str(path),
    )
    if link.usable.value is not None and link.usable.value > 1:
        reader.problem(("usable",), f"{link.usable.value:g}", "a share of the line, at most 1", "0.9")
    reader.finish()
    return link
