"""Select one measured kernel per chip, engine and dtype and write hardware_profiles/engines/kernels.yaml.

Run: python benchmarks/build_kernel_priors.py
Input: benchmarks/data/kernel_fits/*.csv (see the README there). Efficiencies are written relative to ``PEAKS``;
weight-streaming efficiencies are capped at 1 (a fit above 1 means that the fitted form counted too many bytes).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

HERE = Path(__file__).resolve().parent
FITS = HERE / "data" / "kernel_fits"
OUT = HERE.parent / "hardware_profiles" / "engines" / "kernels.yaml"
ENGINES = ("trtllm", "sglang", "vllm")

# Peaks the efficiencies of the CSV files refer to: dense TFLOP/s and GB/s.
PEAKS: dict[str, dict[str, float]] = {
    "a100_sxm": {"bf16": 312, "int8": 624, "hbm": 2039},
    "l40s": {"bf16": 362, "fp8": 733, "hbm": 864},
    "h100_sxm": {"bf16": 989, "fp8": 1979, "hbm": 3350},
    "h200_sxm": {"bf16": 989, "fp8": 1979, "hbm": 4800},
    "b200_sxm": {"bf16": 2250, "fp8": 4500, "fp4": 9000, "hbm": 7700},
    "b300_sxm": {"bf16": 2250, "fp8": 4500, "fp4": 14000, "hbm": 7750},
    "gb200": {"bf16": 2500, "fp8": 5000, "fp4": 10000, "hbm": 8000},
    "gb300": {"bf16": 2500, "fp8": 5000, "fp4": 15000, "hbm": 8000},
    "rtx_pro_6000_server": {"bf16": 468, "fp8": 936, "fp4": 1871, "hbm": 1792},
}
# The board's own bandwidth where the fits assumed another one (GB/s): the workstation card's, for the server card.
BOARD_HBM = {"rtx_pro_6000_server": 1597.0}
DTYPES = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "int4_wo": "int4",
          "int8_wo": "int8_weight_only", "sq": "int8", "w4a16_mxfp4": "mxfp4", "w4a8_mxfp4_mxfp8": "mxfp4_mxfp8"}  # fmt: skip
# Kernel that the engine picks by default where several were measured; earlier wins.
DECODE_PREFERENCE = ("torch_flow", "trtllm_mha", "fa3", "flash_attention", "flashinfer", "vllm", "triton")
MOE_PREFERENCE = (
    "deepgemm", "moe_torch_flow_cutlass", "moe_torch_flow", "sglang_mxfp4_flashinfer_trtllm", "sglang_flashinfer_trtllm_moe",
    "sglang_fused_moe_triton", "sglang_flashinfer_cutlass_moe", "sglang_marlin_moe", "monolithic", "modular", "trtllmbf16", "cutlass",
    "triton", "marlin", "vllm_fused_moe",
)  # fmt: skip
# Fits whose floor shows a wrong kernel path or whose rows do not fit at all.
REJECTED_GEMM = {("vllm", "fp8_block")}
MAX_USABLE_MDAPE = 40.0
MIN_MOE_MEMORY_SHARE = 0.3  # a grouped GEMM that streams slower than this ran on a fallback path that servers do not take


def _rank(kernel: str, preference: tuple[str, ...]) -> int:
    return next((i for i, key in enumerate(preference) if key in kernel), len(preference))


def _capped(e_m: float, chip: str) -> float:
    assumed = PEAKS[chip]["hbm"]
    return round(min(float(e_m) * assumed / BOARD_HBM.get(chip, assumed), 1.0), 3)


def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(FITS / f"{name}.csv").replace({"dtype": DTYPES, "kv": DTYPES})


def _gemm(chip: str, engine: str) -> dict[str, list[float]]:
    rows = _read("fit_gemm").query("chip == @chip and be == @engine")
    return {
        r.dtype: [r.e_c, r.m_half, _capped(r.e_m, chip), r.t0_us, r.mdape, r.p90]
        for r in rows.itertuples()
        if (engine, r.dtype) not in REJECTED_GEMM
    }


def _decode_attention(chip: str, engine: str) -> dict[str, list[float]]:
    cold = _read("fit_attn_gen_cold").query("chip == @chip and be == @engine and e_m <= 1")
    full = _read("fit_attn_gen").set_index(["chip", "be", "kernel", "kv"])
    out = {}
    for kv, group in cold.groupby("kv"):
        r = min(group.itertuples(), key=lambda row: _rank(row.kernel, DECODE_PREFERENCE))
        e_c = min(float(full.loc[(chip, engine, r.kernel, kv)].e_c), 0.5)
        out[str(kv)] = [_capped(r.e_m, chip), round(e_c, 3), r.t0_us, r.mdape, r.p90]
    return out


def _prefill_attention(chip: str, engine: str) -> dict[str, list[float]]:
    rows = _read("fit_attn_ctx").query("chip == @chip and be == @engine")
    out = {}
    for dtype, group in rows.groupby("dtype"):
        r = min(group.itertuples(), key=lambda row: _rank(row.kernel, DECODE_PREFERENCE))
        out[str(dtype)] = [r.e_c, r.s_half, r.t0_us, r.mdape, r.p90]
    return out


def _mla(chip: str, engine: str, phase: str) -> dict[str, list[float]]:
    rows = _read(f"fit_attn_mla_{'ctx' if phase == 'prefill' else 'gen'}").query("chip == @chip and be == @engine")
    out = {}
    for r in rows.itertuples():
        if r.mdape > MAX_USABLE_MDAPE or (phase == "decode" and r.e_m < 0.2) or (phase == "prefill" and r.e_c_vs_bf16 < 0.2):
            continue
        second = r.s_half if phase == "prefill" else _capped(r.e_m, chip)
        out[r.kv] = [r.e_c_vs_bf16, second, r.t0_us, r.mdape, r.p90]
    return out


def _moe(chip: str, engine: str) -> dict[str, list[float | str]]:
    rows = _read("fit_moe").query("chip == @chip and be == @engine and e_m >= @MIN_MOE_MEMORY_SHARE")
    out: dict[str, list[float | str]] = {}
    for dtype, group in rows.groupby("dtype"):
        r = min(group.itertuples(), key=lambda row: _rank(row.kernel, MOE_PREFERENCE))
        out[str(dtype)] = [r.e_c, r.m_half, _capped(r.e_m, chip), r.t0_us, r.e_a, r.mdape, r.p90, r.kernel]
    return out


def _collective(chip: str, lib: str, op: str) -> dict[int, list[float]]:
    rows = _read("fit_comm").query("chip == @chip and lib == @lib and op == @op")
    rows = rows[~rows.impl.str.contains("eager")]
    return {int(r.n): [r.alpha_us, r.busbw_fit_GBs, r.mdape, r.p90] for r in rows.sort_values("n").itertuples()}


def _expert_exchange(chip: str) -> dict[str, list[float]]:
    rows = _read("fit_a2a").query("chip == @chip and ep == 'node1'")
    out = {}
    for r in rows.itertuples():
        name = f"{'low_latency' if r.mode == 'll' else 'normal'}_{r.phase}"
        bytes_per_token = 8 * 7168 * (1 if r.phase == "dispatch" else 2)
        out[name] = [r.alpha_us, round(bytes_per_token / r.ns_per_token, 1), r.mdape, r.p90]
    return out


def _flow(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(v) for v in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


HEADER = """\
# Kernel constants measured on silicon, one kernel per chip, engine and dtype. Written by benchmarks/build_kernel_priors.py.
# kind: measured. source: fits to the kernel tables of aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0). date: 2026-11-30.
# Efficiencies are fractions of `peak` (TFLOP/s dense, GB/s). mdape and p90 are the fit errors in percent.
#   gemm               dtype: [e_c, m_half, e_m, t0_us, mdape, p90]
#   decode_attention   kv dtype: [e_m, e_c of bf16 peak, t0_us, mdape, p90]
#   prefill_attention  dtype: [e_c of that dtype's peak, s_half, t0_us, mdape, p90]
#   mla_decode         kv dtype: [e_c of bf16 peak, e_m, t0_us, mdape, p90]
#   mla_prefill        kv dtype: [e_c of bf16 peak, s_half, t0_us, mdape, p90]
#   moe                dtype: [e_c, m_half, e_m, t0_us, e_a, mdape, p90, kernel]
#   all_reduce, nccl_* ranks: [alpha_us, bus GB/s, mdape, p90]
#   expert_exchange    mode: [alpha_us, GB/s per rank, mdape, p90]
"""


def main() -> None:
    lines = [HEADER + "chips:"]
    for chip, peaks in PEAKS.items():
        lines.append(f"  {chip}:")
        link = float(_read("fit_comm").query("chip == @chip").link_GBs.iloc[0])
        board = {**peaks, "hbm": BOARD_HBM.get(chip, peaks["hbm"]), "link": link}
        lines.append(f"    peak: {_flow({k: float(v) for k, v in board.items()})}")
        for name, table in (
            ("gemm", _gemm), ("decode_attention", _decode_attention), ("prefill_attention", _prefill_attention),
            ("mla_decode", lambda c, e: _mla(c, e, "decode")), ("mla_prefill", lambda c, e: _mla(c, e, "prefill")), ("moe", _moe),
            ("all_reduce", lambda c, e: _collective(c, e, "all_reduce")),
        ):  # fmt: skip
            entries = {engine: rows for engine in ENGINES if (rows := table(chip, engine))}
            if entries:
                lines.append(f"    {name}:")
                lines += [f"      {engine}: {_flow(rows)}" for engine, rows in entries.items()]
        for op in ("all_reduce", "alltoall"):
            lines.append(f"    nccl_{op}: {_flow(_collective(chip, 'nccl', op))}")
        if exchange := _expert_exchange(chip):
            lines.append(f"    expert_exchange: {_flow(exchange)}")
    OUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
