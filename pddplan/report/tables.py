"""The tables of a plan as data frames, for CSV and Parquet files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict
from typing import Literal

import pandas as pd

from pddplan.report.json import evaluation_document
from pddplan.report.sheets.response import measures
from pddplan.report.sheets.source import WorkbookSource


def plan_tables(source: WorkbookSource) -> Mapping[str, pd.DataFrame]:
    """pools, links, metrics (the plan and its baselines, a row each), response (full model over one driver at a time), assumptions."""
    document = evaluation_document(source.evaluation)
    metrics = [{"plan": "this plan", **document["metrics"]}]
    metrics += [{"plan": b.name, **asdict(b.evaluation.metrics)} for b in source.result.baselines if b.evaluation is not None]
    chosen = measures(source)
    response = [
        {"driver": driver, "value": point, **{name: measure(evaluation) for name, measure in chosen.items()}}
        for driver, answers in source.responses.items()
        for point, evaluation in zip(answers.points, answers.evaluations, strict=True)
    ]
    assumed = [asdict(assumption) | {"value": str(assumption.value)} for assumption in source.assumptions]
    frames = {"pools": document["pools"], "links": document["links"], "metrics": metrics, "response": response, "assumptions": assumed}
    return {name: pd.DataFrame(rows) for name, rows in frames.items()}


def table_bytes(frame: pd.DataFrame, kind: Literal["csv", "parquet"]) -> bytes:
    if kind == "csv":
        text: str = frame.to_csv(index=False)
        return text.encode()
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()
