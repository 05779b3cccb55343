"""Turn one table of chips (YAML: meta, sources, chips) into hardware_profiles/chips/*.yaml, one file per chip.

Usage: python tools/convert_chip_table.py TABLE.yaml [OUTPUT_FOLDER]

Chips that the table does not have are files of their own in the same folder, kept by hand; this leaves them alone.

Rules: every number keeps its kind and source; source keys are written out; a range stays a range; what sources
contradict is kept as a note. Corrections below are stated with their source.
"""

from __future__ import annotations

import calendar
import re
import sys
from pathlib import Path
from typing import Any

import yaml

# name in the table -> slug, further aliases, GPUs per node, measured chip of the same architecture (None: by rule)
CHIPS: dict[str, tuple[str, list[str], int, str | None]] = {
    "A100-40 SXM": ("a100-40-sxm", ["A100 40GB", "A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"], 8, "a100_sxm"),
    "A100-80 SXM": (
        "a100-80-sxm",
        ["A100", "a100_sxm", "A100 SXM", "A100 80GB", "A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"],
        8,
        "a100_sxm",
    ),
    "A30": ("a30", ["NVIDIA A30"], 8, "a100_sxm"),
    "L4": ("l4", ["NVIDIA L4"], 8, "l40s"),
    "L40S": ("l40s", ["NVIDIA L40S"], 8, "l40s"),
    "RTX PRO 6000 Blackwell Server": (
        "rtx-pro-6000-server",
        ["RTX PRO 6000", "RTX PRO 6000 Server", "RTX PRO 6000 Blackwell", "rtx_pro_6000_server"],
        8,
        "rtx_pro_6000_server",
    ),
    "H100 SXM": ("h100-sxm", ["H100", "H100 80GB", "H100 SXM5", "NVIDIA H100 80GB HBM3"], 8, "h100_sxm"),
    "H100 PCIe": ("h100-pcie", ["NVIDIA H100 PCIe"], 8, "h100_sxm"),
    "H200 SXM": ("h200-sxm", ["H200", "H200 SXM5", "NVIDIA H200"], 8, "h200_sxm"),
    "H20-96": ("h20-96", ["H20", "H20 96GB", "NVIDIA H20"], 8, "h200_sxm"),
    "H20-141": ("h20-141", ["H20 141GB", "H20-3e"], 8, "h200_sxm"),
    "H800": ("h800-sxm", ["H800", "NVIDIA H800"], 8, "h100_sxm"),
    "B200 (HGX)": ("b200", ["b200_sxm", "HGX B200", "NVIDIA B200"], 8, "b200_sxm"),
    "B300 (HGX)": ("b300", ["b300_sxm", "HGX B300", "NVIDIA B300"], 8, "b300_sxm"),
    "GB200 NVL72": ("gb200", ["gb200_sxm", "NVIDIA GB200"], 4, "gb200"),
    "GB300 NVL72": ("gb300", ["gb300_sxm", "NVIDIA GB300"], 4, "gb300"),
    "Vera Rubin NVL72 (VR200)": ("vr200", ["VR200", "Vera Rubin", "Rubin", "VR200 NVL72"], 4, None),
    "Rubin CPX": ("rubin-cpx", [], 8, None),
    "MI300X": ("mi300x", ["AMD Instinct MI300X"], 8, None),
    "MI325X": ("mi325x", ["AMD Instinct MI325X"], 8, None),
    "MI355X": ("mi355x", ["AMD Instinct MI355X"], 8, None),
    "Gaudi 3": ("gaudi3", ["Intel Gaudi 3"], 8, None),
    "TPU v5e": ("tpu-v5e", ["v5e"], 8, None),
    "TPU v5p": ("tpu-v5p", ["v5p"], 4, None),
    "TPU v6e": ("tpu-v6e", ["Trillium", "v6e"], 8, None),
    "TPU v7 (Ironwood)": ("tpu-v7", ["Ironwood", "TPU7x", "TPU v7x"], 4, None),
    "Trainium2": ("trainium2", ["trn2"], 16, None),
    "Trainium3": ("trainium3", ["trn3"], 16, None),
    "Ascend 910B (376T bin, ~910B2)": ("ascend-910b2", ["910B2"], 8, None),
    "Ascend 910B (313T bin, ~910B3)": ("ascend-910b", ["910B", "910B3", "Ascend 910B3", "昇腾910B"], 8, None),
    "Ascend 910B (280T bin, ~910B4)": ("ascend-910b4", ["910B4"], 8, None),
    "Ascend 910B (280T 32G PCIe, ~910B4-1/Atlas 300I A2)": ("ascend-910b4-pcie", ["910B4-1", "Atlas 300I A2"], 8, None),
    "Ascend 910C (752T package = 2 dies)": ("ascend-910c", ["910C", "CloudMatrix384", "昇腾910C"], 8, None),
    "Ascend 950PR": ("ascend-950pr", ["950PR", "昇腾950PR"], 8, None),
    "Ascend 950DT": ("ascend-950dt", ["950DT", "昇腾950DT"], 8, None),
    "Cambricon MLU590": ("mlu590", ["MLU590", "寒武纪MLU590"], 8, None),
    "Cambricon MLU690": ("mlu690", ["MLU690", "寒武纪MLU690"], 8, None),
    "Hygon DCU K100-AI": ("hygon-k100-ai", ["K100-AI", "DCU K100"], 8, None),
    "Hygon BW1000": ("hygon-bw1000", ["BW1000"], 8, None),
    "MetaX C500": ("metax-c500", ["C500", "沐曦C500"], 8, None),
    "MetaX C550": ("metax-c550", ["C550", "沐曦C550"], 8, None),
    "MetaX C600": ("metax-c600", ["C600", "沐曦C600"], 8, None),
    "Moore Threads S4000": ("mtt-s4000", ["S4000", "摩尔线程S4000"], 8, None),
    "Moore Threads S5000": ("mtt-s5000", ["S5000", "摩尔线程S5000"], 8, None),
    "Enflame S60": ("enflame-s60", ["S60", "燧原S60"], 8, None),
    "Biren BR106": ("biren-br106", ["BR106", "壁仞BR106"], 8, None),
    "Biren BR166": ("biren-br166", ["BR166", "壁仞BR166"], 8, None),
    "Iluvatar BI-V150": ("iluvatar-bi-v150", ["BI-V150", "天数智芯BI-V150"], 8, None),
    "Kunlunxin P800": ("kunlunxin-p800", ["P800", "昆仑芯P800"], 8, None),
    "T-Head PPU (Zhenwu 810E)": ("t-head-ppu", ["PPU", "Zhenwu 810E", "真武810E"], 8, None),
}

