"""A sweep shown: as a table, as a few lines, and as a page with a figure per varied value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from pddplan.report.document import Block, Cell, Column, Document, Figure, Paragraph, Section, Table
from pddplan.report.numbers import percent, significant
from pddplan.report.palette import BLUE, VERMILION
from pddplan.report.sections.charts import layout
from pddplan.studies.sweep import Varied, attainment

SHOWN = {
    "bcr": ("BCR", "req/s per USD/h"),
    "cost_usd_per_h": ("Cost", "USD/h"),
    "ttft_p99_s": ("TTFT P99", "s"),
    "gpus": ("GPUs", ""),
}
NUMBER = re.compile(r"^\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)")
ROWS_ON_PAGE = 500


def sweep_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per point; columns are the union over points, in order of first appearance; a metric that no point has is NaN."""
    frame = pd.DataFrame(list(rows))
    empty = [name for name in frame.columns if frame[name].isna().all()]
    return frame.astype(dict.fromkeys(empty, "float64"))


def sweep_lines(varied: Sequence[Varied], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Counts by status, the best point, and the share of points that meet the service levels."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    yield f"{len(rows)} points: " + ", ".join(f"{number} {status}" for status, number in counts.items())
    yield f"service levels met at {percent(attainment(rows))} of the points"
    planned = [row for row in rows if row.get("bcr")]
    if planned:
        best = max(planned, key=lambda row: row["bcr"])
        where = ", ".join(f"{entry.path}={best[entry.path]}" for entry in varied)
        yield f"best BCR {significant(best['bcr'], 4)} req/s per USD/h at {where}"
    for reason in dict.fromkeys(row["reason"] for row in rows if row["status"] in ("infeasible", "input", "error")):
        yield f"failed: {reason}"


def sweep_page(name: str, varied: Sequence[Varied], rows: Sequence[Mapping[str, Any]]) -> Document:
    blocks: list[Block] = [Paragraph(text) for text in sweep_lines(varied, rows)]
    planned = [row for row in rows if row.get("cost_usd_per_h") is not None]
    if planned:
        blocks += [_figure(entry, i, metric, planned) for i, entry in enumerate(varied) for metric in SHOWN]
    keys = [*(entry.path for entry in varied), "status", *SHOWN, "reason"]
    columns = tuple(
        Column(SHOWN.get(key, (key, ""))[0], SHOWN.get(key, ("", ""))[1], align="right" if key in SHOWN else "left") for key in keys
    )
    cells: tuple[tuple[Cell, ...], ...] = tuple(tuple(row.get(key) for key in keys) for row in rows[:ROWS_ON_PAGE])
    note = "" if len(rows) <= ROWS_ON_PAGE else f"first {ROWS_ON_PAGE} of {len(rows)} points; the table file has all"
    blocks.append(Table("sweep-points", "Points", columns, cells, note))
    headline = next(sweep_lines(varied, rows))
    return Document("en", f"Sweep of {name}", headline, (), (Section("sweep", "What varies", tuple(blocks)),))


def _figure(entry: Varied, index: int, metric: str, rows: Sequence[Mapping[str, Any]]) -> Figure:
    label, unit = SHOWN[metric]
    x = [_x(row[entry.path]) for row in rows]
    y = [row[metric] for row in rows]
    colours = [BLUE if row.get("meets_sla") else VERMILION for row in rows]
    traces = (
        {
            "type": "scatter",
            "mode": "markers",
            "x": x,
            "y": y,
            "marker": {"color": colours, "size": 7, "symbol": ["circle" if row.get("meets_sla") else "x" for row in rows]},
            "hovertemplate": f"{entry.path} %{{x}}: {label} %{{y:.4g}} {unit}<extra></extra>",
        },
    )
    columns = (Column(entry.path, align="left"), Column(label, unit))
    title = f"How does {label} answer to {entry.path}?"
    data = Table(f"sweep-{index}-{metric}-data", title, columns, tuple((str(row[entry.path]), row[metric]) for row in rows[:ROWS_ON_PAGE]))
    summary = "Circles meet the service levels, crosses do not."
    axes = layout(entry.path, f"{label} [{unit}]" if unit else label, showlegend=False)
    return Figure(f"sweep-{index}-{metric}", title, summary, traces, axes, data, 300)


def _x(value: str) -> float | str:
    match = NUMBER.match(value)
    return float(match[1]) if match else value
