"""bathtub, savings: what hits are worth, and where the savings come from."""

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
    read_scenario,
    write_json,
    write_page,
)

if TYPE_CHECKING:
    pass

app = typer.Typer()


@app.command()
def bathtub(
    scenario: ScenarioArgument,
    set_: SetOption = None,
    json_: JsonOption = None,
    report: ReportOption = None,
    price_ratio: Annotated[float | None, typer.Option(help="Price of cached over uncached tokens, in place of the provider's.")] = None,
    deployment: Annotated[str | None, typer.Option(help="Which deployment, where the scenario has several.")] = None,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Show how benefit depends on the cache hit rate, and where it falls.

    The chips and instances are those of the scenario's fixed plan, or of the best plan found.

    Example: pddplan bathtub pdd-reference --price-ratio 0.1
    """
    from pddplan.pdd.context import PlanContext, traffic_of
    from pddplan.pdd.money import token_prices
    from pddplan.report.bathtub import bathtub_document, bathtub_lines, bathtub_page
    from pddplan.studies.bathtub import bathtub as study_bathtub

    read = read_scenario(scenario, set_, price_source)
    prices = token_prices(traffic_of(PlanContext.from_scenario(read)), deployment, price_ratio)
    context, decision = planned_decision(read)
    study = study_bathtub(context, decision, deployment=deployment, prices=prices)
    if json_ is not None:
        write_json(bathtub_document(study), json_, force)
    if report is not None:
        write_page(bathtub_page(study, read.name), report, force)
    if json_ == "-":
        return
    out = console()
    for text in bathtub_lines(study):
        out.print(text, markup=False, soft_wrap=True)


@app.command()
def savings(
    scenario: ScenarioArgument,
    set_: SetOption = None,
    json_: JsonOption = None,
    report: ReportOption = None,
    draft_tokens: Annotated[int, typer.Option(help="Draft tokens of the last rung, where the scenario has no speculation.")] = 1,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Show each saving factor on the way to the plan, and their product.

    The same demand is planned again with one lever more at a time: P and D apart, their ratio free, prefix hits, mixed chips, a second
    room with relay decode, speculation.

    Example: pddplan savings pdd-reference
    """
    from pddplan.pipeline import plan
    from pddplan.report.savings import savings_document, savings_lines, savings_page
    from pddplan.studies.savings import savings as study_savings

    read = read_scenario(scenario, set_, price_source)
    study = study_savings(read, plan, draft_tokens)
    if json_ is not None:
        write_json(savings_document(study), json_, force)
    if report is not None:
        write_page(savings_page(study, read.name), report, force)
    if json_ == "-":
        return
    out = console()
    for text in savings_lines(study):
        out.print(text, markup=False, soft_wrap=True)
