"""What commands share: their common options, reading the scenario, and writing results to stdout or a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from pddplan.optimize.result import PlanResult
    from pddplan.pdd.context import PlanContext
    from pddplan.pdd.plan import Decision
    from pddplan.report.document import Document
    from pddplan.scenario.schema import Scenario

ScenarioArgument = Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario file, a plan JSON, or a shipped name.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help='Change a value of the scenario: --set links.A-B.circuit="10 Gbps". Repeatable.'),
]
JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE|-", help="Write the result as JSON to a file, or to stdout with '-'.")
]
ReportOption = Annotated[str | None, typer.Option("--report", metavar="FILE", help="Write an HTML page.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite an existing output file.")]
PriceSourceOption = Annotated[
    str | None,
    typer.Option("--price-source", metavar="NAME", help="Price unpriced chips from their profile, such as on_demand_usd_h.low."),
]


def read_scenario(source: str, overrides: Iterable[str] | None = None, price_source: str | None = None) -> Scenario:
    """Scenario of a command's arguments. Raises InputError with every problem, unknown chips and models included."""
    from pddplan.api import load_scenario

    scenario = load_scenario(source, overrides or ())
    if price_source is None:
        return scenario
    unpriced = [f"sites.{_quoted(site)}.chips[{i}].price_source={price_source}" for site, i, c in scenario.chips() if c.price is None]
    return load_scenario(scenario, unpriced)


def planned(source: str, overrides: Iterable[str] | None = None, price_source: str | None = None) -> tuple[PlanContext, PlanResult]:
    """A scenario with its plan: its fixed counts evaluated, or the best plan found."""
    from pddplan import api
    from pddplan.pdd.context import PlanContext

    scenario = read_scenario(source, overrides, price_source)
    result = api.evaluate(scenario) if scenario.plan is not None else api.optimize(scenario)
    return PlanContext.from_scenario(scenario), result


def planned_decision(scenario: Scenario) -> tuple[PlanContext, Decision]:
    """Context of a scenario and its decision: its fixed plan, or the best plan found (no baselines, no explanations)."""
    from pddplan.pdd.context import PlanContext
    from pddplan.pdd.fixed_plan import fixed_decision
    from pddplan.pipeline import plan

    context = PlanContext.from_scenario(scenario)
    if scenario.plan is not None:
        return context, fixed_decision(context)
    return context, plan(scenario, explain=False).evaluation.decision


def _quoted(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)


def check_output(target: str | None, force: bool = False) -> None:
    """Refuse an output file that could not be written, before the work is done."""
    if target not in (None, "-"):
        from pddplan.report.files import check_target

        check_target(target, force)


def write_json(document: Mapping[str, Any], target: str, force: bool = False) -> None:
    """Write a result to a file, or to stdout when ``target`` is '-'."""
    from pddplan.report.json import json_text

    text = json_text(document)
    if target == "-":
        buffer = getattr(sys.stdout, "buffer", None)
        if buffer is None:
            sys.stdout.write(text)
            return
        sys.stdout.flush()
        buffer.write(text.encode())
        buffer.flush()
        return
    from pddplan.report.files import write_atomically

    write_atomically(target, text, force)
    note(f"wrote {target}")


def write_page(page: Document, target: str, force: bool = False) -> None:
    """Write a document as an HTML page, and say so on stderr."""
    from pddplan.report.files import write_atomically
    from pddplan.report.html import render

    write_atomically(target, render(page), force)
    note(f"wrote {target}")


def console() -> Console:
    """Console of the result on stdout: as wide as the terminal (COLUMNS or 100 when piped), colour only on a terminal without NO_COLOR."""
    from rich.console import Console

    own_width = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(highlight=False, width=None if own_width else 100)


def print_table(table: Table) -> None:
    """Print a table to stdout, text wrapped to the width; no number or name is cut, though lines get longer than a narrow terminal."""
    from rich.cells import cell_len
    from rich.measure import Measurement

    out = console()
    for column in table.columns:
        words = (word for cell in (column.header, *column.cells) for word in str(cell).split())
        column.min_width = max(map(cell_len, words), default=0)
    out.width = max(out.width, Measurement.get(out, out.options.update(max_width=10_000), table).minimum)
    out.print(table, crop=False)


def note(text: str) -> None:
    """One line of log on stderr."""
    print(text, file=sys.stderr)
