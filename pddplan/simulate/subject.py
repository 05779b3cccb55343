"""What is replayed: the decision of a scenario, and the traffic in place of its own."""

from __future__ import annotations

from pathlib import Path

from pddplan.errors import InputError, Problem
from pddplan.pdd.plan import Decision
from pddplan.scenario.schema import Scenario
from pddplan.scenario.workload import Trace, Workload


def chosen_decision(scenario: Scenario) -> Decision:
    """The scenario's fixed plan, or the best one found. Raises what planning raises."""
    if scenario.plan is not None:
        from pddplan.pdd.context import PlanContext
        from pddplan.pdd.fixed_plan import fixed_decision

        return fixed_decision(PlanContext.from_scenario(scenario))
    from pddplan.pipeline import plan

    return plan(scenario).evaluation.decision


def with_plan(scenario: Scenario, plan: Scenario) -> Scenario:
    """``scenario`` with the counts and policies of ``plan``. Raises InputError where the two have different deployments."""
    if plan.plan is None:
        raise InputError(
            Problem("--plan", f"{plan.name} holds no counts", "the JSON of optimize or evaluate, or a scenario with a plan section")
        )
    if set(plan.each_deployment()) != set(scenario.each_deployment()):
        found = f"deployments {', '.join(plan.each_deployment())} in the plan, {', '.join(scenario.each_deployment())} in the scenario"
        raise InputError(Problem("--plan", found, "a plan of the same deployments"))
    if not scenario.deployments:
        return scenario.model_copy(update={"plan": plan.plan, "policy": plan.policy})
    deployments = {
        name: given.model_copy(update={"policy": plan.each_deployment()[name].policy}) for name, given in scenario.deployments.items()
    }
    return scenario.model_copy(update={"plan": plan.plan, "deployments": deployments})


def with_trace(scenario: Scenario, file: Path) -> Scenario:
    """``scenario`` fed with the recorded requests of ``file`` at its own rate, under the SLA of its first class.

    Hit laws and caches are those of the scenario's first class. Raises InputError for scenarios of several deployments.
    """
    if scenario.deployments:
        raise InputError(Problem("--trace", "the scenario has several deployments", "a scenario of one, for a trace is of one model"))
    assert scenario.workload is not None
    first = next(iter(scenario.workload.all_classes().values()))
    path = str(file.resolve())
    trace = (
        first.trace.model_copy(update={"file": path, "scale_rate": None})
        if first.trace is not None
        else Trace(file=path, hit_rate=first.hit_rate, md_hit_rate=first.md_hit_rate)
    )
    workload = Workload.model_construct(
        **{
            **{name: getattr(scenario.workload, name) for name in Workload.model_fields},
            "classes": {},
            "sessions": None,
            "trace": trace,
            "sla": first.sla,
        }
    )
    return scenario.model_copy(update={"workload": workload})
