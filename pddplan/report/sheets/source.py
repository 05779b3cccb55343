"""What the workbook is made from, and the cells that the sheets share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pddplan.economics.bathtub import Mechanistic
from pddplan.optimize.result import PlanResult
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Evaluation, PoolResult
from pddplan.report.assumptions import Assumption
from pddplan.report.formula import Live
from pddplan.studies.response import Driver, Response


@dataclass(frozen=True)
class WorkbookSource:
    """A planned (or evaluated) scenario with the studies that its sheets need. bathtub: None where no token prices are known."""

    context: PlanContext
    result: PlanResult
    responses: Mapping[Driver, Response]
    bathtub: Mechanistic | None
    assumptions: Sequence[Assumption]
    command: str

    @property
    def evaluation(self) -> Evaluation:
        return self.result.evaluation

    @property
    def pools(self) -> tuple[PoolResult, ...]:
        return self.evaluation.pools

    @property
    def currency(self) -> str:
        return self.context.scenario.currency


@dataclass(frozen=True)
class Inputs:
    """Cells of the Inputs sheet. premium: over the stated prices in every room but the first."""

    rate: Live
    mean_rate: Live
    hit_rate: Live
    output_tokens: Live
    input_tokens: Live
    premium: Live
    prices: tuple[Live, ...]
    circuit_gbps: tuple[Live, ...]
    circuit_price: tuple[Live, ...]
    egress_price: tuple[Live, ...]
    usable: tuple[Live, ...]
    target: tuple[Live, ...]
    rtt: tuple[Live, ...]
    flow_gbps: tuple[Live, ...]


@dataclass(frozen=True)
class Counts:
    """Cells of the Plan sheet: editable counts beside the planned ones."""

    instances: tuple[Live, ...]
    planned: tuple[Live, ...]
    gpus: tuple[Live, ...]
    circuits: tuple[Live, ...]


def pool_name(result: PoolResult) -> str:
    c = result.pool.configuration
    return f"{c.role} · {c.site} · {c.chip}"


def pool_key(index: int) -> str:
    """Prefix of a pool's cell names."""
    return f"pool_{index + 1}"


def link_key(index: int) -> str:
    return f"line_{index + 1}"
