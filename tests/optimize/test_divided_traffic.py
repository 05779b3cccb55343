"""Plans that divide a deployment's traffic among several routes: what the whole model says of a division, and when one is chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pddplan import api
from pddplan.errors import InputError
from pddplan.optimize.by_class import class_divisions
from pddplan.optimize.search import Effort, Search
from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Decision
from pddplan.pipeline import plan
from pddplan.report.json import json_text, plan_document

SLA = "sla: {ttft: {limit: 4 s, p99: 8 s}, tpot: {limit: 80 ms}, attainment: 95 %}"
SHORT_STOCK = f"""
name: short stock
model: {{name: Qwen/Qwen3-32B-FP8}}
engine: vllm
sites:
  A:
    chips:
      - {{chip: h100-sxm, stock: 3, price: 1.50 USD/h, roles: [AGG]}}
      - {{chip: a100-80-sxm, stock: 12, price: 1.60 USD/h, roles: [P, MD]}}
workload:
  rate: 8 req/s
  rows: 200
  classes: {{chat: {{input_tokens: {{lognormal: {{p50: 2k, p99: 16k, max: 32k}}}}, output_tokens: 400, {SLA}}}}}
search: {{tp: [1, 2]}}
objective: min-cost
"""
TWO_PREFILL_ROOMS = f"""
name: two prefill rooms
model: {{name: Qwen/Qwen3-32B-FP8}}
engine: vllm
sites:
  A: {{chips: [{{chip: h100-sxm, stock: 3, price: 1.80 USD/h, roles: [P]}}]}}
  C: {{chips: [{{chip: h100-sxm, stock: 3, price: 2.00 USD/h, roles: [P]}}]}}
  B: {{chips: [{{chip: h200-sxm, stock: 32, price: 2.50 USD/h, roles: [MD]}}]}}
links:
  A-B: {{between: [A, B], circuit: 100 Gbps, max_circuits: 2, rtt: 10 ms, per_flow: 20 Gbps, price: 1 USD/Gbps/month}}
  C-B: {{between: [C, B], circuit: 100 Gbps, max_circuits: 2, rtt: 10 ms, per_flow: 20 Gbps, price: 1 USD/Gbps/month}}
workload:
  rate: 8 req/s
  rows: 200
  classes: {{chat: {{input_tokens: {{lognormal: {{p50: 4k, p99: 16k, max: 32k}}}}, output_tokens: 300, {SLA}}}}}
search: {{tp: [1, 2], aggregated: false}}
policy: {{relay_threshold: never}}
objective: min-cost
"""

TWO_CLASSES = """
name: two classes
model: {name: Qwen/Qwen3-32B-FP8}
engine: vllm
sites:
  A:
    chips:
      - {chip: l40s, stock: 64, price: 0.50 USD/h, roles: [AGG]}
      - {chip: h100-sxm, stock: 64, price: 2.50 USD/h, roles: [P, MD, AGG]}
workload:
  rate: 12 req/s
  rows: 200
  classes:
    short: {share: 60 %, input_tokens: 500, output_tokens: 150, sla: {ttft: {limit: 3 s}, tpot: {limit: 80 ms}, attainment: 95 %}}
    long:
      share: 40 %
      input_tokens: {lognormal: {p50: 12k, p99: 30k, max: 32k}}
      output_tokens: 300
      sla: {ttft: {limit: 2 s}, tpot: {limit: 30 ms}, attainment: 95 %}
