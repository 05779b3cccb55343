"""Speed, memory and growth of pddplan, each beside its target and, where there is one, beside a peer timed in the same run.

    python benchmarks/speed.py [--only process,memory,warm,growth,imports] [--runs 3] [--write docs/validation/speed.md]

Whole processes are timed from outside (start-up included), their memory is the operating system's account of the finished child.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
PDDPLAN = [sys.executable, "-m", "pddplan"]
PATIENCE_S = 180.0
SERVERS = Path(__file__).parent / "data" / "servers.csv.gz"
HEAD = """# Speed

2026-11-30, `python benchmarks/speed.py --write docs/validation/speed.md`, one process at a time on {cores} cores whose load was {load:.1f}
at the start: where other work ran beside it, CPU seconds and ratios are what to read. Whole processes include start-up; peers are timed in
the same run; medians of {runs} runs where a run is short."""
NOTES = """## What the numbers rest on

- Compiled code: the first `optimize` on a machine compiles the recursion of prefill passes and keeps it beside the package; where that is
  read-only, in the user's cache; where neither can be written, every run compiles and works. An installed wheel in CPU seconds, first run
  and second: 4.3, 2.4; read-only package 4.1, 2.6; home read-only too 3.9, 4.3. (Making arrays and interpolating inside compiled code took
  2 s more to compile.)
- Two fifths of the imports of `optimize` (1.1 s on a quiet core) are numba and scipy.special, which the laws of queues need; pandas,
  plotly, simpy and the rest of scipy are imported by the commands that use them.
- The command line keeps BLAS to one thread: its vectors are short. With two threads on a busy machine the plan of `pdd-reference` took 16 s
  of CPU instead of 5 s, spent waiting for each other; who calls the library there sets OPENBLAS_NUM_THREADS=1.
- Exponents below 1: an evaluation has a part that does not depend on rows (sums of laws on one grid). How many programs the search solves
  depends on prices more than on size, and a search that is not proven takes the time it is given: hence the time of one program."""
CHIPS = (
    *("h100-sxm", "h200-sxm", "b200", "b300", "gb200", "gb300", "h20-96", "h20-141", "h800-sxm", "a100-80-sxm", "a800-sxm", "h100-pcie"),
    *("h100-nvl", "l40s", "rtx-pro-6000-server", "mi300x", "mi325x", "mi355x", "gaudi3", "ascend-910c"),
)


@dataclass(frozen=True)
class Cost:
    """Median over runs of one command: wall and CPU seconds, peak resident MB of its largest process."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def process(command: Sequence[str], runs: int = 1, accepted: tuple[int, ...] = (0,), **environment: str) -> Cost:
    """Cost of a whole process, killed after ``PATIENCE_S``; ends the benchmark where it fails with a code not ``accepted``.

    A child's peak memory counts this process as it starts the child, which is why traces are made in a process of their own and numpy is
    imported only where it is used.
    """
    costs = []
    for _ in range(runs):
        with tempfile.TemporaryFile() as errors:
            start = time.perf_counter()
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=os.environ | environment)
            killer = threading.Timer(PATIENCE_S, child.kill)
            killer.start()
            _, status, usage = os.wait4(child.pid, 0)
            killer.cancel()
            wall = time.perf_counter() - start
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode not in accepted:
                errors.seek(0)
                raise SystemExit(f"{' '.join(command)} ended with {child.returncode}: {errors.read().decode()[-2000:]}")
        costs.append((wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)))
    return Cost(*(median(column) for column in zip(*costs, strict=True)))


def timed(work: Callable[[], Any], runs: int) -> float:
    """Median CPU seconds of ``work`` in this warm process."""
    work()
    seconds = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return median(seconds)


