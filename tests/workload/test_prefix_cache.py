"""Prefix-cache hits against a plain LRU cache, against real token sequences, and against sessions laid out in time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from caches import lru_leading_blocks, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st

from pddplan.workload.prefix_cache import cache_hits, hits_by_blocks, md_sequence, p_sequence
from pddplan.workload.trace import Trace, runs_from_ids

prompts = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=8), min_size=1, max_size=25)


@settings(max_examples=150, deadline=None)
@given(ids=prompts, block_tokens=st.integers(1, 5), data=st.data())
def test_one_pass_agrees_with_an_lru_cache_at_every_capacity(ids, block_tokens, data):
    lengths = [len(row) * block_tokens - data.draw(st.integers(0, block_tokens - 1)) for row in ids]
    trace = trace_of(ids, block_tokens, lengths)
    curve = hits_by_blocks(p_sequence(trace))[0]
    for capacity in range(curve.size):
        runs = lru_leading_blocks(ids, capacity)
        hit = [min(run * block_tokens, length) for run, length in zip(runs, lengths, strict=True)]
        assert curve[capacity] == pytest.approx(sum(hit) / sum(lengths), abs=1e-12)
        found = cache_hits(p_sequence(trace), capacity_tokens=capacity * block_tokens).cached_tokens
        assert found.tolist() == hit


@settings(max_examples=100, deadline=None)
@given(ids=prompts, ttl=st.integers(0, 9), capacity=st.integers(1, 14), data=st.data())
def test_a_cache_that_forgets_agrees_with_a_plain_one(ids, ttl, capacity, data):
    gaps = data.draw(st.lists(st.integers(0, 5), min_size=len(ids), max_size=len(ids)))
    times = np.cumsum(gaps).astype(float).tolist()
    trace = trace_of(ids, 1, times=times)
    found = cache_hits(p_sequence(trace), capacity_tokens=capacity, ttl_s=float(ttl))
    assert found.cached_tokens.tolist() == lru_leading_blocks(ids, capacity, times=times, ttl=ttl)


@settings(max_examples=100, deadline=None)
@given(ids=prompts, capacity=st.integers(1, 14), data=st.data())
def test_a_request_that_ends_on_the_relay_never_enters_the_cache_of_md(ids, capacity, data):
    local = data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
    trace = trace_of(ids, 1)
    sequence = md_sequence(trace, ended_locally=np.array(local), keeps_answers=False)
    found = cache_hits(sequence, capacity_tokens=capacity).cached_tokens
    assert found.tolist() == lru_leading_blocks(ids, capacity, enters=[not ended for ended in local])


def conversations(rng, turns, block):
    """Prompts and answers of interleaved conversations as real tokens; blocks are named by the whole prefix they end.

    Every conversation opens with a whole block of its own: without one, block hashes cannot tell it from its like.
    """
    names: dict[tuple[int, ...], int] = {}
    open_: list[list[int]] = []
    prompts, answers = [], []
    for _ in range(turns):
        if not open_ or rng.random() < 0.3:
            system = [7] * (2 * block)
            open_.append(system + rng.integers(0, 10**6, block).tolist())
        which = int(rng.integers(len(open_)))
        prompt = open_[which] + rng.integers(0, 10**6, int(rng.integers(1, 5 * block))).tolist()
        answer = rng.integers(0, 10**6, int(rng.integers(1, 4 * block))).tolist()
        open_[which] = prompt + answer
        prompts.append(prompt)
        answers.append(answer)

    def blocks(tokens):
        return [names.setdefault(tuple(tokens[: end + block]), len(names)) for end in range(0, len(tokens) - block + 1, block)]

    return [blocks(p) for p in prompts], [blocks(p + a) for p, a in zip(prompts, answers, strict=True)], prompts, answers


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("capacity", [10, 40, 10**6])
def test_md_knows_its_own_answers_as_the_real_tokens_say(seed, capacity):
    rng = np.random.default_rng(seed)
    block = 4
    asked, held, prompts, answers = conversations(rng, 60, block)
    trace = trace_of(asked, block, [len(p) for p in prompts], [len(a) for a in answers])
    local = rng.random(60) < 0.2
    found = cache_hits(md_sequence(trace, ended_locally=local), capacity_tokens=capacity * block).cached_tokens
    truth = lru_leading_blocks(asked, capacity, enters=(~local).tolist(), left_behind=held)
    assert (found // block).tolist() == truth
    at_p = cache_hits(p_sequence(trace), capacity_tokens=capacity * block).cached_tokens
    if capacity == 10**6:
        known = cache_hits(md_sequence(trace), capacity_tokens=math.inf).cached_tokens
        assert np.all(known >= at_p)
        assert known.sum() > at_p.sum()


def test_sharing_a_system_prompt_makes_no_conversation():
    """The second prompt shares one block with the first, whose answer it cannot contain: nothing of the answer is credited."""
    trace = trace_of([[0, 1, 2], [0, 3, 4, 5, 6, 7]], 4, outputs=[4, 1])
    assert cache_hits(md_sequence(trace)).cached_tokens.tolist() == [0, 4]


def session_trace(rng, sessions):
    ids, times, session, lengths = [], [], [], []
    next_id = 0
    for s in range(sessions):
        now, own = 0.0, []
        for _ in range(int(rng.integers(2, 12))):
            grow = int(rng.integers(1, 20))
            own = own + list(range(next_id, next_id + grow))
            next_id += grow
            ids.append(own)
            times.append(now)
            session.append(s)
            lengths.append(len(own))
            now += rng.exponential(40.0)
    flat = np.array([i for row in ids for i in row], dtype=np.int64)
    runs = runs_from_ids(flat, np.array(lengths))
    one = np.ones(len(ids), dtype=np.int64)
    times, lengths, session = np.array(times), np.array(lengths), np.array(session)
    return Trace("s", "sessions", times, lengths, one, runs, 1, session, session_times=True, local_ids=True), ids


def test_capacity_of_many_sessions_agrees_with_an_lru_cache_over_them_in_time():
    """Sessions are laid out as Poisson arrivals; hits are counted in the steady part, between the first and the last starts."""
    rng = np.random.default_rng(3)
    trace, ids = session_trace(rng, 6000)
    sessions_per_s = 2.0
    starts = np.cumsum(rng.exponential(1 / sessions_per_s, 6000))
    when = trace.time_s + starts[trace.session]
    order = np.argsort(when, kind="stable")
    laid_out = trace_of([ids[i] for i in order], 1, times=when[order])
    steady = (when[order] > 700) & (when[order] < starts[-1])
    curve = cache_hits(p_sequence(trace), rate_per_s=sessions_per_s * trace.requests / 6000).curve
    for capacity in (1000, 3000, 10000, 20000):
        hits = cache_hits(p_sequence(laid_out), capacity_tokens=capacity).cached_tokens
        exact = hits[steady].sum() / laid_out.input_tokens[steady].sum()
        assert float(curve.hit_rate(capacity)) == pytest.approx(exact, abs=0.01)


def test_capacity_of_sessions_grows_in_proportion_to_their_rate():
    trace, _ = session_trace(np.random.default_rng(4), 50)
    one = cache_hits(p_sequence(trace), rate_per_s=1.0).curve
    ten = cache_hits(p_sequence(trace), rate_per_s=10.0).curve
    assert ten.capacity_for(0.5) == pytest.approx(10 * one.capacity_for(0.5))
    assert one.at_rate(10.0).capacity_for(0.5) == pytest.approx(ten.capacity_for(0.5))


def test_a_larger_cache_never_hits_less():
    trace, _ = session_trace(np.random.default_rng(5), 50)
    hits = [cache_hits(p_sequence(trace), capacity_tokens=c, rate_per_s=2.0).cached_tokens.sum() for c in (0, 100, 1000, 1e9)]
    assert hits == sorted(hits)
    assert hits[0] < hits[-1]


def test_a_trace_without_hashes_says_so():
    trace = Trace("plain.csv", "csv", np.zeros(1), np.ones(1, dtype=np.int64), np.ones(1, dtype=np.int64))
    with pytest.raises(ValueError, match="no block hashes"):
        p_sequence(trace)
