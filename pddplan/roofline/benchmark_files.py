"""Benchmark results as tables: CSV, and the JSON of vLLM ``bench serve``, SGLang bench_serving, aiperf and genai-perf.

A JSON result does not say on what it ran: model, chip, engine and parallel sizes come as ``defaults``. A run at a request rate
becomes a closed loop at its mean number of requests in flight (Little: throughput x residence).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pddplan.errors import InputError, Problem


def read_benchmark(path: Path, defaults: Mapping[str, float | str | None]) -> pd.DataFrame:
    """Rows of one result file. ``defaults`` fill columns that it lacks. Raises InputError for an unreadable or unknown file."""
    if path.suffix.lower() in (".yaml", ".yml"):
        raise InputError(Problem(str(path), "a YAML file", "a table: CSV, or the JSON of a benchmark client", "rows.csv"))
    try:
        text = path.read_text(encoding="utf-8-sig") if path.suffix.lower() in (".json", ".jsonl") else None
        frame = _from_json(path, text) if text is not None else pd.read_csv(path)
    except OSError as error:
        raise InputError(Problem(str(path), error.strerror or str(error), "a readable file")) from error
    except (ValueError, UnicodeDecodeError) as error:
        found = f"cannot be read ({' '.join(str(error).split())})"
        raise InputError(Problem(str(path), found, "CSV, or the JSON of a benchmark client")) from error
    if frame.empty:
        raise InputError(Problem(str(path), "holds no rows", "at least one result"))
    for name, value in defaults.items():
        if value is not None and (name not in frame or name in ("engine", "system")):
            frame[name] = value
        elif value is not None:
            frame[name] = frame[name].fillna(value)
    return frame


def _from_json(path: Path, text: str) -> pd.DataFrame:
    try:
        found = json.loads(text)
        results = found if isinstance(found, list) else [found]
    except ValueError:
        results = [json.loads(line) for line in text.splitlines() if line.strip()]
    rows = [_row(result, path) for result in results if isinstance(result, Mapping)]
    return pd.DataFrame(rows)


def _row(result: Mapping[str, Any], path: Path) -> dict[str, object]:
    if "time_to_first_token" in result:
        return _perf_row(result)
    if "mean_ttft_ms" in result or "median_ttft_ms" in result:
        return _serve_row(result)
    raise InputError(
        Problem(str(path), "no time_to_first_token, mean_ttft_ms or median_ttft_ms", "the result of vLLM, SGLang, aiperf or genai-perf")
    )


def _serve_row(result: Mapping[str, Any]) -> dict[str, object]:
    """vLLM ``bench serve --save-result`` and SGLang ``bench_serving --output-file``."""
    completed = float(result.get("completed") or result.get("num_prompts") or 1)
    isl = float(result.get("total_input_tokens") or 0) / completed or result.get("random_input_len")
    osl = float(result.get("total_output_tokens") or 0) / completed or result.get("random_output_len")
    ttft = float(result.get("mean_ttft_ms") or result["median_ttft_ms"])
    tpot = float(result.get("mean_tpot_ms") or result.get("median_tpot_ms") or np.nan)
    concurrency = result.get("max_concurrency")
    if not concurrency:
        throughput = float(result.get("request_throughput") or completed / float(result.get("duration") or np.nan))
        concurrency = result.get("concurrency") or throughput * (ttft + tpot * max(float(osl or 1) - 1.0, 0.0)) / 1e3
    row: dict[str, object] = {
        "isl": isl, "osl": osl, "concurrency": concurrency, "measured_ttft_ms": ttft, "measured_tpot_ms": tpot, "length_law": "fixed",
    }  # fmt: skip
    if result.get("model_id"):
        row["model_path"] = result["model_id"]
    return row


def _statistic(result: Mapping[str, Any], *names: str) -> float:
    for name in names:
        entry = result.get(name)
        if isinstance(entry, Mapping):
            value = float(entry.get("avg", entry.get("p50", np.nan)))
            return value * {"ns": 1e-6, "us": 1e-3, "s": 1e3}.get(str(entry.get("unit", "ms")), 1.0)
    return np.nan


def _perf_row(result: Mapping[str, Any]) -> dict[str, object]:
    """aiperf and genai-perf profile_export."""
    config = result.get("input_config") or {}
    concurrency = _find(config, "concurrency") or result.get("concurrency")
    ttft, tpot = _statistic(result, "time_to_first_token"), _statistic(result, "inter_token_latency", "time_per_output_token")
    osl = _statistic(result, "output_sequence_length", "output_token_count")
    if not concurrency:
        concurrency = _statistic(result, "request_throughput") * (ttft + tpot * max(osl - 1.0, 0.0)) / 1e3
    row: dict[str, object] = {
        "isl": _statistic(result, "input_sequence_length", "input_token_count"), "osl": osl, "concurrency": concurrency,
        "measured_ttft_ms": ttft, "measured_tpot_ms": tpot, "length_law": "fixed",
    }  # fmt: skip
    names = _find(config, "model_names") or _find(config, "model")
    if names:
        row["model_path"] = names[0] if isinstance(names, list) else names
    return row


def _find(value: object, name: str) -> Any:
    """First value under ``name``, however deep."""
    if isinstance(value, Mapping):
        if value.get(name):
            return value[name]
        return next((found for inner in value.values() if (found := _find(inner, name))), None)
    return None
