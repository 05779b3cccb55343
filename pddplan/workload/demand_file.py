"""Reading of a measured demand: ServeGen windows, alone or many clients in a tar archive."""

from __future__ import annotations

import gzip
import io
import lzma
import math
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from pddplan.errors import InputError, Problem
from pddplan.workload.demand import DemandProfile


def read_windows(path: Path, sizing_quantile: float = 1.0) -> DemandProfile:
    """Summed rate of all clients in ``path`` over its mean.

    Each line is ``start s, rate req/s, ...`` without header, at equal steps of time, one file per client: a CSV, or a tar
    archive of them (.gz and .xz are unpacked). Raises InputError naming the line at fault.
    """
    rates: dict[float, float] = {}
    try:
        for name, text in _members(path):
            _add_client(f"{path}({name})" if name else str(path), text, rates)
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        found = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InputError(Problem(str(path), f"cannot be read: {found}", "a demand file is CSV windows or a tar of them")) from None
    starts = np.array(sorted(rates))
    steps = np.diff(starts)
    if steps.size == 0 or not np.allclose(steps, steps[0]):
        found = "has under two windows" if steps.size == 0 else f"has windows of {steps.min():g} to {steps.max():g} s"
        raise InputError(Problem(str(path), found, "windows follow at equal steps of time, such as 600 s"))
    total = np.array([rates[start] for start in starts])
    if total.sum() <= 0:
        raise InputError(Problem(str(path), "every rate is 0", "at least one window has a rate over 0"))
    return DemandProfile(total / total.mean(), float(steps[0]), sizing_quantile)


def _members(path: Path) -> Iterator[tuple[str, Iterable[str]]]:
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() and "trace" in Path(member.name).name else None
                if file is not None:
                    yield member.name, io.TextIOWrapper(file, "utf-8-sig", "replace")
        return
    with path.open("rb") as plain:
        zipped = plain.peek(2)[:2] == b"\x1f\x8b"
        yield "", io.TextIOWrapper(gzip.GzipFile(fileobj=plain) if zipped else plain, "utf-8-sig", "replace")


def _add_client(place: str, lines: Iterable[str], rates: dict[float, float]) -> None:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            start, rate = (float(value) for value in line.split(",", 2)[:2])
            if not (math.isfinite(start) and math.isfinite(rate) and rate >= 0):
                raise ValueError
        except ValueError:
            found = f"is {line.strip()[:60]!r}"
            raise InputError(Problem(f"{place}:{number}", found, "a line is start in s, rate in req/s", "600,2.5")) from None
        rates[start] = rates.get(start, 0.0) + rate
