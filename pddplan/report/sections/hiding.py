"""Latency hiding: the life of a typical request at P50, P90 and P99 and of a relayed one, lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pddplan.optimize.result import PlanResult
from pddplan.pdd.timeline import Timeline
from pddplan.report.document import Block, Column, Figure, Paragraph, Section, Table
from pddplan.report.numbers import duration, percent
from pddplan.report.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY
from pddplan.report.sections.charts import layout

Translate = Callable[..., str]
LANES = ("P", "RDMA", "line", "RLD", "MD", "AGG")
COLOURS = {"P": ORANGE, "RDMA": GREY, "line": SKY, "RLD": PURPLE, "MD": BLUE, "AGG": GREEN}


def section(result: PlanResult, timelines: Sequence[Timeline], t: Translate) -> Section:
    share = result.evaluation.metrics.rld_token_share
    has_relay = any(r.pool.configuration.role == "RLD" and r.pool.instances for r in result.evaluation.pools)
    intro = t("hiding.share", share=percent(share)) if has_relay else t("hiding.none")
    blocks: list[Block] = [Paragraph(intro, "lead")]
    if has_relay:
        blocks.append(Paragraph(t("hiding.how")))
    blocks += [_figure(timeline, t) for timeline in timelines]
    if timelines:
        blocks.append(_table(timelines, t))
    return Section("hiding", t("section.hiding"), tuple(blocks))


def _figure(timeline: Timeline, t: Translate) -> Figure:
    label = _label(timeline)
    spans = timeline.spans
    lanes = [lane for lane in reversed(LANES) if any(span.lane == lane for span in spans)]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [span.lane],
            "x": [span.end_s - span.start_s],
            "base": [span.start_s],
            "name": span.activity,
            "marker": {"color": COLOURS[span.lane], "pattern": {"shape": "/" if span.hidden else ""}},
            "hovertemplate": f"{span.activity}: {duration(span.start_s)} – {duration(span.end_s)}<extra>{span.lane}</extra>",
        }
        for span in spans
    ]
    columns = (
        Column(t("column.lane"), align="left"),
        Column(t("column.activity"), align="left"),
        Column(t("column.start"), "s"),
        Column(t("column.end"), "s"),
        Column(t("column.tokens")),
        Column(t("column.hidden"), align="left"),
    )
    rows = tuple((s.lane, s.activity, s.start_s, s.end_s, s.tokens or None, t("word.yes") if s.hidden else t("word.no")) for s in spans)
    ttft = duration(timeline.ttft_s)
    title = t("hiding.relayed_title", ttft=ttft) if timeline.among_pipeline else t("hiding.title", q=label, ttft=ttft)
    hides = "hiding.hides" if timeline.hidden_s > 0.0 else "hiding.hides_nothing"
    return Figure(
        id=f"fig-timeline-{label.replace(' ', '-')}",
        title=title,
        summary=t(
            "hiding.summary",
            pipeline=timeline.pipeline,
            input=round(timeline.input_tokens),
            uncached=round(timeline.uncached_tokens),
            hiding=t(hides, hidden=duration(timeline.hidden_s), stall=duration(timeline.stall_s)),
        ),
        traces=tuple(traces),
        layout=layout(
            t("axis.seconds"),
            "",
            barmode="overlay",
            showlegend=False,
            yaxis={"categoryorder": "array", "categoryarray": lanes},
            xaxis={"range": [0, 1.02 * max(span.end_s for span in spans)]},
        ),
        data=Table(f"timeline-{label.replace(' ', '-')}", title, columns, rows),
        height_px=80 + 44 * max(len(lanes), 2),
    )


def _label(timeline: Timeline) -> str:
    """Percentile, of all requests or of those of its pipeline."""
    return f"P{100 * timeline.percentile:g}" + (f" {timeline.pipeline}" if timeline.among_pipeline else "")


def _table(timelines: Sequence[Timeline], t: Translate) -> Table:
    columns = (
        Column(t("column.percentile"), align="left"),
        Column(t("column.pipeline"), align="left"),
        Column("TTFT", "s"),
        Column(t("hiding.hidden"), "s"),
        Column(t("hiding.stall"), "ms"),
        Column(t("hiding.e2e"), "s"),
    )
    rows = tuple((_label(x), x.pipeline, x.ttft_s, x.hidden_s, 1e3 * x.stall_s, x.e2e_s) for x in timelines)
    return Table("timelines", t("hiding.table"), columns, rows)
