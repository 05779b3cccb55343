"""pareto, sensitivity, robust, bandwidth, stability: what is asked of a plan beyond the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pddplan.cli.common import (
    ForceOption,
    JsonOption,
    PriceSourceOption,
    ReportOption,
    ScenarioArgument,
    SetOption,
    console,
    planned_decision,
    print_table,
    read_scenario,
    write_json,
    write_page,
)

if TYPE_CHECKING:
    from pddplan.report.document import Table

app = typer.Typer()


@app.command()
def bandwidth(
    scenario: ScenarioArgument,
    set_: SetOption = None,
    json_: JsonOption = None,
    report: ReportOption = None,
    machines: Annotated[str, typer.Option(metavar="N,N,...", help="Cluster sizes, in machines.")] = "10,100,1000",
    hit_rates: Annotated[
        str, typer.Option(metavar="H,H,...", help="Mean hit rates from 0 to 1; the traffic's own is always added.")
    ] = "0,0.5,0.7,0.8,0.9,0.95,0.99",
    machine_gpus: Annotated[int, typer.Option(min=1, help="GPUs of a machine.")] = 8,
    deployment: Annotated[str | None, typer.Option(help="Which deployment, where the scenario has several.")] = None,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Say which circuits the line needs, over cluster size and hit rate, with and without the decode-side cache.

    The mix of machines is that of the scenario's fixed plan, or of the best plan found.

    Example: pddplan bandwidth pdd-reference --machines 10,100,1000
    """
    from pddplan.report.studies_page import bandwidth_document, bandwidth_headline, bandwidth_page, bandwidth_table
    from pddplan.studies.bandwidth import bandwidth as study_bandwidth

    sizes = [int(number) for number in _numbers("--machines", machines, 1.0, 1e7)]
    hits = _numbers("--hit-rates", hit_rates, 0.0, 1.0)
    read = read_scenario(scenario, set_, price_source)
    context, decision = planned_decision(read)
    study = study_bandwidth(context, decision, deployment=deployment, machines=sizes, hit_rates=hits, machine_gpus=machine_gpus)
    if json_ is not None:
        write_json(bandwidth_document(study), json_, force)
    if report is not None:
        write_page(bandwidth_page(study, read.name), report, force)
    if json_ != "-":
        _show(bandwidth_headline(study), bandwidth_table(study), study.notes)


