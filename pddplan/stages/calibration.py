"""Calibrating an engine overlay to a user's own benchmarks: what the rows identify, how well it generalises, the overlay to ship."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pddplan.errors import InputError, Problem
from pddplan.roofline.benchmark_table import BenchmarkTable, read_benchmark_table
from pddplan.roofline.fit import BenchmarkRows, predict_with
from pddplan.roofline.overlay import Overlay
from pddplan.roofline.overlay_file import read_overlay
from pddplan.roofline.refine import Refinement, held_out, refine, scaled
from pddplan.roofline.terms import FloatArray
from pddplan.stages.serving import errors_of, overlay_of

MINIMUM_ROWS = 3
GROUPS = ("model_path", "system", "tp_size", "isl", "osl")


@dataclass(frozen=True)
class Calibration:
    """``overlay``: content of the file to write. Errors in percent: before (shipped), after (in sample), held_out."""

    engine: str
    rows: int
    skipped: tuple[str, ...]
    refinement: Refinement
    grouped_by: str
    groups: int
    before: Mapping[str, Mapping[str, float]]
    after: Mapping[str, Mapping[str, float]]
    held_out: Mapping[str, Mapping[str, float]]
    overlay: Mapping[str, object]


def _errors(rows: list[BenchmarkRows], predicted: list[tuple[FloatArray, FloatArray]]) -> dict[str, dict[str, float]]:
    tpot = errors_of(np.concatenate([p[0] for p in predicted]), np.concatenate([r.tpot_s for r in rows]))
    ttft = errors_of(np.concatenate([p[1] for p in predicted]), np.concatenate([r.ttft_s for r in rows]))
    return {"tpot": tpot, "ttft": ttft}


def _predicted(pairs: list[tuple[BenchmarkRows, Overlay]], factors: Mapping[str, float]) -> list[tuple[FloatArray, FloatArray]]:
    theta = np.log(np.array(list(factors.values())))
    states = [predict_with(rows, scaled(base, list(factors), theta)) for rows, base in pairs]
    return [(s.tpot_s, s.ttft_s) for s in states]


def _grouping(table: BenchmarkTable, group_by: str | None) -> tuple[str, list[np.ndarray]]:
    """Groups of the rows of each part: by the column asked for, else by the first that has two values or more, else every row its own."""
    frame = table.table
    candidates = (group_by,) if group_by else GROUPS
    for name in candidates:
        if name not in frame:
            raise InputError(Problem("--group-by", str(name), "a column of the table", "model_path"))
        codes = pd.factorize(frame[name].astype(str))[0]
        used = np.concatenate([codes[index] for _, index in table.parts()])
        if len(np.unique(used)) > 1:
            return name, [codes[index] for _, index in table.parts()]
    return "row", [index for _, index in table.parts()]


def calibrate(raw: pd.DataFrame, *, shrinkage: float = 1.0, group_by: str | None = None, source: str = "") -> Calibration:
    """Refit the shipped constants of the rows' engine to the rows.

    Raises InputError: several engines, no measured columns, fewer than three usable rows.
    """
    table = read_benchmark_table(raw)
    parts = table.parts()
    served_of = {id(table.aggregated): table.served, id(table.disaggregated): table.decode}
    pairs = [(rows, overlay_of(rows, served)) for rows, _ in parts if (served := served_of[id(rows)]) is not None]
    engines = sorted({c.overlay for rows, _ in parts if (served := served_of[id(rows)]) is not None for c in served.configurations})
    if len(engines) > 1:
        raise InputError(Problem("engine", ", ".join(engines), "rows of one engine per overlay; pass --engine to choose", engines[0]))
    measured = sum(int(np.isfinite(rows.tpot_s).sum() + np.isfinite(rows.ttft_s).sum()) for rows, _ in pairs)
    count = sum(len(rows.tpot_s) for rows, _ in pairs)
    reasons = tuple(dict.fromkeys(reason for reason in table.reasons if reason))
    if count < MINIMUM_ROWS or measured < MINIMUM_ROWS:
        found = f"{count} rows that can be priced, {measured} measured values"
        problems = [Problem("benchmark table", found, f"at least {MINIMUM_ROWS} rows with measured_tpot_ms or measured_ttft_ms")]
        raise InputError([*problems, *(Problem("row", reason, "") for reason in reasons)])
    name, groups = _grouping(table, group_by)
    refinement = refine(pairs, shrinkage)
    rows = [rows for rows, _ in pairs]
    out = _errors(rows, held_out(pairs, groups, shrinkage))
    after = _errors(rows, _predicted(pairs, refinement.factors))
    return Calibration(
        engine=engines[0],
        rows=count,
        skipped=reasons,
        refinement=refinement,
        grouped_by=name,
        groups=len(np.unique(np.concatenate(groups))),
        before=_errors(rows, _predicted(pairs, {})),
        after=after,
        held_out=out,
        overlay=_overlay(engines[0], refinement, out, count, name, source),
    )


def _overlay(
    engine: str, refinement: Refinement, out: Mapping[str, Mapping[str, float]], rows: int, grouped_by: str, source: str
) -> dict[str, object]:
    shipped = read_overlay(engine)
    constants = {
        group: {name: float(f"{float(value) * refinement.factors.get(name, 1.0):.5g}") for name, value in values.items()}
        for group, values in shipped["constants"].items()
    }
    return {
        "engine": shipped.get("engine", engine),
        "kind": "measured",
        "source": f"pddplan calibrate on {source}" if source else "pddplan calibrate",
        "constants": constants,
        "bands": shipped.get("bands", {}),
        "fit": {
            "rows": rows,
            "shrinkage": refinement.shrinkage,
            "factors_on_shipped": {k: round(v, 4) for k, v in refinement.factors.items()},
            "left_at_shipped": sorted(k for k in refinement.narrowing if k not in refinement.factors),
            f"held_out_by_{grouped_by}_percent": {m: {k: round(v, 2) for k, v in e.items()} for m, e in out.items()},
        },
    }
