"""Independent judges: Ciw for pools of servers, SimPy for the line and the batch server.

The bar is 10 % on the P50, P90 and P99 of the sojourn, with runs long enough that their own noise is a fraction of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator

import ciw
import numpy as np
import pytest
import simpy
from scipy import stats

from pddplan.queueing import _recursion, decode, ggc
from pddplan.queueing import processor_sharing as ps
from pddplan.queueing.grid import TimeGrid

GRID = TimeGrid()
QUANTILES = [0.5, 0.9, 0.99]


def lognormal(cv: float, count: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Atoms of a log-normal of mean 1 and the given CV."""
    sigma = np.sqrt(np.log1p(cv**2))
    atoms = np.exp(sigma * stats.norm.ppf((np.arange(count) + 0.5) / count))
    return atoms / atoms.mean(), np.full(count, 1.0 / count)


def ciw_waits(gaps: np.ndarray, services: np.ndarray, servers: int) -> np.ndarray:
    """Waits of the very same customers in Ciw, in order of arrival."""
    far = float(gaps.sum() + services.sum())
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([*gaps.tolist(), far])],
        service_distributions=[ciw.dists.Sequential(services.tolist())],
        number_of_servers=[servers],
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(far)
    records = sorted(simulation.get_all_records(), key=lambda record: record.id_number)
    return np.array([record.waiting_time for record in records])


def plain_shortest_queue(gaps: np.ndarray, services: np.ndarray, ties: np.ndarray, servers: int) -> list[float]:
    """Waits under join-the-shortest-queue, from lists of departure times and nothing clever."""
    departures: list[list[float]] = [[] for _ in range(servers)]
    now, waits = 0.0, []
    for gap, service, tie in zip(gaps, services, ties, strict=True):
        now += gap
        departures = [[t for t in queue if t > now] for queue in departures]
        fewest = min(map(len, departures))
        level = [j for j in range(servers) if len(departures[j]) == fewest]
        queue = departures[level[int(tie * len(level))]]
        start = max(now, queue[-1]) if queue else now
        waits.append(start - now)
        queue.append(start + service)
    return waits


def shared_simpy(gaps: np.ndarray, sizes: np.ndarray, rate_of: Callable[[int], float], places: float) -> np.ndarray:
    """Sojourns of customers that proceed together at rate_of(n), written on SimPy with nothing of the package."""
    env = simpy.Environment()
    active: list[tuple[float, int]] = []
    queue: list[tuple[float, int]] = []
    state = {"virtual": 0.0, "since": 0.0, "timer": 0}
    ends, starts = np.zeros(sizes.size), np.zeros(sizes.size)

    def advance() -> None:
        if active:
            state["virtual"] += rate_of(len(active)) * (env.now - state["since"])
        state["since"] = env.now

    def admit() -> None:
        while queue and len(active) < places:
            size, who = queue.pop(0)
            heapq.heappush(active, (state["virtual"] + size, who))

    def arm() -> None:
        state["timer"] += 1
        if active:
            delay = max(active[0][0] - state["virtual"], 0.0) / rate_of(len(active))
            env.process(fire(delay, state["timer"]))

    def fire(delay: float, timer: float) -> Generator[simpy.Event, None, None]:
        yield env.timeout(delay)
        if timer == state["timer"]:
            advance()
            ends[heapq.heappop(active)[1]] = env.now
            admit()
            arm()

    def source() -> Generator[simpy.Event, None, None]:
        for i, gap in enumerate(gaps):
            yield env.timeout(gap)
            starts[i] = env.now
            advance()
            queue.append((sizes[i], i))
            admit()
            arm()

    env.process(source())
    env.run()
    return ends - starts


@pytest.mark.parametrize("servers", [1, 3, 12])
def test_recursion_gives_every_customer_the_wait_of_ciw(servers: int) -> None:
    rng = np.random.default_rng(servers)
    gaps, services = rng.gamma(0.3, 1 / (0.3 * 0.85 * servers), 4000), rng.lognormal(-0.5, 1.0, 4000)
    np.testing.assert_allclose(_recursion.central_waits(gaps, services, servers), ciw_waits(gaps, services, servers), rtol=1e-9, atol=1e-9)


