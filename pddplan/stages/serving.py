"""One server, or a table of servers, under load: TTFT, TPOT and throughput, closed loop or open loop, with error bands.

Closed loop: roofline/closed_loop.py and roofline/disaggregated.py. Open loop (Poisson arrivals at rate lambda): with s the
prefill's occupancy, rho = lambda s, D the decode time of a request,
    D = O t_dec(lambda D) / tokens per step + c rho D      interleaved prefills (c: interleave)
    W = prefill + t_dec + M/G/1 wait at the prefill side
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pddplan.errors import InputError, Problem
from pddplan.queueing.mg1 import mean_wait_s
from pddplan.roofline.benchmark_table import BenchmarkTable, read_benchmark_table
from pddplan.roofline.closed_loop import closed_loop
from pddplan.roofline.fit import BenchmarkRows, predict_with
from pddplan.roofline.overlay import Overlay, as_float
from pddplan.roofline.overlay_file import generation, load_overlay, read_overlay
from pddplan.roofline.rows import Configuration, ServedRows
from pddplan.roofline.terms import FloatArray
from pddplan.stages.roofline import RooflineInstance

UNMEASURED_BAND = 1.5  # bands of chips whose kernels nobody measured are this much wider, in ratio (assumed)
LOAD_LIMIT = 16.0  # requests in flight per replica that part the low from the high band
FIXED_POINT = 200


@dataclass(frozen=True)
class Band:
    """Where 80 % of measurements lie, as factors of the prediction; ``basis`` measured (held-out rows) or assumed."""

    ttft: tuple[float, float]
    tpot: tuple[float, float]
    basis: str


@dataclass(frozen=True)
class ServerEstimate:
    """One replica under load. ``binding`` names what limits it; infinite TTFT means that it cannot keep up. ``tpot_s`` is NaN for
    answers of one token, which have no gap between tokens."""

    ttft_s: float
    tpot_s: float
    step_s: float
    running: float
    kv_limit: float
    requests_per_s: float
    output_tokens_per_s_per_gpu: float
    prefill_utilisation: float
    binding: str
    band: Band
    warnings: tuple[str, ...]


def band_of(engine: str, instance: RooflineInstance, load: float) -> Band:
    """Error band of ``engine`` on the instance's chip at ``load`` requests in flight, from the overlay's validation."""
    bands: Mapping[str, Any] = read_overlay(engine).get("bands", {})
    found = bands.get(generation(instance.chip), {}).get("low" if load <= LOAD_LIMIT else "high")
    if not found:
        return Band((0.5, 2.0), (0.5, 2.0), "assumed")
    ttft, tpot = ((float(found[m][0]), float(found[m][1])) for m in ("ttft", "tpot"))
    if instance.chip.efficiency_kind == "measured" and read_overlay(engine).get("kind") == "measured":
        return Band(ttft, tpot, "measured")
    return Band((ttft[0] / UNMEASURED_BAND, ttft[1] * UNMEASURED_BAND), (tpot[0] / UNMEASURED_BAND, tpot[1] * UNMEASURED_BAND), "assumed")


def kv_limit(instance: RooflineInstance, input_tokens: float, output_tokens: float) -> float:
    """Requests whose mean context fits the instance's KV pool."""
    per_request = float(instance.kv_resident_bytes(input_tokens + output_tokens / 2.0))
    return float(min(instance.kv_capacity_bytes() / max(per_request, 1e-9), instance.batch_max))


_EXAMPLES = {"isl": "1024", "osl": "500", "concurrency": "32", "rate": "1 req/s"}


def _check(**values: float) -> None:
    problems = [Problem(name, f"{value:g}", "more than 0", _EXAMPLES[name]) for name, value in values.items() if not value > 0]
    if problems:
        raise InputError(problems)


NO_TPOT = "TPOT is not defined for answers of one token"


def _gap_s(tpot_s: float, output_tokens: float) -> float:
    return tpot_s if output_tokens > 1.0 else math.nan


