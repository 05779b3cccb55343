"""A benchmark table as arrays: one row per measurement, one entry per distinct configuration.

Columns are those of benchmarks/data/servers.csv.gz; unknown ones are ignored, missing ones have defaults. Every row is
kept: one that cannot be priced carries its reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pddplan.errors import InputError, PddplanError, Problem
from pddplan.hardware import load_chip
from pddplan.hardware.types import Chip
from pddplan.model.kv_cache import KvCache, kv_cache
from pddplan.model.memory import waterfall
from pddplan.model.spec import ModelSpec, Parallel
from pddplan.roofline.checkpoint import served_checkpoint
from pddplan.roofline.configuration import configuration_terms, configuration_warnings
from pddplan.roofline.kernels import kernel_set
from pddplan.roofline.overlay_file import base_engine
from pddplan.roofline.speculation import draft_terms
from pddplan.roofline.terms import FloatArray, StepTerms, stack

RANDOM_LENGTH_MEAN = 0.9  # real lengths are uniform in [0.8, 1] of the nominal ones

ALIASES = {
    "model_path": ("model", "model_name"),
    "system": ("chip", "gpu", "hardware"),
    "engine": ("backend", "framework"),
    "isl": ("input_len", "input_tokens"),
    "osl": ("output_len", "output_tokens"),
    "concurrency": ("max_concurrency", "users"),
    "tp_size": ("tp",),
    "attention_dp_size": ("dp", "dp_size"),
    "moe_tp_size": ("moe_tp",),
    "moe_ep_size": ("ep", "moe_ep"),
    "pp_size": ("pp",),
}
REQUIRED = ("model_path", "system", "engine", "isl", "osl")
DEFAULTS: dict[str, float | str] = {
    "concurrency": 1.0, "tp_size": 1.0, "attention_dp_size": 1.0, "pp_size": 1.0, "moe_tp_size": np.nan, "moe_ep_size": np.nan,
    "precision": "", "mode": "agg", "length_law": "random",
}  # fmt: skip


@dataclass(frozen=True)
class Configuration:
    """One priced configuration; ``cache`` and ``kv_pool_bytes`` are per GPU. ``overlay``: the engine as named, or a calibration's path."""

    model: ModelSpec
    chip: Chip
    overlay: str
    engine: str
    parallel: Parallel
    cache: KvCache
    terms: StepTerms
    kv_pool_bytes: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConfigurationKey:
    """What distinguishes configurations in a table; 0 for a MoE width that the row leaves blank."""

    model_path: str
    precision: str
    system: str
    engine: str
    tp: int
    dp: int
    pp: int
    moe_tp: int
    moe_ep: int


def with_defaults(table: pd.DataFrame) -> pd.DataFrame:
    """The table under canonical column names, defaults filled in. Raises InputError for missing required columns."""
    renamed = {old: new for new, olds in ALIASES.items() if new not in table for old in olds if old in table}
    table = table.rename(columns=renamed)
    missing = [name for name in REQUIRED if name not in table]
    if missing:
        have = ", ".join(map(str, table.columns))
        raise InputError([Problem(f"column {name}", "missing", f"the table has {have}", "see pddplan estimate --help") for name in missing])
    table = table.copy()
    for name, value in DEFAULTS.items():
        if name not in table:
            table[name] = value
        elif not (isinstance(value, float) and np.isnan(value)):
            table[name] = table[name].fillna(value)
    if "row" not in table:
        table["row"] = [f"r{i}" for i in range(len(table))]
    return table


