"""A plan's JSON is a scenario: chips by alias and classes divided between pools come back as they were."""

from __future__ import annotations

import json

import pytest

from pddplan import api
from pddplan.errors import InputError
from pddplan.pipeline import plan
from pddplan.report.json import json_text, plan_document
from pddplan.scenario.load import override


@pytest.fixture(scope="module")
def melange(tmp_path_factory):
    scenario = api.load_scenario("melange")
    path = tmp_path_factory.mktemp("plan") / "melange.json"
    path.write_text(json_text(plan_document(plan(scenario, explain=False), scenario)), encoding="utf-8")
    return path


def test_a_chip_named_by_its_alias_reloads_and_the_classes_stay_divided(melange):
    scenario = api.load_scenario(melange)
    assert {pool.chip for pool in scenario.plan.pools} == {"a10g", "a100-80-sxm"}
    evaluated = api.evaluate(scenario).evaluation
    assert evaluated.feasible
    assert evaluated.metrics.cost_usd_per_h == pytest.approx(4.68)
    assert evaluated.metrics.goodput_rps == pytest.approx(30)
    again = api.evaluate(override(scenario, {"workload.rate": "29 req/s"})).evaluation
    assert again.metrics.goodput_rps == pytest.approx(29)


def test_a_chip_that_the_site_does_not_have_is_still_told_with_the_names_it_has(melange):
    with pytest.raises(InputError, match="there is no chip at site 'A' named 'h100-sxm'"):
        api.load_scenario(melange, {"plan.pools[0].chip": "h100-sxm"})


def test_a_class_that_is_none_is_told(melange):
    with pytest.raises(InputError, match="there is no class 'medium'"):
        api.load_scenario(melange, {"plan.ways[0].share": {"medium": 1}})


def test_pools_known_by_their_rate_are_not_replayed_and_that_is_an_input_error(melange):
    with pytest.raises(InputError, match="known by its rate alone"):
        api.simulate(api.load_scenario(melange), requests=800)


def test_the_document_names_the_shares(melange):
    ways = json.loads(melange.read_text(encoding="utf-8"))["ways"]
    for name in ("short-short", "short-long", "long-short", "long-long"):
        assert sum(way["share"][name] for way in ways) == pytest.approx(1)