search: {tp: [2, 4]}
objective: min-cost
"""


@pytest.fixture
def scenario(load):
    return lambda text, **changes: load(text, {key.replace("__", "."): value for key, value in changes.items()})


def searched(scenario):
    search = Search.of(PlanContext.from_scenario(scenario), Effort())
    return search, search.run()


def roles(decision):
    return {(pool.configuration.role, pool.configuration.site) for pool in decision.pools}


def priced(search, pools):
    return sum(pool.gpus * search.context.prices_usd_h[pool.configuration.site, pool.configuration.chip] for pool in pools)


def test_where_no_kind_of_serving_has_the_stock_alone_aggregated_and_separate_pools_share_the_traffic(scenario):
    alone, _ = searched(scenario(SHORT_STOCK, search__routes_per_deployment=1))
    assert alone.outcome.best is None
    search, outcome = searched(scenario(SHORT_STOCK))
    decision = outcome.best.decision
    assert {role for role, _ in roles(decision)} == {"AGG", "P", "MD"}
    assert sum(way.class_shares[0] for way in decision.ways) == pytest.approx(1.0)
    assert outcome.best.evaluation.feasible
    assert outcome.gap("min-cost") <= 0.001
    assert outcome.bound >= outcome.best.value
    assert {route.aggregated for route in search.routes_of(decision)} == {True, False}


def test_prefill_in_two_rooms_feeds_one_decode_pool_where_neither_room_has_enough(scenario):
    _, outcome = searched(scenario(TWO_PREFILL_ROOMS))
    decision = outcome.best.decision
    assert roles(decision) == {("P", "A"), ("P", "C"), ("MD", "B")}
    shared = [i for i, pool in enumerate(decision.pools) if pool.configuration.role == "MD"]
    assert all(shared[0] in way.pools for way in decision.ways)
    assert {link.name for link in decision.links} == {"A-B", "C-B"}


def test_a_divided_plan_found_is_no_dearer_than_any_counts_of_its_configurations(scenario):
    """Every count within the stock, at shares from 5 to 95 %."""
    loaded = scenario(TWO_PREFILL_ROOMS)
    search, outcome = searched(loaded)
    best = outcome.best
    chosen = {pool.configuration.site: pool for pool in best.decision.pools}
    order = [pool.configuration.site for pool in best.decision.pools]
    cheapest = best.evaluation.metrics.cost_usd_per_h
    for a, c, b in [(a, c, b) for a in range(1, 4) for c in range(1, 4) for b in range(1, chosen["B"].instances + 1)]:
        counts = {"A": a, "C": c, "B": b}
        pools = tuple(replace(chosen[site], instances=counts[site]) for site in order)
        if priced(search, pools) >= priced(search, best.decision.pools):
            continue
        for share in (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95):
            ways = tuple(replace(way, class_shares=(x,)) for way, x in zip(best.decision.ways, (share, 1 - share), strict=True))
            found = evaluate(search.context, replace(best.decision, pools=pools, ways=ways), brief=True)
            assert not found.feasible or found.metrics.cost_usd_per_h >= cheapest * (1 - search.effort.gap)


def test_what_two_routes_serve_of_a_short_stock_is_more_than_either_serves_and_within_the_bound(scenario):
    changes = {"objective": "max-goodput", "sites.A.chips[1].stock": 8}
    _, alone = searched(scenario(SHORT_STOCK, search__routes_per_deployment=1, **changes))
    _, outcome = searched(scenario(SHORT_STOCK, **changes))
    assert outcome.best.value > alone.best.value * 1.2
    assert outcome.bound >= outcome.best.value


def test_a_class_of_short_requests_is_served_aggregated_on_a_cheap_chip_where_the_long_ones_cannot_be(scenario):
    _, alone = searched(scenario(TWO_CLASSES, search__routes_per_deployment=1))
    search, outcome = searched(scenario(TWO_CLASSES))
    best = outcome.best
    chips = [{best.decision.pools[i].configuration.chip for i in way.pools} for way in best.decision.ways]
    assert [way.class_shares for way in best.decision.ways] == [(1.0, 0.0), (0.0, 1.0)]
    assert chips == [{"l40s"}, {"h100-sxm"}]
    assert best.evaluation.metrics.cost_usd_per_h < alone.best.evaluation.metrics.cost_usd_per_h
    assert outcome.bound >= best.value
    apart = next(class_divisions(search.context, "main"))
    pools = tuple(
        replace(pool, configuration=replace(pool.configuration, deployment=part))
        for part, way in zip(apart.parts, best.decision.ways, strict=True)
        for pool in (best.decision.pools[i] for i in way.pools)
    )
    parts = evaluate(apart.context, Decision(pools, (), best.decision.settings))
    assert parts.metrics.p_good == pytest.approx(best.evaluation.metrics.p_good, rel=1e-9)
    assert parts.metrics.ttft_p99_s == pytest.approx(best.evaluation.metrics.ttft_p99_s, rel=1e-9)


@pytest.mark.parametrize("stock", [2, 3])
def test_more_stock_of_either_chip_never_costs_more(scenario, stock):
    tight = searched(scenario(SHORT_STOCK, **{"sites.A.chips[0].stock": stock}))[1].best
    loose = searched(scenario(SHORT_STOCK, **{"sites.A.chips[0].stock": stock + 1}))[1].best
    assert loose.value >= tight.value * (1 + 1e-9)


def test_a_divided_plan_reads_back_from_its_json_as_it_was(scenario, tmp_path):
    result = plan(scenario(SHORT_STOCK), explain=False)
    out = tmp_path / "plan.json"
    out.write_text(json_text(plan_document(result, scenario(SHORT_STOCK))), encoding="utf-8")
    again = api.evaluate(api.load_scenario(out))
    assert again.evaluation.decision.ways == result.evaluation.decision.ways
    assert again.evaluation.metrics.goodput_rps == pytest.approx(result.evaluation.metrics.goodput_rps, rel=1e-9)


def test_shares_that_do_not_add_up_are_refused_with_the_place(scenario):
    ways = [{"pools": [0], "share": "40 %"}, {"pools": [1, 2], "share": "40 %"}]
    pools = [{"site": "A", "role": "AGG", "chip": "h100-sxm", "instances": 2}]
    pools += [{"site": "A", "role": role, "chip": "a100-80-sxm", "instances": 4, "tp": 2} for role in ("P", "MD")]
    with pytest.raises(InputError, match=r"plan\.ways"):
        api.evaluate(scenario(SHORT_STOCK, plan={"pools": pools, "ways": ways}))
    with pytest.raises(InputError, match="class"):
        scenario(SHORT_STOCK, plan={"pools": pools, "ways": [{"pools": [0], "share": {"chatt": 1}}]})


def test_a_bound_that_time_did_not_allow_is_no_bound_and_no_error(scenario):
    search, _ = searched(scenario(TWO_PREFILL_ROOMS))
    assert search.bound_with() < float("inf")
    search.started -= 1e6
    assert search.bound_with() == float("inf")
