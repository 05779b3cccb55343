"""What planning returns: the plan, how good it is proven to be, what binds, what lost and why, and the baselines
beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pddplan.pdd.money import Money
from pddplan.pdd.plan import Configuration, Decision, Evaluation, Role

Status = Literal["optimal", "feasible", "infeasible", "evaluated"]
BaselineName = Literal["aggregated", "one_room_one_chip", "one_room_mixed", "two_rooms_no_hiding"]


@dataclass(frozen=True)
class Objective:
    """What was optimised. ``value``: of the verified plan; ``bound``: no plan in the search space is better; same unit
    as ``value``.

    kind: max-bcr (requests/s per USD/h), min-cost (USD/h), max-goodput (requests/s). ratio_bound_step: the U / (least
    cost) of the
    Dinkelbach certificate, 0 where the bound came from elsewhere.
    """

    kind: str
    value: float
    bound: float
    unit: str
    ratio_bound_step: float = 0.0


@dataclass(frozen=True)
class Binding:
    """A constraint that holds the plan back.

    value against limit in ``unit``. worth: change of the objective for ``step`` more of it (found by re-solving;
    positive is better;
    None where it was not re-solved); worth_share: the same relative to the objective. role: the pool or line concerned.
    """

    constraint: str
    value: float
    limit: float
    unit: str
    step: str = ""
    worth: float | None = None
    worth_share: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Rejection:
    """An alternative that lost: ``value`` missed ``limit`` (same unit); ``note`` says it in a sentence. ``kind``:
    memory, legality, sla,
    stock, stability, objective, line, engine, policy."""

    candidate: str
    reason: str
    value: float | None
    limit: float | None
    unit: str = ""
    kind: str = ""
    note: str = ""


@dataclass(frozen=True)
class Baseline:
    """One of the four baselines, planned by the same code. ``evaluation`` is None where it has no feasible plan;
    ``reason`` then says why.
    """

    name: BaselineName
    status: Status
    evaluation: Evaluation | None
    reason: str = ""


@dataclass(frozen=True)
class RoleWork:
    """Chip time that one request costs in a role: ``chip_s_per_request`` is GPU-seconds of work (utilisation 1) of a
    mean request.
    """

    role: Role
    configuration: Configuration
    instances: int
    gpus: int
    nodes: int
    chip_s_per_request: float
    instance_s_per_request: float
    share_of_work: float
    utilisation: float


@dataclass(frozen=True)
class PdRatio:
    """The P:D section. ``balanced``: D instances per P instance at equal utilisation; ``best``: small integer ratios
    (p, d) with the share of
    throughput lost to imbalance, best first. ``advice`` is a sentence."""

    work: tuple[RoleWork, ...]
    balanced_d_per_p: float | None
    best: tuple[tuple[int, int, float], ...]
    advice: str


@dataclass(frozen=True)
class SearchLog:
    """How the search went: candidates enumerated and legal, columns before and after dominance, programs solved,
    evaluations of the whole
    model, cuts added, and whether the time limit ended it. No clock times: results are the same on each run."""

    candidates: int = 0
    legal: int = 0
    columns: int = 0
    columns_kept: int = 0
    programs: int = 0
    evaluations: int = 0
    cuts: int = 0
    settings_tried: int = 0
    settings_pruned: int = 0
    timed_out: bool = False


@dataclass(frozen=True)
class SeenPlan:
    """A plan that the search had the whole model judge on its way: what it costs and serves."""

    decision: Decision
    cost_usd_per_h: float
    goodput_rps: float
    ttft_p99_s: float
    tpot_p99_s: float
    feasible: bool

    @classmethod
    def of(cls, evaluation: Evaluation) -> SeenPlan:
        m = evaluation.metrics
        return cls(evaluation.decision, m.cost_usd_per_h, m.goodput_rps, m.ttft_p99_s, m.tpot_p99_s, evaluation.feasible)


@dataclass(frozen=True)
class PlanResult:
    """Answer of ``pddplan.pipeline.plan``.

    status: optimal (gap 0 up to tolerance), feasible (gap > 0), evaluated (a given plan, not searched). gap: relative,
    on the verified objective.
    money: bill, token costs, revenue; None where the plan serves nothing. seen: plans that the search judged at the whole demand.
    served_share: of the scenario's demand (over 1 under max-goodput). An infeasible scenario raises InfeasibleError instead of returning.
    """

    scenario_name: str
    scenario_digest: str
    status: Status
    gap: float
    objective: Objective
    evaluation: Evaluation
    baselines: tuple[Baseline, ...] = ()
    binding: tuple[Binding, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    warnings: tuple[str, ...] = ()
    pd_ratio: PdRatio | None = None
    search: SearchLog = field(default_factory=SearchLog)
    purchase: Mapping[str, float] = field(default_factory=dict)
    served_share: float = 1.0
    money: Money | None = None
    seen: tuple[SeenPlan, ...] = ()
