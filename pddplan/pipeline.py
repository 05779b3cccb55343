"""The whole calculation on one screen: a scenario in, a plan out."""

from __future__ import annotations

from pddplan.optimize.objective import objective_of
from pddplan.optimize.ratio import pd_ratio
from pddplan.optimize.result import PlanResult
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate as evaluate_decision
from pddplan.pdd.fixed_plan import fixed_decision
from pddplan.pdd.money import money
from pddplan.pdd.plan import Decision
from pddplan.scenario.schema import Scenario


def evaluate(scenario: Scenario) -> PlanResult:
    """What the scenario's fixed plan costs and serves. Raises InputError."""
    context = PlanContext.from_scenario(scenario)
    return evaluate_plan(scenario, fixed_decision(context), context)


def evaluate_plan(scenario: Scenario, decision: Decision, context: PlanContext | None = None) -> PlanResult:
    """What ``decision`` costs and serves under ``scenario``. Raises InputError for a decision that no model can read."""
    context = context or PlanContext.from_scenario(scenario)
    evaluation = evaluate_decision(context, decision)
    return PlanResult(
        scenario_name=scenario.name,
        scenario_digest=scenario.digest,
        status="evaluated",
        gap=0.0,
        objective=objective_of(scenario.objective, evaluation),
        evaluation=evaluation,
        pd_ratio=pd_ratio(context, evaluation),
        money=money(context, evaluation),
    )
