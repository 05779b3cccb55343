"""Simulation, the independent judge: a plan replayed request by request on SimPy.

It shares stage times with the analytic side and none of its queueing, so it can find faults in it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pddplan.scenario.schema import Scenario

if TYPE_CHECKING:
    from pddplan.simulate.compare import Comparison


def simulate(
    scenario: Scenario,
    *,
    plan: Scenario | None = None,
    requests: int | None = None,
    seed: int = 1,
    trace: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Replay a plan of ``scenario`` beside its prediction.

    plan: the scenario inside a plan JSON, whose counts and policy are taken; else the scenario's own fixed plan, else the optimum.
    trace: a file of recorded requests to replay at the scenario's rate, in place of its traffic (the plan stays). Raises InputError,
    InfeasibleError or SolverError as planning does.
    """
    from pddplan.pdd.context import PlanContext
    from pddplan.simulate.compare import REQUESTS, compare
    from pddplan.simulate.subject import chosen_decision, with_plan, with_trace

    planned = scenario if plan is None else with_plan(scenario, plan)
    decision = chosen_decision(planned)
    traffic = planned if trace is None else with_trace(planned, Path(trace))
    return compare(PlanContext.from_scenario(traffic), decision, requests=requests or REQUESTS, seed=seed, progress=progress)
