"""Errors that teach: each says the place, what was found, what is accepted and a value that works.

Exit codes (the command line maps each class to its own): 0 ok, 1 bug, 2 input, 3 infeasible, 4 solver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One fault in the input.

    place: file:line and path, or the option or argument (``scenarios/chat.yaml:14 workload.rate``).
    found: what stands there, as the user wrote it.
    accepted: what may stand there.
    example: a value that works; empty only where no single value would.
    """

    place: str
    found: str
    accepted: str
    example: str = ""

    def __str__(self) -> str:
        text = f"{self.place}: {self.found}; {self.accepted}" if self.accepted else f"{self.place}: {self.found}"
        return f"{text} (for example: {self.example})" if self.example else text


class PddplanError(Exception):
    """Base of every error a user can cause or meet; ``exit_code`` is the process's."""

    exit_code = 1


class InputError(PddplanError):
    """Bad input. Carries all problems found, not only the first."""

    exit_code = 2

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InfeasibleError(PddplanError):
    """No plan satisfies every constraint.

    constraint: the one that binds (``memory``, ``sla.ttft.p99``, ``stock`` ...).
    detail: the number that rejected the best candidate, with its limit.
    relaxations: the least change of each constraint that would make a plan possible, best first; settings: the same as values by
    path. conflict: the constraints that cannot all hold.
    """

    exit_code = 3

    def __init__(
        self,
        constraint: str,
        detail: str,
        relaxations: Iterable[str] = (),
        settings: Iterable[Mapping[str, object]] = (),
        conflict: Iterable[str] = (),
    ) -> None:
        self.constraint = constraint
        self.detail = detail
        self.relaxations: tuple[str, ...] = tuple(relaxations)
        self.settings = tuple(settings)
        self.conflict = tuple(conflict)
        lines = [f"no plan is feasible: {constraint}: {detail}"]
        if len(self.conflict) > 1:
            lines.append(f"  in conflict: {', '.join(self.conflict)}")
        for index, relaxation in enumerate(self.relaxations):
            changes = self.settings[index].items() if index < len(self.settings) else ()
            asked = " ".join(f"--set '{path}={_flow(value)}'" for path, value in changes)
            lines.append(f"  would help: {relaxation}" + (f"  ({asked})" if asked else ""))
        super().__init__("\n".join(lines))


def _flow(value: object) -> str:
    """A value as ``--set`` reads it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


class SolverError(PddplanError):
    """The solver is missing, crashed, or ended without an answer."""

    exit_code = 4
