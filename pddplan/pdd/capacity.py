"""What replica counts carry, and what a routing asks of each role: the pieces from which capacity columns are made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Configuration, LinkPlan, Settings

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class StageBudget:
    """What a stage may take. ``wait_s``: queueing delay before service at ``quantile`` (inf: stability alone counts).
    ``step_tpot_s``: seconds per output token at ``quantile`` for decode roles (inf: no limit). ``utilisation_max``: cap on load."""

    quantile: float = 0.99
    wait_s: float = float("inf")
    step_tpot_s: float = float("inf")
    utilisation_max: float = 0.95


@dataclass(frozen=True)
class RoleDemand:
    """What one request of a deployment asks of each role, in the mean, under one routing (per request of the whole deployment).

    rows_*: share of each mix row that enters the role, shape (rows,). rld_tokens / md_tokens: output tokens decoded there.
    rld_hold_s: seconds of RLD residence. line_bytes: bytes that cross between the rooms; line_bytes_without_md_cache: if MD kept
    no history. extend_tokens: eager tokens handed to MD per request.
    """

    relay_threshold_s: float
    rows_remote_p: FloatArray
    rows_local_p: FloatArray
    rows_rld: FloatArray
    rows_md: FloatArray
    p_rate_remote: float
    p_rate_local: float
    rld_rate: float
    rld_tokens: float
    rld_hold_s: float
    md_rate: float
    md_tokens: float
    extend_tokens: float
    line_bytes: float
    line_bytes_without_md_cache: float


def demand_shares(
    context: PlanContext, deployment: str, settings: Settings, link: LinkPlan | None, thresholds_s: ArrayLike, rld_step_s: float
) -> tuple[RoleDemand, ...]:
    """Role demands at each relay threshold, with transfers at the line's rate at target utilisation and RLD tokens every ``rld_step_s``.

    ``link`` None: one room, nothing is relayed.
    """
    raise NotImplementedError


def pool_capacity(
    context: PlanContext,
    configuration: Configuration,
    counts: ArrayLike,
    settings: Settings,
    budget: StageBudget,
    demand: RoleDemand,
) -> FloatArray:
    """Largest rate (requests/s entering the role) that each replica count of ``counts`` carries within ``budget``, shape of counts.

    ``demand`` tells which rows enter the role and how many tokens each brings (take it from ``demand_shares``).
    """
    raise NotImplementedError


def line_capacity_bytes_per_s(context: PlanContext, link: LinkPlan) -> float:
    """Payload bytes/s that the link carries at its target utilisation, pool of connections included."""
    raise NotImplementedError
