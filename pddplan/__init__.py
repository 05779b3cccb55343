"""pddplan: capacity and cost of serving language models over chips, rooms and lines.

load_scenario, optimize, evaluate and simulate are the whole of the command line in Python; they load on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
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


class _Package(ModuleType):
    """A subpackage that bears the name of a function of the API (``optimize``, ``simulate``) and, once imported, can be called as it."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return getattr(import_module("pddplan.api"), self.__name__.rpartition(".")[2])(*arguments, **options)


class _Front(ModuleType):
    """This module: Python puts imported subpackages into it, over functions of the same name; those are made callable."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            value.__class__ = _Package
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Front


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, "__version__"])
