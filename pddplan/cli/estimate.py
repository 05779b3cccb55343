"""estimate, backtest, calibrate: one server or a table of them, judged against measurements, refitted to your own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pddplan.cli.common import ForceOption, JsonOption, ReportOption, check_output, console, note, print_table, write_json, write_page

if TYPE_CHECKING:
    import pandas as pd

    from pddplan.stages.roofline import RooflineInstance
    from pddplan.stages.serving import ServerEstimate

app = typer.Typer(no_args_is_help=True)
SCHEMA_VERSION = 1

ModelOption = Annotated[str | None, typer.Option("--model", metavar="M", help="A shipped name, a config.json or a folder that holds one.")]
ChipOption = Annotated[str | None, typer.Option("--chip", metavar="C", help="A shipped chip or a chip file.")]
EngineOption = Annotated[
    str | None, typer.Option("--engine", metavar="E", help="vllm, sglang, trtllm, generic, or a calibration overlay. [default: vllm]")
]
PrecisionOption = Annotated[
    str | None, typer.Option("--precision", metavar="P", help="bf16, fp8, fp4, int4: of the weights served. [default: as published]")
]
TpOption = Annotated[int | None, typer.Option("--tp", help="Tensor-parallel GPUs. [default: 1]")]
PpOption = Annotated[int | None, typer.Option("--pp", help="Pipeline stages. [default: 1]")]
DpOption = Annotated[int | None, typer.Option("--dp", help="Attention data-parallel ranks. [default: 1]")]
EpOption = Annotated[int | None, typer.Option("--ep", help="Expert-parallel ranks. [default: 1; all ranks with --dp]")]
OutOption = Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="Write the result to a file.")]


@app.command()
def estimate(
    rows: Annotated[str | None, typer.Argument(metavar="[ROWS.csv]", help="A table with one row per server; or use the options.")] = None,
    model: ModelOption = None,
    chip: ChipOption = None,
    engine: EngineOption = None,
    tp: TpOption = None,
    pp: PpOption = None,
    dp: DpOption = None,
    ep: EpOption = None,
    isl: Annotated[str | None, typer.Option("--isl", metavar="N", help="Input tokens of a request, such as 1024 or 8k.")] = None,
    osl: Annotated[str | None, typer.Option("--osl", metavar="N", help="Output tokens of a request.")] = None,
    concurrency: Annotated[
        float | None, typer.Option("--concurrency", metavar="N", help="Requests always in flight, per replica (closed loop).")
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="R", help="Requests per second, per replica (Poisson), such as 1.5 or '90 req/min'.")
    ] = None,
    precision: PrecisionOption = None,
    kv_dtype: Annotated[str | None, typer.Option("--kv-dtype", metavar="FORMAT", help="KV format. [default: the checkpoint's]")] = None,
    chunk: Annotated[int, typer.Option("--chunk", min=1, metavar="TOKENS", help="Prefill chunk (token budget of a pass).")] = 8192,
    draft_tokens: Annotated[int | None, typer.Option("--draft-tokens", help="Speculate: tokens drafted per step.")] = None,
    acceptance_length: Annotated[
        float | None, typer.Option("--acceptance-length", help="Measured mean tokens per step; needed with --draft-tokens.")
    ] = None,
    out: OutOption = None,
    json_: JsonOption = None,
    force: ForceOption = False,
) -> None:
    """Predict TTFT, TPOT and throughput of one server with its step breakdown, KV limit and error band; or of a table.

    A table has the columns model, chip, engine, isl, osl, and as far as they matter concurrency, tp, dp, pp, ep, precision, mode (agg,
    disagg), length_law (fixed; random: uniform in 0.8 to 1 of the nominal lengths, the default).

    Example: pddplan estimate --model Qwen/Qwen3-32B --chip h100-sxm --engine vllm --tp 4 --isl 4k --osl 500 --concurrency 32
    """
    if rows is not None:
        _estimate_rows(rows, engine, out, json_, force)
        return
    from pddplan.errors import InputError, Problem

    needed = {"--model": model, "--chip": chip, "--isl": isl, "--osl": osl}
    problems = [
        Problem(option, "missing", "one server needs it (or name a table of rows)") for option, value in needed.items() if not value
    ]
    if (concurrency is None) == (rate is None):
        problems.append(Problem("--concurrency, --rate", "neither or both given", "exactly one of them", "--concurrency 32"))
    if draft_tokens is not None and acceptance_length is None:
        problems.append(Problem("--acceptance-length", "missing", "speculation needs a measured acceptance length", "1.8"))
    if problems:
        raise InputError(problems)
    check_output(json_, force)
    lengths = _quantity("--isl", str(isl)), _quantity("--osl", str(osl))
    rate_per_s = None if rate is None else _quantity("--rate", rate)
    instance = _instance(
        str(model), str(chip), engine or "vllm", (tp, pp, dp, ep), precision or "", kv_dtype, chunk, draft_tokens, acceptance_length
    )
    from pddplan.stages.serving import estimate_closed, estimate_open

    with _named_by_option():
        if concurrency is not None:
            found = estimate_closed(instance, *lengths, concurrency)
        else:
            found = estimate_open(instance, *lengths, rate_per_s or 0.0)
    document = _document(instance, found, *lengths, concurrency, rate_per_s)
    if json_ is not None:
        write_json(document, json_, force)
        if json_ == "-":
            return
    _show(document)


_OPTIONS = {"model.weights": "--precision", "kv_format": "--kv-dtype", "isl": "--isl", "osl": "--osl",
            "concurrency": "--concurrency", "rate": "--rate"}  # fmt: skip


@contextmanager
def _named_by_option() -> Iterator[None]:
    """Problems of what an option gives, under the option's name."""
    from pddplan.errors import InputError

    try:
        yield
    except InputError as error:
        raise InputError([replace(p, place=_OPTIONS.get(p.place, p.place)) for p in error.problems]) from error


