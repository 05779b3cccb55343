"""The timeline of a typical request adds up to its latencies."""

import pytest
from pdd_plans import aggregated, context, one_room, two_rooms
from test_evaluate import spread_mix

from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.timeline import timelines


@pytest.mark.parametrize("decision", [two_rooms(threshold_s=0.5), two_rooms(threshold_s=None), one_room(), aggregated()])
def test_a_timeline_starts_at_arrival_and_its_first_token_is_the_percentile(decision):
    made = context(spread_mix())
    found = evaluate(made, decision)
    shown = timelines(made, found)
    assert [t.percentile for t in shown] == [0.5, 0.9, 0.99]
    for t in shown:
        assert t.ttft_s == pytest.approx(found.laws["ttft"].quantile(t.percentile), rel=0.02)
        assert min(span.start_s for span in t.spans) == 0.0
        assert max(span.end_s for span in t.spans) == pytest.approx(t.e2e_s)
        assert all(span.end_s > span.start_s for span in t.spans)
        assert t.ttft_s <= t.e2e_s


def test_of_a_relayed_request_the_transfer_runs_beside_the_eager_tokens():
    made = context(spread_mix())
    slow = timelines(made, evaluate(made, two_rooms(threshold_s=0.5)))[-1]
    assert slow.pipeline == "P-RLD-MD"
    line = next(s for s in slow.spans if s.lane == "line")
    eager = next(s for s in slow.spans if s.lane == "RLD")
    assert line.hidden
    assert eager.start_s < line.end_s <= eager.end_s + 0.05
    assert slow.hidden_s == pytest.approx(min(eager.end_s, line.end_s) - slow.ttft_s, abs=1e-6)
    assert slow.stall_s > 0.0


def test_a_request_of_one_room_has_no_line():
    made = context(spread_mix())
    assert all(span.lane != "line" for t in timelines(made, evaluate(made, one_room())) for span in t.spans)


def test_an_overloaded_plan_has_no_timeline():
    made = context(spread_mix(1000.0))
    assert timelines(made, evaluate(made, one_room())) == ()


def test_a_plan_judged_at_a_share_of_its_demand_is_shown_at_that_share():
    made = context(spread_mix(40.0))
    found = evaluate(made, one_room(), rate_scale=0.1)
    assert found.stable
    assert timelines(made, found)[0].ttft_s == pytest.approx(found.metrics.ttft_p50_s, rel=0.02)


def test_the_median_relayed_request_is_shown_by_itself():
    made = context(spread_mix())
    found = evaluate(made, two_rooms(threshold_s=0.5))
    (relayed,) = timelines(made, found, (), relayed=True)
    law = next(p.ttft for p in found.pipelines if p.name == "P-RLD-MD")
    assert (relayed.pipeline, relayed.among_pipeline) == ("P-RLD-MD", True)
    assert relayed.ttft_s == pytest.approx(law.quantile(0.5), rel=0.02)
    assert relayed.hidden_s > 0.0


@pytest.mark.parametrize("decision", [two_rooms(threshold_s=None), one_room(), aggregated()])
def test_without_relay_there_is_no_relayed_request_to_show(decision):
    made = context(spread_mix())
    assert timelines(made, evaluate(made, decision), (), relayed=True) == ()
