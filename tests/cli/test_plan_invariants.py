"""Valid scenarios of any shape: planning them never crashes and its numbers keep their order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pddplan import evaluate, load_scenario
from pddplan.errors import InfeasibleError, InputError
from pddplan.scenario.schema import Scenario

CHIPS = ("h100-sxm", "h200-sxm", "h20-96", "b200", "a100-80-sxm", "mi300x", "ascend-910b")
lengths = st.one_of(
    st.integers(1, 100_000),
    st.builds(lambda p50, factor: {"lognormal": {"p50": p50, "p99": p50 * factor}}, st.integers(10, 20_000), st.floats(1.1, 20)),
)
hits = st.one_of(
    st.floats(0, 1),
    st.builds(lambda a, b: {"beta": [a, b]}, st.floats(0.2, 20), st.floats(0.2, 20)),
    st.builds(lambda x: {"buckets": {"0-90": 1 - x, "90-100": x}}, st.floats(0, 1)),
)


@st.composite
def fixed_plans(draw: st.DrawFn) -> Scenario:
    """A dense model in one or two rooms with counts from far too few to far too many."""
    chip_a, chip_b, two = draw(st.sampled_from(CHIPS)), draw(st.sampled_from(CHIPS)), draw(st.booleans())
    tp = draw(st.sampled_from([2, 4, 8]))
    far = "B" if two else "A"
    pools: list[dict[str, Any]] = [{"site": "A", "role": "P", "chip": chip_a, "tp": tp, "instances": draw(st.integers(1, 60))}]
    decode = chip_b if two else chip_a
    pools.append({"site": far, "role": "MD", "chip": decode, "tp": tp, "instances": draw(st.integers(1, 60))})
    if two and draw(st.booleans()):
        pools.append({"site": "A", "role": "RLD", "chip": chip_a, "tp": tp, "instances": draw(st.integers(1, 20))})
    if draw(st.booleans()) and not two:
        pools = [{"site": "A", "role": "AGG", "chip": chip_a, "tp": tp, "instances": draw(st.integers(1, 60))}]
    sites: dict[str, Any] = {"A": {"chips": [{"chip": chip_a, "price": "2 USD/h"}]}}
    links: dict[str, Any] = {}
    if two:
        sites["B"] = {"chips": [{"chip": chip_b, "price": "3 USD/h"}]}
        circuit = f"{draw(st.integers(1, 400))} Gbps"
        links = {"A-B": {"between": ["A", "B"], "circuit": circuit, "max_circuits": 4, "rtt": "10 ms", "price": "100 USD/Gbps/month"}}
    document = {
        "model": {"name": "Qwen/Qwen3-32B"},
        "engine": draw(st.sampled_from(["vllm", "sglang", "trtllm", "generic"])),
        "sites": sites,
        "links": links,
        "workload": {
            "rate": f"{draw(st.floats(0.01, 100))} req/s",
            "arrival_scv": draw(st.floats(0, 12)),
            "rows": 200,
            "classes": {
                "c": {
                    "input_tokens": draw(lengths),
                    "output_tokens": draw(st.integers(1, 3000)),
                    "hit_rate": draw(hits),
                    "sla": {"ttft": {"limit": f"{draw(st.floats(0.05, 60))} s"}, "tpot": f"{draw(st.floats(5, 200))} ms"},
                }
            },
        },
        "policy": {
            "dispatch": draw(st.sampled_from(["central", "shortest_queue", "round_robin", "cache_affinity"])),
            "handoff": draw(st.sampled_from(["one-shot", "catch-up", "auto", "ship-kv"])),
            "queueing": draw(st.sampled_from(["full", "none"])),
            "tail_packing": draw(st.booleans()),
        },
        "plan": {"pools": pools, "links": {"A-B": draw(st.integers(1, 4))} if two else {}},
    }
    return Scenario.model_validate(document)


@pytest.mark.slow
@given(fixed_plans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_numbers_of_any_fixed_plan_keep_their_order(scenario: Scenario) -> None:
    try:
        result = evaluate(scenario)
    except (InputError, InfeasibleError):
        return
    evaluation, metrics = result.evaluation, result.evaluation.metrics
    assert 0 <= metrics.p_good <= 1
    assert metrics.goodput_rps >= 0
    assert metrics.cost_usd_per_h > 0
    assert metrics.bcr == pytest.approx(metrics.goodput_rps / metrics.cost_usd_per_h)
    assert metrics.ttft_p50_s <= metrics.ttft_p90_s <= metrics.ttft_p99_s
    assert metrics.e2e_p50_s <= metrics.e2e_p99_s
    assert 0 <= metrics.rld_token_share <= 1
    assert metrics.gpus == sum(pool.pool.gpus for pool in evaluation.pools)
    if evaluation.stable:
        assert all(0 <= pool.utilisation <= 1 + 1e-9 for pool in evaluation.pools)
        assert metrics.goodput_rps <= load_scenario(scenario).workload.rate + 1e-9  # type: ignore[union-attr, operator]
    else:
        assert metrics.goodput_rps == 0