def _quantity(option: str, text: str) -> float:
    """Tokens, or requests per second for ``--rate``, where a bare number is read too. Raises InputError."""
    from pddplan.errors import InputError, Problem
    from pddplan.units import RATE, TOKENS, UnitError

    quantity = replace(RATE, units={**RATE.units, "": 1.0}, bare=True) if option == "--rate" else TOKENS
    try:
        return quantity.parse(text)
    except UnitError as error:
        raise InputError(Problem(option, error.found, error.accepted, error.example)) from None


def _instance(
    model: str,
    chip: str,
    engine: str,
    sizes: tuple[int | None, int | None, int | None, int | None],
    precision: str,
    kv_dtype: str | None,
    chunk: int,
    draft_tokens: int | None,
    acceptance_length: float | None,
) -> RooflineInstance:
    from pddplan.hardware import load_chip
    from pddplan.model.fit import mapping, require_legal
    from pddplan.roofline.checkpoint import served_checkpoint
    from pddplan.roofline.speculation import Speculation
    from pddplan.stages.roofline import roofline_instance

    tp, pp, dp, ep = sizes
    with _named_by_option():
        spec = served_checkpoint(model, precision)
        parallel = mapping(spec, tp=tp, pp=pp or 1, dp=dp or 1, ep=ep)
        require_legal(spec, parallel)
        speculation = Speculation(draft_tokens, acceptance_length or 0.0) if draft_tokens is not None else None
        return roofline_instance(
            spec, load_chip(chip), engine, parallel, kv_format=kv_dtype, prefill_chunk_tokens=chunk, speculation=speculation, checked=False
        )


def _document(
    instance: RooflineInstance, found: ServerEstimate, isl: float, osl: float, concurrency: float | None, rate: float | None
) -> dict[str, Any]:
    from pddplan.stages.breakdown import decode_components, prefill_components

    context = isl + osl / 2.0
    return {
        "schema_version": SCHEMA_VERSION,
        "server": {
            "model": instance.model.name, "chip": instance.chip.slug, "engine": instance.engine, "tp": instance.parallel.tp,
            "pp": instance.parallel.pp, "dp": instance.parallel.dp, "ep": instance.parallel.moe_ep, "gpus": instance.gpus,
            "kv_format": instance.kv_format, "basis": instance.basis,
        },
        "load": {"isl": isl, "osl": osl, "concurrency": concurrency, "rate_rps": rate},
        "metrics": {
            "ttft_s": found.ttft_s, "tpot_s": found.tpot_s, "output_tokens_per_s_per_gpu": found.output_tokens_per_s_per_gpu,
            "requests_per_s": found.requests_per_s, "running": found.running, "prefill_utilisation": found.prefill_utilisation,
        },
        "band": {
            "share": 0.8, "basis": found.band.basis, "ttft_s": [found.ttft_s * f for f in found.band.ttft],
            "tpot_s": [found.tpot_s * f for f in found.band.tpot],
        },
        "kv": {
            "limit_requests": found.kv_limit, "capacity_bytes": instance.kv_capacity_bytes(),
            "bytes_per_request": float(instance.kv_resident_bytes(context)),
        },
        "binding": found.binding,
        "decode_step": [vars(c) for c in decode_components(instance, found.running, context)],
        "prefill": [vars(c) for c in prefill_components(instance, isl, 0.0)],
        "warnings": list(found.warnings),
    }  # fmt: skip


