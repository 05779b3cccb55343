"""The backtest as a page: measured against predicted, and the errors by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pddplan.report.document import Column, Document, Figure, Paragraph, Section, Table

MOST_POINTS = 4000


def _scatter(frame: pd.DataFrame, metric: str, title: str) -> Figure:
    known = frame[[f"measured_{metric}_ms", f"{metric}_ms", "engine", "row"]].dropna()
    known = known[(known[f"measured_{metric}_ms"] > 0) & (known[f"{metric}_ms"] > 0)]
    drawn = known.iloc[:: max(1, -(-len(known) // MOST_POINTS))]
    traces: list[dict[str, object]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": str(engine),
            "x": part[f"measured_{metric}_ms"].round(4).tolist(),
            "y": part[f"{metric}_ms"].round(4).tolist(),
            "marker": {"size": 4, "opacity": 0.6},
        }
        for engine, part in drawn.groupby("engine")
    ]
    if len(known):
        ends = [float(known[f"measured_{metric}_ms"].min()), float(known[f"measured_{metric}_ms"].max())]
        for name, factor in (("equal", 1.0), ("+20 %", 1.2), ("-20 %", 1 / 1.2)):
            style = {"width": 1, "dash": "solid" if factor == 1.0 else "dot"}
            traces.append({"type": "scatter", "mode": "lines", "name": name, "x": ends, "y": [factor * e for e in ends], "line": style})
    axis = {"type": "log"}
    share = float(np.mean(np.abs(known[f"{metric}_ms"] / known[f"measured_{metric}_ms"] - 1) <= 0.2)) if len(known) else 0.0
    data = Table(
        f"{metric}-data", f"{title} ({len(drawn)} of {len(known)} rows)",
        (Column("row", align="left"), Column("measured", "ms"), Column("predicted", "ms")),
        tuple(
            (str(r), float(m), float(p))
            for r, m, p in zip(drawn["row"], drawn[f"measured_{metric}_ms"], drawn[f"{metric}_ms"], strict=True)
        ),
    )  # fmt: skip
    return Figure(
        f"{metric}-scatter", title, f"{share:.0%} of the rows are predicted within 20 %.", tuple(traces),
        {"xaxis": {**axis, "title": {"text": "measured (ms)"}}, "yaxis": {**axis, "title": {"text": "predicted (ms)"}}}, data, 460,
    )  # fmt: skip


def backtest_page(errors: Mapping[str, Sequence[Mapping[str, object]]], rows: pd.DataFrame, source: str) -> Document:
    """Page of ``errors`` (stages.serving.backtest) and of ``rows``: predictions beside the measured columns."""
    columns = (
        Column("group", align="left"), Column("mode", align="left"), Column("metric", align="left"), Column("rows"),
        Column("median error", "%"), Column("mean", "%"), Column("p90", "%"), Column("bias", "%"), Column("coverage", "%"),
    )  # fmt: skip

    def cells(row: Mapping[str, object]) -> tuple[str | float | int | None, ...]:
        numbers = [row.get(name) for name in ("rows", "median", "mean", "p90", "bias")]
        return (
            str(row["group"]), str(row["mode"]), str(row["metric"]).upper(),
            *(float(n) if isinstance(n, int | float) else None for n in numbers), 100.0 * float(str(row["coverage"])),
        )  # fmt: skip

    tables = tuple(
        Table(f"by-{name.replace(' ', '-')}", f"Errors by {name}", columns, tuple(cells(r) for r in found))
        for name, found in errors.items()
    )
    overall = "; ".join(
        f"{r['metric']} {r['mode']}: median {float(str(r['median'])):.1f} %, p90 {float(str(r['p90'])):.0f} %"
        for r in errors["overall"]
        if "median" in r
    )
    figures = tuple(
        _scatter(rows, metric, title)
        for metric, title in (("tpot", "Does predicted TPOT follow measured TPOT?"), ("ttft", "Does predicted TTFT follow measured TTFT?"))
        if f"measured_{metric}_ms" in rows
    )
    return Document(
        lang="en",
        title="Backtest against measured servers",
        headline=f"Errors: {overall}." if overall else "No row could be compared.",
        facts=(("Source", source), ("Rows", str(len(rows)))),
        sections=(
            Section("chart", "Predicted and measured", figures),
            Section(
                "errors", "Errors", (Paragraph("Absolute error of the prediction, signed median bias, share of rows answered."), *tables)
            ),
        ),
    )
