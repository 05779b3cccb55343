"""What users feel: TTFT, TPOT, stall as distributions with their targets, per pipeline and overall, and attainment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pddplan.optimize.result import PlanResult
from pddplan.pdd.plan import FloatArray, Law
from pddplan.report.document import Block, Cell, Column, Figure, Paragraph, Section, Table
from pddplan.report.numbers import duration, missed, percent
from pddplan.report.sections.charts import layout, limit_line, line

Translate = Callable[..., str]
POINTS = 240
QUANTILES = (0.5, 0.9, 0.95, 0.99)


def section(result: PlanResult, limits: Sequence[tuple[str, str, float]], t: Translate) -> Section:
    """``limits``: (class name, metric ttft|tpot, seconds) of every SLA target."""
    evaluation = result.evaluation
    blocks: list[Block] = [Paragraph(t("sla.attainment", p_good=percent(evaluation.metrics.p_good)), "lead")]
    blocks += [
        Paragraph(t("sla.violation", constraint=v.constraint, value=missed(v)[0], limit=missed(v)[1]), "warning")
        for v in evaluation.violations
    ]
    ttft = {t("sla.all"): evaluation.laws["ttft"]} | {p.name: p.ttft for p in evaluation.pipelines if p.share > 0}
    blocks.append(_curves("ttft", t("sla.ttft_title"), ttft, [(c, s) for c, m, s in limits if m == "ttft"], t))
    for metric in ("tpot", "stall"):
        laws = {t("sla.all"): evaluation.laws[metric]} | {
            name: law[metric] for name, law in evaluation.class_laws.items() if len(evaluation.class_laws) > 1 and metric in law
        }
        blocks.append(_curves(metric, t(f"sla.{metric}_title"), laws, [(c, s) for c, m, s in limits if m == metric], t))
    blocks.append(_pipelines(result, t))
    return Section("sla", t("section.sla"), tuple(blocks))


def _curves(metric: str, title: str, laws: Mapping[str, Law], limits: Sequence[tuple[str, float]], t: Translate) -> Block:
    if not any(np.isfinite(law.quantile(0.5)) for law in laws.values()):
        return Paragraph(f"{title} {t('sla.no_law')}")
    scale, unit = (1.0, "s") if metric == "ttft" else (1e3, "ms")
    traces = []
    for index, (name, law) in enumerate(laws.items()):
        seconds, share = thinned(law)
        traces.append(line(scale * seconds, 100 * share, name, index, f"{name}: %{{y:.1f}} % ≤ %{{x:.3g}} {unit}<extra></extra>"))
    shapes, notes = [], []
    for name, limit_s in limits:
        shape, note = limit_line(scale * limit_s, f"{name}: {duration(limit_s)}")
        shapes.append(shape)
        notes.append(note)
    all_law = next(iter(laws.values()))
    rows: tuple[tuple[Cell, ...], ...] = tuple((f"P{100 * q:g}", *(scale * law.quantile(q) for law in laws.values())) for q in QUANTILES)
    columns = (Column(t("column.percentile"), align="left"), *(Column(name, unit) for name in laws))
    top = max(law.quantile(0.999) for law in laws.values() if np.isfinite(law.quantile(0.5)))
    right = scale * (min(top, 4 * all_law.quantile(0.99)) if np.isfinite(top) else float(all_law.seconds[-1]))
    right = max([right, *(1.1 * scale * limit_s for _, limit_s in limits)])
    x_title = f"{t(f'axis.{metric}')} [{unit}]"
    return Figure(
        id=f"fig-{metric}",
        title=title,
        summary=t(
            "sla.curve_summary",
            p50=duration(all_law.quantile(0.5)),
            p90=duration(all_law.quantile(0.9)),
            p99=duration(all_law.quantile(0.99)),
        ),
        traces=tuple(traces),
        layout=layout(
            x_title,
            t("axis.share_within"),
            shapes=shapes,
            annotations=notes,
            xaxis={"range": [0, right]},
            yaxis={"range": [0, 101]},
            margin={"l": 64, "r": 16, "t": 40, "b": 56},
        ),
        data=Table(f"{metric}-quantiles", title, columns, rows),
    )


def thinned(law: Law) -> tuple[FloatArray, FloatArray]:
    """Grid points that draw the curve: evenly spread over the probability, ends included."""
    if law.seconds.size <= POINTS:
        return law.seconds, law.cdf
    wanted = np.linspace(0.0, float(law.cdf[-1]), POINTS)
    index = np.unique(np.clip(np.searchsorted(law.cdf, wanted), 0, law.cdf.size - 1))
    return law.seconds[index], law.cdf[index]


def _pipelines(result: PlanResult, t: Translate) -> Table:
    columns = (
        Column(t("column.pipeline"), align="left"),
        Column(t("column.share"), "%"),
        *(Column(f"TTFT {q}", "s") for q in ("P50", "P90", "P99")),
    )
    rows = tuple((p.name, 100 * p.share, p.ttft_p50_s, p.ttft_p90_s, p.ttft_p99_s) for p in result.evaluation.pipelines)
    return Table("pipelines", t("caption.pipelines"), columns, rows, note=t("sla.pipelines_note"))
