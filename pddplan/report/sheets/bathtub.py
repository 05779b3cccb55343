"""Bathtub sheet: benefit over the hit rate in closed form, recomputed from its inputs, with a native chart."""

from __future__ import annotations

import numpy as np
from xlsxwriter.utility import xl_range_abs

from pddplan.report.formula import Live, maximum, round_up
from pddplan.report.sheets.source import Inputs, WorkbookSource
from pddplan.report.workbook import Book, Limits
from pddplan.units import SECONDS_PER_HOUR

HIT_RATES = tuple(np.round(np.arange(0.0, 1.0001, 0.02), 2))
MILLION = 1e6


def bathtub_sheet(book: Book, source: WorkbookSource, inputs: Inputs) -> None:
    sheet = book.sheet("Bathtub", (36, 18, 22, 22, 20, 20))
    form = source.bathtub
    if form is None:
        sheet.title(
            "Bathtub",
            "No token prices are known for this model: write token_prices: {input: ..., cached: ..., output: ...} in the "
            "scenario and export again.",
        )
        return
    sheet.title(
        "Bathtub",
        "V(h) = L p [(1 - h) + d h] + O p_out; T(h) = a (1 - h) L + q L^2 (1 - h^2) / 2 + b + tail; benefit = V / (T x "
        "price of a GPU-second).",
    )
    sheet.heading("Coefficient", "Value", "Unit", "What it is")
    money = source.currency
    p = sheet.input(
        "token_price_input", "Uncached input", form.prices.miss, f"{money}/M tokens", "price of the provider", "0.0000", Limits(0, 1e6)
    )
    hit = sheet.input("token_price_cached", "Cached input", form.prices.hit, f"{money}/M tokens", "", "0.000000", Limits(0, 1e6))
    out = sheet.input("token_price_output", "Output", form.prices.output, f"{money}/M tokens", "", "0.0000", Limits(0, 1e6))
    linear = sheet.input(
        "linear_s_per_token",
        "Prefill work a",
        form.linear_s_per_token,
        "GPU-s/token",
        "fitted to the plan's prefill instances",
        "0.000E+00",
    )
    pair = sheet.input(
        "attention_s_per_pair",
        "Attention q",
        form.attention_s_per_pair,
        "GPU-s/token pair",
        "fitted to the plan's prefill instances",
        "0.000E+00",
    )
    fixed = sheet.input(
        "decode_s_per_token",
        "Decode per output token",
        form.fixed_s / form.output_tokens,
        "GPU-s/token",
        "time of the decode instances per token",
        "0.000E+00",
    )
    gpu_price = sheet.input(
        "bathtub_gpu_price",
        "Price of the chips",
        form.price_per_gpu_h,
        f"{money}/GPU/h",
        "mean over the plan's GPUs",
        "0.0000",
        Limits(0, 1e6),
    )
    chunk = sheet.input(
        "chunk_tokens",
        "Chunk c (0: tails are packed)",
        form.chunk_tokens or 0.0,
        "tokens",
        "serial chunks make singular points",
        "0",
        Limits(0, 1e6),
    )
    overhead = sheet.input("chunk_overhead_s", "Overhead of one chunk", form.chunk_overhead_s, "GPU-s", "", "0.000E+00", Limits(0, 1e3))
    sheet.row += 1
    sheet.heading(
        "Hit rate",
        "Revenue per request",
        "GPU-seconds per request",
        "Requests/s per GPU",
        "Benefit (revenue over cost)",
        "Benefit relative to h = 0",
    )
    sheet.freeze()
    start = sheet.row
    length, output = inputs.input_tokens, inputs.output_tokens
    first: Live | None = None
    for hit_rate in HIT_RATES:
        h = sheet.cell(0, float(hit_rate), "model", "0%")
        revenue = sheet.cell(1, (length * ((1 - h) * p + h * hit) + output * out) / MILLION, "formula", "0.000000")
        uncached = (1 - h) * length
        chunks = uncached / chunk
        serial = overhead * Live(
            f"IF({chunk.text}=0,0,{maximum(round_up(chunks), 1).text})",
            max(float(np.ceil(chunks.value - 1e-9)), 1.0) if chunk.value else 0.0,
        )
        work = linear * uncached + pair * length**2 * (1 - h**2) / 2 + fixed * output + serial
        seconds = sheet.cell(2, work, "formula", "0.000000")
        sheet.cell(3, 1 / seconds, "formula", "0.0000")
        benefit = sheet.cell(4, revenue / (seconds * gpu_price / SECONDS_PER_HOUR), "formula", "0.0000")
        first = first or benefit
        sheet.cell(5, benefit / first, "formula", "0.0000")
        sheet.row += 1
    chart = book.chart("scatter", "straight")
    chart.add_series(
        {
            "name": "benefit relative to h = 0",
            "categories": f"='Bathtub'!{xl_range_abs(start, 0, sheet.row - 1, 0)}",
            "values": f"='Bathtub'!{xl_range_abs(start, 5, sheet.row - 1, 5)}",
        }
    )
    chart.set_title({"name": "Does a higher hit rate pay?"})
    chart.set_x_axis({"name": "hit rate", "num_format": "0%", "min": 0, "max": 1})
    chart.set_y_axis({"name": "benefit, 1 at h = 0"})
    chart.set_legend({"none": True})
    sheet.sheet.insert_chart(2, 7, chart)
