"""A benchmark table as the rows that prediction and fit work on: aggregated and disaggregated apart, with reasons for the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pddplan.model.kv_cache import kv_cache
from pddplan.roofline.fit import BenchmarkRows, Pools, wave_of
from pddplan.roofline.overlay_file import generation
from pddplan.roofline.rows import ServedRows, served_rows, with_defaults
from pddplan.roofline.terms import FloatArray, StepTerms

DEFAULT_CHUNK_TOKENS = 8192.0
TRANSFER_EFFICIENCY = 0.8


@dataclass(frozen=True)
class BenchmarkTable:
    """``aggregated`` and ``disaggregated`` rows with their positions in the table; ``reasons`` per table row, empty where priced.

    ``gpus``: per replica (all workers of disaggregated rows).
    """

    table: pd.DataFrame
    aggregated: BenchmarkRows | None
    aggregated_index: NDArray[np.int64]
    disaggregated: BenchmarkRows | None
    disaggregated_index: NDArray[np.int64]
    reasons: tuple[str, ...]
    gpus: FloatArray
    served: ServedRows | None
    decode: ServedRows | None
    prefill: ServedRows | None

    def parts(self) -> list[tuple[BenchmarkRows, NDArray[np.int64]]]:
        """The kinds of rows that are there."""
        found = [(self.aggregated, self.aggregated_index), (self.disaggregated, self.disaggregated_index)]
        return [(rows, index) for rows, index in found if rows is not None]


def _number(table: pd.DataFrame, name: str, default: float) -> FloatArray:
    if name not in table:
        return np.full(len(table), default)
    numbers: FloatArray = pd.to_numeric(table[name], errors="coerce").fillna(default).to_numpy(float)
    return numbers


def row_problems(table: pd.DataFrame) -> list[str]:
    """Per row, why it cannot be estimated whatever its configuration: lengths that are no positive numbers."""
    problems = [""] * len(table)
    for name in ("isl", "osl"):
        values = pd.to_numeric(table[name], errors="coerce")
        for i in np.flatnonzero(~(values >= 1).to_numpy()):
            problems[i] = problems[i] or f"{name} is {table[name].iloc[i]!r}; give a number of tokens of at least 1"
    return problems


def _groups(table: pd.DataFrame, served: ServedRows) -> dict[str, NDArray[np.str_]]:
    engine = np.array([c.engine for c in served.configurations])[served.config]
    generations = np.array([generation(c.chip) for c in served.configurations])[served.config]
    law = np.where(served.fixed_lengths, "fixed", "random")
    wave = np.array([wave_of(*pair) for pair in zip(engine, law, strict=True)])
    return {"engine": engine, "engine_generation": np.char.add(np.char.add(engine, "/"), generations), "wave": wave}


def _terms(served: ServedRows) -> StepTerms:
    assert served.terms is not None
    return served.terms.take(served.config)


def _measured(table: pd.DataFrame, name: str) -> FloatArray:
    return _number(table, name, np.nan) / 1e3


def _rows(table: pd.DataFrame, served: ServedRows, pools: Pools | None) -> BenchmarkRows:
    usable = np.ones(len(table), bool)
    if pools is None and "usable_ttft" in table:
        usable = table["usable_ttft"].astype(str).str.lower().isin(("true", "1", "1.0", "yes")).to_numpy()
    one = np.ones(len(table))
    return BenchmarkRows(
        terms=_terms(served),
        input_tokens=served.input_tokens,
        output_tokens=served.output_tokens,
        concurrency=served.concurrency,
        kv_limit=served.kv_limit,
        chunk_tokens=_number(table, "max_num_batched_tokens", DEFAULT_CHUNK_TOKENS),
        draft=None if served.draft is None else served.draft.take(served.config),
        draft_tokens=served.draft_tokens,
        groups=_groups(table, served),
        tpot_s=_measured(table, "measured_tpot_ms"),
        ttft_s=np.where(usable, _measured(table, "measured_ttft_ms"), np.nan),
        weight=one,
        ttft_weight=one,
        pools=pools,
    )


def _transfer_s(prefill: ServedRows) -> FloatArray:
    """KV of a prompt over the NICs (or the scale-up link, inside one domain) of the ranks that hold it."""
    per_token = np.empty(len(prefill.configurations))
    for i, c in enumerate(prefill.configurations):
        nic = float(c.chip.scaleout_bytes_per_s.value or 25e9)
        domain = float(c.chip.scaleup_domain.value or 1)
        rate = float(c.chip.scaleup_bytes_per_s.value or nic) if domain > 8 * 4 else nic
        per_token[i] = (
            float(kv_cache(c.model, c.cache.format).bytes_resident(1000.0)) / 1000.0 / (rate * TRANSFER_EFFICIENCY * c.parallel.tp)
        )
    return per_token[prefill.config] * prefill.input_tokens


def read_benchmark_table(raw: pd.DataFrame) -> BenchmarkTable:
    """Rows of a table, priced. Raises InputError when required columns are missing; rows that fail carry their reason instead."""
    table = with_defaults(raw).reset_index(drop=True)
    reasons = row_problems(table)
    mode = table["mode"].astype(str).str.lower().str.startswith("disagg").to_numpy()
    good = np.array([not reason for reason in reasons], bool)
    gpus = np.ones(len(table))

    def priced(mask: NDArray[np.bool_], role: str) -> tuple[NDArray[np.int64], ServedRows | None]:
        index = np.flatnonzero(mask & good)
        if not len(index):
            return index, None
        served = served_rows(table.iloc[index], role)
        for position, reason in zip(index, served.reasons, strict=True):
            if reason:
                reasons[position] = reasons[position] or reason
        return index, served

    index, served = priced(~mode, "")
    aggregated = None
    if served is not None:
        keep = served.config >= 0
        index, served = index[keep], served.take(keep)
        if len(index):
            aggregated = _rows(table.iloc[index], served, None)
            gpus[index] = np.array([c.parallel.gpus for c in served.configurations])[served.config]
    pair, prefill = priced(mode, "prefill_")
    _, decode = priced(mode, "decode_")
    disaggregated = None
    if prefill is not None and decode is not None:
        keep = (prefill.config >= 0) & (decode.config >= 0)
        pair, prefill, decode = pair[keep], prefill.take(keep), decode.take(keep)
        part = table.iloc[pair]
        workers = [np.maximum(_number(part, f"{role}_num_workers", 1.0), 1.0) for role in ("prefill", "decode")]
        if len(pair):
            disaggregated = _rows(part, decode, Pools(_terms(prefill), workers[0], workers[1], _transfer_s(prefill)))
            sizes = [np.array([c.parallel.gpus for c in s.configurations])[s.config] for s in (prefill, decode)]
            gpus[pair] = sizes[0] * workers[0] + sizes[1] * workers[1]
    return BenchmarkTable(table, aggregated, index, disaggregated, pair, tuple(reasons), gpus, served, decode, prefill)
