"""Bandwidth and stability studies shown: as JSON documents, as console tables and as pages."""

from __future__ import annotations

from typing import Any

from pddplan.report.document import Block, Column, Document, Figure, Paragraph, Section, Table
from pddplan.report.sections.charts import layout, line
from pddplan.studies.bandwidth import BandwidthStudy, Need
from pddplan.studies.stability import CHECKED_TURNS, StabilityStudy


def bandwidth_document(study: BandwidthStudy) -> dict[str, Any]:
    """Result as plain data; hit rates from 0 to 1, Gbit/s as named."""

    def need(one: Need) -> dict[str, Any]:
        return {
            "gbps_mean": one.gbps_mean,
            "gbps_needed": one.gbps_target,
            "circuits": one.circuits,
            "circuits_for_sla": one.circuits_sla,
        }

    return {
        "schema_version": 1,
        "deployment": study.deployment,
        "link": study.link,
        "circuit_gbps": study.circuit_gbps,
        "max_circuits": study.max_circuits,
        "machine_gpus": study.machine_gpus,
        "plan_machines": study.plan_machines,
        "sla": {"ttft_limit_s": study.ttft_limit_s, "quantile": study.quantile},
        "kv_bytes_per_request": study.kv_bytes_per_request,
        "rows": [
            {
                "machines": row.machines,
                "hit_rate": row.hit_rate,
                "own_hit_rate": row.own,
                "rate_rps": row.rate_rps,
                "with_md_cache": need(row.with_md_cache),
                "without_md_cache": need(row.without_md_cache),
                "cut": row.cut,
            }
            for row in study.rows
        ],
        "notes": list(study.notes),
    }


def bandwidth_table(study: BandwidthStudy) -> Table:
    """One line per cluster size and hit rate; the traffic's own hit rate is starred."""
    columns = (
        Column("machines"),
        Column("hit rate", "%", align="right"),
        Column("rate", "req/s"),
        Column("mean", "Gbit/s"),
        Column("to buy", "Gbit/s"),
        Column("circuits"),
        Column("for SLA", "circuits"),
        Column("mean, no MD cache", "Gbit/s"),
        Column("circuits, no MD cache"),
    )
    rows = tuple(
        (
            row.machines,
            f"{100 * row.hit_rate:.3g}{' *' if row.own else ''}",
            row.rate_rps,
            row.with_md_cache.gbps_mean,
            row.with_md_cache.gbps_target,
            row.with_md_cache.circuits,
            row.with_md_cache.circuits_sla,
            row.without_md_cache.gbps_mean,
            row.without_md_cache.circuits,
        )
        for row in study.rows
    )
    limit = (
        ""
        if study.ttft_limit_s is None
        else f"; for SLA: transfer alone within {study.ttft_limit_s:g} s at P{100 * study.quantile:g}"
    )
    note = (
        f"* the traffic's own hit rate; a machine has {study.machine_gpus} GPUs; circuits of {study.circuit_gbps:g} Gbit/s{limit}"
    )
    return Table("line-needed", "Line needed over cluster size and hit rate", columns, rows, note)


def bandwidth_headline(study: BandwidthStudy) -> str:
    """The answer for the traffic's own hit rate."""
    own = [row for row in study.rows if row.own]
    parts = [f"{row.with_md_cache.circuits} at {row.machines} machines" for row in own]
    return f"Circuits of {study.circuit_gbps:g} Gbit/s needed: {', '.join(parts)} ({own[0].cut:.3g}x fewer bits than without MD's cache)"


