"""One chip's YAML file, read into a Chip."""

from __future__ import annotations

from pathlib import Path

from pddplan.hardware.nearest import MEASURED_CHIPS, nearest_measured
from pddplan.hardware.profile_file import Reader
from pddplan.hardware.types import Chip, Kind
from pddplan.units import GB, GBPS_BYTES_PER_S, TERA

DTYPES = ("bf16", "fp16", "fp8", "int8", "fp4")
KEYS = (
    "name",
    "vendor",
    "status",
    "aliases",
    "peak_tflops",
    "hbm_bytes",
    "hbm_gbyte_per_s",
    "scaleup_gbyte_per_s_per_dir",
    "scaleup_domain",
    "scaleout_gbit_per_s",
    "tdp_w",
    "gpus_per_node",
    "efficiency_of",
    "prices",
    "contradictions",
    "notes",
)


def read_chip(path: Path) -> Chip:
    """Chip of the file ``path``; its slug is the file's stem. Raises InputError with every problem of the file.

    Peaks are dense TFLOP/s. ``efficiency_of`` is optional: the nearest measured chip is taken, and marked assumed.
    """
    reader = Reader(path)
    reader.only(KEYS)
    peaks_raw = reader.mapping("peak_tflops")
    reader.only(DTYPES, peaks_raw, ("peak_tflops",))
    peaks = {key: reader.sourced(("peak_tflops", key), raw, TERA) for key, raw in peaks_raw.items() if key in DTYPES}
    half = peaks.get("bf16") or peaks.get("fp16")
    if half is None:
        reader.problem(("peak_tflops", "bf16"), "missing", "the dense bf16 (or fp16) peak in TFLOP/s", "989")
    hbm_bytes = reader.number("hbm_bytes")
    hbm_bytes_per_s = reader.number("hbm_gbyte_per_s", GB)
    slug = path.stem
    own = name_key(slug)
    efficiency_of = reader.content.get("efficiency_of")
    if efficiency_of is not None and efficiency_of not in MEASURED_CHIPS:
        reader.problem(("efficiency_of",), repr(efficiency_of), "one of " + ", ".join(MEASURED_CHIPS), "h100_sxm")
    scaleup = reader.number("scaleup_gbyte_per_s_per_dir", GB)
    domain = reader.number("scaleup_domain")
    if domain.value is not None and domain.value != int(domain.value):
        reader.problem(("scaleup_domain",), repr(domain.value), "a whole number of GPUs", "8")
    scaleout = reader.number("scaleout_gbit_per_s", GBPS_BYTES_PER_S)
    tdp = reader.number("tdp_w", required=False)
    prices = {key: reader.sourced(("prices", key), raw, valued=False) for key, raw in reader.mapping("prices").items()}
    for key in prices:
        if not key.endswith(("_usd_h", "_cny_h", "_usd", "_cny")):
            reader.problem(
                ("prices", key),
                "no unit in the name",
                "a name ending in _usd_h, _cny_h, _usd or _cny",
                "on_demand_usd_h",
            )
    name, vendor = reader.text("name"), reader.text("vendor", "unknown")
    status, gpus_per_node = reader.text("status", "shipping"), reader.count("gpus_per_node", 8)
    aliases, contradictions, notes = (reader.texts(key) for key in ("aliases", "contradictions", "notes"))
    reader.finish()
    if efficiency_of is None:
        efficiency_of = nearest_measured(peaks, (half.value if half else None) or 0.0, hbm_bytes_per_s.value or 0.0)
    is_itself = name_key(efficiency_of) in {own, *(name_key(alias) for alias in aliases)}
    kind: Kind = "measured" if is_itself else "assumed"
    return Chip(
        slug=slug,
        name=name,
        vendor=vendor,
        aliases=aliases,
        peak_flops=peaks,
        hbm_bytes=hbm_bytes,
        hbm_bytes_per_s=hbm_bytes_per_s,
        scaleup_bytes_per_s=scaleup,
        scaleup_domain=domain,
        scaleout_bytes_per_s=scaleout,
        tdp_w=tdp,
        gpus_per_node=gpus_per_node,
        efficiency_of=efficiency_of,
        efficiency_kind=kind,
        prices=prices,
        contradictions=contradictions,
        notes=notes,
        status=status,
        path=str(path),
    )


def name_key(name: str) -> str:
    """Name without case, spaces and punctuation: ``H100 SXM``, ``h100_sxm`` and ``h100-sxm`` are one chip."""
    return "".join(letter for letter in name.lower() if letter.isalnum())