_PCIE_SHEET = "NVIDIA H100 PCIe datasheet: 1,513 TFLOPS bf16 and 3,026 fp8 with sparsity, halved (dense)"
CORRECTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "h100-pcie": {
        "bf16": {"value": 756.5, "kind": "datasheet", "source": _PCIE_SHEET},
        "fp8": {"value": 1513.0, "kind": "datasheet", "source": _PCIE_SHEET},
    },
    "h100-sxm": {
        "hbm_bytes": {
            "value": 81559 * 2**20,
            "kind": "measured",
            "source": "nvidia-smi prints 81,559 MiB (modal-labs/modal-client pull request 2797)",
        },
    },
}
CORRECTIONS["ascend-910b4-pcie"] = {
    "hbm_bytes": {
        "value": 32384053411,
        "kind": "assumed",
        "source": "half of the 64 GiB part, on which FlagOpen/FlagPerf measured 60.32 of 64 GiB free",
    },
}
_HOST = {
    "value": 8,
    "kind": "assumed",
    "source": "cards of one host reach each other over PCIe: tensor parallelism stays inside the host",
}
for _slug in ("l4", "l40s", "rtx-pro-6000-server", "rubin-cpx", "h100-pcie", "a30"):
    CORRECTIONS.setdefault(_slug, {})["scaleup_domain"] = _HOST
CORRECTIONS["a30"]["scaleup_gbyte_per_s_per_dir"] = {
    "value": 32,
    "kind": "secondary",
    "source": "PCIe 4.0 x16",
    "note": "NVLink bridges join pairs only, at 100 GB/s per direction",
}
CONTRADICTIONS = {"h100-pcie": ["bf16 756 in aiconfigurator, 756.5 by the datasheet"]}

DTYPES = ("bf16", "fp16", "fp8", "int8", "fp4")
_KINDS = {"datasheet": "datasheet", "secondary": "secondary", "estimate": "assumed"}
_MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}
_KEEP_AS_WORDS = {"fit", "flag", "packet", "derived", "rubin", "mem", "evo"}


def expand(source: str, sources: dict[str, str]) -> str:
    """Source with its keys written out."""
    if source in sources:
        return sources[source]
    if source.strip() in ("-", ""):
        return "not published"
    used = [
        key
        for key in sources
        if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.])", source)
        and (key not in _KEEP_AS_WORDS or source.startswith(key))
    ]
    return source + "".join(f"; {key} = {sources[key]}" for key in used)


