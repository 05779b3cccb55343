"""The Python API: what the commands call, in as few lines.

from pddplan import load_scenario, optimize
result = optimize(load_scenario("pdd-reference", {"workload.rate": "5 req/s"}))
result.evaluation.metrics.bcr
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pddplan.errors import InputError, Problem
from pddplan.scenario import load
from pddplan.scenario.overrides import Override
from pddplan.scenario.schema import Scenario

if TYPE_CHECKING:
    from pddplan.optimize.result import PlanResult


def load_scenario(source: str | Path | Scenario, overrides: Iterable[str | Override] | Mapping[str, Any] = ()) -> Scenario:
    """Read a scenario file, a plan JSON or a shipped name, with values changed by path. Raises InputError with every problem."""
    checks = {"chip": _chip_problems, "model": _model_problems, "engine": _engine_problems}
    return load.load_scenario(source, load.as_overrides(overrides), checks, _chip_slug)


def check(scenario: Scenario) -> None:
    """Resolve all that a plan needs: chips, models, formats, prices, traffic files. Raises InputError with every problem."""
    from pddplan.pdd.context import PlanContext

    with located(scenario):
        PlanContext.from_scenario(scenario)


def optimize(scenario: Scenario | str | Path) -> PlanResult:
    """Best plan of a scenario. Raises InputError, InfeasibleError or SolverError."""
    from pddplan.pipeline import plan

    with located(loaded := _loaded(scenario)):
        return plan(loaded)


def evaluate(scenario: Scenario | str | Path) -> PlanResult:
    """What the scenario's fixed ``plan`` costs and serves. Raises InputError."""
    from pddplan.pipeline import evaluate as evaluate_plan

    with located(loaded := _loaded(scenario)):
        return evaluate_plan(loaded)


def simulate(scenario: Scenario | str | Path, **options: Any) -> Any:
    """Replay of a plan request by request, predicted beside simulated."""
    from pddplan.simulate import simulate as replay

    with located(loaded := _loaded(scenario)):
        return replay(loaded, **options)


@contextmanager
def located(scenario: Scenario) -> Iterator[None]:
    """Give problems found while planning, which name a path of the scenario, its file and line too."""
    try:
        yield
    except InputError as error:
        raise InputError(replace(p, place=load.locate(scenario, p.place)) for p in error.problems) from error


def _loaded(scenario: Scenario | str | Path) -> Scenario:
    return scenario if isinstance(scenario, Scenario) else load_scenario(scenario)


def _chip_problems(name: str, base: Path) -> tuple[Problem, ...]:
    from pddplan.hardware.catalog import load_chip

    return _problems(lambda: load_chip(name, base))


def _chip_slug(name: str, base: Path) -> str:
    from pddplan.hardware.catalog import load_chip

    return name if _chip_problems(name, base) else load_chip(name, base).slug


def _model_problems(name: str, base: Path) -> tuple[Problem, ...]:
    from pddplan.model.catalog import load_model

    return _problems(lambda: load_model(str(base / name) if name.endswith(".json") else name))


def _engine_problems(name: str, base: Path) -> tuple[Problem, ...]:
    from pddplan.roofline.overlay_file import overlay_beside, read_overlay

    return _problems(lambda: read_overlay(overlay_beside(name, base)))


def _problems(look_up: Any) -> tuple[Problem, ...]:
    try:
        look_up()
    except InputError as error:
        return error.problems
    return ()
