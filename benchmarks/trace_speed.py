"""Speed and memory of `pddplan trace stats` on made traces: time and memory per request must not grow with their number.

    python benchmarks/trace_speed.py [--requests 1000000] [--folder /tmp]

Two kinds of traces of about 10 blocks a request: conversations that grow turn by turn, and ids drawn by Zipf's law, where
hardly any two neighbours were last touched together (the worst case for stack distances).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def conversations(path: Path, requests: int, rng: np.random.Generator) -> int:
    """Write turns of 10 blocks on average; returns the blocks written."""
    recent: list[list[int]] = []
    total = new_id = now = 0
    with path.open("w") as out:
        for _ in range(requests):
            now += int(rng.exponential(10))
            known = recent[int(rng.integers(max(0, len(recent) - 20_000), len(recent)))] if recent and rng.random() < 0.6 else []
            grow = int(rng.integers(1, 8))
            ids = known[:12] + list(range(new_id, new_id + grow))
            new_id += grow
            total += len(ids)
            recent.append(ids)
            row = {"timestamp": now, "input_length": 512 * len(ids) - 100, "output_length": 100, "hash_ids": ids}
            out.write(json.dumps(row) + "\n")
    return total


def zipf(path: Path, requests: int, rng: np.random.Generator) -> int:
    """Write prompts of 10 ids each by Zipf's law of exponent 1.1."""
    ids = np.minimum(rng.zipf(1.1, (requests, 10)), 2**40)
    with path.open("w") as out:
        for i, row in enumerate(ids.tolist()):
            out.write(json.dumps({"timestamp": 10 * i, "input_length": 5000, "output_length": 100, "hash_ids": row}) + "\n")
    return 10 * requests


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--requests", type=int, default=1_000_000)
    options.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    given = options.parse_args()
    print(f"{'trace':<15}{'requests':>10}{'blocks':>12}{'wall s':>9}{'CPU s':>9}{'CPU us/request':>16}{'peak GB':>9}")
    for make in (conversations, zipf):
        for requests in (given.requests // 10, given.requests):
            path = given.folder / f"trace-speed-{make.__name__}.jsonl"
            blocks = make(path, requests, np.random.default_rng(1))
            start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "pddplan", "trace", "stats", str(path), "--json", "-"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds = time.perf_counter() - start
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            path.unlink()
            counts = f"{make.__name__:<15}{requests:>10,}{blocks:>12,}"
            print(f"{counts}{seconds:>9.1f}{cpu:>9.1f}{1e6 * cpu / requests:>16.1f}{after.ru_maxrss / 1e6:>9.2f}")


if __name__ == "__main__":
    main()
