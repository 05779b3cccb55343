"""optimize, evaluate: find a plan, or say what a given one costs and serves."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pddplan.cli.common import (
    ForceOption,
    JsonOption,
    PriceSourceOption,
    ScenarioArgument,
    SetOption,
    check_output,
    console,
    read_scenario,
    write_json,
)

app = typer.Typer()


@app.command()
def optimize(
    scenario: ScenarioArgument,
    set_: SetOption = None,
    json_: JsonOption = None,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Find the best plan: instances, chips, circuits, settings.

    Example: pddplan optimize pdd-reference --set workload.rate="20 req/s"
    """
    from pddplan import api
    from pddplan.errors import InfeasibleError
    from pddplan.report.json import infeasible_document, plan_document

    check_output(json_, force)
    read = read_scenario(scenario, set_, price_source)
    try:
        result = api.optimize(read)
    except InfeasibleError as error:
        if json_ is not None:
            write_json(infeasible_document(error, read), json_, force)
        raise
    if json_ is not None:
        write_json(plan_document(result, read), json_, force)
    if json_ != "-":
        from pddplan.report.console import show_plan

        show_plan(console(), result, read)


@app.command()
def evaluate(
    scenario: ScenarioArgument,
    set_: SetOption = None,
    vs: Annotated[
        list[str] | None,
        typer.Option(
            "--vs", metavar="CHANGES", help="Stand another case beside it: a variant's name, or PATH=VALUE; PATH=VALUE. Repeatable."
        ),
    ] = None,
    json_: JsonOption = None,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Say what a fixed plan costs and serves, several variants side by side.

    The counts stand in the scenario's 'plan' section, or come from the JSON of an earlier run. Without --vs, all variants of the
    scenario are shown beside it; changes are relative to the first column.

    Example: pddplan evaluate plan.json --vs workload.rate="20 req/s" --vs 'workload.rate="20 req/s"; links.A-B.rtt=5 ms'
    """
    from pddplan import api
    from pddplan.report.json import plan_document, relative

    check_output(json_, force)
    read = read_scenario(scenario, set_, price_source)
    cases = [(read.name, read), *_cases(read, vs)]
    results = [(label, case, api.evaluate(case)) for label, case in cases]
    first = results[0][2]
    if json_ is not None:
        document: dict[str, Any] = plan_document(first, read)
        document["compared"] = [
            {
                "label": label,
                "relative": relative(result.evaluation.metrics, first.evaluation.metrics),
                **plan_document(result, case),
            }
            for label, case, result in results[1:]
        ]
        write_json(document, json_, force)
    if json_ == "-":
        return
    from pddplan.report.console import show_comparison, show_plan

    out = console()
    show_plan(out, first, read)
    if len(results) > 1:
        out.print()
        show_comparison(out, [(label, result) for label, _, result in results], read.currency)


def _cases(scenario: Any, vs: list[str] | None) -> list[tuple[str, Any]]:
    """(label, scenario) of each case to stand beside the first."""
    from pddplan.errors import InputError, Problem
    from pddplan.scenario.load import override
    from pddplan.scenario.overrides import split_overrides
    from pddplan.scenario.variants import variants

    if vs is None:
        return list(variants(scenario))
    named = dict(variants(scenario))
    unknown = [text for text in vs if text not in named and "=" not in text]
    if unknown:
        accepted = f"a variant ({', '.join(named) or 'this scenario has none'}), or PATH=VALUE; PATH=VALUE"
        raise InputError(Problem(f"--vs {text}", "is neither", accepted, "workload.rate=5 req/s") for text in unknown)
    return [(text, named[text] if text in named else override(scenario, split_overrides(text))) for text in vs]
