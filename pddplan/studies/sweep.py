"""Plans over a grid or a sample of scenario values: every point planned (or a fixed plan evaluated), failures kept as rows.

Points already finished are read from a journal beside the output, so a killed run goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm, qmc

from pddplan import pipeline
from pddplan.errors import InfeasibleError, InputError, Problem
from pddplan.optimize.result import PlanResult
from pddplan.scenario.load import override
from pddplan.scenario.schema import Scenario

Point = Mapping[str, str]
_NUMBER = re.compile(r"^\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*$")
_LAW = re.compile(r"^\s*(normal|lognormal|uniform|triangular)\((.*)\)\s*$")
POINTS_MAX = 1_000_000


@dataclass(frozen=True)
class Varied:
    """One varied value. choices: a grid; law: (name, parameters, unit) to sample from (a range is uniform)."""

    path: str
    choices: tuple[str, ...] = ()
    law: tuple[str, tuple[float, ...], str] | None = None


def parse_vary(text: str) -> Varied:
    """``path=a,b,c`` (a list), ``path=low:high:count`` (a grid), ``path=low:high`` (a range to sample), ``path=normal(mean, sd)``,
    ``lognormal(median, sigma)``, ``triangular(low, mode, high)``; units follow each number. Raises InputError."""
    path, _, spec = text.partition("=")
    path, spec = path.strip(), spec.strip()
    if not path or not spec:
        raise _bad(text, "has no path or no values")
    law = _LAW.match(spec)
    if law:
        return Varied(path, law=_law(text, law[1], [part.strip() for part in law[2].split(",")]))
    parts = spec.split(":")
    if len(parts) == 2:
        return Varied(path, law=_law(text, "uniform", parts))
    if len(parts) == 3:
        low, high, unit = _bounds(text, parts[0], parts[1])
        if not parts[2].strip().isdigit() or int(parts[2]) < 1:
            raise _bad(text, f"the count {parts[2]!r} is not a whole number of at least 1")
        return Varied(path, choices=tuple(f"{value:.12g}{unit}" for value in np.linspace(low, high, int(parts[2]))))
    if len(parts) > 3:
        raise _bad(text, "has more than two colons")
    return Varied(path, choices=tuple(choice.strip() for choice in _split(spec)))


def _split(spec: str) -> list[str]:
    """Commas outside brackets and braces separate choices."""
    parts, depth, current = [], 0, ""
    for character in spec:
        depth += (character in "[{(") - (character in "]})")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current]


def _bad(text: str, found: str) -> InputError:
    accepted = "path=a,b,c; path=low:high:count; path=low:high with --sample; path=normal(mean, sd)"
    return InputError(Problem(f"--vary {text}", found, accepted, "--vary links.A-B.circuit=10Gbps,25Gbps"))


def _number(text: str, part: str) -> tuple[float, str]:
    match = _NUMBER.match(part)
    if not match or not math.isfinite(float(match[1])):
        raise _bad(text, f"{part!r} does not begin with a number")
    return float(match[1]), match[2]


def _bounds(text: str, low: str, high: str) -> tuple[float, float, str]:
    (a, unit_a), (b, unit_b) = _number(text, low), _number(text, high)
    if unit_a and unit_b and unit_a != unit_b:
        raise _bad(text, f"the units {unit_a!r} and {unit_b!r} differ")
    return a, b, unit_b or unit_a


def _law(text: str, name: str, parts: Sequence[str]) -> tuple[str, tuple[float, ...], str]:
    wanted = {"uniform": 2, "normal": 2, "lognormal": 2, "triangular": 3}[name]
    if len(parts) != wanted:
        raise _bad(text, f"{name} takes {wanted} numbers")
    numbers = [_number(text, part) for part in parts]
    units = {unit for _, unit in numbers if unit}
    if len(units) > 1:
        raise _bad(text, f"the units {sorted(units)} differ")
    values = tuple(value for value, _ in numbers)
    if name in ("uniform", "triangular") and list(values) != sorted(values):
        raise _bad(text, "the numbers do not rise")
    if (name in ("normal", "lognormal") and values[1] <= 0) or (name == "lognormal" and values[0] <= 0):
        raise _bad(text, f"{name} needs a positive spread (and median)")
    return name, values, next(iter(units), "")


def grid(varied: Sequence[Varied]) -> Iterator[Point]:
    """All combinations, last one fastest. Raises InputError where a value is a range (it needs a sample) or the grid is too large."""
    _distinct(varied)
    ranges = [entry.path for entry in varied if entry.law]
    if ranges:
        raise InputError(
            Problem("--vary " + ", ".join(ranges), "is a range", "a count (low:high:count), or --sample", "--sample sobol:200")
        )
    size = math.prod(len(entry.choices) for entry in varied)
    if size > POINTS_MAX:
        raise InputError(Problem("--vary", f"{size} points", f"at most {POINTS_MAX}", "--sample sobol:2000"))
    for values in itertools.product(*(entry.choices for entry in varied)):
        yield dict(zip((entry.path for entry in varied), values, strict=True))


def _distinct(varied: Sequence[Varied]) -> None:
    paths = [entry.path for entry in varied]
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if twice:
        raise InputError(Problem(f"--vary {twice[0]}", "is given twice", "each path once, with all its values", f"{twice[0]}=1,2,3"))


def sample(varied: Sequence[Varied], method: str, seed: int = 0) -> Iterator[Point]:
    """``sobol:N``, ``random:N`` or ``latin:N`` points; lists are chosen from evenly. Deterministic for a seed. Raises InputError."""
    name, _, count = method.partition(":")
    if name not in ("sobol", "random", "latin") or not count.isdigit() or not 1 <= int(count) <= POINTS_MAX:
        raise InputError(
            Problem(f"--sample {method}", "is no sampling", f"sobol:N, latin:N or random:N with N from 1 to {POINTS_MAX}", "sobol:200")
        )
    _distinct(varied)
    number, dimensions = int(count), len(varied)
    if name == "sobol":
        power = math.ceil(math.log2(number)) if number > 1 else 0
        unit = qmc.Sobol(dimensions, seed=seed).random_base2(power)[:number]
    elif name == "latin":
        unit = qmc.LatinHypercube(dimensions, seed=seed).random(number)
    else:
        unit = np.random.default_rng(seed).random((number, dimensions))
    for row in np.clip(unit, 1e-9, 1 - 1e-9):
        yield {entry.path: _drawn(entry, float(u)) for entry, u in zip(varied, row, strict=True)}


def _drawn(entry: Varied, u: float) -> str:
    if entry.law is None:
        return entry.choices[min(int(u * len(entry.choices)), len(entry.choices) - 1)]
    name, values, unit = entry.law
    if name == "uniform":
        drawn = values[0] + u * (values[1] - values[0])
    elif name == "normal":
        drawn = values[0] + values[1] * float(norm.ppf(u))
    elif name == "lognormal":
        drawn = values[0] * math.exp(values[1] * float(norm.ppf(u)))
    else:
        low, mode, high = values
        cut = (mode - low) / (high - low) if high > low else 0.0
        drawn = low + math.sqrt(u * (high - low) * (mode - low)) if u < cut else high - math.sqrt((1 - u) * (high - low) * (high - mode))
    return f"{drawn:.12g}{unit}"


def check_points(scenario: Scenario, points: Sequence[Point]) -> None:
    """Raises the InputError of the first point when no point can be read at all: a misspelt path, a missing unit."""
    first: InputError | None = None
    for point in points:
        try:
            override(scenario, dict(point))
            return
        except InputError as error:
            first = first or error
    if first is not None:
        raise first


def run_point(scenario: Scenario, point: Point) -> dict[str, Any]:
    """One row: the varied values, status (optimal, feasible, evaluated, infeasible, input, error), metrics, GPUs per role, or the reason.

    A scenario with a fixed ``plan`` is evaluated, any other planned. Never raises for a point that fails.
    """
    row: dict[str, Any] = {**point}
    try:
        changed = override(scenario, dict(point))
        result = pipeline.evaluate(changed) if changed.plan is not None else pipeline.plan(changed, explain=False)
    except InfeasibleError as error:
        return row | {"status": "infeasible", "reason": f"{error.constraint}: {error.detail}"}
    except InputError as error:
        return row | {"status": "input", "reason": "; ".join(map(str, error.problems))}
    except Exception as error:
        return row | _failed(error)
    return row | _columns(result)


def _failed(error: Exception) -> dict[str, Any]:
    """A point that a fault ended, ours or its machine's: the others go on."""
    return {"status": "error", "reason": f"{type(error).__name__}: {error}"}


