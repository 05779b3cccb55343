"""Capacity, Bandwidth and Latency sheets."""

from __future__ import annotations

import numpy as np
from xlsxwriter.utility import xl_range_abs

from pddplan.pdd.flows import transfer_of
from pddplan.report.formula import Live, maximum, round_up
from pddplan.report.sheets.response import HELD, FullModel
from pddplan.report.sheets.source import Counts, Inputs, WorkbookSource, link_key, pool_key, pool_name
from pddplan.report.workbook import Book
from pddplan.units import GBPS_BYTES_PER_S

HIT_RATES = tuple(np.round(np.arange(0.0, 1.0001, 0.05), 2))


def capacity_sheet(book: Book, source: WorkbookSource, inputs: Inputs, counts: Counts, model: FullModel) -> tuple[Live, ...]:
    sheet = book.sheet("Capacity", (30, 14, 14, 16, 14, 20, 20))
    sheet.title(
        "Capacity",
        "Load of each pool at your inputs and counts, interpolated from the full model at the demand per instance. "
        "Green to 70 %, amber to 90 %, red above.",
    )
    sheet.heading(
        "Pool", "Your instances", "Load", "Carried at 100 % load, requests/s", "Headroom", "Load in the plan (full model)", "Bound by"
    )
    sheet.freeze()
    start = sheet.row
    loads = []
    for i, r in enumerate(source.pools):
        scaled = inputs.rate * (counts.planned[i] / counts.instances[i])
        sheet.cell(0, pool_name(r), "label")
        sheet.cell(1, counts.instances[i], "formula", "0")
        load = sheet.cell(2, model.value(f"load_{i}", scaled), "formula", "0.0%", f"{pool_key(i)}_load")
        sheet.cell(3, inputs.rate / load, "formula", "0.00")
        sheet.cell(4, 1 - load, "formula", "0.0%")
        sheet.cell(5, r.utilisation, "model", "0.0%")
        sheet.cell(6, r.binding_resource, "unit")
        loads.append(load)
        sheet.row += 1
    for i, link in enumerate(source.evaluation.links):
        sheet.cell(0, f"Line {link.link.from_site} - {link.link.to_site}", "label")
        sheet.cell(1, counts.circuits[i], "formula", "0")
        moved = model.value(f"bytes_{i}")
        load = sheet.cell(
            2,
            moved / (counts.circuits[i] * inputs.circuit_gbps[i] * inputs.usable[i] * GBPS_BYTES_PER_S),
            "formula",
            "0.0%",
            f"{link_key(i)}_load",
        )
        sheet.cell(3, inputs.rate / load, "formula", "0.00")
        sheet.cell(4, 1 - load, "formula", "0.0%")
        sheet.cell(5, link.utilisation, "model", "0.0%")
        sheet.cell(6, "usable share of the circuits", "unit")
        loads.append(load)
        sheet.row += 1
    sheet.traffic_lights(start, 2, sheet.row - 1, 2, 0.7, 0.9)
    return tuple(loads)


def bandwidth_sheet(book: Book, source: WorkbookSource, inputs: Inputs, counts: Counts, model: FullModel) -> None:
    sheet = book.sheet("Bandwidth", (40, 20, 20, 20, 20))
    sheet.title(
        "Bandwidth",
        "What the line must carry. Mean traffic is the full model's; the table below is the closed form for one request length.",
    )
    deployment = next(iter(source.context.deployments.values()))
    sender = next((r.pool for r in source.pools if r.pool.configuration.role == "P"), None)
    if not source.evaluation.links or sender is None:
        sheet.title("No line in this plan: everything stands in one room.")
        return
    kv = transfer_of(source.context, deployment, sender, source.evaluation.decision.settings)
    length = inputs.input_tokens.value
    some, whole = (float(np.asarray(kv.transfer_bytes(np.array([part * length]), np.array([length])))[0]) for part in (0.5, 1.0))
    slope = (whole - some) / (0.5 * length)
    sheet.heading("Line", "Value", "Unit", "How")
    sheet.freeze()
    per_token = sheet.input(
        "kv_bytes_per_token",
        "KV of one missing token",
        slope,
        "bytes",
        "Slope of the transfer between half and the whole of a mean request.",
        "#,##0.0",
    )
    constant = sheet.input(
        "kv_bytes_per_request",
        "KV of a request besides its tokens",
        whole - slope * length,
        "bytes",
        "Windows and per-request state, sent once.",
        "#,##0",
    )
    for i, link in enumerate(source.evaluation.links):
        key, name = link_key(i), f"{link.link.from_site} - {link.link.to_site}"
        mean = sheet.formula(
            f"{key}_mean_gbps",
            f"Mean traffic {name}",
            model.value(f"bytes_{i}") / GBPS_BYTES_PER_S,
            "Gbit/s",
            "interpolated from the full model",
            "0.000",
        )
        needed = sheet.formula(
            f"{key}_needed_gbps",
            "Needed at target utilisation",
            mean / inputs.target[i] / inputs.usable[i],
            "Gbit/s",
            "mean / target utilisation / usable share",
            "0.000",
        )
        sheet.formula(f"{key}_circuits_needed", "Circuits needed", round_up(needed / inputs.circuit_gbps[i]), "circuits", "rounded up", "0")
        sheet.model(
            f"{key}_without_gbps",
            "Mean traffic without a decode-side cache",
            link.bytes_per_s_mean_without_md_cache / GBPS_BYTES_PER_S,
            "Gbit/s",
            "full model",
            "0.000",
        )
    sheet.row += 1
    sheet.title(
        "Needed over the hit rate",
        "Closed form: demand x (KV per missing token x (1 - h) x input tokens + KV per request) / target utilisation / "
        "usable share of the first line.",
    )
    sheet.heading("Hit rate", "With decode-side cache, Gbit/s", "Without, Gbit/s", "Circuits with", "Circuits without")
    start = sheet.row
    scale = inputs.rate / GBPS_BYTES_PER_S / inputs.target[0] / inputs.usable[0]
    without = scale * (per_token * inputs.input_tokens + constant)
    for hit in HIT_RATES:
        h = sheet.cell(0, float(hit), "model", "0%")
        needed = sheet.cell(1, scale * (per_token * (1 - h) * inputs.input_tokens + constant), "formula", "#,##0.00")
        sheet.cell(2, without, "formula", "#,##0.00")
        sheet.cell(3, round_up(needed / inputs.circuit_gbps[0]), "formula", "0")
        sheet.cell(4, round_up(without / inputs.circuit_gbps[0]), "formula", "0")
        sheet.row += 1
    chart = book.chart("scatter", "straight")
    for column, name in ((1, "with decode-side cache"), (2, "without")):
        chart.add_series(
            {
                "name": name,
                "categories": f"='Bandwidth'!{xl_range_abs(start, 0, sheet.row - 1, 0)}",
                "values": f"='Bandwidth'!{xl_range_abs(start, column, sheet.row - 1, column)}",
            }
        )
    chart.set_title({"name": "How much line is needed at each hit rate?"})
    chart.set_x_axis({"name": "hit rate", "num_format": "0%", "min": 0, "max": 1})
    chart.set_y_axis({"name": "Gbit/s"})
    sheet.sheet.insert_chart(start, 6, chart)