def fleet(sites: int, chips: int) -> dict[str, Any]:
    """Every room has every chip in every role, every two rooms a line; prices and stocks differ from room to room."""
    import numpy as np

    rng = np.random.default_rng(1)
    names = [f"S{i}" for i in range(sites)]
    rooms = {
        name: {
            "chips": [
                {"chip": chip, "stock": int(rng.integers(64, 512)), "price": f"{rng.uniform(1, 6):.2f} USD/h", "roles": ["P", "RLD", "MD"]}
                for chip in CHIPS[:chips]
            ]
        }
        for name in names
    }
    line = {"circuit": "100 Gbps", "max_circuits": 8, "rtt": "20 ms", "per_flow": "5 Gbps", "price": "120 USD/Gbps/month"}
    links = {f"{a}-{b}": {"between": [a, b], **line} for i, a in enumerate(names) for b in names[i + 1 :]}
    return {
        "name": f"{sites} rooms of {chips} chips",
        "model": {"name": "Qwen/Qwen3-32B"},
        "engine": "sglang",
        "sites": rooms,
        "links": links,
        "workload": {
            "rate": "40 req/s",
            "rows": 1000,
            "classes": {
                "agent": {
                    "input_tokens": {"lognormal": {"p50": "16k", "p99": "100k"}},
                    "output_tokens": 500,
                    "hit_rate": {"beta": [9, 1]},
                    "sla": {"ttft": {"limit": "10 s"}, "tpot": "50 ms", "attainment": "95 %"},
                }
            },
        },
        "search": {"tp": [1, 2, 4, 8], "gap": 0.001, "time_limit": "55 s"},
        "objective": "min-cost",
    }


def chain(sites: int, chips: int) -> dict[str, Any]:
    """A fleet whose rooms stand in a row, each joined to the next, under one written policy: what grows is the program, not the search."""
    found = fleet(sites, chips)
    names = list(found["sites"])
    found["links"] = {f"{a}-{b}": found["links"][f"{a}-{b}"] for a, b in pairwise(names)}
    return found | {"policy": {"relay_threshold": "0.5 s", "handoff": "one-shot", "p_routing": {"threshold": "100k"}}}