def _columns(result: PlanResult) -> dict[str, Any]:
    evaluation = result.evaluation
    gpus: dict[str, int] = {}
    for pool in evaluation.pools:
        key = f"gpus_{pool.pool.configuration.role.lower()}"
        gpus[key] = gpus.get(key, 0) + pool.pool.gpus
    columns = {
        "status": result.status,
        "reason": "; ".join(v.constraint for v in evaluation.violations),
        "meets_sla": evaluation.feasible,
        "gap": result.gap,
        **asdict(evaluation.metrics),
        **gpus,
        "circuits": sum(link.link.circuits for link in evaluation.links),
    }
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in columns.items()}


class Journal:
    """Finished points of a sweep, one JSON line each, beside the output. A journal of another scenario is refused."""

    def __init__(self, path: Path, digest: str) -> None:
        self.path, self.digest = path, digest
        self.rows: dict[str, dict[str, Any]] = {}
        if not path.exists():
            return
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entry = json.loads(text)
            except ValueError:
                continue  # the line that was being written when the run was killed; its point is planned again
            if not isinstance(entry, dict) or entry.keys() != {"digest", "key", "row"}:
                found = f"line {number} is no finished point"
                raise InputError(Problem(str(path), found, "the journal of a sweep; delete it to start over"))
            if entry["digest"] != digest:
                found = f"line {number} belongs to another scenario"
                raise InputError(Problem(str(path), found, "the journal of this scenario and these changes; delete it to start over"))
            self.rows[entry["key"]] = entry["row"]

    @staticmethod
    def key(point: Point) -> str:
        return json.dumps(dict(point), sort_keys=True, ensure_ascii=False)

    def add(self, point: Point, row: Mapping[str, Any]) -> None:
        self.rows[self.key(point)] = dict(row)
        line = json.dumps({"digest": self.digest, "key": self.key(point), "row": row}, ensure_ascii=False) + "\n"
        with self.path.open("ab") as file:
            file.write(b"\n" * self._broken_end() + line.encode())

    def _broken_end(self) -> bool:
        """Whether the last line lacks its end: the run before was killed while it wrote."""
        with self.path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"


