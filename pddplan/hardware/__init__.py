"""Chips, links, prices: what the machines and lines are, with the provenance of each number."""

from pddplan.hardware.catalog import list_chips, load_chip
from pddplan.hardware.dtypes import compute_dtype
from pddplan.hardware.types import Chip, Kind, Sourced

__all__ = ["Chip", "Kind", "Sourced", "compute_dtype", "list_chips", "load_chip"]