def _warned(instance: RooflineInstance, input_tokens: float, output_tokens: float) -> tuple[str, ...]:
    """The instance's warnings, and what is odd about requests of this size."""
    found = list(instance.warnings)
    if output_tokens <= 1.0:
        found.append(NO_TPOT)
    positions = instance.model.max_position_embeddings
    if positions and input_tokens + output_tokens > positions:
        found.append(
            f"a request of {input_tokens + output_tokens:,.0f} tokens exceeds the {positions:,} positions of {instance.model.name}"
        )
    return tuple(found)


def estimate_closed(
    instance: RooflineInstance, input_tokens: float, output_tokens: float, concurrency: float, length_law: str = "random"
) -> ServerEstimate:
    """A replica with ``concurrency`` requests always in flight, as benchmark clients do."""
    _check(isl=input_tokens, osl=output_tokens, concurrency=concurrency)
    overlay = load_overlay(instance.engine, instance.chip, length_law)
    limit = kv_limit(instance, input_tokens, output_tokens)
    state = closed_loop(
        instance.terms, overlay, input_tokens, output_tokens, concurrency, limit, instance.prefill_chunk_tokens,
        draft=instance.draft, draft_tokens=instance.queries_per_step - 1.0, tokens_per_step=instance.tokens_per_step,
    )  # fmt: skip
    ttft, tpot = float(state.ttft_s), float(state.tpot_s)
    rate = concurrency / (ttft + tpot * output_tokens)
    occupancy = float(instance.prefill_occupancy_s(input_tokens, 0.0))
    binding = "KV memory" if limit < concurrency else "prefill" if rate * occupancy > 0.9 else "requests in flight"
    return ServerEstimate(
        ttft, _gap_s(tpot, output_tokens), float(state.step_s), float(state.running), limit, rate,
        rate * output_tokens / instance.gpus, rate * occupancy,
        binding, band_of(instance.engine, instance, concurrency),
        _warned(instance, input_tokens, output_tokens),
    )  # fmt: skip


def estimate_open(
    instance: RooflineInstance, input_tokens: float, output_tokens: float, rate: float, length_law: str = "random"
) -> ServerEstimate:
    """A replica that receives ``rate`` requests a second (Poisson). Infinite TTFT where it cannot keep up."""
    _check(isl=input_tokens, osl=output_tokens, rate=rate)
    overlay = load_overlay(instance.engine, instance.chip, length_law)
    limit = kv_limit(instance, input_tokens, output_tokens)
    context = input_tokens + output_tokens / 2.0
    service = float(instance.prefill_occupancy_s(input_tokens, 0.0))
    load = rate * service
    share = 1.0 - min(float(as_float(overlay.interleave)) * load, 1.0)
    running, step = 1.0, float(instance.step_s(1.0, context))
    decode_s = np.inf
    if share > 0:
        for _ in range(FIXED_POINT):
            step = float(instance.step_s(max(running, 1.0), context))
            decode_s = output_tokens / instance.tokens_per_step * step / share
            running = 0.5 * running + 0.5 * rate * decode_s
            if running > 100.0 * instance.batch_max:
                break
    stable = load < 1.0 and running <= limit and np.isfinite(decode_s)
    if not stable:
        return _saturated(instance, input_tokens, output_tokens, rate, limit, load, length_law)
    ttft = float(instance.prefill_s(input_tokens, 0.0)) + step + float(mean_wait_s(rate, service, 0.0))
    return ServerEstimate(
        ttft, _gap_s(decode_s / output_tokens, output_tokens), step, running, limit, rate, rate * output_tokens / instance.gpus, load,
        "offered rate",
        band_of(instance.engine, instance, running),
        _warned(instance, input_tokens, output_tokens),
    )  # fmt: skip


