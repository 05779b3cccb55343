"""First section: what to deploy, in one sentence and one table."""

from __future__ import annotations

from collections.abc import Callable

from pddplan.optimize.result import PlanResult
from pddplan.pdd.plan import Evaluation, PoolResult
from pddplan.report.document import Block, Column, Paragraph, Section, Table
from pddplan.report.numbers import duration, percent, significant
from pddplan.units import GBPS_BYTES_PER_S

Translate = Callable[..., str]


def headline(result: PlanResult, chip_names: dict[str, str], t: Translate) -> str:
    """The decision in one sentence."""
    metrics = result.evaluation.metrics
    pools = t("list.and").join(
        t(
            "decision.pool",
            gpus=p.pool.gpus,
            chip=chip_names.get(p.pool.configuration.chip, p.pool.configuration.chip),
            role=p.pool.configuration.role,
        )
        for p in result.evaluation.pools
    )
    return t(
        "decision.headline",
        pools=pools,
        cost=significant(metrics.cost_usd_per_h),
        goodput=significant(metrics.goodput_rps),
        p_good=percent(metrics.p_good),
        ttft=duration(metrics.ttft_p99_s),
    )


def section(result: PlanResult, chip_names: dict[str, str], t: Translate) -> Section:
    status = t(f"status.{result.status}", gap=percent(result.gap))
    blocks: list[Block] = [Paragraph(status), pools_table(result.evaluation, chip_names, t)]
    if result.evaluation.links:
        blocks.append(links_table(result.evaluation, t))
    blocks.append(metrics_table(result.evaluation, t))
    blocks.extend(Paragraph(warning, "warning") for warning in result.warnings)
    return Section("decision", t("section.decision"), tuple(blocks))


def pools_table(evaluation: Evaluation, chip_names: dict[str, str], t: Translate) -> Table:
    columns = (
        Column(t("column.role"), align="left"),
        Column(t("column.site"), align="left"),
        Column(t("column.chip"), align="left"),
        Column(t("column.parallel"), align="left"),
        Column(t("column.engine"), align="left"),
        Column(t("column.instances")),
        Column(t("column.gpus_per_instance")),
        Column(t("column.gpus")),
        Column(t("column.utilisation"), "%"),
        Column(t("column.cost"), "USD/h", digits=4),
    )
    rows = tuple(_pool_row(result, chip_names) for result in evaluation.pools)
    total = (t("row.total"), "", "", "", "", None, None, evaluation.metrics.gpus, None, sum(r.cost_usd_per_h for r in evaluation.pools))
    return Table("pools", t("caption.pools"), columns, (*rows, total), emphasised_row=len(rows))


def _pool_row(result: PoolResult, chip_names: dict[str, str]) -> tuple[str | float | int | None, ...]:
    c = result.pool.configuration
    parallel = f"TP{c.parallel.tp} PP{c.parallel.pp} EP{c.parallel.moe_ep} DP{c.parallel.dp}" if c.profile is None else "–"
    return (
        c.role,
        c.site,
        chip_names.get(c.chip, c.chip),
        parallel,
        c.engine,
        result.pool.instances,
        c.gpus_per_instance,
        result.pool.gpus,
        100 * result.utilisation,
        result.cost_usd_per_h,
    )


def links_table(evaluation: Evaluation, t: Translate) -> Table:
    columns = (
        Column(t("column.link"), align="left"),
        Column(t("column.circuits")),
        Column(t("column.circuit"), "Gbps"),
        Column(t("column.line_mean"), "Gbps"),
        Column(t("column.line_needed"), "Gbps"),
        Column(t("column.utilisation"), "%"),
        Column(t("column.cost"), "USD/h", digits=4),
    )
    rows = tuple(
        (
            f"{r.link.from_site} → {r.link.to_site}",
            r.link.circuits,
            r.link.circuit_bytes_per_s / GBPS_BYTES_PER_S,
            r.bytes_per_s_mean / GBPS_BYTES_PER_S,
            r.bytes_per_s_needed / GBPS_BYTES_PER_S,
            100 * r.utilisation,
            r.cost_usd_per_h,
        )
        for r in evaluation.links
    )
    return Table("links", t("caption.links"), columns, rows)


def metrics_table(evaluation: Evaluation, t: Translate) -> Table:
    m = evaluation.metrics
    rows: tuple[tuple[str, float, str], ...] = (
        (t("metric.goodput"), m.goodput_rps, "req/s"),
        (t("metric.p_good"), 100 * m.p_good, "%"),
        (t("metric.cost"), m.cost_usd_per_h, "USD/h"),
        (t("metric.bcr"), m.bcr, "req/s per USD/h"),
        (t("metric.ttft", q="P50"), m.ttft_p50_s, "s"),
        (t("metric.ttft", q="P90"), m.ttft_p90_s, "s"),
        (t("metric.ttft", q="P99"), m.ttft_p99_s, "s"),
        (t("metric.tpot_mean"), 1e3 * m.tpot_mean_s, "ms"),
        (t("metric.tpot_p99"), 1e3 * m.tpot_p99_s, "ms"),
        (t("metric.stall"), 1e3 * m.stall_p99_s, "ms"),
        (t("metric.e2e", q="P50"), m.e2e_p50_s, "s"),
        (t("metric.e2e", q="P99"), m.e2e_p99_s, "s"),
        (t("metric.rld_share"), 100 * m.rld_token_share, "%"),
        (t("metric.usd_per_million"), m.usd_per_million_output_tokens, "USD"),
    )
    columns = (Column(t("column.metric"), align="left"), Column(t("column.value"), digits=4), Column(t("column.unit"), align="left"))
    return Table("metrics", t("caption.metrics"), columns, rows)