def _show(document: dict[str, Any]) -> None:
    from rich.table import Table

    from pddplan.report.numbers import data_size, duration, percent, significant

    out = console()
    server, metrics, band, kv = document["server"], document["metrics"], document["band"], document["kv"]
    sizes = " ".join(f"{name} {server[name]}" for name in ("tp", "pp", "dp", "ep") if server[name] > 1)
    out.print(f"[bold]{server['model']}[/] on {server['gpus']} x {server['chip']}, {server['engine']} {sizes}, KV {server['kv_format']}")
    if isfinite(metrics["ttft_s"]):
        shown = {m: f"{duration(metrics[m])} ({duration(band[m][0])} to {duration(band[m][1])})" for m in ("ttft_s", "tpot_s")}
        tpot = shown["tpot_s"] if isfinite(metrics["tpot_s"]) else "not defined (one output token)"
        out.print(f"TTFT {shown['ttft_s']}  TPOT {tpot}")
        out.print(f"In brackets: where 80 % of measured servers lie ({band['basis']}).")
    else:
        out.print("[bold]Unstable[/]: the queue grows without bound, TTFT has no limit. What it can serve:")
    busy = metrics["prefill_utilisation"]
    prefill = f"prefill busy {percent(busy)}" if busy <= 1.0 else f"prefill asked for {significant(busy)} times what it can do"
    out.print(
        f"{significant(metrics['output_tokens_per_s_per_gpu'], 4)} output tokens/s per GPU, "
        f"{significant(metrics['requests_per_s'])} requests/s, {significant(metrics['running'])} running, {prefill}; "
        f"limited by {document['binding']}."
    )
    out.print(
        f"KV: {significant(kv['limit_requests'], 4)} such requests fit "
        f"({data_size(kv['capacity_bytes'])}, {data_size(kv['bytes_per_request'])} each)."
    )
    for key, title in (("decode_step", "Decode step"), ("prefill", "Prefill of one request")):
        table = Table("component", "time", "share", "bound by", title=title, title_justify="left", box=None, pad_edge=False)
        for part in document[key]:
            table.add_row(part["name"], duration(part["seconds"]), f"{part['share']:.0%}", part["binding"])
        print_table(table)
    for warning in document["warnings"]:
        note(f"warning: {warning}")


def _read(files: list[str], defaults: dict[str, float | str | None]) -> pd.DataFrame:
    import pandas as pd

    from pddplan.roofline.benchmark_files import read_benchmark

    return pd.concat([read_benchmark(Path(file), defaults) for file in files], ignore_index=True)


def _estimate_rows(file: str, engine: str | None, out: str | None, json_: str | None, force: bool) -> None:
    from pddplan.stages.serving import estimate_table

    check_output(out, force)
    check_output(json_, force)
    predicted = estimate_table(_read([file], {"engine": engine}))
    if out is not None:
        from pddplan.report.files import write_atomically

        write_atomically(out, predicted.to_csv(index=False, float_format="%.6g"), force)
        note(f"wrote {out}: {len(predicted)} rows, {int((predicted['basis'] == 'none').sum())} not estimated")
    if json_ is not None:
        records = predicted.astype(object).where(predicted.notna(), None).to_dict("records")
        write_json({"schema_version": SCHEMA_VERSION, "rows": records}, json_, force)
    if out is None and json_ is None:
        typer.echo(predicted.to_csv(index=False, float_format="%.6g"), nl=False)


