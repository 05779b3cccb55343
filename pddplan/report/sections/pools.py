"""Utilisation and bottleneck per pool and line, and the roofline position of each stage."""

from __future__ import annotations

from collections.abc import Callable

from pddplan.optimize.result import PlanResult
from pddplan.report.document import Block, Column, Figure, Paragraph, Section, Table
from pddplan.report.numbers import percent, significant
from pddplan.report.sections.charts import bars, layout

Translate = Callable[..., str]


def section(result: PlanResult, t: Translate) -> Section:
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
    if result.pd_ratio is not None:
        blocks += _ratio(result, t)
    return Section("pools", t("section.pools"), tuple(blocks))


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
