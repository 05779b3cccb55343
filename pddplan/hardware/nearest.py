"""The measured chip whose kernel constants a chip nobody measured borrows."""

from __future__ import annotations

from collections.abc import Collection
from math import hypot, log

# Chips with kernel measurements: narrow formats, dense bf16 FLOP/s, memory bytes/s (of the measured boards).
MEASURED_CHIPS: dict[str, tuple[frozenset[str], float, float]] = {
    "a100_sxm": (frozenset(), 312e12, 2.039e12),
    "l40s": (frozenset({"fp8"}), 362e12, 0.864e12),
    "h100_sxm": (frozenset({"fp8"}), 989e12, 3.35e12),
    "h200_sxm": (frozenset({"fp8"}), 989e12, 4.8e12),
    "b200_sxm": (frozenset({"fp8", "fp4"}), 2250e12, 7.7e12),
    "gb200": (frozenset({"fp8", "fp4"}), 2500e12, 8.0e12),
    "b300_sxm": (frozenset({"fp8", "fp4"}), 2250e12, 7.75e12),
    "gb300": (frozenset({"fp8", "fp4"}), 2500e12, 8.0e12),
    "rtx_pro_6000_server": (frozenset({"fp8", "fp4"}), 468e12, 1.597e12),
}


def nearest_measured(dtypes: Collection[str], bf16_flops: float, hbm_bytes_per_s: float) -> str:
    """Measured chip with the same narrow formats (fp8, fp4) that is nearest in log compute and log bandwidth."""
    narrow = frozenset(dtypes) & {"fp8", "fp4"}

    def distance(name: str) -> tuple[int, float]:
        have, flops, bandwidth = MEASURED_CHIPS[name]
        return len(have ^ narrow), hypot(log(flops / bf16_flops), log(bandwidth / hbm_bytes_per_s))

    return min(MEASURED_CHIPS, key=distance)