def latency_sheet(book: Book, source: WorkbookSource, inputs: Inputs, model: FullModel) -> None:
    sheet = book.sheet("Latency", (46, 18, 18, 70))
    sheet.title(
        "Latency",
        "Percentiles are the full model's, interpolated one input at a time; the transfer terms below are closed forms for one request.",
    )
    sheet.heading("Latency", "Value", "Unit", "How")
    sheet.freeze()
    for name, label in (
        ("ttft_p50_s", "TTFT P50"),
        ("ttft_p90_s", "TTFT P90"),
        ("ttft_p99_s", "TTFT P99"),
        ("tpot_mean_s", "TPOT mean"),
        ("tpot_p99_s", "TPOT P99"),
    ):
        sheet.formula(
            name,
            label,
            model.value(name),
            "s",
            f"full model; valid at the planned counts. In the plan: {getattr(source.evaluation.metrics, name):.6g} s",
            HELD,
        )
    sheet.formula("rld_token_share", "Tokens emitted by RLD", model.value("rld_token_share"), "fraction", "full model", "0.0%")
    if not source.evaluation.links or "kv_bytes_per_token" not in book.names:
        return
    sheet.row += 1
    sheet.title(
        "One request over the line",
        "Exact for a request alone on the line: it runs at the per-flow rate. Queueing on the line is in the percentiles above.",
    )
    missing = sheet.formula(
        "missing_tokens",
        "Missing tokens of a mean request",
        (1 - inputs.hit_rate) * inputs.input_tokens,
        "tokens",
        "(1 - hit rate) x input tokens",
        "#,##0",
    )
    deployment = next(iter(source.context.deployments.values()))
    per_token, constant = (
        Live.named("kv_bytes_per_token", book.values["kv_bytes_per_token"]),
        Live.named("kv_bytes_per_request", book.values["kv_bytes_per_request"]),
    )
    size = sheet.formula(
        "transfer_bytes", "KV to move", missing * per_token + constant, "bytes", "missing tokens x KV per token + KV per request", "#,##0"
    )
    seconds = sheet.formula(
        "transfer_s",
        "Transfer alone on the line",
        size / (inputs.flow_gbps[0] * GBPS_BYTES_PER_S) + inputs.rtt[0],
        "s",
        "KV / rate of one transfer + round trip",
        "0.0000",
    )
    rld = next((r for r in source.pools if r.pool.configuration.role == "RLD"), None)
    if rld is not None:
        stage = source.context.instance(rld.pool.configuration, source.evaluation.decision.settings)
        context_tokens = deployment.mix.mean(deployment.mix.input_tokens)
        step = float(np.asarray(stage.step_s(np.array([max(1.0, rld.batch_mean)]), np.array([context_tokens])))[0]) / stage.tokens_per_step
        token = sheet.model("rld_token_s", "Time per token on RLD at its mean batch", step, "s", "roofline", "0.00000")
        sheet.formula(
            "eager_tokens", "Tokens RLD emits meanwhile", maximum(seconds / token, 0), "tokens", "transfer / time per token", "#,##0.0"
        )
