"""The replay as a whole: what must hold for every run, and queues whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pddplan.errors import InputError
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Decision
from pddplan.simulate.records import PIPELINES, Records
from pddplan.simulate.replay import Replay
from pddplan.simulate.requests import Arrivals, from_mix
from pddplan.simulate.streams import streams
from pddplan.workload.sessions import SessionTurns

from .conftest import PlanMaker


def run(context: PlanContext, decision: Decision, count: int = 1500, seed: int = 1, skip: int = 300) -> Records:
    rng = np.random.default_rng(seed)
    arrivals = streams(context, decision, context.deployments["main"], 2 * count + skip, 40.0, rng)
    return Replay(context, decision, {"main": arrivals}, seed).run(skip, count).records[0]


def shares(records: Records) -> dict[str, float]:
    return {name: float(np.mean(records.pipeline == k)) for k, name in enumerate(PIPELINES)}


def test_the_same_seed_gives_the_same_run(two_rooms: PlanMaker) -> None:
    first, second = (run(*two_rooms(), count=300) for _ in range(2))
    np.testing.assert_array_equal(first.ttft_s, second.ttft_s)
    np.testing.assert_array_equal(first.e2e_s, second.e2e_s)


def test_first_tokens_come_before_last_ones_and_stalls_fit_between(two_rooms: PlanMaker) -> None:
    records = run(*two_rooms(), count=500)
    assert np.all(records.ttft_s > 0.0)
    assert np.all(records.e2e_s > records.ttft_s)
    assert np.all(records.stall_s <= records.e2e_s - records.ttft_s + 1e-6)
    assert np.all(records.tpot_s >= 0.02)  # MD's fastest step


def test_an_idle_plan_takes_the_times_of_its_stages(two_rooms: PlanMaker) -> None:
    """At one request an hour: prefill, transfer at the cap, RTT, then steps of 20 ms."""
    context, decision = two_rooms(22, 2, 24, 1, 'workload.rate="0.0003 req/s"', "policy.relay_threshold=never")
    mix = context.deployments["main"].mix
    stage = context.instance(decision.pools[0].configuration, decision.settings)
    size = context.deployments["main"].kv.transfer_bytes(mix.md_missing_tokens, mix.input_tokens)
    alone = stage.prefill_s(mix.uncached_tokens, mix.input_tokens - mix.uncached_tokens) + size / 0.5e9 * 8 + 0.02 + 0.02
    arrivals = streams(context, decision, context.deployments["main"], 200, 40.0, np.random.default_rng(1))
    records = Replay(context, decision, {"main": arrivals}, 1).run(0, 100).records[0]
    assert np.median(np.abs(records.ttft_s / alone[arrivals.row[:100]] - 1)) < 1e-6
    assert np.median(records.tpot_s) == pytest.approx(0.02, rel=1e-6)


def test_all_handoffs_deliver_every_token_and_relay_the_same_requests(two_rooms: PlanMaker) -> None:
    found = {}
    for handoff in ("one-shot", "catch-up", "ship-kv"):
        records = run(*two_rooms(22, 4, 24, 1, f"policy.handoff={handoff}", "policy.relay_threshold=0.5 s"), count=400)
        assert np.all(np.isfinite(records.e2e_s))
        found[handoff] = (shares(records)["P-RLD-MD"], float(np.mean(records.relay_tokens)))
    assert found["catch-up"][1] > found["one-shot"][1]
    assert found["ship-kv"][0] == pytest.approx(found["one-shot"][0], abs=0.05)


def test_never_relaying_sends_all_straight_and_relaying_at_once_sends_none(two_rooms: PlanMaker) -> None:
    never = shares(run(*two_rooms(22, 2, 24, 1, "policy.relay_threshold=never"), count=300))
    always = shares(run(*two_rooms(22, 12, 24, 1, "policy.relay_threshold=0 s"), count=300))
    assert never["P-MD"] == 1.0
    assert always["P-MD"] == 0.0


def test_relay_hides_a_slow_line_from_the_first_token(two_rooms: PlanMaker) -> None:
    slow = 'links.A-B.per_flow="0.05 Gbps"'
    shown = run(*two_rooms(22, 2, 24, 1, slow, "policy.relay_threshold=never"), count=400)
    hidden = run(*two_rooms(22, 12, 24, 1, slow, "policy.relay_threshold=1 s"), count=400)
    assert np.quantile(hidden.ttft_s, 0.9) < 0.8 * np.quantile(shown.ttft_s, 0.9)
    assert shares(hidden)["P-RLD-MD"] > 0.1


def test_short_answers_end_on_the_relay_and_stop_their_transfer(two_rooms: PlanMaker) -> None:
    changes = ("workload.classes.agent.output_tokens=20", 'links.A-B.per_flow="0.05 Gbps"', "policy.relay_threshold=1 s")
    context, decision = two_rooms(22, 12, 24, 1, *changes)
    arrivals = streams(context, decision, context.deployments["main"], 1000, 1.0, np.random.default_rng(1))
    stopped = Replay(context, decision, {"main": arrivals}, 1).run(0, 450)
    context, decision = two_rooms(22, 12, 24, 1, *changes, "policy.singular=none")
    kept = Replay(context, decision, {"main": arrivals}, 1).run(0, 450)
    assert shares(stopped.records[0])["local"] > 0.1
    assert stopped.line_load["A-B"] * stopped.seconds < 0.8 * kept.line_load["A-B"] * kept.seconds


def test_requests_that_end_on_the_relay_leave_the_main_decoder_behind(two_rooms: PlanMaker) -> None:
    """Under P-RLD a session's missing tokens only grow; under PDD they are what the turn itself brought."""
    n = 12
    turns = SessionTurns(
        np.zeros(n, dtype=np.int64), np.arange(n), 8000.0 + 1000.0 * np.arange(n), np.full(n, 1000.0), np.full(n, 1000.0),
        np.full(n, 50.0), np.full(n, 1.0), np.zeros(n, dtype=bool),
    )  # fmt: skip
    stream = Arrivals(
        np.where(np.arange(n) == 0, 0.0, np.inf), turns.input_tokens, turns.uncached_tokens, turns.md_missing_tokens, turns.output_tokens,
        np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.arange(n) - 1, turns.pause_s, np.full(n, -1), np.zeros(n),
    )  # fmt: skip
    missing = {}
    for end in ("md", "rld"):
        context, decision = two_rooms(22, 12, 24, 1, "policy.relay_threshold=0 s", f"policy.relayed_end={end}")
        replay = Replay(context, decision, {"main": stream}, 1)
        records = replay.run(0, n).records[0]
        assert np.all(np.isfinite(records.e2e_s))
        missing[end] = replay.services[0].missing_of(n - 1, 0)
    assert missing["rld"] > 5 * missing["md"]


