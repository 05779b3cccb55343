"""What binds, what a step of it is worth, and why alternatives lost: each claim held against planning again."""

from __future__ import annotations

import pytest
from chat import SMALLER

from pddplan import api
from pddplan.optimize.explain import BEYOND
from pddplan.pipeline import plan

CHAT = SMALLER.replace("stock: 32", "stock: 16").replace("min-cost", "max-goodput")


@pytest.fixture
def planned(load):
    return lambda changes, explain=True: plan(load(CHAT, changes), explain=explain)


@pytest.mark.parametrize(
    ("constraint", "has", "more", "limit", "step"),
    [
        ("stock of h100-sxm at A", {"sites.A.chips[0].stock": 4}, {"sites.A.chips[0].stock": 12}, 4, "8 GPUs"),
        ("gpus_max at A", {"sites.A.gpus_max": 4}, {"sites.A.gpus_max": 12}, 4, "8 GPUs"),
        ("power at A", {"sites.A.power": "7.5 kW"}, {"sites.A.power": "8.25 kW"}, 7500, "0.75 kW"),
        ("budget", {"budget": "8 USD/h"}, {"budget": "8.08 USD/h"}, 8, "0.08 USD/h"),
    ],
)
def test_the_worth_of_a_step_is_what_planning_again_with_it_gains(planned, constraint, has, more, limit, step):
    alone = {"sites.A.chips[0].roles": ["AGG"], "search.tp": [1]}
    has, more = {**alone, **has}, {**alone, **more}
    result = planned(has)
    binding = next(b for b in result.binding if b.constraint == constraint)
    assert (binding.limit, binding.step) == (limit, step)
    assert binding.value <= binding.limit
    again = planned(more, explain=False)
    gain = again.objective.value - result.objective.value
    assert binding.worth == pytest.approx(gain, rel=0.02, abs=0.005 * result.objective.value)
    assert binding.worth_share == pytest.approx(binding.worth / result.objective.value)


def test_a_latency_that_holds_a_plan_back_is_worth_what_a_tenth_more_of_it_gains(planned):
    tight = {"workload.classes.chat.sla.ttft": "0.55 s", "objective": "min-cost"}
    result = planned(tight)
    binding = next(b for b in result.binding if ".sla." in b.constraint)
    looser = {
        "chat.sla.ttft.limit": {"workload.classes.chat.sla.ttft": "0.605 s"},
        "chat.sla.attainment": {"workload.classes.chat.sla.attainment": 0.94},
    }[binding.constraint]
    again = planned({**tight, **looser}, explain=False)
    assert binding.worth == pytest.approx(result.objective.value - again.objective.value, abs=0.01 * result.objective.value)


def test_a_plan_that_would_be_overloaded_is_held_by_its_load_and_not_by_what_follows_from_that(planned):
    result = planned({"objective": "min-cost"})
    assert all("inf" not in b.note for b in result.binding)
    loads = [b for b in result.binding if b.constraint.startswith("load of")]
    assert not loads or not any(".sla." in b.constraint and "would miss it" in b.note for b in result.binding)
    valued = [b for b in result.binding if b.worth is not None]
    assert valued
    assert all(b.step and b.value <= b.limit for b in valued if "attainment" not in b.constraint)


def test_a_relay_without_a_line_is_told_so_and_no_layout_is_called_better_than_itself(planned):
    result = planned({"objective": "min-cost"})
    relay = next(r for r in result.rejected if r.candidate == "RLD on h100-sxm at A")
    assert "no line leads from here" in relay.note
    for rejection in result.rejected:
        if rejection.kind == "objective":
            same = f"{rejection.value:.4g}" == f"{rejection.limit:.4g}"
            assert not same or "no better" in rejection.note or "no verified plan" in rejection.note


def test_the_plan_stands_for_a_baseline_of_its_own_form(planned):
    result = planned({"objective": "min-cost"})
    roles = {p.configuration.role for p in result.evaluation.decision.pools}
    own = next(b for b in result.baselines if b.name == ("aggregated" if roles == {"AGG"} else "one_room_one_chip"))
    assert own.evaluation.metrics.cost_usd_per_h <= result.evaluation.metrics.cost_usd_per_h


def test_a_baseline_that_beats_the_plan_says_what_it_may_do_that_the_plan_may_not():
    result = plan(api.load_scenario("pdd-reproduction"))
    better = [r for r in result.rejected if "better than the plan" in r.note]
    assert better
    for rejection in better:
        assert rejection.value > rejection.limit
        assert rejection.note.endswith(BEYOND[rejection.candidate.replace(" ", "_")])
    forced = api.load_scenario("pdd-reproduction", {"policy.relay_threshold": "never"})
    without = next(r.value for r in better if "two rooms" in r.candidate)
    assert plan(forced, explain=False).objective.value == pytest.approx(without, rel=0.01)


def test_circuits_and_stock_of_a_published_plan_are_valued_by_planning_again():
    result = plan(api.load_scenario("prfaas-naive"))
    stock = next(b for b in result.binding if b.constraint == "stock of h200-sxm at A")
    again = plan(api.load_scenario("prfaas-naive", {"sites.A.chips[0].stock": 40}), explain=False)
    assert stock.worth == pytest.approx(again.objective.value - result.objective.value, rel=0.02)
    circuits = next(b for b in result.binding if b.constraint.startswith("circuits of"))
    assert circuits.worth == pytest.approx(0.0, abs=1e-6)