def parallel_of(key: ConfigurationKey, model: ModelSpec) -> Parallel:
    """Parallel sizes of a row; blank MoE widths of a MoE model mean experts cut like everything else.

    Experts cut over many attention-DP ranks are read as experts spread over them: no engine cuts an expert 16 ways or more, and
    published tables write moe_tp where they mean the width of the expert group.
    """
    is_moe = any(layer.ffn.kind == "moe" for layer in model.layers)
    if not is_moe:
        return Parallel(tp=key.tp, pp=key.pp, dp=key.dp)
    width = key.tp * key.dp
    ep = key.moe_ep or (width // key.moe_tp if key.moe_tp else 1)
    if key.dp > 1 and ep == 1 and width >= 16:
        return Parallel(tp=key.tp, pp=key.pp, dp=key.dp, moe_ep=width, moe_tp=1)
    return Parallel(tp=key.tp, pp=key.pp, dp=key.dp, moe_ep=ep, moe_tp=key.moe_tp or max(width // ep, 1))


def served_kv_format(model: ModelSpec, precision: str) -> str:
    """KV dtype of a benchmark run, which tables do not record: what the checkpoint asks for, else fp8 beside fp8 or fp4 weights."""
    if model.default_kv_format != "bf16":
        return model.default_kv_format
    return "fp8" if precision in ("fp8", "fp4") and "fp8" in model.kv_formats else "bf16"


def price(key: ConfigurationKey) -> Configuration:
    """Terms and KV capacity of one configuration. Raises InputError with the reason it cannot be priced."""
    chip = load_chip(key.system)
    model = served_checkpoint(key.model_path, key.precision)
    engine = base_engine(key.engine)
    parallel = parallel_of(key, model)
    kv_format = served_kv_format(model, key.precision)
    kernels = kernel_set(chip, engine)
    terms = configuration_terms(model, parallel, kernels, kv_format)
    cache = kv_cache(model, kv_format)
    memory = waterfall(model, float(chip.hbm_bytes.value or 0.0), parallel, engine=engine, cache=cache, context_tokens=1.0)
    tuned = TUNED_MEMORY_SHARE * memory.capacity - memory.weights - TUNED_RESERVE_BYTES
    pool = max(memory.kv_pool, tuned)
    warnings = configuration_warnings(model, chip)
    if pool <= 0:
        pool = MINIMUM_POOL_SHARE * memory.capacity
        warnings = (*warnings, f"does not fit as described ({memory.why}); priced as if it did")
    return Configuration(model, chip, key.engine, engine, parallel, cache.per_gpu(parallel), terms, pool, warnings)


def _distinct(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number of each distinct row of ``rows`` per row, and the first position of each."""
    packed = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        codes, values = pd.factorize(column)
        packed = packed * len(values) + codes
        packed = pd.factorize(packed)[0].astype(np.int64)
    _, first = np.unique(packed, return_index=True)
    return packed, first


def fixed_lengths(table: pd.DataFrame) -> NDArray[np.bool_]:
    """Rows whose requests all had the nominal lengths: their law says so, and no row of the same workload and server says otherwise.

    Published tables list some runs under both laws, with one measurement: those runs had random lengths.
    """
    fixed = table["length_law"].astype(str).str.lower().to_numpy() == "fixed"
    if not fixed.any():
        return np.asarray(fixed, bool)
    run, _ = _distinct(np.column_stack([pd.factorize(table[name])[0] for name in (*_KEY_TEXT, "isl", "osl")]))
    also_random = np.zeros(run.max() + 1, bool)
    also_random[run[~fixed]] = True
    known: NDArray[np.bool_] = fixed & ~also_random[run]
    return known


ASSUMED_DRAFT_TOKENS = 3.0


def draft_tokens(table: pd.DataFrame) -> FloatArray:
    """Draft tokens per step of each row: its column ``draft_tokens``, else what is known of published runs.

    Published runs do not record speculation. Those named DeepSeek-R1 with a recorded engine version used MTP: in all 52 pairs of
    equal configurations of the calibration table they are 15 to 115 % faster than the DeepSeek-V3 run.
    """
    unrecorded = (
        table["model_path"].astype(str).str.contains("DeepSeek-R1") & table.get("engine_version", pd.Series(index=table.index)).notna()
    )
    inferred = np.where(unrecorded, ASSUMED_DRAFT_TOKENS, 0.0)
    if "draft_tokens" not in table:
        return inferred
    given = pd.to_numeric(table["draft_tokens"], errors="coerce").to_numpy(float)
    return np.where(np.isfinite(given), given, inferred)


def _draft_terms(configurations: list[Configuration], config: NDArray[np.int64], drafts: FloatArray) -> StepTerms | None:
    drafting = set(config[(drafts > 0) & (config >= 0)])
    if not drafting:
        return None
    made = {
        i: draft_terms(c.model, c.parallel, kernel_set(c.chip, c.engine), c.cache.format)
        for i, c in enumerate(configurations)
        if i in drafting
    }
    unused = next(iter(made.values()))  # rows that draft nothing multiply it by 0
    return stack([made.get(i, unused) for i in range(len(configurations))])


@dataclass(frozen=True)
class ServedRows:
    """Table of one role as arrays, shape (rows,). ``config`` indexes ``configurations`` and the stacked ``terms``; -1 where not priced.

    input_tokens, output_tokens: mean real lengths. kv_limit: requests that fit the instance's memory.
    """

    config: NDArray[np.int64]
    configurations: tuple[Configuration, ...]
    terms: StepTerms | None
    input_tokens: FloatArray
    output_tokens: FloatArray
    concurrency: FloatArray
    kv_limit: FloatArray
    fixed_lengths: NDArray[np.bool_]
    draft: StepTerms | None
    draft_tokens: FloatArray
    reasons: tuple[str, ...]

    def take(self, keep: NDArray[np.bool_]) -> ServedRows:
        """The rows of the mask ``keep``."""
        rows = {n: getattr(self, n)[keep] for n in _ROW_FIELDS}
        return replace(self, reasons=tuple(r for r, k in zip(self.reasons, keep, strict=True) if k), **rows)


_ROW_FIELDS = ("config", "input_tokens", "output_tokens", "concurrency", "kv_limit", "fixed_lengths", "draft_tokens")


_KEY_TEXT = ("model_path", "precision", "system", "engine")
_KEY_COLUMNS = {
    "": ("tp_size", "attention_dp_size", "pp_size", "moe_tp_size", "moe_ep_size"),
    "prefill_": ("prefill_tp_size", "prefill_attention_dp_size", "", "prefill_moe_tp_size", "prefill_moe_ep_size"),
    "decode_": ("decode_tp_size", "decode_attention_dp_size", "", "decode_moe_tp_size", "decode_moe_ep_size"),
}


def served_rows(table: pd.DataFrame, role: str = "") -> ServedRows:
    """Arrays of a table with defaults (``with_defaults``); ``role`` "", "prefill_" or "decode_" picks the parallel columns."""
    columns = [pd.factorize(table[name])[0] for name in _KEY_TEXT]
    for column, default in zip(_KEY_COLUMNS[role], (1, 1, 1, 0, 0), strict=True):
        found = table[column] if column in table else pd.Series(np.nan, table.index)
        columns.append(pd.to_numeric(found, errors="coerce").fillna(default).to_numpy(int))
    codes, first = _distinct(np.column_stack(columns))
    unique = []
    for i in first:
        model_path, precision, system, engine = (str(table[name].iloc[i]).strip() for name in _KEY_TEXT)
        numbers = (int(column[i]) for column in columns[len(_KEY_TEXT) :])
        unique.append(ConfigurationKey(model_path, precision.lower(), system, engine, *numbers))
    configurations: list[Configuration] = []
    index = np.full(len(unique), -1)
    failures: dict[int, str] = {}
    for i, values in enumerate(unique):
        try:
            configuration = price(values)
        except PddplanError as error:
            failures[i] = str(error).splitlines()[0]
        else:
            index[i] = len(configurations)
            configurations.append(configuration)
    config = index[codes]
    drafts = draft_tokens(table)
    law = fixed_lengths(table)
    mean = np.where(law, 1.0, RANDOM_LENGTH_MEAN)
    isl = pd.to_numeric(table["isl"], errors="coerce").to_numpy(float) * mean
    osl = pd.to_numeric(table["osl"], errors="coerce").to_numpy(float) * mean
    return ServedRows(
        config=config,
        configurations=tuple(configurations),
        terms=stack([c.terms for c in configurations]) if configurations else None,
        input_tokens=isl,
        output_tokens=osl,
        concurrency=pd.to_numeric(table["concurrency"], errors="coerce").fillna(1).to_numpy(float),
        kv_limit=_kv_limit(configurations, config, isl + osl / 2.0),
        fixed_lengths=law,
        draft=_draft_terms(configurations, config, drafts),
        draft_tokens=drafts,
        reasons=tuple(failures.get(code, "") for code in codes),
    )


TUNED_MEMORY_SHARE = 0.95  # operators of benchmarks raise the engine's memory fraction until the run fits
TUNED_RESERVE_BYTES = 4e9
MINIMUM_POOL_SHARE = 0.02


def _kv_limit(configurations: list[Configuration], config: NDArray[np.int64], tokens: FloatArray) -> FloatArray:
    """Requests of ``tokens`` that fit each row's instance; infinite for rows without a configuration."""
    limit = np.full(len(config), np.inf)
    for i, c in enumerate(configurations):
        rows = config == i
        limit[rows] = c.kv_pool_bytes / np.maximum(c.cache.bytes_resident(tokens[rows]), 1e-9)
    return limit
