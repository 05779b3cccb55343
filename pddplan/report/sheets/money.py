"""Cost and Sensitivity sheets: everything here is exact algebra on the inputs, but for the share of good requests."""

from __future__ import annotations

from xlsxwriter.utility import xl_range_abs

from pddplan.report.formula import Live, total
from pddplan.report.sheets.response import FullModel
from pddplan.report.sheets.source import Counts, Inputs, WorkbookSource, link_key, pool_key, pool_name
from pddplan.report.workbook import Book, Sheet
from pddplan.units import HOURS_PER_MONTH, HOURS_PER_YEAR, SECONDS_PER_HOUR


def cost_sheet(book: Book, source: WorkbookSource, inputs: Inputs, counts: Counts, model: FullModel) -> tuple[Live, Live]:
    """Returns the cost per hour and the goodput."""
    money = source.currency
    sheet = book.sheet("Cost", (38, 18, 22, 70))
    sheet.title("Cost", "Counts x prices. Exact, but for the share of good requests, which is interpolated from the full model.")
    sheet.heading("Item", "Value", "Unit", "How")
    sheet.freeze()
    first_site = source.pools[0].pool.configuration.site
    parts = []
    start = sheet.row
    for i, r in enumerate(source.pools):
        price = inputs.prices[i] if r.pool.configuration.site == first_site else inputs.prices[i] * (1 + inputs.premium)
        parts.append(
            sheet.formula(
                f"{pool_key(i)}_cost",
                pool_name(r),
                counts.gpus[i] * price,
                f"{money}/h",
                "GPUs x price (x 1 + premium outside the first room)",
                "#,##0.00",
            )
        )
    for i, link in enumerate(source.evaluation.links):
        circuits = counts.circuits[i] * inputs.circuit_gbps[i] * inputs.circuit_price[i] / HOURS_PER_MONTH
        egress = model.value(f"bytes_{i}") * (SECONDS_PER_HOUR / 1e9) * inputs.egress_price[i]
        name = f"Line {link.link.from_site} - {link.link.to_site}"
        parts.append(
            sheet.formula(
                f"{link_key(i)}_cost",
                name,
                circuits + egress,
                f"{money}/h",
                "circuits x Gbit/s x price / hours per month + GB/h x egress",
                "#,##0.00",
            )
        )
    end = sheet.row - 1
    cost = sheet.formula("cost_per_hour", "Total per hour", total(parts), f"{money}/h", "sum", "#,##0.00")
    sheet.formula("cost_per_month", "Total per month", cost * HOURS_PER_MONTH, f"{money}/month", "730 hours", "#,##0")
    sheet.formula("cost_per_year", "Total per year", cost * HOURS_PER_YEAR, f"{money}/year", "8,760 hours", "#,##0")
    sheet.formula(
        "cost_per_million_output",
        "Per million output tokens",
        cost / (inputs.mean_rate * inputs.output_tokens * SECONDS_PER_HOUR) * 1e6,
        money,
        "whole cost over output tokens at mean demand",
        "0.0000",
    )
    sheet.formula(
        "cost_per_request",
        "Per request",
        cost / (inputs.mean_rate * SECONDS_PER_HOUR),
        money,
        "whole cost over requests at mean demand",
        "0.000000",
    )
    good = sheet.formula(
        "p_good", "Share of good requests", model.value("p_good"), "fraction", "interpolated from the full model", "0.0000"
    )
    goodput = sheet.formula(
        "goodput_rps", "Goodput within SLA", inputs.rate * good, "requests/s", "demand x share of good requests", "0.000"
    )
    bcr = sheet.formula("bcr_value", "BCR", goodput / cost, f"requests/s per {money}/h", "goodput / cost per hour", "0.000000")
    _baselines(sheet, source, cost, bcr)
    chart = book.chart("bar")
    chart.add_series(
        {
            "name": "Cost per hour",
            "categories": f"='Cost'!{xl_range_abs(start, 0, end, 0)}",
            "values": f"='Cost'!{xl_range_abs(start, 1, end, 1)}",
        }
    )
    chart.set_title({"name": "Where does the cost go?"})
    chart.set_x_axis({"name": f"{money} per hour"})
    chart.set_legend({"none": True})
    sheet.sheet.insert_chart(2, 5, chart)
    return cost, goodput


def _baselines(sheet: Sheet, source: WorkbookSource, cost: Live, bcr: Live) -> None:
    planned = [(b.name, b.evaluation.metrics) for b in source.result.baselines if b.evaluation is not None]
    if not planned:
        return
    sheet.row += 1
    sheet.heading(
        "Against the baselines (planned at the original inputs)",
        "BCR of this plan over its",
        "Cost of this plan over its",
        "Baseline's cost per hour and BCR",
    )
    for name, metrics in planned:
        sheet.cell(0, name.replace("_", " "), "label")
        sheet.cell(1, bcr / metrics.bcr - 1 if metrics.bcr else None, "formula", "+0.0%;-0.0%", f"bcr_gain_{name}")
        sheet.cell(2, cost / metrics.cost_usd_per_h - 1, "formula", "+0.0%;-0.0%", f"cost_change_{name}")
        sheet.cell(3, f"{metrics.cost_usd_per_h:,.2f} {source.currency}/h, BCR {metrics.bcr:.6g}", "note")
        sheet.row += 1


def sensitivity_sheet(book: Book, source: WorkbookSource, inputs: Inputs, counts: Counts, cost: Live, goodput: Live) -> None:
    """Two-way tables of BCR: premium of other rooms against price of the first, and price of chips against price of lines."""
    sheet = book.sheet("Sensitivity", (26, *(13,) * 9))
    sheet.title(
        "Sensitivity",
        "BCR recomputed in every cell from the inputs above: rows and columns replace one input each. Counts stay as in Plan.",
    )
    first_site = source.pools[0].pool.configuration.site
    here = [i for i, r in enumerate(source.pools) if r.pool.configuration.site == first_site]
    there = [i for i in range(len(source.pools)) if i not in here]
    first = total([counts.gpus[i] * inputs.prices[i] for i in here])
    others = total([counts.gpus[i] * inputs.prices[i] for i in there])
    lines = cost - first - others * (1 + inputs.premium)
    factors = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5)
    if there:
        premiums = (-0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
        sheet.heading("BCR: price of the first room's chips x (across), premium of the others (down)", *(f"x {f:g}" for f in factors))
        for premium in premiums:
            sheet.cell(0, premium, "model", "+0%;-0%;0%")
            for column, factor in enumerate(factors):
                sheet.cell(column + 1, goodput / (first * factor + others * (1 + premium) + lines), "formula", "0.00000")
            sheet.row += 1
        sheet.row += 1
    sheet.heading("BCR: price of all chips x (across), price of lines x (down)", *(f"x {f:g}" for f in factors))
    for scale in (0.25, 0.5, 1.0, 2.0, 4.0, 10.0):
        sheet.cell(0, scale, "model", '"x "0.##')
        for column, factor in enumerate(factors):
            sheet.cell(column + 1, goodput / ((cost - lines) * factor + lines * scale), "formula", "0.00000")
        sheet.row += 1