def date_in(text: str, default: str) -> str:
    """First date of ``text`` (2026-04-03, May 2026, 2026-06), else ``default``."""
    if full := re.search(r"20\d\d-\d\d(-\d\d)?(?!\d)", text):
        return full.group()
    if month := re.search(rf"({'|'.join(_MONTHS)})[a-z]* (20\d\d)", text):
        return f"{month.group(2)}-{_MONTHS[month.group(1)]:02d}"
    return default


class Table:
    def __init__(self, path: Path) -> None:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        self.chips, self.sources, self.as_of = content["chips"], content["sources"], content["meta"]["as_of"]

    def sourced(self, entry: dict[str, Any], value: Any = None) -> dict[str, Any]:
        """Profile form of one table entry; lists become ranges."""
        value = entry["v"] if value is None else value
        source = expand(str(entry["src"]), self.sources)
        kind = "measured" if str(entry["src"]).startswith("flag measured") else _KINDS[entry["conf"]]
        out: dict[str, Any] = {"low": value[0], "high": value[1]} if isinstance(value, list) else {"value": value}
        out |= {"kind": kind, "source": source, "date": date_in(source, self.as_of)}
        return out | ({"note": entry["note"]} if "note" in entry else {})

    def profile(self, chip: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        slug, aliases, per_node, relative = CHIPS[chip["name"]]
        fixed = CORRECTIONS.get(slug, {})

        def dated(correction: dict[str, Any]) -> dict[str, Any]:
            return correction | {"date": self.as_of}

        published = chip["peak_dense_tflops"]
        peaks = {key: self.sourced(published[key]) for key in DTYPES if published.get(key, {}).get("v") is not None}
        peaks |= {key: dated(value) for key, value in fixed.items() if key in peaks}
        out: dict[str, Any] = {
            "name": chip["name"],
            "vendor": chip["vendor"],
            "status": chip.get("status", "shipping"),
            "aliases": aliases,
        }
        out["peak_tflops"] = peaks
        marketed = chip["hbm_gb_marketed"]
        if "hbm_bytes" in fixed:
            out["hbm_bytes"] = dated(fixed["hbm_bytes"])
        elif "hbm_bytes_usable" in chip:
            out["hbm_bytes"] = self.sourced(chip["hbm_bytes_usable"])
        else:
            note = f"usable bytes unpublished: the marketed {marketed['v']} GB taken as decimal, the lower reading"
            out["hbm_bytes"] = self.sourced(marketed, round(marketed["v"] * 1e9)) | {"kind": "assumed", "note": note}
        for ours, theirs in (
            ("hbm_gbyte_per_s", "hbm_gbyte_per_s"),
            ("scaleup_gbyte_per_s_per_dir", "scaleup_gbyte_per_s_per_dir"),
            ("scaleup_domain", "scaleup_domain"),
            ("scaleout_gbit_per_s", "scaleout_gbit"),
            ("tdp_w", "tdp_w"),
        ):
            out[ours] = dated(fixed[ours]) if ours in fixed else self.sourced(chip[theirs])
        out["gpus_per_node"] = per_node
        if relative:
            out["efficiency_of"] = relative
        out["prices"] = dict(self.prices(chip.get("price", {})))
        contradictions = [str(chip["CONTRADICTORY"])] if "CONTRADICTORY" in chip else []
        out["contradictions"] = contradictions + CONTRADICTIONS.get(slug, [])
        notes = [str(chip["note"])] if "note" in chip else []
        out["notes"] = [*notes, f"marketed memory: {marketed['v']} GB"]
        return slug, out

    def prices(self, terms: dict[str, Any]) -> Any:
        for term, entry in terms.items():
            if isinstance(entry["v"], dict):
                stem = term.removesuffix("_usd_h")
                for owner, value in entry["v"].items():
                    yield f"{stem}_{owner}_usd_h", self.sourced(entry, value)
            elif entry["v"] is not None:
                yield term, self.sourced(entry)


class _Dumper(yaml.SafeDumper):
    """Numbers with their provenance on one line each."""


def _mapping(dumper: yaml.SafeDumper, value: dict[str, Any]) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style="kind" in value)


_Dumper.add_representer(dict, _mapping)


def main(table_path: str, folder: str = "hardware_profiles/chips") -> None:
    table, target = Table(Path(table_path)), Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    missing = {chip["name"] for chip in table.chips} ^ set(CHIPS)
    if missing:
        raise SystemExit(f"table and list of slugs differ: {sorted(missing)}")
    for chip in table.chips:
        slug, profile = table.profile(chip)
        text = yaml.dump(profile, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
        (target / f"{slug}.yaml").write_text(text, encoding="utf-8")
    print(f"{len(table.chips)} chips in {target}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
