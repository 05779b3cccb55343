"""Where the stages of a plan stand under the roofline: for every pool, what its arithmetic and its memory traffic alone would take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pddplan.pdd.binding import typical_context, typical_prefill
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Evaluation, PoolResult
from pddplan.stages.breakdown import Component, decode_components, prefill_components
from pddplan.stages.roofline import RooflineInstance

Phase = Literal["prefill", "decode"]


@dataclass(frozen=True)
class StagePosition:
    """One phase of one pool: a typical prefill (``tokens`` uncached), or a decode step (``tokens`` requests in it), by component."""

    pool: PoolResult
    phase: Phase
    tokens: float
    components: tuple[Component, ...]

    @property
    def seconds(self) -> float:
        return sum(c.seconds for c in self.components)

    @property
    def compute_s(self) -> float:
        return sum(c.compute_s or 0.0 for c in self.components)

    @property
    def memory_s(self) -> float:
        return sum(c.memory_s or 0.0 for c in self.components)


def roofline_positions(context: PlanContext, evaluation: Evaluation) -> tuple[StagePosition, ...]:
    """Positions of every pool that serves and whose times come from the roofline (measured profiles only know their times)."""
    return tuple(position for pool in evaluation.pools for position in _positions(context, evaluation, pool))


def _positions(context: PlanContext, evaluation: Evaluation, pool: PoolResult) -> Iterator[StagePosition]:
    configuration = pool.pool.configuration
    stage = context.instance(configuration, evaluation.decision.settings)
    if not isinstance(stage, RooflineInstance) or pool.utilisation <= 0.0:
        return
    mix = context.deployments[configuration.deployment].mix
    if configuration.role in ("P", "AGG"):
        uncached, cached = typical_prefill(mix)
        yield StagePosition(pool, "prefill", uncached, tuple(prefill_components(stage, uncached, cached)))
    if pool.batch_mean > 0.0:
        batch = max(pool.batch_mean, 1.0)
        yield StagePosition(pool, "decode", batch, tuple(decode_components(stage, batch, typical_context(mix))))
