"""The whole calculation on one screen: a scenario in, a plan with its proof and its rivals out."""

from __future__ import annotations

from pddplan.optimize.result import Objective, PlanResult
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate as whole_model
from pddplan.pdd.fixed_plan import fixed_decision
from pddplan.pdd.plan import Metrics
from pddplan.scenario.schema import Scenario

UNITS = {"max-bcr": "req/s per USD/h", "min-cost": "USD/h", "max-goodput": "req/s"}


def evaluate(scenario: Scenario) -> PlanResult:
    """What the scenario's fixed ``plan`` costs and serves. Raises InputError: no plan, or one that no model can read."""
    context = PlanContext.from_scenario(scenario)
    evaluation = whole_model(context, fixed_decision(context))
    value = objective_value(scenario.objective, evaluation.metrics)
    objective = Objective(scenario.objective, value, value, UNITS[scenario.objective])
    return PlanResult(scenario.name, scenario.digest, "evaluated", 0.0, objective, evaluation, warnings=context.warnings)


def objective_value(kind: str, metrics: Metrics) -> float:
    """The metric that an objective is about."""
    return {"max-bcr": metrics.bcr, "min-cost": metrics.cost_usd_per_h, "max-goodput": metrics.goodput_rps}[kind]
