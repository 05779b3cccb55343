"""RequestMix: the one table that everything downstream works on.

Weighted request atoms, never a mean in place of a distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pddplan.workload.demand import DemandProfile
from pddplan.workload.hit_curve import HitCurve

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True)
class RequestMix:
    """Weighted request atoms with their arrival process.

    input_tokens L, uncached_tokens u = L - cached at P, md_missing_tokens v = L - cached at MD, output_tokens O:
    shape (rows,), tokens. weight: shape (rows,), sums to 1. class_index: shape (rows,), into class_names.
    rate_per_s: requests/s (peak, which sizes the plan). arrival_scv: squared coefficient of variation of gaps.
    mean_rate_per_s: requests/s over the day (money is counted over it). turns_per_task: mean model calls per agent
    task of each class (1 for plain requests), shape (classes,). demand: the profile of the day, when one is given.
    task_turns: turns of a task as equally likely quantiles, one array per class (empty: all tasks are turns_per_task
    long). pause_s_per_turn: mean time per turn spent outside the servers (tools), shape (classes,). md_curves: hit rate
    over the capacity of MD's cache, for the classes whose source tells it.
    """

    input_tokens: FloatArray
    uncached_tokens: FloatArray
    md_missing_tokens: FloatArray
    output_tokens: FloatArray
    weight: FloatArray
    class_index: IntArray
    class_names: tuple[str, ...]
    rate_per_s: float
    arrival_scv: float = 1.0
    mean_rate_per_s: float | None = None
    turns_per_task: tuple[float, ...] = (1.0,)
    notes: tuple[str, ...] = ()
    demand: DemandProfile | None = None
    task_turns: tuple[FloatArray, ...] = ()
    pause_s_per_turn: tuple[float, ...] = ()
    md_curves: tuple[HitCurve | None, ...] = ()

    @property
    def rows(self) -> int:
        return int(self.weight.size)

    def mean(self, values: FloatArray) -> float:
        """Weighted mean of ``values``, shape (rows,)."""
        return float(np.dot(self.weight, values))

    def of_classes(self, chosen: Sequence[int]) -> RequestMix:
        """The traffic of some classes alone, ``chosen`` in rising order; arrivals thinned at random: a share p has scv 1 + p (scv - 1)."""
        rows = np.nonzero(np.isin(self.class_index, chosen))[0]
        part = float(self.weight[rows].sum())

        def picked(values: tuple[T, ...]) -> tuple[T, ...]:
            return tuple(values[c] for c in chosen if c < len(values))

        return replace(
            self,
            input_tokens=self.input_tokens[rows],
            uncached_tokens=self.uncached_tokens[rows],
            md_missing_tokens=self.md_missing_tokens[rows],
            output_tokens=self.output_tokens[rows],
            weight=self.weight[rows] / part,
            class_index=np.searchsorted(chosen, self.class_index[rows]),
            class_names=picked(self.class_names),
            rate_per_s=self.rate_per_s * part,
            arrival_scv=1.0 + part * (self.arrival_scv - 1.0),
            mean_rate_per_s=None if self.mean_rate_per_s is None else self.mean_rate_per_s * part,
            turns_per_task=picked(self.turns_per_task),
            task_turns=picked(self.task_turns),
            pause_s_per_turn=picked(self.pause_s_per_turn),
            md_curves=picked(self.md_curves),
        )


@dataclass(frozen=True)
class ClassRows:
    """Atoms of one class: shape (rows,), tokens; weight sums to 1. The rest as in RequestMix, for this class alone."""

    input_tokens: FloatArray
    uncached_tokens: FloatArray
    md_missing_tokens: FloatArray
    output_tokens: FloatArray
    weight: FloatArray
    turns_per_task: float = 1.0
    task_turns: FloatArray | None = None
    pause_s_per_turn: float = 0.0
    md_curve: HitCurve | None = None
    notes: tuple[str, ...] = ()

    def merged(self) -> ClassRows:
        """The same law with equal atoms merged, in rising order of (input, uncached, md missing, output)."""
        table = np.stack([self.input_tokens, self.uncached_tokens, self.md_missing_tokens, self.output_tokens])
        atoms, inverse = np.unique(table, axis=1, return_inverse=True)
        weight = np.bincount(inverse.ravel(), weights=self.weight, minlength=atoms.shape[1])
        length, uncached, missing, output = atoms
        return replace(
            self,
            input_tokens=length,
            uncached_tokens=uncached,
            md_missing_tokens=missing,
            output_tokens=output,
            weight=weight / weight.sum(),
        )


def assemble(
    classes: Sequence[tuple[str, float, ClassRows]],
    *,
    rate_per_s: float,
    arrival_scv: float,
    demand: DemandProfile | None = None,
    notes: tuple[str, ...] = (),
) -> RequestMix:
    """The mix of classes given as (name, share of the requests, rows); shares are normalised to sum 1.

    ``rate_per_s`` is what a factor of 1 in ``demand`` means; without a profile it is both peak and mean.
    """
    total = sum(share for _, share, _ in classes)
    rows = [part for _, _, part in classes]
    size_rate = rate_per_s * (demand.sizing_factor if demand else 1.0)
    mean_rate = rate_per_s * (demand.mean_factor if demand else 1.0)
    return RequestMix(
        input_tokens=np.concatenate([part.input_tokens for part in rows]),
        uncached_tokens=np.concatenate([part.uncached_tokens for part in rows]),
        md_missing_tokens=np.concatenate([part.md_missing_tokens for part in rows]),
        output_tokens=np.concatenate([part.output_tokens for part in rows]),
        weight=np.concatenate([part.weight * (share / total) for _, share, part in classes]),
        class_index=np.repeat(np.arange(len(rows)), [part.weight.size for part in rows]),
        class_names=tuple(name for name, _, _ in classes),
        rate_per_s=size_rate,
        arrival_scv=arrival_scv,
        mean_rate_per_s=mean_rate,
        turns_per_task=tuple(part.turns_per_task for part in rows),
        notes=notes + tuple(f"{name}: {note}" for name, _, part in classes for note in part.notes),
        demand=demand,
        task_turns=tuple(np.empty(0) if part.task_turns is None else part.task_turns for part in rows),
        pause_s_per_turn=tuple(part.pause_s_per_turn for part in rows),
        md_curves=tuple(part.md_curve for part in rows),
    )