@app.command()
def backtest(
    rows: Annotated[list[str], typer.Argument(metavar="ROWS.csv...", help="Tables with measured_ttft_ms and measured_tpot_ms.")],
    engine: EngineOption = None,
    out: OutOption = None,
    report: ReportOption = None,
    json_: JsonOption = None,
    force: ForceOption = False,
) -> None:
    """Compare predictions with measured servers: median, mean, p90 error, bias and coverage by engine, chip, model and load.

    Example: pddplan backtest my-runs.csv --report backtest.html
    """
    from rich.table import Table

    from pddplan.roofline.benchmark_table import read_benchmark_table
    from pddplan.stages.serving import backtest as compare
    from pddplan.stages.serving import estimate_table

    for target in (out, report, json_):
        check_output(target, force)
    raw = _read(rows, {"engine": engine})
    table = read_benchmark_table(raw)
    predicted = estimate_table(raw, table)
    errors = compare(raw, predicted)
    beside = predicted.join(table.table.drop(columns=["row"]))
    if out is not None:
        from pddplan.report.files import write_atomically

        write_atomically(out, beside.to_csv(index=False, float_format="%.6g"), force)
        note(f"wrote {out}")
    if report is not None:
        from pddplan.report.server_page import backtest_page

        write_page(backtest_page(errors, beside, ", ".join(rows)), report, force)
    if json_ is not None:
        write_json({"schema_version": SCHEMA_VERSION, "errors": errors}, json_, force)
        if json_ == "-":
            return
    for name, found in errors.items():
        shown = Table(name, "mode", "metric", "rows", "median %", "mean %", "p90 %", "bias %", "coverage %", box=None, pad_edge=False)
        for row in found:
            numbers = (f"{float(str(row[k])):.1f}" if k in row else "-" for k in ("median", "mean", "p90", "bias"))
            shown.add_row(
                str(row["group"]),
                str(row["mode"]),
                str(row["metric"]),
                f"{row['rows']:.0f}",
                *numbers,
                f"{100 * float(str(row['coverage'])):.0f}",
            )
        print_table(shown)


@app.command()
def calibrate(
    rows: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="CSV tables, or JSON of vLLM bench serve, SGLang bench_serving, aiperf, genai-perf."),
    ],
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE.yaml", help="Write the overlay; scenarios name it as engine.")
    ] = None,
    model: ModelOption = None,
    chip: ChipOption = None,
    engine: EngineOption = None,
    tp: TpOption = None,
    pp: PpOption = None,
    dp: DpOption = None,
    ep: EpOption = None,
    precision: PrecisionOption = None,
    group_by: Annotated[
        str | None, typer.Option("--group-by", metavar="COLUMN", help="Leave out one value of this column at a time.")
    ] = None,
    shrinkage: Annotated[float, typer.Option("--shrinkage", min=0.01, help="Pull towards the shipped constants.")] = 1.0,
    json_: JsonOption = None,
    force: ForceOption = False,
) -> None:
    """Fit an engine's constants to your own benchmarks; constants that the rows do not identify keep their shipped values.

    Example: pddplan calibrate my-runs.csv -o my-engine.yaml; then pddplan estimate ... --engine my-engine.yaml
    """
    import yaml

    from pddplan.stages.calibration import calibrate as fit

    for target in (out, json_):
        check_output(target, force)
    defaults: dict[str, float | str | None] = {
        "model_path": model, "system": chip, "engine": engine, "tp_size": tp, "pp_size": pp, "attention_dp_size": dp, "moe_ep_size": ep,
        "precision": precision,
    }  # fmt: skip
    found = fit(_read(rows, defaults), shrinkage=shrinkage, group_by=group_by, source=", ".join(Path(r).name for r in rows))
    if out is not None:
        from pddplan.report.files import write_atomically

        write_atomically(out, yaml.safe_dump(dict(found.overlay), sort_keys=False, allow_unicode=True), force)
        note(f"wrote {out}")
    document = {
        "schema_version": SCHEMA_VERSION, "engine": found.engine, "rows": found.rows, "skipped": list(found.skipped),
        "factors": found.refinement.factors, "posterior_over_prior_spread": found.refinement.narrowing, "grouped_by": found.grouped_by,
        "groups": found.groups,
        "errors_percent": {"shipped": found.before, "calibrated": found.after, "leave_one_group_out": found.held_out},
    }  # fmt: skip
    if json_ is not None:
        write_json(document, json_, force)
        if json_ == "-":
            return
    _show_calibration(document)


def _show_calibration(document: dict[str, Any]) -> None:
    from rich.table import Table

    out = console()
    factors = document["factors"]
    out.print(f"{document['engine']}: {document['rows']} rows; {len(factors)} constants identified, the rest stay as shipped.")
    table = Table("constant", "factor on shipped", "spread left", box=None, pad_edge=False)
    for name, factor in factors.items():
        table.add_row(name, f"{factor:.3f}", f"{document['posterior_over_prior_spread'][name]:.0%}")
    print_table(table)
    errors = Table("errors", "metric", "rows", "median %", "mean %", "p90 %", "bias %", box=None, pad_edge=False)
    for label, metrics in document["errors_percent"].items():
        for metric, e in metrics.items():
            if "median" in e:
                errors.add_row(
                    label.replace("_", " "), metric, f"{e['rows']:.0f}", *(f"{e[k]:.1f}" for k in ("median", "mean", "p90", "bias"))
                )
    print_table(errors)
    out.print(f"Left out one group at a time, by {document['grouped_by']} ({document['groups']} groups).")
    for reason in document["skipped"]:
        note(f"not used: {reason}")
