"""Utilisation and bottleneck per pool and line, and the roofline position of each stage."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from pddplan.optimize.result import PlanResult
from pddplan.pdd.roofline_position import StagePosition
from pddplan.report.document import Block, Column, Figure, Paragraph, Section, Table
from pddplan.report.numbers import percent, significant
from pddplan.report.palette import GREY, ROLE
from pddplan.report.sections.charts import Trace, bars, layout

Translate = Callable[..., str]


def section(result: PlanResult, positions: Sequence[StagePosition], t: Translate) -> Section:
    evaluation = result.evaluation
    rows: list[tuple[str | float | int | None, ...]] = [
        (
            f"{r.pool.configuration.role} · {r.pool.configuration.site}",
            100 * r.utilisation,
            r.binding_resource,
            r.batch_mean or None,
            r.batch_max or None,
        )
        for r in evaluation.pools
    ]
    rows += [(f"{r.link.from_site} → {r.link.to_site}", 100 * r.utilisation, t("pools.line"), None, None) for r in evaluation.links]
    names = [str(row[0]) for row in rows]
    used = [float(row[1] or 0.0) for row in rows]
    columns = (
        Column(t("column.pool"), align="left"),
        Column(t("column.utilisation"), "%"),
        Column(t("column.binding_resource"), align="left"),
        Column(t("column.batch_mean")),
        Column(t("column.batch_max")),
    )
    busiest = max(range(len(used)), key=used.__getitem__)
    blocks: list[Block] = [
        Figure(
            id="fig-utilisation",
            title=t("pools.title"),
            summary=t("pools.summary", name=names[busiest], used=percent(used[busiest] / 100)),
            traces=(bars(names, used, t("column.utilisation"), hover="%{x}: %{y:.1f} %<extra></extra>"),),
            layout=layout("", t("column.utilisation") + " [%]", showlegend=False, yaxis={"range": [0, 105]}),
            data=Table("utilisation", t("pools.title"), columns, tuple(rows)),
            height_px=300,
        )
    ]
    if positions:
        blocks.append(_roofline(positions, t))
    if result.pd_ratio is not None:
        blocks += _ratio(result, t)
    return Section("pools", t("section.pools"), tuple(blocks))


def _roofline(positions: Sequence[StagePosition], t: Translate) -> Figure:
    """Stages (large) and their kernels (small): arithmetic time over memory time, and the share of the time that arithmetic fills."""
    intensity = np.geomspace(1e-6, 1e6, 121)
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": intensity.tolist(),
            "y": (100 * np.minimum(intensity, 1.0)).tolist(),
            "name": t("pools.roof"),
            "line": {"color": GREY, "width": 2},
            "hoverinfo": "skip",
        }
    ]
    rows = []
    for position in positions:
        configuration = position.pool.pool.configuration
        stage = f"{configuration.role} · {configuration.site}, {t(f'phase.{position.phase}')}"
        whole = (t("pools.whole"), position.seconds, position.compute_s, position.memory_s, 1.0, position.pool.binding_resource)
        parts: list[tuple[str, float, float | None, float | None, float, str]] = [whole]
        parts += [(c.name, c.seconds, c.compute_s, c.memory_s, c.share, c.binding) for c in position.components]
        rows += [
            (stage, name, 1e3 * s, 100 * share, _times(1e3, compute), _times(1e3, memory), _ratio_of(compute, memory), binding)
            for name, s, compute, memory, share, binding in parts
        ]
        shown = [(name, s, c, m, share) for name, s, c, m, share, _ in parts if c and m]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [c / m for _, _, c, m, _ in shown],
                "y": [100 * c / s for _, s, c, _, _ in shown],
                "text": [f"{name}, {percent(share)}" for name, *_, share in shown],
                "name": stage,
                "marker": {
                    "color": ROLE[configuration.role],
                    "size": [8 + 14 * math.sqrt(share) for *_, share in shown],
                    "symbol": "circle" if position.phase == "decode" else "diamond",
                    "line": {"width": 1, "color": GREY},
                },
                "hovertemplate": "%{text}<br>%{x:.3g} x the ridge, %{y:.3g} %<extra>" + stage + "</extra>",
            }
        )
    across = [x for trace in traces[1:] for x in trace["x"]] or [1.0]
    up = [y for trace in traces[1:] for y in trace["y"]] or [100.0]
    columns = (
        Column(t("column.pool"), align="left"),
        Column(t("column.component"), align="left"),
        Column(t("column.time"), "ms"),
        Column(t("column.share"), "%"),
        Column(t("column.arithmetic"), "ms"),
        Column(t("column.traffic"), "ms"),
        Column(t("column.intensity")),
        Column(t("column.binding_resource"), align="left"),
    )
    busiest = max(positions, key=lambda p: p.pool.utilisation)
    largest = max(busiest.components, key=lambda c: c.share)
    c = busiest.pool.pool.configuration
    said = t(
        "pools.roofline_largest",
        stage=f"{c.role} · {c.site}",
        component=largest.name,
        share=percent(largest.share),
        binding=largest.binding,
    )
    title = t("pools.roofline_title")
    return Figure(
        id="fig-roofline",
        title=title,
        summary=t("pools.roofline_summary", busiest=said),
        traces=tuple(traces),
        layout=layout(
            t("axis.intensity"),
            t("axis.attained"),
            xaxis={"type": "log", "range": [math.log10(min(0.5 * min(across), 0.1)), math.log10(max(2.0 * max(across), 10.0))]},
            yaxis={"type": "log", "range": [math.log10(min(0.5 * min(up), 10.0)), math.log10(150.0)], "rangemode": "normal"},
        ),
        data=Table("roofline", title, columns, tuple(rows)),
    )


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value


def _ratio_of(compute_s: float | None, memory_s: float | None) -> float | None:
    return compute_s / memory_s if compute_s is not None and memory_s else None


def _ratio(result: PlanResult, t: Translate) -> list[Block]:
    ratio = result.pd_ratio
    assert ratio is not None
    columns = (
        Column(t("column.role"), align="left"),
        Column(t("column.instances")),
        Column(t("column.gpus")),
        Column(t("column.nodes")),
        Column(t("column.chip_seconds"), "GPU·s"),
        Column(t("column.share"), "%"),
    )
    rows = tuple((w.role, w.instances, w.gpus, w.nodes, w.chip_s_per_request, 100 * w.share_of_work) for w in ratio.work)
    blocks: list[Block] = [Table("pd-ratio", t("caption.pd_ratio"), columns, rows), Paragraph(ratio.advice)]
    if ratio.best:
        best = ", ".join(f"{p}:{d} ({percent(loss)})" for p, d, loss in ratio.best[:4])
        blocks.append(Paragraph(t("pools.ratios", best=best, balanced=significant(ratio.balanced_d_per_p or 0.0)), "note"))
    return blocks