def _saturated(
    instance: RooflineInstance, input_tokens: float, output_tokens: float, rate: float, limit: float, load: float, length_law: str
) -> ServerEstimate:
    """What a replica serves when more arrives than it can take: a closed loop at its KV limit; waiting has no bound."""
    full = estimate_closed(instance, input_tokens, output_tokens, max(limit, 1.0), length_law)
    binding = "prefill" if load >= 1.0 or full.prefill_utilisation > 0.9 else "KV memory and decode"
    text = f"unstable: {rate:g} requests/s arrive and the replica serves {full.requests_per_s:.3g} ({binding})"
    return replace(full, ttft_s=np.inf, prefill_utilisation=load, binding=binding, warnings=(*full.warnings, text))


def overlay_of(rows: BenchmarkRows, served: ServedRows) -> Overlay:
    """Constants per row: by configuration and length law."""
    laws = ("random", "fixed")
    loaded: dict[tuple[str, str, str], Overlay] = {}

    def constants(c: Configuration, law: str) -> Overlay:
        key = (c.overlay, c.chip.slug, law)
        if key not in loaded:
            loaded[key] = load_overlay(c.overlay, c.chip, law)
        return loaded[key]

    table = [[constants(c, law) for law in laws] for c in served.configurations]
    law_of = served.fixed_lengths.astype(int)
    return Overlay(
        **{
            name: np.array([[float(as_float(getattr(o, name))) for o in pair] for pair in table])[served.config, law_of]
            for name in Overlay.names()
        }
    )


def _warnings_of(rows: BenchmarkRows, served: ServedRows, limited: NDArray[np.bool_]) -> NDArray[np.object_]:
    sizes = rows.input_tokens + rows.output_tokens
    positions = np.array([c.model.max_position_embeddings or np.inf for c in served.configurations])[served.config]
    beyond = [
        f"{size:,.0f} tokens exceed the {most:,.0f} positions of the model" if size > most else ""
        for size, most in zip(sizes, positions, strict=True)
    ]
    base = np.array(["; ".join(c.warnings) for c in served.configurations], dtype=object)[served.config]
    drafts = np.where(rows.draft_tokens > 0, f"taken as speculating with {int(rows.draft_tokens.max())} draft tokens", "")
    memory = np.where(limited, "more requests than KV memory holds", "")
    out = base
    single = np.where(rows.output_tokens <= 1.0, NO_TPOT, "")
    for more in (drafts.astype(object), memory.astype(object), single.astype(object), np.array(beyond, dtype=object)):
        out = np.where((out != "") & (more != ""), out + "; " + more, out + more)
    return np.asarray(out, dtype=object)


def estimate_table(raw: pd.DataFrame, table: BenchmarkTable | None = None) -> pd.DataFrame:
    """Prediction of every row of a benchmark table: columns row, ttft_ms, tpot_ms, output_tok_s_per_gpu, basis, warning.

    A row that cannot be priced has empty numbers, basis ``none`` and its reason as warning. Answers of one token have no TPOT; where the
    table measured one all the same, the time of a step stands for it.
    """
    table = table or read_benchmark_table(raw)
    size = len(table.table)
    numbers = {name: np.full(size, np.nan) for name in ("ttft_ms", "tpot_ms", "output_tok_s_per_gpu")}
    basis = np.full(size, "none", dtype=object)
    warning = np.array([f"not estimated: {reason}" if reason else "" for reason in table.reasons], dtype=object)
    served_of = {id(table.aggregated): table.served, id(table.disaggregated): table.decode}
    for rows, index in table.parts():
        served = served_of[id(rows)]
        assert served is not None
        state = predict_with(rows, overlay_of(rows, served))
        decode_s = state.tpot_s * rows.output_tokens
        numbers["ttft_ms"][index] = 1e3 * state.ttft_s
        defined = (rows.output_tokens > 1.0) | (rows.tpot_s > 0.0)
        numbers["tpot_ms"][index] = np.where(defined, 1e3 * state.tpot_s, np.nan)
        throughput = rows.concurrency * rows.output_tokens / (state.ttft_s + decode_s)
        numbers["output_tok_s_per_gpu"][index] = throughput / table.gpus[index]
        kinds = np.array(
            [
                "measured" if c.chip.efficiency_kind == "measured" and read_overlay(c.overlay).get("kind") != "assumed" else "assumed"
                for c in served.configurations
            ],
            dtype=object,
        )
        basis[index] = kinds[served.config]
        workers = 1.0 if rows.pools is None else rows.pools.decode_workers
        warning[index] = _warnings_of(rows, served, rows.concurrency > rows.kv_limit * workers)
    return pd.DataFrame({"row": table.table["row"], **numbers, "basis": basis, "warning": warning})


