"""Fit the engine constants to measured servers and write hardware_profiles/engines/{vllm,sglang,trtllm,generic}.yaml.

Run: python benchmarks/calibrate_engines.py            (fit, errors on held-out curves, families, chips, engines, write; minutes)
     python benchmarks/calibrate_engines.py --choose   (leave-one-family-out for each shrinkage first)
     python benchmarks/calibrate_engines.py --dry      (print, write nothing)
Input: benchmarks/data/servers.csv.gz. Deterministic: no random number but the fixed assignment of curves to folds.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from pddplan.roofline.benchmark_table import BenchmarkTable, read_benchmark_table
from pddplan.roofline.fit import COMMON, CONSTANTS, BenchmarkRows, Layout, fit, predict, wave_of
from pddplan.roofline.overlay_file import GENERATIONS, LAWS

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "servers.csv.gz"
OUT = HERE.parent / "hardware_profiles" / "engines"
SHRINKAGES = (0.5, 1.0, 3.0, 10.0)
SHRINKAGE = 1.0
EVALUATIONS = 15
CURVE = [
    "mode", "model_path", "system", "engine", "engine_version", "precision", "isl", "osl", "tp_size", "attention_dp_size",
    "moe_tp_size", "moe_ep_size", "pp_size", "prefill_tp_size", "prefill_attention_dp_size", "decode_tp_size",
    "decode_attention_dp_size", "decode_moe_ep_size",
]  # fmt: skip
LEFT_OUT = {"leave_one_family_out": "family", "leave_one_chip_out": "system", "leave_one_engine_out": "engine"}
HEADER = "# Engine constants. Written by benchmarks/calibrate_engines.py; meanings in pddplan/roofline/overlay.py.\n"
BANDS = {"low": (0, 16), "high": (16, np.inf)}  # requests in flight per replica


def left_out(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """Rows left out of the fit (kept in every score), by written rule."""
    version = rows["engine_version"].astype(str)
    deepseek = (rows.family == "DeepSeek-R1/V3") & (rows["mode"] == "agg")
    return {
        "vLLM Llama-3.1-8B with fixed lengths: throughput beyond 70 % of the FP8 peak (concurrency of a fleet, not of a replica)": (
            (rows.engine == "vllm") & (rows.family == "Llama-3.1-8B") & (rows.length_law == "fixed")
        ),
        "vLLM 0.11.2 at 512 requests: an unrecorded batch cap": (version == "0.11.2") & (rows.concurrency >= 512),
        "DeepSeek with a TTFT over 5 s: warm-up or an unrecorded limit inside the measurement": (deepseek & (rows.measured_ttft_ms > 5000)),
    }


def left_out_ttft(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """Rows whose TTFT alone is left out of the fit (kept in every score)."""
    return {
        "TensorRT-LLM Llama-3.1-70B at 1,024/1,024 under TP 8: TTFT is 20 decode steps longer (an unrecorded batching wait)": (
            (rows.engine == "trtllm") & (rows.family == "Llama-3.1-70B") & (rows.isl == 1024) & (rows.osl == 1024) & (rows.tp_size < 8)
        ),
        "SGLang DeepSeek without a recorded version: older builds, TTFT 2 to 20 times that of the same configuration at 0.5.9": (
            (rows.engine == "sglang") & (rows.family == "DeepSeek-R1/V3") & rows.engine_version.isna() & (rows["mode"] == "agg")
        ),
    }


def _any(rules: dict[str, np.ndarray]) -> np.ndarray:
    return np.any([np.asarray(mask) for mask in rules.values()], axis=0)


def weighted(rows: BenchmarkRows, source: pd.DataFrame) -> BenchmarkRows:
    """Weights: families count with the square root of the square root of their rows; TTFT of disaggregated rows counts half."""
    size = source.groupby("family").row.transform("size").to_numpy()
    weight = np.where(_any(left_out(source)), 0.0, (size / size.mean()) ** -0.25)
    ttft = np.where(_any(left_out_ttft(source)), 0.0, weight) * (1.0 if rows.pools is None else 0.5)
    return dataclasses.replace(rows, weight=weight, ttft_weight=ttft)


@dataclasses.dataclass
class Data:
    table: BenchmarkTable
    rows: tuple[BenchmarkRows, ...]
    source: tuple[pd.DataFrame, ...]
    layout: Layout


def load() -> Data:
    frame = pd.read_csv(DATA)
    table = read_benchmark_table(frame)
    failed = {reason for reason in table.reasons if reason}
    if failed:
        raise SystemExit(f"rows that cannot be priced: {failed}")
    source = tuple(frame.iloc[index].reset_index(drop=True) for _, index in table.parts())
    rows = tuple(weighted(r, s) for (r, _), s in zip(table.parts(), source, strict=True))
    groups = {k: np.concatenate([r.groups[k] for r in rows]) for k in rows[0].groups}
    return Data(table, rows, source, Layout.of(groups))


def held_out(data: Data, groups: list[np.ndarray], shrinkage: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """(tpot_s, ttft_s) of every row, predicted by a fit that has not seen the row's group; every fit starts from the priors."""
    predicted = [(np.zeros(len(g)), np.zeros(len(g))) for g in groups]
    for name in sorted(set(np.concatenate(groups))):
        train = [rows.take(np.flatnonzero(g != name)) for rows, g in zip(data.rows, groups, strict=True)]
        theta = fit(train, data.layout, shrinkage, evaluations=EVALUATIONS)
        for rows, g, (tpot, ttft) in zip(data.rows, groups, predicted, strict=True):
            index = np.flatnonzero(g == name)
            if len(index):
                state = predict(rows.take(index), data.layout, theta)
                tpot[index], ttft[index] = state.tpot_s, state.ttft_s
    return predicted