class Bench:
    def __init__(self, folder: Path, runs: int) -> None:
        self.folder, self.runs = folder, runs

    def scenario(self, document: dict[str, Any], name: str = "scenario.yaml") -> str:
        import yaml

        path = self.folder / name
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return str(path)

    def trace(self, requests: int) -> str:
        path = self.folder / f"{requests}.jsonl"
        if not path.exists():
            process([sys.executable, __file__, "--make-trace", str(path), str(requests)])
        return str(path)

    def process(self) -> Iterator[str]:
        """Whole processes against their targets and peers."""
        yield "| command | target | wall s | CPU s | peak MB | against a peer in the same run |"
        yield "|---|---|---|---|---|---|"

        def row(name: str, target: str, cost: Cost, peer: str = "") -> str:
            return f"| {name} | {target} | {cost.wall_s:.2f} | {cost.cpu_s:.2f} | {cost.peak_mb:.0f} | {peer} |"

        bare = process([sys.executable, "-c", "pass"], self.runs + 2)
        libraries = process(
            [sys.executable, "-c", "import numpy, scipy.special, numba, pulp, pydantic, yaml, rich.table, typer"], self.runs
        )
        helped = process([*PDDPLAN, "--help"], self.runs + 2)
        yield row("`--help`", "0.4 s", helped, f"{helped.cpu_s / bare.cpu_s:.1f} x the CPU of bare Python")

        def planned(name: str, words: str, target: str, cost: Cost) -> str:
            peer = f"{cost.cpu_s / libraries.cpu_s:.1f} x the CPU of importing the libraries it uses"
            return row(f"`optimize {name}`{words}", target, cost, peer)

        with tempfile.TemporaryDirectory(dir=self.folder) as empty:
            first = process([*PDDPLAN, "optimize", "01-minimal"], NUMBA_CACHE_DIR=empty)
        yield planned("01-minimal", ", first run ever (compiles)", "", first)
        for name, target in (("01-minimal", "3 s, 300 MB"), ("pdd-reference", "10 s")):
            yield planned(name, "", target, process([*PDDPLAN, "optimize", name], self.runs))
        predicted, replayed = process([*PDDPLAN, "evaluate", self.plan()], self.runs), process([*PDDPLAN, "simulate", self.plan()])
        yield row("`evaluate` (percentiles of a plan)", "", predicted, f"{predicted.cpu_s / replayed.cpu_s:.2f} x the CPU of its replay")
        curve = process([*PDDPLAN, "trace", "stats", self.trace(1_000_000), "--json", "-"])
        one = process([sys.executable, __file__, "--one-lru", self.trace(1_000_000)])
        peer = f"{curve.cpu_s / one.cpu_s:.2f} x the CPU of a dictionary LRU at one capacity"
        yield row("`trace stats`, 1,000,000 requests, whole curve", "30 s, 2 GB", curve, peer)
        result = self.folder / "fleet.json"
        command = ["optimize", self.scenario(fleet(6, 20)), "--json", str(result), "--force"]
        cost = process([*PDDPLAN, *command], accepted=(0, 3, -signal.SIGKILL))
        gap = json.loads(result.read_text(encoding="utf-8"))["gap"] if result.exists() else None
        found = f"no plan within {cost.wall_s:.0f} s" if gap is None else f"gap {100 * gap:.3f} %"
        yield row("`optimize`, 6 rooms x 20 chips x 3 roles", "60 s, gap 0.1 %", cost, found)

    def memory(self) -> Iterator[str]:
        """Every shipped scenario, and every command on one plan."""
        from pddplan.scenario.load import shipped_scenarios

        yield "| command | CPU s | peak MB |"
        yield "|---|---|---|"
        studied = "01-minimal"  # studies plan again and again
        commands = [("optimize", name) for name in shipped_scenarios()]
        commands += [(name, self.plan()) for name in ("evaluate", "simulate", "launch")]
        commands += [("explain", self.plan(), "ttft_p99_s")]
        commands += [
            (name, self.plan(), "-o", str(self.folder / out), "--force") for name, out in (("report", "a.html"), ("export", "a.xlsx"))
        ]
        commands += [(name, "pdd-reference") for name in ("stability", "bathtub", "bandwidth")]
        commands += [(name, studied) for name in ("pareto", "sensitivity", "robust", "savings")]
        commands += [("sweep", studied, "--vary", "workload.rate=2 req/s:4 req/s:3", "--out", str(self.folder / "sweep.csv"), "--force")]
        commands += [("backtest", str(SERVERS)), ("trace", "stats", self.trace(100_000), "--json", "-")]
        for command in commands:
            cost = process([*PDDPLAN, *command], accepted=(0, 3))
            shown = " ".join(Path(word).name if word.startswith(os.sep) else word for word in command if word != "--force")
            yield f"| `{shown}` | {cost.cpu_s:.1f} | {cost.peak_mb:.0f} |"

    def warm(self) -> Iterator[str]:
        """One core of a process that has everything imported."""
        import numpy as np
        import pandas as pd

        from pddplan import load_scenario
        from pddplan.hardware import load_chip
        from pddplan.model import load_model
        from pddplan.model.parallel import legal_parallels
        from pddplan.pipeline import plan
        from pddplan.stages.roofline import RooflineTable, roofline_instance
        from pddplan.stages.serving import estimate_table
        from pddplan.workload.trace_reader import read_trace

        yield "| work | target | measured |"
        yield "|---|---|---|"
        model, chip = load_model("Qwen/Qwen3-32B"), load_chip("h200-sxm")
        table = RooflineTable.of([roofline_instance(model, chip, "vllm", mapping) for mapping in legal_parallels(model, chip, 8)])
        batches = np.broadcast_to(np.arange(1.0, 513.0), (len(table.instances), 512))

        def points() -> None:
            table.step_s(batches, 4250.0)
            table.prefill_s(batches * 16, 0.0)

        seconds = timed(points, 5 * self.runs)
        yield f"| design points (instance x load: decode step and prefill) a second | 10,000 | {batches.size / seconds:,.0f} |"
        servers = pd.read_csv(SERVERS)
        many = pd.concat([servers] * (100_000 // len(servers) + 1), ignore_index=True)
        seconds = timed(lambda: estimate_table(many), 1)
        yield f"| rows of `estimate` a second, of {len(many):,} | 50,000 | {len(many) / seconds:,.0f} |"
        search = load_scenario(
            "01-minimal",
            {
                "model.name": "Qwen/Qwen3-32B-FP8",
                "sites.A.chips[0].chip": "h200-sxm",
                "sites.A.chips[0].stock": "32",
                "sites.A.chips[0].price": "2.50 USD/h",
                "workload.classes.chat.input_tokens": "4000",
                "workload.classes.chat.output_tokens": "500",
                "workload.classes.chat.hit_rate": "0",
                "workload.classes.chat.sla.ttft": "300 ms",
                "workload.classes.chat.sla.tpot": "10 ms",
                "workload.rate": "4 req/s",
            },
        )
        for explain, words in ((False, "the plan alone"), (True, "with baselines, what binds, what lost")):
            seconds = timed(lambda explain=explain: plan(search, explain=explain), self.runs)  # type: ignore[misc]
            yield f"| full search, Qwen3-32B-FP8 on 32 H200, {words} | 0.5 s | {seconds:.2f} s |"
        trace = self.trace(100_000)
        ours, theirs = timed(lambda: read_trace(Path(trace)), 1), timed(lambda: pd.read_json(trace, lines=True), 1)
        yield f"| reading a trace of 100,000 requests (JSON lines) | pandas: {theirs:.2f} s | {ours:.2f} s, {ours / theirs:.2f} x |"
        yield self._queue_row()

    def _queue_row(self) -> str:
        """Percentiles of M/G/8 at load 0.8 by formula, against a run of Ciw long enough for its P99."""
        import ciw
        import numpy as np

        from pddplan.queueing.ggc import waiting_law
        from pddplan.queueing.grid import TimeGrid

        grid, sigma, customers = TimeGrid(), 0.8, 20_000
        services = np.exp(sigma * np.random.default_rng(1).standard_normal(4000))
        rate = 8 * 0.8 / services.mean()
        law = timed(lambda: grid.quantile(waiting_law(8, rate, services, np.ones(4000), 1.0, "central", grid).cdf, [0.5, 0.9, 0.99]), 5)

        def simulated() -> None:
            network = ciw.create_network(
                arrival_distributions=[ciw.dists.Exponential(rate)],
                service_distributions=[ciw.dists.Lognormal(0.0, sigma)],
                number_of_servers=[8],
            )
            ciw.Simulation(network).simulate_until_max_customers(customers)

        peer = timed(simulated, 1)
        ours = f"{1e3 * law:.2f} ms, {peer / law:,.0f} x faster"
        return f"| percentiles of the wait in M/G/8 | Ciw, {customers:,} customers: {peer:.2f} s | {ours} |"

    def growth(self) -> Iterator[str]:
        """CPU seconds of the work alone in a warm process; the exponent of size fitted to them."""
        import numpy as np

        from pddplan import load_scenario
        from pddplan.pipeline import evaluate_plan, plan
        from pddplan.scenario.schema import Scenario
        from pddplan.workload.prefix_cache import cache_hits, p_sequence
        from pddplan.workload.trace_reader import read_trace

        yield "| what grows | sizes | CPU s | exponent (1: linear) |"
        yield "|---|---|---|---|"

        def row(name: str, sizes: list[int], seconds: list[float]) -> str:
            slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
            return f"| {name} | {', '.join(f'{s:,}' for s in sizes)} | {', '.join(f'{s:.3g}' for s in seconds)} | {slope:.2f} |"

        decision = plan(load_scenario("pdd-reference"), explain=False).evaluation.decision
        rows = [1250, 2500, 5000, 10_000, 20_000]
        mixes = [load_scenario("pdd-reference", {"workload.rows": str(n)}) for n in rows]
        yield row(
            "rows of the mix (mix and evaluation of a plan in two rooms)",
            rows,
            [timed(lambda s=s: evaluate_plan(s, decision), self.runs) for s in mixes],  # type: ignore[misc]
        )

        def program(scenario: Scenario) -> tuple[int, float, int]:
            start = time.process_time()
            log = plan(scenario, explain=False).search
            return log.columns, time.process_time() - start, log.programs

        shapes = {
            "chips in two rooms: 2, 4, 8, 12": [(2, n) for n in (2, 4, 8, 12)],
            "rooms of four chips in a row: 2, 3, 4, 6": [(n, 4) for n in (2, 3, 4, 6)],
        }
        for name, sizes in shapes.items():
            found = [program(load_scenario(self.scenario(chain(*size)), {"search.time_limit": "10 s"})) for size in sizes]
            columns, seconds, programs = map(list, zip(*found, strict=True))
            each = [s / n for s, n in zip(seconds, programs, strict=True)]
            yield row(f"{name}; columns (search, for each of its {', '.join(map(str, programs))} programs)", columns, each)
        requests = [50_000, 100_000, 200_000, 400_000]
        read = [timed(lambda n=n: cache_hits(p_sequence(read_trace(Path(self.trace(n))))), 1) for n in requests]  # type: ignore[misc]
        yield row("requests of a trace (read, hit-rate curve)", requests, read)

    def plan(self) -> str:
        """The plan of the reference scenario as JSON, made once."""
        path = self.folder / "plan.json"
        if not path.exists():
            process([*PDDPLAN, "optimize", "pdd-reference", "--json", str(path)])
        return str(path)

    def imports(self) -> Iterator[str]:
        """Where a cold start goes: seconds in each package at import, self time, of the quickest run."""
        yield "| command | import s | dearest packages (self, ms) |"
        yield "|---|---|---|"
        for name in ("--help", "validate 01-minimal", "evaluate pdd-88-vs-43-32", "optimize 01-minimal"):
            command = [sys.executable, "-X", "importtime", "-m", "pddplan", *name.split()]
            spent = min((imported(command) for _ in range(self.runs)), key=lambda found: sum(found.values()))
            dearest = sorted(spent.items(), key=lambda item: -item[1])[:6]
            yield f"| `{name}` | {sum(spent.values()) / 1e6:.2f} | {', '.join(f'{package} {us / 1000:.0f}' for package, us in dearest)} |"


def imported(command: list[str]) -> dict[str, int]:
    """Microseconds of import by package, own time, of a command run with ``-X importtime``."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    spent: dict[str, int] = {}
    for found in re.finditer(r"^import time:\s+(\d+) \|\s+\d+ \|\s+([\w.]+)$", done.stderr, re.MULTILINE):
        package = found[2].split(".")[0]
        spent[package] = spent.get(package, 0) + int(found[1])
    return spent


def make_trace(path: Path, requests: int) -> None:
    import numpy as np
    from trace_speed import conversations

    conversations(path, requests, np.random.default_rng(1))


def one_lru(path: str) -> None:
    """The peer of the hit-rate curve: a plain LRU of one capacity over the same blocks."""
    from collections import OrderedDict

    held: OrderedDict[int, None] = OrderedDict()
    hits = total = 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            ids = json.loads(line)["hash_ids"]
            total += len(ids)
            leading = True
            for block in ids:
                leading = leading and block in held
                hits += leading
            for block in reversed(ids):
                held[block] = None
                held.move_to_end(block)
            while len(held) > 1_000_000:
                held.popitem(last=False)
    print(hits / total)


TITLES = {
    "process": "Whole processes",
    "memory": "Memory of each command",
    "warm": "A warm process",
    "growth": "Growth",
    "imports": "Cold start",
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default=",".join(TITLES))
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--write", type=Path)
    options.add_argument("--one-lru", help=argparse.SUPPRESS)
    options.add_argument("--make-trace", nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one_lru:
        one_lru(given.one_lru)
        return
    if given.make_trace:
        make_trace(Path(given.make_trace[0]), int(given.make_trace[1]))
        return
    head = HEAD.format(cores=os.cpu_count(), load=os.getloadavg()[0], runs=given.runs)
    lines = [head]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), given.runs)
        for part in given.only.split(","):
            start = time.perf_counter()
            lines += ["", f"## {TITLES[part]}", ""]
            print("\n".join(lines[-3:]), flush=True)
            for text in getattr(bench, part)():
                lines.append(text)
                print(text, flush=True)
            print(f"({time.perf_counter() - start:.0f} s)", file=sys.stderr)
    if given.write:
        given.write.write_text("\n".join([*lines, "", NOTES]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
