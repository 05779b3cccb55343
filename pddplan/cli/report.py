"""report, export: a plan as one HTML page, or as a spreadsheet that recalculates."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from pddplan.cli.common import ForceOption, PriceSourceOption, SetOption, note, planned, write_page

app = typer.Typer()
OutputOption = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="File to write.")]


@app.command()
def report(
    scenarios: Annotated[list[str], typer.Argument(metavar="SCENARIO [SCENARIO]", help="A scenario or a plan JSON; two are compared.")],
    output: OutputOption = "report.html",
    set_: SetOption = None,
    lang: Annotated[Literal["en", "zh"], typer.Option(help="Language of the labels.")] = "en",
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Write the HTML report of one plan, or of two compared.

    A scenario without fixed counts is planned first; a plan JSON is evaluated as it stands. The page needs no network.

    Example: pddplan report pdd-reference -o report.html
    """
    from pddplan.errors import InputError, Problem
    from pddplan.report.compare_page import compare_page
    from pddplan.report.files import check_target
    from pddplan.report.plan_page import plan_page, report_source

    if len(scenarios) > 2:
        raise InputError(
            Problem("report", f"{len(scenarios)} scenarios", "one scenario, or two to compare", "pddplan report a.json b.json")
        )
    check_target(output, force)
    results = [planned(name, set_, price_source) for name in scenarios]
    if len(results) == 1:
        context, result = results[0]
        page = plan_page(report_source(context, result, _command()), lang)
    else:
        page = compare_page(results[0], results[1], _command(), lang)
    write_page(page, output, force)


@app.command()
def export(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario file, a plan JSON, or a shipped name.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="File or folder to write. [default: plan.xlsx; for tables plan]")
    ] = None,
    set_: SetOption = None,
    format_: Annotated[
        Literal["xlsx", "csv", "parquet"], typer.Option("--format", help="A workbook, or a folder with a file per table.")
    ] = "xlsx",
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Write a plan as a spreadsheet with live formulas.

    Change yellow cells in Excel or LibreOffice and everything follows; values that only the full model gives are marked.

    Example: pddplan export pdd-reference -o plan.xlsx
    """
    from pddplan.pdd.context import traffic_of
    from pddplan.report.files import check_folder, check_target, write_atomically
    from pddplan.report.spreadsheet import workbook, workbook_source
    from pddplan.report.tables import plan_tables, table_bytes

    target = check_target(output or "plan.xlsx", force) if format_ == "xlsx" else check_folder(output or "plan")
    context, result = planned(scenario, set_, price_source)
    source = workbook_source(traffic_of(context), result, _command())
    if format_ == "xlsx":
        write_atomically(target, workbook(source), force)
        note(f"wrote {target}")
        return
    files = {target / f"{name}.{format_}": table_bytes(frame, format_) for name, frame in plan_tables(source).items()}
    for path in files:
        check_target(path, force)
    for path, content in files.items():
        write_atomically(path, content, force)
        note(f"wrote {path}")


def _command() -> str:
    import shlex

    return shlex.join(["pddplan", *sys.argv[1:]])
