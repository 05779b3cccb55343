"""Which number format a chip really computes in when a model asks for another."""

from __future__ import annotations

from pddplan.errors import InputError, Problem
from pddplan.hardware.types import Chip
from pddplan.units import TERA

# Native format first, then wider ones. int4 is weight-only (W4A16): its arithmetic is 16-bit by design.
_WIDENING: dict[str, tuple[str, ...]] = {
    "nvfp4": ("fp4", "fp8", "bf16", "fp16"),
    "mxfp4": ("fp4", "fp8", "bf16", "fp16"),
    "fp4": ("fp4", "fp8", "bf16", "fp16"),
    "fp8": ("fp8", "bf16", "fp16"),
    "fp8_block": ("fp8", "bf16", "fp16"),
    "int8": ("int8", "bf16", "fp16"),
    "int4": ("bf16", "fp16"),
    "bf16": ("bf16", "fp16"),
    "fp16": ("fp16", "bf16"),
}


def compute_dtype(chip: Chip, dtype: str) -> tuple[str, str | None]:
    """Key of ``chip.peak_flops`` that ``dtype`` runs at, and a warning when it is not the one asked for.

    A chip without the format uses the next wider one it has; a format that the chip runs slower than a wider one
    (int8 on B300) counts as missing. fp16 work runs in bf16 at the same rate, without a warning. Raises InputError for an
    unknown format or a chip that has none that fits.
    """
    if dtype not in _WIDENING:
        raise InputError(Problem("dtype", repr(dtype), "one of " + ", ".join(_WIDENING), "fp8"))
    chain = [key for key in _WIDENING[dtype] if key in chip.peak_flops]
    if not chain:
        have = f"it has {', '.join(chip.peak_flops)}"
        raise InputError(Problem(f"chip {chip.slug}", f"no peak for {dtype} or a wider format", have, "bf16"))
    peaks = {key: chip.peak_flops[key].value or 0.0 for key in chain}
    used = next(key for i, key in enumerate(chain) if all(peaks[key] >= peaks[wider] for wider in chain[i + 1 :]))
    native = _WIDENING[dtype][0]
    if used == native or (native, used) == ("fp16", "bf16"):
        return used, None
    reason = "has no" if native not in chip.peak_flops else "runs slowly in"
    rate = f"{used} rate ({peaks[used] / TERA:g} TFLOP/s dense)"
    return used, f"{chip.name} {reason} {native}: {dtype} work runs at its {rate}"
