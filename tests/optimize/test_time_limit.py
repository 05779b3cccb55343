"""The time limit ends a search wherever it stands, and what was found stays."""

from __future__ import annotations

import math
import time

import pytest

from pddplan.optimize.judge import Judge, TimeUpError
from pddplan.optimize.search import Effort, Search
from pddplan.pdd.context import PlanContext

TWO_ROOMS = """
name: chat in two rooms
model: {name: Qwen/Qwen3-32B-FP8}
engine: vllm
sites:
  A: {chips: [{chip: h100-sxm, stock: 32, price: 2.00 USD/h}]}
  B: {chips: [{chip: h200-sxm, stock: 32, price: 3.00 USD/h}]}
links: {A-B: {between: [A, B], circuit: 10 Gbps, max_circuits: 4, rtt: 10 ms, price: 100 USD/Gbps/month}}
workload:
  rate: 8 req/s
  rows: 100
  classes: {c: {input_tokens: 2k, output_tokens: 400, sla: {ttft: {limit: 2 s, p99: 4 s}, tpot: {limit: 50 ms}, attainment: 95 %}}}
search: {tp: [1, 2], aggregated: false}
objective: min-cost
"""


@pytest.fixture
def context(load):
    return PlanContext.from_scenario(load(TWO_ROOMS))


@pytest.mark.parametrize("answers", [0, 2, 8])
@pytest.mark.parametrize("goal", ["min-cost", "max-bcr"])
def test_time_that_ends_in_the_middle_leaves_a_plan_that_holds_or_none(context, monkeypatch, answers, goal):
    """The judge's time ends after so many answers; nothing escapes, and a plan that is kept meets every limit within the stock."""
    model, asked = Judge.probe, 0

    def probe(self, decision, rate_scale=1.0):
        nonlocal asked
        if (decision, rate_scale) not in self._known and math.isfinite(self.deadline):
            asked += 1
            if asked > answers:
                raise TimeUpError
        return model(self, decision, rate_scale)

    monkeypatch.setattr(Judge, "probe", probe)
    scenario = context.scenario.model_copy(update={"objective": goal, "budget": 60.0})
    limited = PlanContext.from_scenario(scenario)
    outcome = Search.of(limited, Effort(mixed=False)).run()
    assert asked > answers or outcome.best is not None
    if asked > answers:
        assert outcome.timed_out
    if outcome.best is not None:
        assert outcome.best.evaluation.feasible
        assert outcome.best.evaluation.metrics.cost_usd_per_h <= 60.0 * (1 + 1e-9)
        for (site, chip), (_, stock) in limited.stocks.items():
            placed = (p for p in outcome.best.decision.pools if (p.configuration.site, p.configuration.chip) == (site, chip))
            assert sum(pool.gpus for pool in placed) <= stock.stock


def test_a_plan_in_one_room_is_tried_where_time_ended_before_any(context, monkeypatch):
    search, each, over = Search.of(context, Effort()), Search._try, []

    def ended(self, choices, thresholds):
        remaining = each(self, choices, thresholds)
        if self is search and not over:
            over.append(True)
            self.incumbent, self.outcome.timed_out = None, True
        return remaining

    monkeypatch.setattr(Search, "_try", ended)
    monkeypatch.setattr(Search, "late", lambda self, share=1.0: self is search and bool(over))
    best = search.run().best
    assert best is not None
    assert best.evaluation.feasible
    assert best.decision.links == ()


def test_a_search_beside_one_whose_time_is_twice_over_ends_at_once(context):
    search = Search.of(context, Effort(seconds=5.0))
    search.started = time.monotonic() - 10.1
    late = Search.of(context, search.beside())
    outcome = late.run()
    assert outcome.timed_out
    assert outcome.best is None
    assert late.judge.evaluations == 0
    search.started = time.monotonic() - 9.0
    assert Search.of(context, search.beside()).run().programs > 0
