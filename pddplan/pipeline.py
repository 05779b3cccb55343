"""The whole calculation on one screen: a scenario in, a plan out."""

from __future__ import annotations

from dataclasses import replace

from pddplan.errors import SolverError
from pddplan.optimize.baselines import baselines
from pddplan.optimize.explain import bindings, rejections
from pddplan.optimize.idle import beside_idle, idle_decision
from pddplan.optimize.infeasible import explain_infeasible
from pddplan.optimize.objective import check_prices, objective_of
from pddplan.optimize.purchase import by_the_hour, purchase_terms
from pddplan.optimize.ratio import pd_ratio
from pddplan.optimize.result import PlanResult
from pddplan.optimize.search import Effort, Search
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate as evaluate_decision
from pddplan.pdd.fixed_plan import fixed_decision
from pddplan.pdd.flows import active_deployments
from pddplan.pdd.money import money
from pddplan.pdd.plan import Decision
from pddplan.scenario.schema import Scenario


def plan(scenario: Scenario, explain: bool = True) -> PlanResult:
    """The best plan of a scenario, proven as far as ``gap`` says; where nothing arrives, the least that must stand.

    Raises InputError, InfeasibleError, SolverError.

    explain: also solve the baselines, value what binds by re-solving, and say why alternatives lost.
    """
    context = PlanContext.from_scenario(scenario)
    active = active_deployments(context)
    if not active:
        return replace(evaluate_plan(scenario, idle_decision(context), context), status="optimal")
    context = beside_idle(context, {deployment.name: deployment for deployment in active})
    check_prices(context)
    search = Search.of(context, Effort(seconds=scenario.search.time_limit, gap=scenario.search.gap))
    outcome = search.run()
    if outcome.best is None and outcome.timed_out:
        if search.late():
            raise SolverError(f"no plan was found within {scenario.search.time_limit:g} s; allow more: --set search.time_limit='10 min'")
        raise SolverError("the search gave up without a plan, and without a proof that there is none: a looser limit may settle it")
    if outcome.best is None:
        raise explain_infeasible(search, relax=explain)
    best, gap = outcome.best, outcome.gap(scenario.objective)
    bound = -outcome.bound if scenario.objective == "min-cost" else outcome.bound
    others = baselines(context, search.candidates, best, search.beside()) if explain else ()
    return PlanResult(
        scenario_name=scenario.name,
        scenario_digest=scenario.digest,
        status="optimal" if gap <= search.effort.gap else "feasible",
        gap=gap,
        objective=objective_of(scenario.objective, best.evaluation, bound, outcome.ratio_bound_step),
        evaluation=best.evaluation,
        baselines=others,
        binding=bindings(search, best) if explain else (),
        rejected=rejections(search, best, others) if explain else (),
        pd_ratio=pd_ratio(context, best.evaluation),
        search=search.log(),
        purchase=purchase_terms(context, best.evaluation.purchases),
        money=money(context, best.evaluation),
        served_share=best.scale,
        seen=search.judge.seen(best.scale),
    )


def evaluate(scenario: Scenario) -> PlanResult:
    """What the scenario's fixed plan costs and serves. Raises InputError."""
    context = PlanContext.from_scenario(scenario)
    return evaluate_plan(scenario, fixed_decision(context), context)


def evaluate_plan(scenario: Scenario, decision: Decision, context: PlanContext | None = None) -> PlanResult:
    """What ``decision`` costs and serves under ``scenario``. Raises InputError for a decision that no model can read."""
    context = context or PlanContext.from_scenario(scenario)
    evaluation = by_the_hour(context, evaluate_decision(context, decision))
    return PlanResult(
        scenario_name=scenario.name,
        scenario_digest=scenario.digest,
        status="evaluated",
        gap=0.0,
        objective=objective_of(scenario.objective, evaluation),
        evaluation=evaluation,
        pd_ratio=pd_ratio(context, evaluation),
        purchase=purchase_terms(context, evaluation.purchases),
        money=money(context, evaluation),
    )