def test_a_context_that_no_memory_holds_never_ends_and_holds_up_nobody(one_room: PlanMaker) -> None:
    context, decision = one_room()
    mix = context.deployments["main"].mix
    arrivals = from_mix(mix, np.arange(mix.rows), np.zeros(mix.rows), 400, np.random.default_rng(1))
    huge = arrivals.input_tokens.copy()
    huge[100] = 5e6
    records = Replay(context, decision, {"main": replace(arrivals, input_tokens=huge)}, 1).run(0, 300).records[0]
    assert np.isinf(records.e2e_s[100])
    assert np.isfinite(np.delete(records.e2e_s, 100)).all()


def test_overlap_of_transfer_and_prefill_shortens_the_first_token(two_rooms: PlanMaker) -> None:
    changes = ('links.A-B.per_flow="0.2 Gbps"', "policy.relay_threshold=never")
    after = run(*two_rooms(22, 2, 24, 1, *changes), count=300)
    beside = run(*two_rooms(22, 2, 24, 1, *changes, "policy.overlap=layer"), count=300)
    assert np.quantile(beside.ttft_s, 0.9) < np.quantile(after.ttft_s, 0.9)


def test_a_pool_known_by_rate_alone_cannot_be_replayed() -> None:
    from pddplan.api import load_scenario
    from pddplan.pdd.fixed_plan import fixed_decision

    context = PlanContext.from_scenario(load_scenario("pdd-88-vs-43-32"))
    decision = fixed_decision(context)
    with pytest.raises(InputError, match="rate alone"):
        run(context, decision, 100)


def test_relay_on_the_prefill_instances_takes_turns_with_their_passes(two_rooms: PlanMaker) -> None:
    """Colocated relay decode needs P profiles with steps; its tokens wait for passes, so they are slower than on instances of their own."""
    steps = "{batch: [1, 48], seconds: [0.03, 0.05]}"
    changes = (f"sites.A.chips[0].profiles[0].step_s={steps}", 'links.A-B.per_flow="0.05 Gbps"', "policy.relay_threshold=1 s")
    context, decision = two_rooms(22, 0, 24, 1, *changes, "policy.rld=colocated")
    beside = run(context, decision, 400)
    apart = run(*two_rooms(22, 12, 24, 1, *changes), count=400)
    assert shares(beside)["P-RLD-MD"] > 0.1
    assert np.all(np.isfinite(beside.e2e_s))
    assert np.mean(beside.tpot_s) > np.mean(apart.tpot_s)
