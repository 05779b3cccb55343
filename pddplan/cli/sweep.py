"""sweep: plans over a grid or a sample of scenario values."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from pddplan.cli.common import (
    ForceOption,
    JsonOption,
    PriceSourceOption,
    ReportOption,
    ScenarioArgument,
    SetOption,
    note,
    read_scenario,
    write_json,
    write_page,
)

app = typer.Typer()


@app.command()
def sweep(
    scenario: ScenarioArgument,
    vary: Annotated[
        list[str], typer.Option("--vary", metavar="PATH=VALUES", help="a,b,c or low:high:count; low:high or normal(m, s) with --sample.")
    ],
    sample: Annotated[str | None, typer.Option(metavar="METHOD:N", help="Draw N points: sobol, latin or random.")] = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="A .parquet or .csv table.")] = "sweep.csv",
    set_: SetOption = None,
    jobs: Annotated[int, typer.Option(min=0, help="Local processes; 0 for one per core.")] = 1,
    dask: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Run on a Dask scheduler, such as tcp://host:8786.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample.")] = 0,
    report: ReportOption = None,
    json_: JsonOption = None,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Plan over a grid or a sample of scenario values.

    A scenario with a fixed plan is evaluated at every point, any other planned. A killed run goes on where it stopped.

    Example: pddplan sweep pdd-reference --vary links.A-B.circuit=10Gbps,25Gbps,100Gbps --out circuits.csv
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from pddplan.errors import InputError, Problem
    from pddplan.report.files import check_target, write_atomically
    from pddplan.report.sweep_page import sweep_lines, sweep_page, sweep_table
    from pddplan.report.tables import table_bytes
    from pddplan.studies.sweep import Journal, check_points, grid, parse_vary
    from pddplan.studies.sweep import sample as draw
    from pddplan.studies.sweep import sweep as run_sweep

    kinds: dict[str, Literal["csv", "parquet"]] = {".csv": "csv", ".parquet": "parquet"}
    kind = kinds.get(Path(out).suffix.lower())
    if kind is None:
        raise InputError(Problem("--out", out, "a file that ends in .csv or .parquet", "sweep.parquet"))
    for target in (out, report):
        if target is not None:
            check_target(target, force)
    read = read_scenario(scenario, set_, price_source)
    varied = [parse_vary(text) for text in vary]
    points = list(grid(varied) if sample is None else draw(varied, sample, seed))
    check_points(read, points)
    digest = hashlib.sha256(json.dumps([read.digest, vary, sample, seed]).encode()).hexdigest()[:16]
    journal = Journal(Path(f"{out}.journal"), digest)
    if journal.rows:
        note(f"{len(journal.rows)} points were finished already ({journal.path})")
    log = Console(stderr=True)
    with Progress(
        TextColumn("planning"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=log, disable=not log.is_terminal
    ) as bar:
        task = bar.add_task("planning", total=len(points))
        try:
            rows = run_sweep(
                read, points, journal, jobs=jobs or -1, dask=dask, progress=lambda done, of: bar.update(task, completed=done, total=of)
            )
        except KeyboardInterrupt:
            note(f"stopped; {len(journal.rows)} finished points are kept in {journal.path}, the same command goes on from there")
            raise
    write_atomically(out, table_bytes(sweep_table(rows), kind), force)
    journal.path.unlink(missing_ok=True)
    note(f"wrote {out}")
    if report is not None:
        write_page(sweep_page(read.name, varied, rows), report, force)
    if json_ is not None:
        write_json({"schema_version": 1, "rows": rows}, json_, force)
    if json_ != "-":
        for text in sweep_lines(varied, rows):
            typer.echo(text)
