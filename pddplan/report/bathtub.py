"""The bathtub shown: as a JSON document, as text on the console, and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from pddplan.economics.benefit_curve import SingularPoint, Valley
from pddplan.report.document import Column, Document, Figure, Paragraph, Section, Table
from pddplan.report.numbers import duration, percent, significant
from pddplan.report.palette import GREY, VERMILION
from pddplan.report.sections.charts import bars, layout, line
from pddplan.studies.bathtub import BathtubStudy

SAYS = {
    "rising": "a higher hit rate pays",
    "falling": "a higher hit rate costs more revenue than the work it saves",
    "valley": "the benefit is high at both ends and low between: a bathtub",
    "sawtooth": "the benefit drops where the uncached tokens just exceed whole chunks",
}
BINS = np.linspace(0.0, 1.0, 21)


def bathtub_document(study: BathtubStudy) -> dict[str, Any]:
    """Result as plain data: hit rates and shares from 0 to 1, money in ``currency``, throughput in requests/s per GPU."""
    curve, found = study.curve, study.found
    columns = (curve.hit_rate, curve.benefit, curve.throughput_rps_per_gpu, curve.revenue, curve.ttft_s, curve.bcr)
    closed, empirical = study.closed.valley(), study.empirical.valley()
    return {
        "schema_version": 1,
        "deployment": study.deployment,
        "currency": study.currency,
        "request": {"input_tokens": study.input_tokens, "output_tokens": study.output_tokens},
        "token_prices": {
            "input": study.prices.miss,
            "cached": study.prices.hit,
            "output": study.prices.output,
            "cached_ratio": study.prices.hit_ratio,
            "source": study.price_source,
        },
        "chunk_tokens": study.chunk_tokens,
        "tail_packing": study.tail_packing,
        "decode_batch": study.decode_batch,
        "curve": [
            {
                **dict(zip(("hit_rate", "benefit", "throughput", "revenue", "ttft_s", "bcr"), map(float, point), strict=True)),
                "cost": {name: float(value[i]) for name, value in curve.terms.items()},
            }
            for i, point in enumerate(zip(*columns, strict=True))
        ],
        "class": found.shape,
        "term": found.term,
        "class_with_packed_tails": found.underlying,
        "valley": _valley(found.valley, found.valley_present),
        "singular_points": [{"hit_rate": point.hit_rate, "loss": point.loss} for point in study.singular],
        "closed_form": {
            "linear_s_per_token": study.closed.linear_s_per_token,
            "attention_s_per_pair": study.closed.attention_s_per_pair,
            "fixed_s": study.closed.fixed_s,
            "valley": _valley(closed, closed is not None),
        },
        "empirical_form": {"fall": study.empirical.fall, "valley": _valley(empirical, empirical is not None)},
        "traffic": {
            "mean_hit_rate": study.traffic.mean_hit_rate,
            "benefit": study.traffic.benefit(curve),
            "bin_edges": BINS.tolist(),
            "bin_shares": study.traffic.histogram(BINS).tolist(),
            "share_in_valley": _share_in_valley(study),
        },
        "plan_curve": [vars(point) for point in study.plan_curve],
        "advice": [{"kind": each.kind, "text": each.text, **each.numbers} for each in study.advice],
        "notes": list(study.notes),
    }


def _valley(valley: Valley | None, present: bool) -> dict[str, Any]:
    if valley is None:
        return {"present": False, "bottom_hit_rate": None, "left_edge": None, "right_edge": None, "depth": None}
    edges = {"left_edge": valley.left_edge, "right_edge": valley.right_edge}
    return {"present": present, "bottom_hit_rate": valley.bottom, **edges, "depth": float(valley.depth)}


def _share_in_valley(study: BathtubStudy) -> float:
    valley = study.found.valley
    if valley is None or not study.found.valley_present:
        return 0.0
    return study.traffic.share_between(valley.left_edge, 1.01 if valley.right_edge is None else valley.right_edge)


def bathtub_lines(study: BathtubStudy) -> Iterator[str]:
    """The study in a screen of text."""
    found, curve, prices = study.found, study.curve, study.prices
    lengths = f"{significant(study.input_tokens)} input and {significant(study.output_tokens)} output tokens"
    yield f"{study.deployment}: {found.shape} ({found.term}): {SAYS[found.shape]}"
    yield f"  mean request: {lengths}; cached tokens cost {percent(prices.hit_ratio)} of uncached ones ({study.price_source})"
    if found.valley is not None:
        yield f"  {_told(found.valley, found.valley_present)}"
    closed, empirical = study.closed.valley(), study.empirical.valley()
    yield f"  closed form: {'no interior minimum' if closed is None else _told(closed, closed.depth < 1 / 1.05)}"
    if empirical is not None:
        yield f"  the published empirical law would put the {_told(empirical, True)}"
    yield "  hit rate   benefit   throughput      TTFT   traffic  what a request costs"
    shares = study.traffic.histogram(np.linspace(0.0, 1.0, 11))
    for share, low in zip(shares, np.linspace(0.0, 0.9, 10), strict=True):
        i = int(np.argmin(np.abs(curve.hit_rate - low)))
        parts = {name: float(value[i] / curve.cost[i]) for name, value in curve.terms.items()}
        costs = ", ".join(f"{name} {percent(part, 2)}" for name, part in sorted(parts.items(), key=lambda item: -item[1]) if part > 0.01)
        relative = significant(float(curve.benefit[i] / curve.benefit[0]))
        rate = significant(float(curve.throughput_rps_per_gpu[i]))
        ttft, traffic = duration(float(curve.ttft_s[i])), percent(float(share), 2)
        yield f"  {low:>7.0%}  {relative:>8}  {rate:>7} /s/GPU  {ttft:>8}  {traffic:>8}  {costs}"
    for point in study.plan_curve:
        yield (
            f"  this plan with every request at {point.hit_rate:.0%}: {significant(point.goodput_rps)} requests/s, "
            f"TTFT P50 {duration(point.ttft_p50_s)}, P99 {duration(point.ttft_p99_s)}"
        )
    if study.singular:
        worst = max(study.singular, key=lambda point: point.loss)
        places = ", ".join(f"{point.hit_rate:.1%}" for point in study.singular[:8])
        yield f"  singular points at {places}; the worst loses {percent(worst.loss)} at {worst.hit_rate:.1%}"
    for advice in study.advice:
        yield f"  {advice.kind}: {advice.text}"
    for note in study.notes:
        yield f"  note: {note}"


def _told(valley: Valley, present: bool) -> str:
    what = "valley" if present else "dip, a wall of it too shallow to be called a valley"
    back = "it never comes back" if valley.right_edge is None else f"back at {valley.right_edge:.1%}"
    return f"{what}: bottom at {valley.bottom:.1%} with {percent(float(valley.depth))} of the benefit at 0; {back}"


def bathtub_page(study: BathtubStudy, title: str) -> Document:
    """The study as one page: the curve with its traffic, what makes it, and the advice."""
    found = study.found
    advice = tuple(Paragraph(each.text) for each in study.advice)
    notes = tuple(Paragraph(text, "note") for text in study.notes)
    prices = study.prices
    return Document(
        lang="en",
        title=f"Benefit over the hit rate: {title}",
        headline=f"The curve is {found.shape} ({found.term}): {SAYS[found.shape]}.",
        facts=(
            ("Input tokens", significant(study.input_tokens)),
            ("Output tokens", significant(study.output_tokens)),
            ("Cached price ratio", percent(prices.hit_ratio)),
            ("Price source", study.price_source),
            ("Mean hit rate", percent(study.traffic.mean_hit_rate)),
        ),
        sections=(
            Section("benefit", "Does a higher hit rate pay?", (_benefit_figure(study), _traffic_figure(study))),
            Section("mechanisms", "What makes the curve", (_cost_figure(study), _service_figure(study), *_singular_table(study.singular))),
            Section("advice", "Advice", (*advice, *notes)),
        ),
    )


def _benefit_figure(study: BathtubStudy) -> Figure:
    curve, h = study.curve, study.curve.hit_rate
    relative = curve.benefit / curve.benefit[0]
    closed = study.closed.benefit(h) / study.closed.benefit(0.0)
    inside = h < 0.995
    empirical = study.empirical.revenue(h[inside])
    top = 1.25 * float(max(1.2, relative.max()))
    traces = (
        line(h, relative, "full model"),
        line(h, closed, "closed form", 1),
        line(h[inside], np.minimum(empirical, top), "published empirical law", 6),
    )
    shapes = [_band(found) for found in [study.found.valley] if found is not None and study.found.valley_present]
    now = study.traffic.mean_hit_rate
    shapes.append(
        {"type": "line", "x0": now, "x1": now, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": GREY, "dash": "dot", "width": 1.5}}
    )
    marks = [{"x": now, "yref": "paper", "y": 1, "yanchor": "bottom", "text": "mean of the traffic", "showarrow": False}]
    axes = layout("hit rate", "benefit relative to no hits", shapes=shapes, annotations=marks, yaxis={"range": [0, top]})
    data = _table("benefit-data", "Benefit", study, {"full model": relative, "closed form": closed, "BCR": curve.bcr})
    return Figure("benefit", "Where does a higher hit rate lose money?", SAYS[study.found.shape], traces, axes, data)


def _band(valley: Valley) -> dict[str, Any]:
    right = 1.0 if valley.right_edge is None else valley.right_edge
    place = {"x0": valley.left_edge, "x1": right, "yref": "paper", "y0": 0, "y1": 1}
    return {"type": "rect", **place, "fillcolor": VERMILION, "opacity": 0.08, "line": {"width": 0}, "layer": "below"}


def _traffic_figure(study: BathtubStudy) -> Figure:
    shares = study.traffic.histogram(BINS)
    labels = [f"{low:.0%}-{high:.0%}" for low, high in pairwise(BINS)]
    data = Table(
        "traffic-data",
        "Traffic by hit rate",
        (Column("hit rate", align="left"), Column("requests", "%")),
        tuple(zip(labels, (100 * shares).tolist(), strict=True)),
    )
    axes = layout("hit rate", "requests (%)")
    summary = f"{percent(_share_in_valley(study))} of requests lie in the valley."
    return Figure("traffic", "Where on the curve is this traffic?", summary, (bars(labels, 100 * shares, "requests"),), axes, data, 240)


def _cost_figure(study: BathtubStudy) -> Figure:
    curve = study.curve
    scaled = {name: value / curve.cost[0] for name, value in curve.terms.items() if value.max() > 0}
    traces = tuple(line(curve.hit_rate, value, name, i, stackgroup="cost", mode="lines") for i, (name, value) in enumerate(scaled.items()))
    data = _table("cost-data", "Cost of a request", study, scaled)
    return Figure(
        "cost",
        "What does a request cost, and why?",
        f"Responsible: {study.found.term}.",
        traces,
        layout("hit rate", "cost relative to no hits"),
        data,
    )


def _service_figure(study: BathtubStudy) -> Figure:
    curve = study.curve
    traces: tuple[dict[str, Any], ...] = (line(curve.hit_rate, curve.ttft_s, "a request alone"),)
    shown = [point for point in study.plan_curve if np.isfinite(point.ttft_p50_s)]
    if shown:
        hits = [point.hit_rate for point in shown]
        traces += (
            line(hits, [p.ttft_p50_s for p in shown], "this plan, P50", 1),
            line(hits, [p.ttft_p99_s for p in shown], "this plan, P99", 3),
        )
    data = _table(
        "service-data", "Service", study, {"TTFT": curve.ttft_s, "throughput": curve.throughput_rps_per_gpu, "revenue": curve.revenue}
    )
    return Figure(
        "service",
        "How does TTFT fall with hits?",
        "Alone, and in the plan at the largest demand it serves.",
        traces,
        layout("hit rate", "TTFT (s)"),
        data,
    )


def _singular_table(points: tuple[SingularPoint, ...]) -> tuple[Table, ...]:
    if not points:
        return ()
    columns = (Column("hit rate", "%", 4), Column("benefit lost", "%"))
    rows = tuple((100 * point.hit_rate, 100 * point.loss) for point in points)
    return (Table("singular", "Singular points: one block more than whole chunks", columns, rows),)


def _table(name: str, caption: str, study: BathtubStudy, values: dict[str, Any]) -> Table:
    step = max(1, study.curve.hit_rate.size // 50)
    columns = (Column("hit rate"), *(Column(label) for label in values))
    rows = tuple((float(h), *(float(column[i * step]) for column in values.values())) for i, h in enumerate(study.curve.hit_rate[::step]))
    return Table(name, caption, columns, rows)
