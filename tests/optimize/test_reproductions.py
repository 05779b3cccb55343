"""Published planners' own case studies, reproduced by the search itself from shipped scenarios."""

from __future__ import annotations

import pytest

from pddplan import api
from pddplan.pipeline import plan

PLANNED = {}


def planned(name, *changes):
    key = (name, repr(changes))
    if key not in PLANNED:
        PLANNED[key] = plan(api.load_scenario(name, dict(changes)), explain=False)
    return PLANNED[key]


def counts(result):
    return {(p.configuration.site, p.configuration.role): p.instances for p in result.evaluation.decision.pools}


def test_prfaas_threshold_counts_and_rate():
    """arXiv 2604.15039: t 19.4K, 4 remote P, 3 local P, 5 D, 3.24 req/s. Rates are means over the rows, not rates at the mean length."""
    result = planned("prfaas")
    assert counts(result) == {("A", "P"): 4, ("B", "P"): 3, ("B", "MD"): 5}
    assert result.evaluation.decision.settings.p_threshold_tokens == pytest.approx(19_400, rel=0.05)
    assert result.evaluation.metrics.goodput_rps == pytest.approx(3.24, rel=0.04)
    assert result.gap < 0.001


def test_prfaas_egress_lies_in_the_published_range():
    assert 11.8 * 0.96 <= planned("prfaas").evaluation.metrics.line_gbps_mean <= 13.0 * 1.04


def test_prfaas_baselines_and_ratios():
    homogeneous, naive = planned("prfaas-homogeneous"), planned("prfaas-naive")
    assert counts(homogeneous) == {("B", "P"): 9, ("B", "MD"): 3}
    rates = [planned("prfaas").evaluation.metrics.goodput_rps] + [x.evaluation.metrics.goodput_rps for x in (homogeneous, naive)]
    assert rates[1] == pytest.approx(2.11, rel=0.04)
    assert rates[2] == pytest.approx(2.45, rel=0.04)
    assert rates[0] / rates[1] == pytest.approx(1.54, rel=0.04)
    assert rates[0] / rates[2] == pytest.approx(1.32, rel=0.04)


def test_melange_splits_a_bucket_between_types():
    result = planned("melange")
    assert result.evaluation.metrics.cost_usd_per_h == pytest.approx(4.68)
    assert {(p.configuration.chip, p.instances) for p in result.evaluation.decision.pools} == {("a10g", 1), ("a100-80-sxm", 1)}


@pytest.mark.parametrize(("rate", "most"), [(5, 2.02), (60, 10.37), (300, 44.04)])
def test_melange_at_other_rates(rate, most):
    assert planned("melange", ("workload.rate", f"{rate} req/s")).evaluation.metrics.cost_usd_per_h <= most + 1e-9


@pytest.mark.parametrize("rate", [5, 30, 60, 300])
def test_a_mix_of_types_is_never_dearer_than_the_best_single_type(rate):
    change = ("workload.rate", f"{rate} req/s")
    single = planned("melange", change, ("search.configurations_per_role", 1))
    assert planned("melange", change).evaluation.metrics.cost_usd_per_h <= single.evaluation.metrics.cost_usd_per_h + 1e-9


def test_a_type_with_throughput_0_serves_nothing_of_that_bucket():
    path = "sites.A.chips[0].profiles[0].rate.req_per_s"
    result = planned("melange", (path, [[2, 1], [0, 2]]))
    decision = result.evaluation.decision
    assert result.evaluation.feasible
    for way in decision.ways:
        if {decision.pools[i].configuration.chip for i in way.pools} == {"a10g"}:
            assert min(way.class_shares) == 0.0


def test_the_published_pdd_table_is_consistent_with_its_backed_out_rates():
    """43 of A (3 of them RLD) + 32 of B at 11.5 req/s; the check allows 4 and 3."""
    found = counts(planned("pdd-reproduction"))
    assert found["A", "P"] + found["A", "RLD"] == pytest.approx(43, abs=4)
    assert found["B", "MD"] == pytest.approx(32, abs=3)
    assert found["A", "RLD"] == pytest.approx(3, abs=2)


def test_one_room_of_a_alone_needs_88_gpus_at_9_requests_a_second():
    alone = planned("pdd-reproduction", ("workload.rate", "9 req/s"), ("links", {}), ("policy.relay_threshold", "never"))
    assert alone.evaluation.metrics.gpus == pytest.approx(88, abs=1)


@pytest.mark.parametrize(("batch", "gain"), [(17, 0.32), (14.1, 0.20), (11.45, 0.07)])
def test_the_gain_in_bcr_hangs_on_how_much_faster_b_decodes(batch, gain):
    """Published algebra for B at 1.3 x A's price: a decode ratio of 2.12 / 1.76 / 1.43 gives +32 / +20 / +7 %."""
    seconds = f"{50.43 * 17 / batch} ms"
    profile = [{"role": "MD", "gpus": 1, "step_s": {"batch": [1, 17], "seconds": [seconds, seconds]}, "batch_max": 17}]
    pdd = planned("pdd-reproduction", ("sites.B.chips[0].profiles", profile), ("sites.B.chips[0].price", "2.60 USD/h"))
    alone = planned("pdd-reproduction", ("links", {}), ("policy.relay_threshold", "never"))
    assert pdd.evaluation.metrics.bcr / alone.evaluation.metrics.bcr - 1 == pytest.approx(gain, abs=0.05)