def errors(data: Data, predicted: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    """Ratio predicted / measured by metric and kind of row; unusable TTFT left out."""
    out = {}
    for kind, source, (tpot, ttft) in zip(("agg", "disagg"), data.source, predicted, strict=True):
        out[f"tpot_{kind}"] = tpot * 1e3 / source.measured_tpot_ms.to_numpy()
        usable = source.usable_ttft.to_numpy(bool) if kind == "agg" else np.ones(len(source), bool)
        out[f"ttft_{kind}"] = np.where(usable, ttft * 1e3 / source.measured_ttft_ms.to_numpy(), np.nan)
    return out


def summary(ratio: np.ndarray) -> dict[str, float]:
    ratio = ratio[np.isfinite(ratio)]
    error = 100 * np.abs(ratio - 1)
    values = {"median": np.median(error), "mean": error.mean(), "p90": np.percentile(error, 90), "bias": 100 * (np.median(ratio) - 1)}
    return {**{k: round(float(v), 1) for k, v in values.items()}, "rows": len(ratio)}


def bands(data: Data, ratios: dict[str, np.ndarray], engine: str) -> dict[str, object]:
    """Where measured / predicted lies for 80 % of the held-out rows, by chip generation and load; rows left out by rule are not in."""
    source = data.source[0]
    generations = np.array([g.split("/")[1] for g in data.rows[0].groups["engine_generation"]])
    out: dict[str, object] = {}
    for generation in ("hopper", "blackwell"):
        chosen = (generations == generation) & ((source.engine == engine) | (engine == "generic")).to_numpy() & ~_any(left_out(source))
        out[generation] = {
            load: {
                metric: [
                    round(float(q), 2) for q in np.nanquantile(1 / ratios[f"{metric}_agg"][chosen & _between(source, limits)], (0.1, 0.9))
                ]
                for metric in ("tpot", "ttft")
            }
            for load, limits in BANDS.items()
        }
    return out


def _between(source: pd.DataFrame, limits: tuple[float, float]) -> np.ndarray:
    return ((source.concurrency > limits[0]) & (source.concurrency <= limits[1])).to_numpy()


def shipped(layout: Layout, theta: np.ndarray, engine: str) -> dict[str, dict[str, float]]:
    """Constants of one engine by group; ``generic`` keeps what the engines share."""
    value = {(c.name, g): float(x) for (c, g), x in zip(layout.labels, theta, strict=True)}
    out: dict[str, dict[str, float]] = {"all": {}}
    for c in CONSTANTS:
        parts = {
            "all": {"all": COMMON},
            "engine": {"all": engine},
            "engine_generation": {g: f"{engine}/{g}" for g in GENERATIONS},
            "wave": {law: wave_of(engine, law) for law in LAWS},
        }[c.scope]
        for part, group in parts.items():
            own = value.get((c.name, group), 0.0) if group != COMMON else 0.0
            constant = c.prior * c.share(group) * np.exp(value[c.name, COMMON] + own)
            if engine != "generic" or not group.startswith("generic/") or c.share(group) > 0:
                out.setdefault(part, {})[c.name] = float(f"{constant:.4g}")
    return out


def write(
    data: Data, theta: np.ndarray, shrinkage: float, report: dict[str, dict[str, dict[str, float]]], ratios: dict[str, np.ndarray]
) -> None:
    for engine in ("vllm", "sglang", "trtllm", "generic"):
        mine = (data.source[0].engine == engine).to_numpy() if engine != "generic" else np.ones(len(data.source[0]), bool)
        content = {
            "engine": engine,
            "kind": "measured" if engine != "generic" else "assumed",
            "source": "fit to benchmarks/data/servers.csv.gz by benchmarks/calibrate_engines.py"
            + ("; what the three engines share" if engine == "generic" else ""),
            "date": "2026-11-30",
            "constants": shipped(data.layout, theta, engine),
            "bands": bands(data, ratios, engine),
            "fit": {
                "constants_in_all_engines": data.layout.constants(),
                "shrinkage": shrinkage,
                "held_out_by_curve_percent": {
                    "tpot": summary(ratios["tpot_agg"][mine]),
                    "ttft": summary(ratios["ttft_agg"][mine]),
                },
                "all_engines_percent": report,
            },
        }
        body = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120)
        (OUT / f"{engine}.yaml").write_text(HEADER + body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--choose", action="store_true", help="leave one family out for each shrinkage, take the best")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    parser.add_argument("--shrinkage", type=float, default=SHRINKAGE)
    options = parser.parse_args()
    data = load()
    groups = {kind: [s[column].to_numpy(str) for s in data.source] for kind, column in LEFT_OUT.items()}
    shrinkage = options.shrinkage
    if options.choose:
        scores = {}
        for candidate in SHRINKAGES:
            ratios = errors(data, held_out(data, groups["leave_one_family_out"], candidate))
            parts = {name: summary(r) for name, r in ratios.items()}
            scores[candidate] = parts["tpot_agg"]["median"] / 10 + parts["ttft_agg"]["median"] / 30
            print(f"shrinkage {candidate}: leave-one-family-out {parts}")
        shrinkage = min(scores, key=lambda s: scores[s])
    theta = fit(data.rows, data.layout, shrinkage, evaluations=EVALUATIONS)
    print(f"{data.layout.constants()} constants, shrinkage {shrinkage}")
    states = [predict(rows, data.layout, theta) for rows in data.rows]
    report = {"in_sample": {k: summary(r) for k, r in errors(data, [(s.tpot_s, s.ttft_s) for s in states]).items()}}
    folds = pd.concat(data.source)[CURVE].groupby(CURVE, dropna=False).ngroup().to_numpy()
    fold_of = np.random.default_rng(0).permutation(folds.max() + 1) % 4
    split = np.split(fold_of[folds].astype(str), [len(data.source[0])])
    ratios = errors(data, held_out(data, split, shrinkage))
    report["four_fold_by_curve"] = {k: summary(r) for k, r in ratios.items()}
    for kind, labels in groups.items():
        report[kind] = {k: summary(r) for k, r in errors(data, held_out(data, labels, shrinkage)).items()}
    for name, parts in report.items():
        print(name, parts)
    for rule, mask in {**left_out(pd.concat(data.source)), **left_out_ttft(pd.concat(data.source))}.items():
        print(f"left out of the fit: {int(np.sum(mask))} rows: {rule}")
    if not options.dry:
        write(data, theta, shrinkage, report, ratios)


if __name__ == "__main__":
    main()
