"""Inputs and Plan sheets: the coloured cells that a reader changes."""

from __future__ import annotations

import math

from pddplan.report.formula import Live
from pddplan.report.sheets.source import Counts, Inputs, WorkbookSource, link_key, pool_key, pool_name
from pddplan.report.workbook import Book, Limits
from pddplan.studies.bandwidth import hit_rate_of
from pddplan.units import GBPS_BYTES_PER_S, HOURS_PER_MONTH


def inputs_sheet(book: Book, source: WorkbookSource) -> Inputs:
    sheet = book.sheet("Inputs", (34, 16, 22, 70))
    money = source.currency
    sheet.title(
        "Inputs",
        "Yellow cells are yours to change; everything downstream recalculates. Values are those of the scenario when this file was made.",
    )
    sheet.heading("Input", "Value", "Unit", "What it is")
    sheet.freeze()
    deployment = next(iter(source.context.deployments.values()))
    mix = deployment.mix
    rate = sheet.input(
        "demand_rps",
        "Demand (sizes the plan)",
        source.context.rate_per_s,
        "requests/s",
        "Peak arrivals over all classes.",
        "0.###",
        Limits(0, 1e9),
    )
    mean_rate = sheet.input(
        "mean_rps",
        "Mean demand (money is counted over it)",
        sum((d.mix.mean_rate_per_s or d.mix.rate_per_s) for d in source.context.deployments.values()),
        "requests/s",
        "Equal to the demand unless the scenario has a profile of the day.",
        "0.###",
        Limits(0, 1e9),
    )
    hit = sheet.input(
        "hit_rate",
        "Prefix hit rate",
        hit_rate_of(mix),
        "fraction",
        "Token-weighted; a change scales the uncached tokens of every request alike.",
        "0.0000",
        Limits(0, 1),
    )
    output = sheet.input(
        "output_tokens",
        "Output tokens per request",
        mix.mean(mix.output_tokens),
        "tokens",
        "Mean; a change scales every request's output alike.",
        "#,##0.0",
        Limits(1, 1e7),
    )
    length = sheet.model(
        "input_tokens",
        "Input tokens per request",
        mix.mean(mix.input_tokens),
        "tokens",
        f"Mean. A change of input lengths needs the full model: {source.command}",
        "#,##0.0",
    )
    premium = sheet.input(
        "price_premium",
        "Premium of other rooms' chips",
        0.0,
        "fraction",
        "Multiplies chip prices of every room but the first: 0.2 makes them 20 % dearer.",
        "0.00%",
        Limits(-1, 100),
    )
    sheet.row += 1
    prices = tuple(
        sheet.input(
            f"{pool_key(i)}_price",
            f"Price of {pool_name(r)}",
            r.cost_usd_per_h / r.pool.gpus if r.pool.gpus else 0.0,
            f"{money}/GPU/h",
            "Rent, or purchase with power, room and hosts when the scenario says so.",
            "0.0000",
            Limits(0, 1e6),
        )
        for i, r in enumerate(source.pools)
    )
    sheet.row += 1
    circuit, price, egress, usable, target, rtt, flow = [], [], [], [], [], [], []
    for i, r in enumerate(source.evaluation.links):
        line = source.context.lines[r.link.name]
        key, name = link_key(i), f"{r.link.from_site} - {r.link.to_site}"
        gbps = r.link.circuit_bytes_per_s / GBPS_BYTES_PER_S
        circuit.append(sheet.input(f"{key}_gbps", f"Circuit of {name}", gbps, "Gbit/s", "One circuit.", "0.###", Limits(0, 1e6)))
        price.append(
            sheet.input(
                f"{key}_price",
                f"Price of {name}",
                line.prices_usd_h.get(r.link.circuit_bytes_per_s, 0.0) * HOURS_PER_MONTH / gbps,
                f"{money}/Gbps/month",
                "",
                "0.00",
                Limits(0, 1e9),
            )
        )
        egress.append(
            sheet.input(
                f"{key}_egress",
                f"Egress of {name}",
                line.usd_per_gb,
                f"{money}/GB",
                "Billed on the mean traffic; 0 where the line has none.",
                "0.0000",
                Limits(0, 1e6),
            )
        )
        usable.append(
            sheet.input(
                f"{key}_usable",
                f"Usable share of {name}",
                line.usable,
                "fraction",
                "What transfers can fill of the circuits.",
                "0.00",
                Limits(0.01, 1),
            )
        )
        target.append(
            sheet.input(
                f"{key}_target",
                f"Target utilisation of {name}",
                line.target_utilisation,
                "fraction",
                "Load at which the needed bandwidth is stated.",
                "0.00",
                Limits(0.01, 1),
            )
        )
        rtt.append(sheet.input(f"{key}_rtt_s", f"Round trip of {name}", line.rtt_s, "s", "", "0.0000", Limits(0, 10)))
        cap = line.flow_bytes_per_s if math.isfinite(line.flow_bytes_per_s) else r.link.circuits * r.link.circuit_bytes_per_s * line.usable
        flow.append(
            sheet.input(
                f"{key}_flow_gbps",
                f"Rate of one transfer on {name}",
                cap / GBPS_BYTES_PER_S,
                "Gbit/s",
                "Per-flow cap, all streams of a transfer together.",
                "0.###",
                Limits(1e-6, 1e6),
            )
        )
    return Inputs(
        rate,
        mean_rate,
        hit,
        output,
        length,
        premium,
        prices,
        tuple(circuit),
        tuple(price),
        tuple(egress),
        tuple(usable),
        tuple(target),
        tuple(rtt),
        tuple(flow),
    )


def plan_sheet(book: Book, source: WorkbookSource) -> Counts:
    sheet = book.sheet("Plan", (30, 14, 14, 14, 16, 22, 16))
    sheet.title("Plan", "Counts per pool: the planned ones, and beside them yours to edit (yellow).")
    sheet.heading("Pool", "Planned instances", "Your instances", "GPUs per instance", "GPUs", "Parallelism", "Engine")
    sheet.freeze()
    planned, counts, gpus = [], [], []
    for i, r in enumerate(source.pools):
        c, p = r.pool.configuration, r.pool.configuration.parallel
        sheet.cell(0, pool_name(r), "label")
        planned.append(sheet.cell(1, r.pool.instances, "model", "0", f"{pool_key(i)}_planned"))
        mine = sheet.cell(2, r.pool.instances, "input", "0", f"{pool_key(i)}_instances", Limits(0, 1e6, whole=True))
        each = sheet.cell(3, c.gpus_per_instance, "model", "0", f"{pool_key(i)}_gpus_each")
        gpus.append(sheet.cell(4, mine * each, "formula", "#,##0", f"{pool_key(i)}_gpus"))
        sheet.cell(5, f"TP{p.tp} PP{p.pp} EP{p.moe_ep} DP{p.dp}" if c.profile is None else "measured profile", "unit")
        sheet.cell(6, c.engine, "unit")
        counts.append(mine)
        sheet.row += 1
    sheet.row += 1
    circuits: list[Live] = []
    if source.evaluation.links:
        sheet.heading("Line", "Planned circuits", "Your circuits")
        for i, link in enumerate(source.evaluation.links):
            sheet.cell(0, f"{link.link.from_site} - {link.link.to_site}", "label")
            sheet.cell(1, link.link.circuits, "model", "0", f"{link_key(i)}_planned")
            circuits.append(sheet.cell(2, link.link.circuits, "input", "0", f"{link_key(i)}_circuits", Limits(0, 1e6, whole=True)))
            sheet.row += 1
    return Counts(tuple(counts), tuple(planned), tuple(gpus), tuple(circuits))