def test_shortest_queue_gives_every_customer_the_wait_of_a_plain_program() -> None:
    rng = np.random.default_rng(2)
    gaps, services, ties = rng.exponential(1 / 3.4, 5000), rng.lognormal(-0.5, 1.0, 5000), rng.random(5000)
    found = _recursion.shortest_queue_waits(gaps, services, ties, 4)
    np.testing.assert_allclose(found, plain_shortest_queue(gaps, services, ties, 4), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("servers", [1, 2, 10, 40])
@pytest.mark.parametrize("rho", [0.5, 0.8, 0.9])
def test_closed_forms_agree_with_long_recursions_inside_their_limits(servers: int, rho: float, cv: float) -> None:
    """The recursion is Ciw's, customer by customer (above), at a thousand times its speed.

    Four million customers leave 2 % noise.
    """
    atoms, weights = lognormal(cv) if cv > 0 else (np.ones(1), np.ones(1))
    law = ggc.waiting_law(servers, rho * servers, atoms, weights, 1.0, "central", GRID)
    assert law.method in ("tijms", "pollaczek-khinchine")
    predicted = GRID.quantile(GRID.convolve(law.cdf, GRID.law(atoms, weights)), QUANTILES)
    rng = np.random.default_rng(29)
    services = atoms[rng.integers(0, atoms.size, 4_000_000)]
    waits = _recursion.central_waits(rng.exponential(1 / (rho * servers), services.size), services, servers)
    np.testing.assert_allclose(predicted, np.quantile((waits + services)[400_000:], QUANTILES), rtol=0.10)


@pytest.mark.parametrize(("arrival_scv", "cv"), [(4.0, 1.0), (10.0, 0.5), (1.0, 3.0), (0.25, 2.5)])
def test_recursion_from_the_mix_agrees_with_another_long_run(arrival_scv: float, cv: float) -> None:
    atoms, weights = lognormal(cv)
    law = ggc.waiting_law(10, 7.5, atoms, weights, arrival_scv, "central", GRID)
    assert law.method == "recursion"
    predicted = GRID.quantile(GRID.convolve(law.cdf, GRID.law(atoms, weights)), QUANTILES)
    rng = np.random.default_rng(31)
    services = atoms[rng.integers(0, atoms.size, 4_000_000)]
    gaps = rng.gamma(1 / arrival_scv, arrival_scv / 7.5, services.size)
    sojourns = _recursion.central_waits(gaps, services, 10) + services
    np.testing.assert_allclose(predicted, np.quantile(sojourns[400_000:], QUANTILES), rtol=0.10)


def test_line_with_cap_and_pool_agrees_with_simpy() -> None:
    sizes, weights = lognormal(1.0)
    rng = np.random.default_rng(5)
    line = ps.line(8.0, sizes, weights, 10.0, 1.0, 14)
    predicted = GRID.quantile(line.time_cdf(sizes, weights, GRID), QUANTILES)
    n = 40_000
    drawn = sizes[rng.integers(0, sizes.size, n)]
    judged = shared_simpy(rng.exponential(1 / 8.0, n), drawn, lambda k: min(1.0, 10.0 / k), 14)
    np.testing.assert_allclose(predicted, np.quantile(judged[n // 10 :], QUANTILES), rtol=0.10)


def test_shared_recursion_gives_every_customer_the_time_of_simpy() -> None:
    rng = np.random.default_rng(41)
    gaps, sizes = rng.exponential(1 / 8.5, 5000), rng.lognormal(-0.5, 1.0, 5000)
    rates = np.minimum(1.0, 10.0 / np.maximum(np.arange(15), 1))
    waits, served = _recursion.shared_times(gaps, sizes, rates)
    np.testing.assert_allclose(waits + served, shared_simpy(gaps, sizes, lambda k: float(rates[k]), 14), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("c", [1.0, 4.5, 30.0])
@pytest.mark.parametrize("rho", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("cv", [0.5, 1.0, 1.5])
def test_line_agrees_with_long_recursions(c: float, rho: float, cv: float) -> None:
    sizes, weights = lognormal(cv)
    rng = np.random.default_rng(17)
    predicted = GRID.quantile(ps.line(rho * c, sizes, weights, c, 1.0).time_cdf(sizes, weights, GRID), QUANTILES)
    drawn = sizes[rng.integers(0, sizes.size, 3_000_000)]
    rates = np.minimum(1.0, c / np.maximum(np.arange(20_000), 1))
    waits, served = _recursion.shared_times(rng.exponential(1 / (rho * c), drawn.size), drawn, rates)
    np.testing.assert_allclose(predicted, np.quantile((waits + served)[300_000:], QUANTILES), rtol=0.10)


@pytest.mark.parametrize("most", [30, 400])
def test_batch_server_agrees_with_simpy(most: int) -> None:
    """Half-loaded without limit, and with a memory limit that makes requests queue; token counts geometric."""
    steps = 0.02 + 0.0008 * np.arange(1, most + 1)
    tokens, n = 200.0, 40_000
    rate = 0.88 * decode.stable_rate(tokens, steps) if most == 30 else 3.2
    law = decode.open_loop(rate, tokens, steps)
    rng = np.random.default_rng(23)
    counts = rng.exponential(tokens - 20, n) + 20
    predicted = law.token_quantile_s(QUANTILES)
    sojourn = shared_simpy(rng.exponential(1 / rate, n), counts, lambda k: 1.0 / steps[k - 1], most)
    if most == 400:
        np.testing.assert_allclose(predicted, np.quantile((sojourn / counts)[n // 10 :], QUANTILES), rtol=0.10)
    else:
        mean = law.wait_mean_s + law.token_mean_s * tokens
        assert float(sojourn[n // 10 :].mean()) == pytest.approx(mean, rel=0.10)


@pytest.mark.parametrize("arrival_scv", [4.0, 10.0])
def test_batch_server_under_bursts_agrees_with_a_long_recursion(arrival_scv: float) -> None:
    """tau = 1 + n / 50, 200 tokens, y = 0.8: P50, P90, P99 of the time per token within 12 % (Poisson arrivals: 20 to 50 % low)."""
    steps = 1.0 + np.arange(1, 4001) / 50
    law = decode.open_loop(0.2, 200.0, steps, arrival_scv=arrival_scv)
    served, counts, _ = burst_batch(0.2, arrival_scv, steps, 600_000)
    np.testing.assert_allclose(law.token_quantile_s(QUANTILES), np.quantile(served / counts, QUANTILES), rtol=0.12)


def test_wait_for_a_place_under_bursts_agrees_with_a_long_recursion() -> None:
    """The mean wait of a full batch under SCV 10 is known to a quarter from two million requests; as Poisson it would be a hundredth."""
    steps = 1.0 + np.arange(1, 257) / 200
    law = decode.open_loop(0.5, 200.0, steps, arrival_scv=10.0)
    _, _, waits = burst_batch(0.5, 10.0, steps, 2_000_000)
    assert law.wait_mean_s == pytest.approx(float(waits.mean()), rel=0.35)
    assert decode.open_loop(0.5, 200.0, steps).wait_mean_s < 0.02 * law.wait_mean_s


def burst_batch(rate: float, arrival_scv: float, steps: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds in service, tokens and waits of requests of 200 exponential tokens under gamma gaps."""
    rng = np.random.default_rng(37)
    counts = rng.exponential(200.0, n) + 1e-3
    gaps = rng.gamma(1 / arrival_scv, arrival_scv / rate, n)
    waits, served = _recursion.shared_times(gaps, counts, np.concatenate([[0.0], 1 / steps]))
    kept = slice(n // 10, None)
    return served[kept], counts[kept], waits[kept]
