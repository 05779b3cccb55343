"""Times of the optimiser, printed as a table: fleets of three sizes to their proven gap, a warm search, and whole processes.

python benchmarks/optimize.py [--quick]    (one thread; fleets are synthetic, from a seed)
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pddplan import api
from pddplan.optimize.dominance import drop_dominated
from pddplan.optimize.milp import Limits, solve_cost
from pddplan.optimize.program import Market, Option, Program, Resource, Row
from pddplan.optimize.program import Path as Way
from pddplan.optimize.search import Effort, Search
from pddplan.pdd.context import PlanContext

SIZES = ((2, 4), (4, 10), (6, 20))
ROLES = {"P": (1.0, 0.29), "RLD": (0.25, 0.30), "MD": (1.0, 0.16)}  # role: (share of requests, requests/s of a unit of speed)
WARM = """
name: warm search
model: {name: Qwen/Qwen3-32B-FP8}
engine: sglang
sites: {A: {chips: [{chip: h200-sxm, stock: 32, price: 2.5 USD/h}]}}
workload:
  rate: 4 req/s
  classes: {c: {input_tokens: 4000, output_tokens: 500, sla: {ttft: {limit: 300 ms}, tpot: {limit: 10 ms}, attainment: 95 %}}}
objective: GOAL
"""


def fleet(sites: int, chips: int, rate: float = 200.0, parallelisms: int = 4, stock: int = 256, seed: int = 1) -> Program:
    """Every chip at every site in three roles and several layouts, a line between every two sites, stock and power at each."""
    rng = np.random.default_rng(seed)
    price = rng.uniform(1.0, 6.0, chips)
    speed = {"P": price * rng.uniform(0.6, 1.4, chips), "MD": price * rng.uniform(0.6, 1.4, chips)}
    speed["RLD"] = speed["MD"]
    watts = rng.uniform(300, 1000, chips)
    local = rng.uniform(0.85, 1.15, (sites, chips))
    stocks = rng.integers(stock // 8, stock, (sites, chips))
    rows: dict[str, dict[str, float]] = {}
    for i in range(sites):
        for j in range(sites):
            way = f"{i} to {j}"
            rows.setdefault(f"P {i}", {})[way] = rate * ROLES["P"][0]
            rows.setdefault(f"MD {j}", {})[way] = rate * ROLES["MD"][0]
            if i != j:
                rows.setdefault(f"RLD {i}", {})[way] = rate * ROLES["RLD"][0]
                rows.setdefault(f"line {min(i, j)} {max(i, j)}", {})[way] = rate * 0.05
    options = []
    for role, (_, pace) in ROLES.items():
        for i in range(sites):
            for c in range(chips):
                for e in range(parallelisms):
                    gpus, efficiency = 1 << e, rng.uniform(0.75, 1.0)
                    n = np.arange(1, stocks[i, c] // gpus + 1)
                    if n.size:
                        pooled = 0.95 - 0.25 / np.sqrt(n)
                        uses = {f"stock {i} {c}": n * float(gpus), f"power {i}": n * gpus * watts[c]}
                        capacity = n * gpus * pace * speed[role][c] * efficiency * pooled
                        name = f"{role} {i} {c} {gpus}"
                        options.append(Option(name, role, {f"{role} {i}": 1.0}, n, capacity, n * gpus * price[c] * local[i, c], uses))
    for i in range(sites):
        for j in range(i + 1, sites):
            n = np.arange(1, 9)
            row = f"line {i} {j}"
            options.append(Option(row, row, {row: 1.0}, n, n * 9.0, n * 16.4 * rng.uniform(0.5, 2)))
    resources = [Resource(f"stock {i} {c}", float(stocks[i, c])) for i in range(sites) for c in range(chips)]
    resources += [Resource(f"power {i}", float(0.45 * stocks[i].sum() * 1000)) for i in range(sites)]
    ways = tuple(Way(f"{i} to {j}", "all") for i in range(sites) for j in range(sites))
    most = {"P": 2 * sites, "RLD": 2 * sites, "MD": 2 * sites}
    return Program((Market("all", rate),), ways, tuple(Row(k, v) for k, v in rows.items()), tuple(options), tuple(resources), most)


def fleets(sizes: tuple[tuple[int, int], ...]) -> None:
    print("fleet (sites x chips x 3 roles)   columns   kept   dominance s   solve s   gap       USD/h")
    for sites, chips in sizes:
        program = fleet(sites, chips)
        start = time.perf_counter()
        fewer = drop_dominated(program)
        dropped = time.perf_counter()
        solution = solve_cost(fewer, Limits(gap=0.001, seconds=60.0))
        done = time.perf_counter()
        answer = "no plan" if solution is None else f"{solution.gap:7.3%}  {solution.objective:9.1f}"
        label = f"{sites} x {chips} x 3"
        print(f"{label:32}{program.columns:9,}{fewer.columns:8,}{dropped - start:12.1f}{done - dropped:10.1f}   {answer}", flush=True)


def warm() -> None:
    print("\nwarm search, Qwen3-32B-FP8 on 32 H200 (4,000 in, 500 out, TTFT 300 ms, TPOT 10 ms)")
    with tempfile.TemporaryDirectory() as folder:
        for goal in ("max-goodput", "max-bcr"):
            path = Path(folder) / f"{goal}.yaml"
            path.write_text(WARM.replace("GOAL", goal), encoding="utf-8")
            scenario, best = api.load_scenario(path), float("inf")
            for _ in range(5):
                start = time.perf_counter()
                outcome = Search.of(PlanContext.from_scenario(scenario), Effort()).run()
                best = min(best, time.perf_counter() - start)
            gap = outcome.gap(scenario.objective)
            print(f"  {goal:12} {best:6.3f} s (best of 5), gap {gap:.3%}", flush=True)


def processes(names: tuple[str, ...]) -> None:
    print("\nwhole process: pddplan optimize NAME")
    for name in names:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "pddplan", "optimize", name, "--json", "-"], check=True, stdout=subprocess.DEVNULL)
        print(f"  {name:28} {time.perf_counter() - start:6.2f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the largest fleet")
    chosen = parser.parse_args()
    fleets(SIZES[:-1] if chosen.quick else SIZES)
    warm()
    processes(("01-minimal", "pdd-reference", "prfaas", "melange"))
