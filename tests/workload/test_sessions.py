"""Agent sessions by laws: the recursion of contexts and hits, and its limits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pddplan.workload.laws import Fixed, LogNormal, Quantiles
from pddplan.workload.prefix_cache import cache_hits, md_sequence
from pddplan.workload.sessions import SessionLaws, draw_sessions, md_session_curve, session_rows
from pddplan.workload.trace import Trace, runs_from_ids

PLAIN = SessionLaws(Fixed(5), Fixed(1000), Fixed(300), Fixed(100), system_tokens=2000)


def test_fixed_laws_give_the_recursion_by_hand():
    """L_k = 2000 + 1000 + (k - 1) (300 + 100); P lacks the answer and the growth, MD only the growth."""
    drawn = draw_sessions(PLAIN, turns=50)
    for k in range(5):
        at = drawn.turn == k
        assert set(drawn.input_tokens[at]) == {3000 + 400 * k}
        assert set(drawn.uncached_tokens[at]) == {1000 if k == 0 else 400}
        assert set(drawn.md_missing_tokens[at]) == {1000 if k == 0 else 300}
        assert set(drawn.output_tokens[at]) == {100}


def test_answers_that_are_dropped_from_the_context_help_nobody():
    drawn = draw_sessions(replace(PLAIN, answers_kept=False), turns=50)
    assert set(drawn.input_tokens[drawn.turn == 4]) == {3000 + 4 * 300}
    assert np.array_equal(drawn.uncached_tokens, drawn.md_missing_tokens)


def test_a_cache_that_forgets_between_turns_keeps_only_the_system_prefix():
    drawn = draw_sessions(replace(PLAIN, think_s=(60, 0), cache_ttl_s=59, md_cache_ttl_s=math.inf), turns=50)
    assert np.array_equal(drawn.uncached_tokens, drawn.input_tokens - 2000)
    assert set(drawn.md_missing_tokens[drawn.turn > 0]) == {300}


def test_a_context_over_its_limit_is_compacted_and_computed_again():
    drawn = draw_sessions(replace(PLAIN, context_max=4000, compact_to=0.5), turns=50)
    assert drawn.input_tokens.max() <= 4000
    at = drawn.turn == 3  # 3000, 3400, 3800, then 4200 would pass 4000: 2000 + 0.5 x 2000 + 300
    assert set(drawn.input_tokens[at]) == {3300}
    assert set(drawn.uncached_tokens[at]) == {1300}


def test_pauses_have_their_mean_and_their_share_of_tools():
    drawn = draw_sessions(replace(PLAIN, think_s=(60, 1), tool_s=(5, 0.5), tool_share=0.75), turns=40_000)
    later = drawn.turn > 0
    assert drawn.after_tool.mean() == pytest.approx(0.75, abs=0.001)
    assert drawn.pause_s[later & drawn.after_tool].mean() == pytest.approx(5, rel=0.02)
    assert drawn.pause_s[later & ~drawn.after_tool].mean() == pytest.approx(60, rel=0.03)


@settings(max_examples=15, deadline=None)
@given(turns=st.integers(1, 60), growth=st.floats(1, 5000), kept=st.booleans(), ttl=st.floats(1, 500))
def test_nobody_lacks_more_than_the_prompt_and_md_never_more_than_p_when_it_forgets_no_sooner(turns, growth, kept, ttl):
    laws = replace(PLAIN, turns=Fixed(turns), growth_tokens=LogNormal(math.log(growth), 1), answers_kept=kept, think_s=(60, 1))
    drawn = draw_sessions(replace(laws, cache_ttl_s=ttl, md_cache_ttl_s=ttl), turns=500)
    assert np.all((drawn.uncached_tokens >= 1) & (drawn.uncached_tokens <= drawn.input_tokens))
    assert np.all((drawn.md_missing_tokens >= 0) & (drawn.md_missing_tokens <= drawn.uncached_tokens))


def test_rows_of_sessions_carry_their_task_and_keep_their_means():
    laws = replace(PLAIN, turns=Quantiles((0, 0.5, 1), (1, 20, 100)), growth_tokens=LogNormal(6.5, 1.2), tool_s=(4, 1), tool_share=0.5)
    rows, drawn = session_rows(laws, 3000), draw_sessions(laws)
    assert rows.weight.size <= 3000
    assert rows.weight @ rows.input_tokens == pytest.approx(drawn.input_tokens.mean(), rel=2e-3)
    assert rows.weight @ rows.uncached_tokens == pytest.approx(drawn.uncached_tokens.mean(), rel=2e-3)
    assert rows.turns_per_task == pytest.approx(0.5 * 10.5 + 0.5 * 60, rel=0.02)
    assert rows.task_turns.mean() == pytest.approx(rows.turns_per_task, rel=0.02)
    assert rows.pause_s_per_turn == pytest.approx(2.0, rel=0.05)
    again = session_rows(laws, 3000)
    assert np.array_equal(rows.uncached_tokens, again.uncached_tokens)


def test_the_curve_of_md_agrees_with_a_cache_over_the_blocks_of_such_sessions():
    """The same sessions as a trace of one-token blocks, whose answers the next turn shows, through the compiled pass."""
    laws = replace(
        PLAIN, turns=Quantiles((0, 1), (1, 12)), first_tokens=Fixed(20), growth_tokens=LogNormal(2.0, 0.7), output_tokens=Fixed(5),
        system_tokens=0, think_s=(40, 1),
    )  # fmt: skip
    drawn = draw_sessions(laws, turns=60_000)
    start = np.zeros(drawn.turn.size)
    ids, now = [], 0.0
    base = 0
    for i in range(drawn.turn.size):
        if drawn.turn[i] == 0:
            base += 2000
        now = 0.0 if drawn.turn[i] == 0 else now + drawn.pause_s[i]
        start[i] = now
        ids.append(np.arange(base, base + int(drawn.input_tokens[i])))
    per_request = np.array([row.size for row in ids])
    runs = runs_from_ids(np.concatenate(ids), per_request)
    answers = drawn.output_tokens.astype(np.int64)
    trace = Trace("drawn", "sessions", start, per_request, answers, runs, 1, drawn.session, session_times=True, local_ids=True)
    exact = cache_hits(md_sequence(trace), rate_per_s=1.0).curve
    curve = md_session_curve(laws)
    assert curve.highest == pytest.approx(exact.highest, abs=1e-3)
    for share in (0.1, 0.3, 0.6, 0.9, 0.99):
        assert curve.capacity_for(share * curve.highest) == pytest.approx(exact.capacity_for(share * curve.highest), rel=0.04)


def test_the_curve_of_md_ends_where_its_cache_forgets():
    laws = replace(PLAIN, think_s=(60, 1), md_cache_ttl_s=30.0)
    drawn = draw_sessions(laws)
    assert md_session_curve(laws).highest == pytest.approx(1 - drawn.md_missing_tokens.sum() / drawn.input_tokens.sum(), abs=2e-3)


@pytest.mark.parametrize("laws", [replace(PLAIN, turns=Fixed(1)), replace(PLAIN, think_s=(60, 0), md_cache_ttl_s=1.0)])
def test_sessions_without_reuse_hit_the_system_prefix_alone(laws):
    drawn = draw_sessions(laws)
    rows = session_rows(laws, 500)
    assert set(drawn.input_tokens - drawn.md_missing_tokens) == {2000}
    assert rows.md_curve.highest == pytest.approx(2000 / drawn.input_tokens.mean())
