"""explain, launch: what a metric is made of, and how to start what was planned."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from pddplan.cli.common import ForceOption, JsonOption, PriceSourceOption, ScenarioArgument, SetOption, console, planned, write_json

app = typer.Typer()


@app.command()
def explain(
    scenario: ScenarioArgument,
    metric: Annotated[str, typer.Argument(help="A metric of the JSON, such as ttft_p99_s or bcr.")],
    set_: SetOption = None,
    json_: JsonOption = None,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Explain a metric: its formula with this scenario's numbers.

    Example: pddplan explain pdd-reference ttft_p99_s
    """
    from pddplan.report.explain import explain as explained
    from pddplan.report.numbers import significant

    answer = explained(*planned(scenario, set_, price_source), metric)
    if json_ is not None:
        write_json({"schema_version": 1, **asdict(answer)}, json_, force)
    if json_ == "-":
        return
    out = console()
    value = "not defined here" if answer.value is None else significant(answer.value, 4)
    for text in (f"{answer.metric} = {value}", f"  formula: {answer.formula}", f"  here:    {answer.filled}"):
        out.print(text, markup=False)
    for term in answer.terms:
        out.print(f"    {term.name}: {term.value}  [{term.source}]", markup=False)
    out.print(f"  derived in {answer.section}", markup=False)


@app.command()
def launch(
    scenario: ScenarioArgument,
    set_: SetOption = None,
    json_: JsonOption = None,
    yaml_: Annotated[bool, typer.Option("--yaml", help="Print YAML instead of shell lines.")] = False,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Print engine flags for each pool of a plan.

    Example: pddplan launch plan.json
    """
    import yaml

    from pddplan.report.launch import check_kv_meets, launch_plan

    context, result = planned(scenario, set_, price_source)
    check_kv_meets(result.evaluation.pools)
    launches = launch_plan(context, result.evaluation)
    document = {"schema_version": 1, "pools": [{**asdict(each), "shell": each.shell()} for each in launches]}
    if json_ is not None:
        write_json(document, json_, force)
    if json_ == "-":
        return
    if yaml_:
        typer.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=140), nl=False)
        return
    for each in launches:
        nodes = f"{each.nodes_per_instance} node{'s' if each.nodes_per_instance > 1 else ''}"
        typer.echo(f"# {each.pool}: {each.instances} instances of {each.gpus_per_instance} GPUs ({nodes} each)")
        for assumed in each.assumes:
            typer.echo(f"#   assumes: {assumed}")
        typer.echo(each.shell())
        if each.extra_config:
            typer.echo(f"# {each.role.lower()}.yaml:")
            typer.echo("".join(f"#   {text}\n" for text in yaml.safe_dump(dict(each.extra_config), sort_keys=False).splitlines()), nl=False)