def bandwidth_page(study: BandwidthStudy, name: str) -> Document:
    sizes = sorted({row.machines for row in study.rows})
    traces = []
    for i, machines in enumerate(sizes):
        rows = [row for row in study.rows if row.machines == machines]
        hits = [100 * row.hit_rate for row in rows]
        traces.append(
            line(hits, [row.with_md_cache.gbps_target for row in rows], f"{machines} machines", i, mode="lines+markers")
        )
        traces.append(line(hits, [row.without_md_cache.gbps_target for row in rows], f"{machines}, no MD cache", i, opacity=0.5))
    figure = Figure(
        "need",
        "How much line does each cluster size need?",
        "Gbit/s to buy at the target utilisation over the mean hit rate, with and without the decode-side cache",
        tuple(traces),
        layout("mean hit rate (%)", "line to buy (Gbit/s)", yaxis={"type": "log"}),
        bandwidth_table(study),
        420,
    )
    blocks: tuple[Block, ...] = (figure, *(Paragraph(text, "note") for text in study.notes))
    facts = (
        ("link", study.link),
        ("circuit", f"{study.circuit_gbps:g} Gbit/s"),
        ("KV per request", f"{study.kv_bytes_per_request / 1e6:.3g} MB"),
    )
    return Document("en", f"Bandwidth of {name}", bandwidth_headline(study), facts, (Section("need", "Line needed", blocks),))


def stability_document(study: StabilityStudy) -> dict[str, Any]:
    """Result as plain data; shares and loads from 0 up, one entry per turn."""
    own = study.stability.feedback
    return {
        "schema_version": 1,
        "deployment": study.stability.deployment,
        "bounded": own.bounded,
        "verdict": study.verdict,
        "fresh_local_share": own.fresh_local_share,
        "stale_local_share": own.stale_local_share,
        "stale_share": own.stale_share,
        "rld_utilisation": own.rld_utilisation,
        "largest_local_share": own.largest_local_share,
        "trajectories": [
            {
                "policy": t.variant,
                "bounded": t.bounded,
                "overload_turn": t.overload_turn,
                "local_share": t.local_share.tolist(),
                "stale_share": t.stale_share.tolist(),
                "rld_utilisation": t.rld_utilisation.tolist(),
                "md_hit_rate": t.md_hit_rate.tolist(),
                "line_bytes_per_request": t.line_bytes.tolist(),
            }
            for t in study.stability.trajectories
        ],
    }


def stability_table(study: StabilityStudy) -> Table:
    """Share of turns that end on the relay (local), relay load and MD hit rate at a few turns, policy by policy."""
    turns = [t for t in CHECKED_TURNS if t <= study.turns]
    columns = (Column("policy", align="left"), Column("", align="left"), *(Column(f"turn {t}", "%") for t in turns))
    rows = []
    for t in study.stability.trajectories:
        rows.append((t.variant, "local", *(100 * float(t.local_share[i - 1]) for i in turns)))
        rows.append(("", "load", *(100 * float(t.rld_utilisation[i - 1]) for i in turns)))
        rows.append(("", "MD hits", *(100 * float(t.md_hit_rate[i - 1]) for i in turns)))
    note = "local: turns that end on the relay; load: of the relay pool; MD hits: share of input tokens that MD holds"
    return Table("turns", "Sessions turn by turn", columns, tuple(rows), note)


def stability_page(study: StabilityStudy, name: str) -> Document:
    turns = list(range(1, study.turns + 1))
    trajectories = study.stability.trajectories

    def figure(key: str, title: str, summary: str, axis: str, values: Any) -> Figure:
        traces = tuple(line(turns, [100 * float(v) for v in values(t)], t.variant, i) for i, t in enumerate(trajectories))
        return Figure(key, title, summary, traces, layout("turn of the session", axis), stability_table(study))

    blocks = (
        figure(
            "load",
            "Does the relay's load stay bounded?",
            "Load of the relay pool turn by turn",
            "relay load (%)",
            lambda t: t.rld_utilisation,
        ),
        figure(
            "hits", "Does MD keep up with P?", "Share of input tokens that MD holds", "MD hit rate (%)", lambda t: t.md_hit_rate
        ),
        stability_table(study),
    )
    own = study.stability.feedback
    facts = (
        ("largest share that may end on the relay", f"{100 * own.largest_local_share:.3g} %"),
        ("stale turns in the long run", f"{100 * own.stale_share:.3g} %"),
    )
    return Document("en", f"Stability of {name}", study.verdict, facts, (Section("turns", "Turn by turn", blocks),))
