"""pddplan: capacity and cost of serving language models over chips, rooms and lines.

load_scenario, optimize, evaluate and simulate are the whole of the command line in Python; they load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pddplan.api import evaluate as evaluate
    from pddplan.api import load_scenario as load_scenario
    from pddplan.api import optimize as optimize
    from pddplan.api import simulate as simulate
    from pddplan.errors import InfeasibleError as InfeasibleError
    from pddplan.errors import InputError as InputError
    from pddplan.errors import PddplanError as PddplanError
    from pddplan.errors import SolverError as SolverError
    from pddplan.scenario.schema import Scenario as Scenario

_HOMES = {
    **dict.fromkeys(("load_scenario", "optimize", "evaluate", "simulate"), "pddplan.api"),
    **dict.fromkeys(("PddplanError", "InputError", "InfeasibleError", "SolverError"), "pddplan.errors"),
    "Scenario": "pddplan.scenario.schema",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("pddplan")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pddplan' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, "__version__"])