@app.command()
def stability(
    scenario: ScenarioArgument,
    set_: SetOption = None,
    json_: JsonOption = None,
    report: ReportOption = None,
    turns: Annotated[int, typer.Option(min=1, max=1000, help="Turns to follow the sessions for.")] = 60,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Show relay load and MD's hit rate turn by turn: what stays bounded and what runs away.

    Three policies: relayed requests end on the relay (P-RLD); they end at MD (PDD); and PDD that stops the transfers of answers that ended.

    Example: pddplan stability pdd-reference --set policy.relay_threshold="0.2 s"
    """
    from pddplan.report.studies_page import stability_document, stability_page, stability_table
    from pddplan.studies.stability import stability_study

    read = read_scenario(scenario, set_, price_source)
    study = stability_study(*planned_decision(read), turns=turns)
    if json_ is not None:
        write_json(stability_document(study), json_, force)
    if report is not None:
        write_page(stability_page(study, read.name), report, force)
    if json_ != "-":
        _show(study.verdict, stability_table(study), ())


@app.command()
def pareto(
    scenario: ScenarioArgument,
    x: Annotated[str, typer.Option("--x", metavar="METRIC", help="A metric of cost.")] = "cost_usd_per_h",
    y: Annotated[str, typer.Option("--y", metavar="METRIC", help="A metric of latency.")] = "ttft_p99_s",
    points: Annotated[int, typer.Option(min=2, max=100, help="Plans to find.")] = 8,
    set_: SetOption = None,
    json_: JsonOption = None,
    report: ReportOption = None,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Trade two metrics against each other: the plans that no other beats on both.

    Each plan is the cheapest whose latency stays under its own ceiling; the scenario's limits hold throughout.

    Example: pddplan pareto pdd-reference --x cost_usd_per_h --y ttft_p99_s
    """
    from pddplan import api
    from pddplan.report.planning_page import pareto_document, pareto_headline, pareto_page, pareto_table
    from pddplan.studies.pareto import pareto as front_of

    read = read_scenario(scenario, set_, price_source)
    with api.located(read):
        front = front_of(read, x, y, points)
    if json_ is not None:
        write_json(pareto_document(front, read), json_, force)
    if report is not None:
        write_page(pareto_page(front, read.name), report, force)
    if json_ != "-":
        _show(pareto_headline(front), pareto_table(front), front.notes)


@app.command()
def sensitivity(
    scenario: ScenarioArgument,
    spread: Annotated[float, typer.Option(min=0.01, max=0.9, help="How far each input moves, as a share of itself.")] = 0.2,
    set_: SetOption = None,
    json_: JsonOption = None,
    report: ReportOption = None,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Show which input moves the best plan most: prices, demand, hit rate, output length, bandwidth.

    Example: pddplan sensitivity pdd-reference --spread 0.2
    """
    from pddplan import api
    from pddplan.report.planning_page import sensitivity_document, sensitivity_headline, sensitivity_page, sensitivity_table
    from pddplan.studies.sensitivity import sensitivity as tornado

    read = read_scenario(scenario, set_, price_source)
    with api.located(read):
        study = tornado(read, spread)
    if json_ is not None:
        write_json(sensitivity_document(study, read), json_, force)
    if report is not None:
        write_page(sensitivity_page(study, read.name), report, force)
    if json_ != "-":
        _show(sensitivity_headline(study), sensitivity_table(study), ())


@app.command()
def robust(
    scenario: ScenarioArgument,
    demand: Annotated[str, typer.Option(metavar="X,X,...", help="Multiples of the demand.")] = "0.8,1,1.2",
    uncached: Annotated[str, typer.Option(metavar="X,X,...", help="Multiples of the uncached tokens.")] = "0.8,1,1.3",
    set_: SetOption = None,
    json_: JsonOption = None,
    report: ReportOption = None,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Find the cheapest plan that holds in several futures, and what that certainty costs.

    Example: pddplan robust pdd-reference --demand 0.8,1,1.2 --uncached 1,1.3
    """
    from pddplan import api
    from pddplan.report.planning_page import robust_document, robust_headline, robust_page, robust_table
    from pddplan.studies.robust import futures, robust_plan

    read = read_scenario(scenario, set_, price_source)
    chosen = futures(tuple(_numbers("--demand", demand, 0.01, 100.0)), tuple(_numbers("--uncached", uncached, 0.0, 100.0)))
    with api.located(read):
        plan = robust_plan(read, chosen)
    if json_ is not None:
        write_json(robust_document(plan, read), json_, force)
    if report is not None:
        write_page(robust_page(plan, read.name), report, force)
    if json_ != "-":
        _show(robust_headline(plan), robust_table(plan), ())


def _numbers(option: str, text: str, low: float, high: float) -> list[float]:
    """Comma-separated numbers within [low, high]. Raises InputError."""
    from pddplan.errors import InputError, Problem

    values = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise InputError(
                Problem(option, f"{part.strip()!r}", f"numbers from {low:g} to {high:g}, separated by commas", f"{option} {high:g}")
            )
        values.append(value)
    return values


def _show(headline: str, table: Table, notes: tuple[str, ...]) -> None:
    from rich.table import Table as Grid

    from pddplan.report.numbers import significant

    out = console()
    out.print(headline, markup=False, soft_wrap=True)
    out.print()
    grid = Grid(box=None, pad_edge=False)
    for column in table.columns:
        unit = f" ({column.unit})" if column.unit else ""
        grid.add_column(f"{column.label}{unit}", justify=column.align)
    for row in table.rows:
        cells = [
            "-" if cell is None else cell if isinstance(cell, str) else str(cell) if isinstance(cell, int) else significant(cell)
            for cell in row
        ]
        grid.add_row(*cells)
    print_table(grid)
    for text in (table.note, *notes):
        if text:
            out.print(text, markup=False, soft_wrap=True)