def errors_of(predicted: FloatArray, measured: FloatArray) -> dict[str, float]:
    """median, mean and p90 of the absolute error and signed median bias, percent; share within 20 %, coverage; of measured rows."""
    known = np.isfinite(measured) & (measured > 0)
    ratio = predicted[known] / measured[known]
    answered = np.isfinite(ratio)
    error = 100.0 * np.abs(ratio[answered] - 1.0)
    if not len(error):
        return {"rows": float(known.sum()), "coverage": 0.0}
    return {
        "rows": float(known.sum()),
        "median": float(np.median(error)),
        "mean": float(error.mean()),
        "p90": float(np.percentile(error, 90)),
        "bias": float(100.0 * (np.median(ratio[answered]) - 1.0)),
        "within_20": float((error <= 20.0).mean()),
        "coverage": float(answered.mean()),
    }


def backtest(raw: pd.DataFrame, predictions: pd.DataFrame | None = None) -> dict[str, list[dict[str, object]]]:
    """Errors of predictions against the measured columns: overall, then by engine, chip, model and concurrency band, agg and disagg apart.

    TTFT of aggregated rows counts where ``usable_ttft`` says so (everywhere if there is no such column).
    """
    table = read_benchmark_table(raw)
    predicted = estimate_table(raw, table) if predictions is None else predictions
    frame = table.table.reset_index(drop=True)
    if not {"measured_ttft_ms", "measured_tpot_ms"} & set(frame.columns):
        raise InputError(Problem("columns measured_ttft_ms, measured_tpot_ms", "missing", "at least one of them", "measured_tpot_ms"))
    mode = np.where(frame["mode"].astype(str).str.lower().str.startswith("disagg"), "disagg", "agg")
    usable = np.ones(len(frame), bool)
    if "usable_ttft" in frame:
        usable = frame["usable_ttft"].astype(str).str.lower().isin(("true", "1", "1.0", "yes")).to_numpy() | (mode == "disagg")
    measured = {}
    for metric in ("tpot", "ttft"):
        column = frame.get(f"measured_{metric}_ms", pd.Series(np.nan, frame.index))
        values = pd.to_numeric(column, errors="coerce").to_numpy(float)
        measured[metric] = np.where(usable, values, np.nan) if metric == "ttft" else values
    loads = ["1-4", "5-16", "17-64", "65-256", "over 256"]
    load = pd.cut(pd.to_numeric(frame["concurrency"], errors="coerce"), [0, 4, 16, 64, 256, np.inf], labels=loads)
    groupings = {
        "overall": np.full(len(frame), "all", dtype=object),
        "engine": frame["engine"].astype(str).to_numpy(),
        "chip": frame["system"].astype(str).to_numpy(),
        "model": frame.get("family", frame["model_path"]).astype(str).to_numpy(),
        "requests in flight": load.astype(str).to_numpy(),
    }
    out: dict[str, list[dict[str, object]]] = {}
    for name, labels in groupings.items():
        rows: list[dict[str, object]] = []
        for kind in ("agg", "disagg"):
            for label in sorted(set(labels[mode == kind]), key=lambda label: (loads.index(label) if label in loads else -1, label)):
                chosen = (labels == label) & (mode == kind)
                for metric in ("tpot", "ttft"):
                    found = errors_of(predicted[f"{metric}_ms"].to_numpy(float)[chosen], measured[metric][chosen])
                    if found["rows"]:
                        rows.append({"group": label, "mode": kind, "metric": metric, **found})
        out[name] = rows
    return out
