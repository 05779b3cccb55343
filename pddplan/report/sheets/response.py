"""Full model sheet: tables of the whole model over demand, hit rate and output length, and interpolation in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xlsxwriter.utility import xl_range_abs

from pddplan.pdd.plan import Evaluation
from pddplan.report.formula import Live, interpolated
from pddplan.report.sheets.source import Inputs, WorkbookSource, pool_name
from pddplan.report.workbook import Book
from pddplan.studies.response import DRIVERS, Driver

Measure = Callable[[Evaluation], float]
UNSTABLE = 1e6  # a latency that never ends, in seconds, so that formulas can interpolate
HELD = f'[>={UNSTABLE / 10:.0f}]"overload";0.0#####'
"""Number format of what is held at UNSTABLE, or interpolated towards it."""
LABELS = {"rate": "demand, requests/s", "hit_rate": "hit rate, fraction", "output_tokens": "output, tokens"}


@dataclass(frozen=True)
class Table:
    grid: tuple[Live, ...]
    grid_range: str
    columns: tuple[tuple[Live, ...], ...]
    ranges: tuple[str, ...]
    base: tuple[float, ...]

    def at(self, x: Live, measure: int) -> Live:
        return interpolated(x, self.grid, self.columns[measure], self.grid_range, self.ranges[measure])


@dataclass(frozen=True)
class FullModel:
    """Interpolated answers of the whole model. With one input changed they are the model's up to interpolation; with several, the factors
    of each driver are multiplied (an approximation, whose error at a corner is stated on the sheet)."""

    tables: dict[Driver, Table]
    names: tuple[str, ...]
    inputs: Inputs

    def value(self, name: str, rate: Live | None = None) -> Live:
        """The measure ``name`` at the inputs; ``rate`` replaces the demand (to account for other counts)."""
        index = self.names.index(name)
        drivers = {"rate": rate or self.inputs.rate, "hit_rate": self.inputs.hit_rate, "output_tokens": self.inputs.output_tokens}
        product = self.tables["rate"].at(drivers["rate"], index)
        for driver in ("hit_rate", "output_tokens"):
            base = self.tables[driver].base[index]
            if base:
                product = product * (self.tables[driver].at(drivers[driver], index) / base)
        return product


def measures(source: WorkbookSource) -> dict[str, Measure]:
    found: dict[str, Measure] = {
        "p_good": lambda e: e.metrics.p_good,
        "ttft_p50_s": lambda e: _held(e.metrics.ttft_p50_s),
        "ttft_p90_s": lambda e: _held(e.metrics.ttft_p90_s),
        "ttft_p99_s": lambda e: _held(e.metrics.ttft_p99_s),
        "tpot_mean_s": lambda e: _held(e.metrics.tpot_mean_s),
        "tpot_p99_s": lambda e: _held(e.metrics.tpot_p99_s),
        "rld_token_share": lambda e: e.metrics.rld_token_share,
    }
    for i in range(len(source.pools)):
        found[f"load_{i}"] = lambda e, i=i: _held(e.pools[i].utilisation)  # type: ignore[misc]
    for i in range(len(source.evaluation.links)):
        found[f"bytes_{i}"] = lambda e, i=i: e.links[i].bytes_per_s_mean  # type: ignore[misc]
    return found


def response_sheet(book: Book, source: WorkbookSource, inputs: Inputs) -> FullModel:
    chosen = measures(source)
    formats = ["#,##0" if name.startswith("bytes_") else HELD for name in chosen]
    sheet = book.sheet("Full model", (26, *(16 for _ in chosen)))
    sheet.title(
        "Full model", f"Values of the whole model for the planned counts, one input changed at a time. Recompute with: {source.command}"
    )
    tables: dict[Driver, Table] = {}
    for driver in DRIVERS:
        response = source.responses[driver]
        sheet.heading(LABELS[driver], *(_label(name, source) for name in chosen))
        first = sheet.row
        grid: list[Live] = []
        columns: list[list[Live]] = [[] for _ in chosen]
        for point, evaluation in zip(response.points, response.evaluations, strict=True):
            grid.append(sheet.cell(0, point, "model", "0.####"))
            for column, measure in enumerate(chosen.values()):
                columns[column].append(sheet.cell(column + 1, measure(evaluation), "model", formats[column]))
            sheet.row += 1
        ranges = [f"'Full model'!{xl_range_abs(first, c, sheet.row - 1, c)}" for c in range(len(chosen) + 1)]
        base = response.evaluations[response.points.index(response.base)]
        tables[driver] = Table(
            tuple(grid), ranges[0], tuple(map(tuple, columns)), tuple(ranges[1:]), tuple(m(base) for m in chosen.values())
        )
        sheet.row += 1
    return FullModel(tables, tuple(chosen), inputs)


def _held(value: float) -> float:
    return min(value, UNSTABLE) if value == value else UNSTABLE


def _label(name: str, source: WorkbookSource) -> str:
    if name.startswith("load_"):
        return f"load of {pool_name(source.pools[int(name[5:])])}"
    if name.startswith("bytes_"):
        link = source.evaluation.links[int(name[6:])].link
        return f"bytes/s {link.from_site} - {link.to_site}"
    return name


def pool_loads(model: FullModel, counts: Sequence[tuple[Live, Live]]) -> list[Live]:
    """Load of every pool at the inputs and at (your, planned) instances: the demand per instance decides."""
    return [model.value(f"load_{i}", model.inputs.rate * (planned / mine)) for i, (mine, planned) in enumerate(counts)]
