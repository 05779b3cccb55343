"""Balance of a chip in its four dimensions: compute, memory size, memory bandwidth, interconnect."""

from __future__ import annotations

from collections.abc import Mapping

from pddplan.hardware.types import Chip


def ridge_flop_per_byte(chip: Chip) -> Mapping[str, float]:
    """Arithmetic intensity at which each dtype turns from memory-bound to compute-bound, FLOP per HBM byte.

    Roofline (Williams, Waterman, Patterson, CACM 2009): attainable = min(peak, intensity x bandwidth); ridge = peak / bandwidth.
    """
    bandwidth = chip.hbm_bytes_per_s.value or 0.0
    return {dtype: (peak.value or 0.0) / bandwidth for dtype, peak in chip.peak_flops.items()}


def attainable_flops(chip: Chip, dtype: str, flop_per_byte: float) -> float:
    """FLOP/s the roofline allows at an arithmetic intensity. Raises KeyError where the chip lacks the dtype."""
    return min(chip.peak_flops[dtype].value or 0.0, flop_per_byte * (chip.hbm_bytes_per_s.value or 0.0))


def relative_balance(chip: Chip, reference: Chip) -> Mapping[str, float]:
    """The four dimensions of ``chip`` (and its scale-out) relative to ``reference``: 1 is equal."""

    def ratio(one: float | None, other: float | None) -> float:
        return (one or 0.0) / (other or 1.0)

    return {
        "compute": ratio(chip.peak_flops[chip.half_dtype].value, reference.peak_flops[reference.half_dtype].value),
        "memory": ratio(chip.hbm_bytes.value, reference.hbm_bytes.value),
        "memory bandwidth": ratio(chip.hbm_bytes_per_s.value, reference.hbm_bytes_per_s.value),
        "scale-up": ratio(chip.scaleup_bytes_per_s.value, reference.scaleup_bytes_per_s.value),
        "scale-out": ratio(chip.scaleout_bytes_per_s.value, reference.scaleout_bytes_per_s.value),
    }
