"""simulate: the replay of a plan beside its prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pddplan.cli.common import (
    ForceOption,
    JsonOption,
    PriceSourceOption,
    ScenarioArgument,
    SetOption,
    console,
    print_table,
    read_scenario,
    write_json,
)

if TYPE_CHECKING:
    from pddplan.simulate.compare import Comparison

app = typer.Typer()


@app.command()
def simulate(
    scenario: ScenarioArgument,
    plan: Annotated[
        str | None, typer.Option("--plan", metavar="FILE", help="Plan JSON of optimize or evaluate, in place of planning again.")
    ] = None,
    requests: Annotated[int, typer.Option("--requests", metavar="N", help="Measured requests, all seeds together.")] = 20_000,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Seed of the replays.")] = 1,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Replay these recorded requests at the scenario's rate.")
    ] = None,
    set_: SetOption = None,
    json_: JsonOption = None,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Replay a plan request by request beside its prediction.

    Every percentile is given as predicted and as simulated, with the interval over seeds; one that is more than 15 % off and outside the
    interval is marked as a miss.

    Example: pddplan simulate pdd-reference --plan plan.json --requests 20000
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from pddplan.simulate import simulate as replay
    from pddplan.simulate.document import comparison_document

    read = read_scenario(scenario, set_, price_source)
    fixed = None if plan is None else read_scenario(plan)
    columns = (TextColumn("replaying requests"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=requests)
        found = replay(read, plan=fixed, requests=requests, seed=seed, trace=trace, progress=lambda done: bar.advance(task, done))
    if json_ is not None:
        write_json(comparison_document(found, read), json_, force)
    if json_ != "-":
        _show(found)


def _show(found: Comparison) -> None:
    from rich.table import Table

    out = console()
    table = Table(
        title=f"Predicted beside simulated ({found.requests:,} requests, {found.seeds} seeds from {found.seed})", title_justify="left"
    )
    for name in ("metric", "predicted", "simulated", "95 % interval", "deviation", ""):
        table.add_column(name, justify="left" if name in ("metric", "") else "right")
    for name, value in found.predicted.items():
        low, high = found.interval[name]
        deviation = found.deviation[name]
        table.add_row(
            name,
            f"{value:.4g}",
            f"{found.simulated[name]:.4g}",
            f"{low:.4g} to {high:.4g}",
            "" if deviation is None else f"{100 * deviation:+.1f} %",
            "miss" if name in found.misses else "",
        )
    print_table(table)
    shares = {str(p.name): p.share for p in found.evaluation.pipelines}
    for name, share in found.pipelines.items():
        out.print(f"{name}: {100 * share:.1f} % of requests simulated, {100 * shares.get(name, 0.0):.1f} % predicted")
    for warning in found.warnings:
        out.print(f"warning: {warning}")
