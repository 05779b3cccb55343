"""Waits in a P pool: the plain queue where nothing is batched, and passes where engines pack."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from pdd_plans import LineStage, mix

from pddplan.pdd.laws import GRID
from pddplan.pdd.prefill_queue import passes_of, queue_law
from pddplan.queueing import mg1


@dataclass(frozen=True)
class Packed(LineStage):
    """A pass lasts at least ``floor_s``; capacity is used by tokens alone."""

    floor_s: float = 0.1

    def prefill_s(self, uncached_tokens, cached_tokens):
        return np.maximum(self.prefill_s_per_token * np.asarray(uncached_tokens, dtype=float), self.floor_s)

    def prefill_occupancy_s(self, uncached_tokens, cached_tokens):
        return self.prefill_s_per_token * np.asarray(uncached_tokens, dtype=float)

    def extend_s(self, new_tokens, context_tokens):
        return self.prefill_s(new_tokens, context_tokens)


def passes(stage, requests, chunk=8192.0, ranks=1, packs=True):
    cached = requests.input_tokens - requests.uncached_tokens
    latency = stage.prefill_s(requests.uncached_tokens, cached)
    occupancy = stage.prefill_occupancy_s(requests.uncached_tokens, cached)
    return passes_of(stage, requests, latency, occupancy, chunk, ranks, packs)


def quantile(law, q, bin_=0):
    return float(GRID.quantile(law.cdfs[bin_], q))


def test_without_batching_it_is_the_plain_queue():
    requests = mix([1000.0, 4000.0])
    law = queue_law(passes(LineStage(), requests, packs=False), requests.weight, 3.0, 1, 1.0, "cache_affinity")
    exact = mg1.waiting_cdf(3.0, np.array([0.1, 0.4]), np.array([0.5, 0.5]), GRID)
    assert law.method == "pollaczek-khinchine"
    assert quantile(law, 0.9) == pytest.approx(float(GRID.quantile(exact, 0.9)))


def test_of_small_requests_a_pass_takes_all_that_came_meanwhile():
    """Requests of 1 ms of work and passes of 100 ms at 50 a second: one by one it is overload, packed a wait of about half a pass."""
    requests = mix([10.0])
    law = queue_law(passes(Packed(), requests), requests.weight, 50.0, 1, 1.0, "cache_affinity")
    assert law.method == "recursion"
    assert quantile(law, 0.5) == pytest.approx(0.05, rel=0.1)
    assert quantile(law, 0.99) < 0.1


def test_a_single_class_of_passes_waits_as_a_bulk_queue():
    """Bulk service with unlimited room, fixed passes of D: an arrival during a pass waits its rest; at light load only rho of them."""
    requests = mix([10.0])
    rate, pass_s = 2.0, 0.1
    law = queue_law(passes(Packed(), requests), requests.weight, rate, 1, 1.0, "cache_affinity")
    # cycle: idle 1/rate, then passes while somebody came in the last one: e^{rate D} passes in the mean
    busy = pass_s * np.exp(rate * pass_s) / (1 / rate + pass_s * np.exp(rate * pass_s))
    assert 1.0 - GRID.at(law.cdfs[0], 1e-6) == pytest.approx(busy, rel=0.05)


def test_a_chunk_of_a_large_request_leaves_no_room_for_small_ones():
    requests = mix([40960.0, 10.0], weight=[0.02, 0.98], total=50000.0)
    law = queue_law(passes(Packed(), requests), requests.weight, 4.0, 1, 1.0, "cache_affinity")
    small = law.bin_of_row[1]
    assert quantile(law, 0.99, small) > 1.0


def test_side_by_side_ranks_let_small_requests_through():
    requests = mix([40960.0, 10.0], weight=[0.02, 0.98], total=50000.0)
    one = queue_law(passes(Packed(), requests), requests.weight, 4.0, 1, 1.0, "cache_affinity")
    three = queue_law(passes(Packed(), requests, ranks=3), requests.weight, 4.0, 1, 1.0, "cache_affinity")
    assert quantile(three, 0.99, three.bin_of_row[1]) < 0.9 * quantile(one, 0.99, one.bin_of_row[1])


@pytest.mark.parametrize("dispatch", ["cache_affinity", "round_robin", "shortest_queue", "central"])
def test_more_instances_never_wait_longer(dispatch):
    requests = mix([100.0, 3000.0, 20000.0], weight=[0.7, 0.2, 0.1], total=50000.0)
    made = passes(Packed(), requests)
    means = [queue_law(made, requests.weight, 6.0, n, 1.0, dispatch).mean_s for n in (3, 4, 6, 10)]
    assert all(b <= a * 1.001 for a, b in itertools.pairwise(means))


def test_dispatch_by_load_waits_less_than_pinning():
    requests = mix([100.0, 3000.0, 20000.0], weight=[0.7, 0.2, 0.1], total=50000.0)
    made = passes(Packed(), requests)
    pinned, turns, shortest, central = (
        queue_law(made, requests.weight, 6.0, 4, 1.0, d).mean_s
        for d in ("cache_affinity", "round_robin", "shortest_queue", "central")
    )
    assert central <= shortest * 1.05
    assert shortest < turns < pinned


def test_bursts_wait_longer():
    requests = mix([100.0, 3000.0, 20000.0], weight=[0.7, 0.2, 0.1], total=50000.0)
    made = passes(Packed(), requests)
    assert (
        queue_law(made, requests.weight, 4.0, 4, 10.0, "central").mean_s
        > 2 * queue_law(made, requests.weight, 4.0, 4, 1.0, "central").mean_s
    )


def test_overload_and_no_load_are_answers():
    requests = mix([1000.0])
    made = passes(LineStage(), requests)
    assert queue_law(made, requests.weight, 100.0, 1, 1.0, "cache_affinity").method == "unstable"
    assert queue_law(made, requests.weight, 0.0, 1, 1.0, "cache_affinity").mean_s == 0.0


def test_decode_steps_beside_prefill_lengthen_the_queue():
    requests = mix([3000.0])
    made = passes(Packed(), requests)
    plain = queue_law(made, requests.weight, 2.0, 1, 1.0, "cache_affinity")
    beside = queue_law(made, requests.weight, 2.0, 1, 1.0, "cache_affinity", beside_s=0.05)
    assert beside.mean_s > plain.mean_s


def test_requests_that_are_packed_together_end_together():
    """Ten requests of 0.1 s in one pass all end after 1 s; one after another they end after 0.55 s in the mean."""
    requests = mix([1000.0])
    apart = queue_law(passes(LineStage(), requests, packs=False), requests.weight, 8.0, 1, 1.0, "cache_affinity")
    together = queue_law(passes(LineStage(), requests), requests.weight, 8.0, 1, 1.0, "cache_affinity")
    assert apart.method == "pollaczek-khinchine"
    assert together.method == "recursion"
    assert together.mean_s > 1.2 * apart.mean_s