def sweep(
    scenario: Scenario,
    points: Sequence[Point],
    journal: Journal,
    *,
    jobs: int = 1,
    dask: str | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[dict[str, Any]]:
    """Rows of ``points`` in their order. ``jobs``: local processes; ``dask``: address of a running scheduler instead.

    ``progress`` is told (done, of) as points finish. Finished points are in ``journal`` at once.
    """
    waiting = [point for point in points if Journal.key(point) not in journal.rows]
    done = len(points) - len(waiting)
    progress(done, len(points))
    for point, row in _finished(scenario, waiting, jobs, dask):
        journal.add(point, row)
        done += 1
        progress(done, len(points))
    return [journal.rows[Journal.key(point)] for point in points]


def _finished(scenario: Scenario, points: Sequence[Point], jobs: int, dask: str | None) -> Iterator[tuple[Point, dict[str, Any]]]:
    if dask is not None:
        yield from _on_dask(scenario, points, dask)
    elif jobs == 1:
        for point in points:
            yield point, run_point(scenario, point)
    else:
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        run = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        try:
            with _deaf_to_interrupts():
                rows = run(delayed(_with_point)(scenario, point) for point in points)
            yield from rows
        except TerminatedWorkerError:
            found = "a worker process was killed, perhaps for want of memory; finished points are kept"
            raise InputError(Problem("--jobs", found, "the same command with fewer jobs", "--jobs 1")) from None


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started here never see Ctrl-C, which a terminal sends to all of them: only their parent answers it, and ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _with_point(scenario: Scenario, point: Point) -> tuple[Point, dict[str, Any]]:
    return point, run_point(scenario, point)


def _on_dask(scenario: Scenario, points: Sequence[Point], address: str) -> Iterator[tuple[Point, dict[str, Any]]]:
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise InputError(Problem("--dask", "the dask extra is not installed", "pip install 'pddplan[dask]'")) from None
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError(
            Problem("--dask", f"no scheduler answers at {address} ({error})", "address of a running scheduler", "tcp://127.0.0.1:8786")
        ) from None
    with client:
        shared = client.scatter(scenario, broadcast=True)
        asked = {client.submit(run_point, shared, point, pure=False): point for point in points}
        for future in as_completed(asked):
            try:
                row = future.result()
            except Exception as error:
                row = {**asked[future], **_failed(error)}
            yield asked[future], row


def attainment(rows: Sequence[Mapping[str, Any]]) -> float:
    """Share of points whose plan meets every service level: the probability of it, where the points sample the uncertainty."""
    return sum(bool(row.get("meets_sla")) for row in rows) / len(rows) if rows else math.nan
