"""init, validate, schema: write, check and describe scenario files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from pddplan.cli.common import (
    ForceOption,
    JsonOption,
    PriceSourceOption,
    ScenarioArgument,
    SetOption,
    console,
    note,
    read_scenario,
    write_json,
)

app = typer.Typer()


@app.command()
def init(
    file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="Where to write it; '-' is stdout.")] = "scenario.yaml",
    force: ForceOption = False,
) -> None:
    """Write a commented starter scenario.

    Example: pddplan init my-plan.yaml
    """
    text = (Path(__file__).parent.parent / "scenario" / "starter.yaml").read_text(encoding="utf-8")
    if file == "-":
        typer.echo(text, nl=False)
        return
    from pddplan.report.files import write_atomically

    write_atomically(file, text, force)
    note(f"wrote {file}; next: pddplan optimize {file}")


@app.command()
def validate(
    scenario: ScenarioArgument,
    set_: SetOption = None,
    json_: JsonOption = None,
    force: ForceOption = False,
    price_source: PriceSourceOption = None,
) -> None:
    """Check a scenario file and say every problem at its line.

    Chips, models, formats, prices and traffic files are resolved as for a plan, and every variant is checked too.
    Values are shown as they were read, in base units.

    Example: pddplan validate my-plan.yaml
    """
    from pddplan import api
    from pddplan.errors import InputError
    from pddplan.scenario.variants import variants

    try:
        read = read_scenario(scenario, set_, price_source)
        names = [name for name, _ in variants(read)]
        api.check(read)
    except InputError as error:
        if json_ is not None:
            problems = [{"place": p.place, "found": p.found, "accepted": p.accepted, "example": p.example} for p in error.problems]
            write_json({"schema_version": 1, "valid": False, "problems": problems}, json_, force)
        raise
    if json_ is not None:
        inner = {"name": read.name, "digest": read.digest, "document": read.document()}
        write_json({"schema_version": 1, "valid": True, "scenario": inner, "variants": names, "problems": []}, json_, force)
        if json_ == "-":
            return
    out = console()
    for path, written, meaning in _read_values(read.origin.value, read.document(), ()):
        out.print(f"  {path}: {written} = {meaning}", markup=False)
    out.print(f"ok: {read.name} (digest {read.digest}){f', {len(names)} variants' if names else ''}", markup=False)


@app.command()
def schema(json_: JsonOption = "-", force: ForceOption = False) -> None:
    """Print the JSON Schema of scenario files, for editors.

    Example: pddplan schema > pddplan.schema.json
    """
    from pddplan.scenario.keys import json_schema

    write_json(json_schema(), json_ or "-", force)


def _read_values(written: Any, dumped: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str, str, str]]:
    """(path, as written, as read) of every quantity that base units spell differently."""
    from pddplan.scenario.document import written as written_path

    if isinstance(written, dict) and isinstance(dumped, dict):
        for key, value in written.items():
            yield from _read_values(value, dumped.get(key), (*path, key))
    elif isinstance(written, list) and isinstance(dumped, list):
        for index, (value, other) in enumerate(zip(written, dumped, strict=False)):
            yield from _read_values(value, other, (*path, index))
    elif isinstance(written, str) and isinstance(dumped, str | float) and written != dumped and not written.endswith("%"):
        meaning = _meaning(dumped)
        if meaning != written.replace(".00", ""):
            yield written_path(path), written, meaning


def _meaning(dumped: str | float) -> str:
    if isinstance(dumped, float):
        return f"{dumped:g}"
    number, _, unit = dumped.partition(" ")
    value = float(number)
    if unit == "B/s":
        return f"{value / 1e9:g} GB/s = {value * 8 / 1e9:g} Gbit/s"
    return f"{value / 1e9:g} GB = {value / 2**30:.4g} GiB" if unit == "B" else f"{value:g} {unit}"
