"""Plans of one or two rooms with stages so simple that what they should give can be worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pddplan.api import load_scenario
from pddplan.model.spec import Parallel
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.plan import Configuration, Decision, LinkPlan, Pool, Role, Settings
from pddplan.workload.mix import RequestMix

FloatArray = NDArray[np.float64]

SCENARIO = Path(__file__).with_name("by-hand.yaml")


@dataclass(frozen=True)
class LineStage:
    """prefill = a u, step = alpha + beta batch, extend = e0 + e1 n; every request takes one unit of KV memory."""

    gpus: int = 8
    prefill_s_per_token: float = 1e-4
    alpha_s: float = 0.02
    beta_s: float = 1e-4
    extend_base_s: float = 0.2
    extend_s_per_token: float = 1e-4
    batch_max: float = 256.0
    tokens_per_step: float = 1.0

    def prefill_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
        return self.prefill_s_per_token * np.asarray(uncached_tokens, dtype=float)

    def prefill_occupancy_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
        return self.prefill_s(uncached_tokens, cached_tokens)

    def step_s(self, batch: ArrayLike, context_tokens: ArrayLike) -> FloatArray:
        return self.alpha_s + self.beta_s * np.asarray(batch, dtype=float)

    def extend_s(self, new_tokens: ArrayLike, context_tokens: ArrayLike) -> FloatArray:
        return self.extend_base_s + self.extend_s_per_token * np.asarray(new_tokens, dtype=float)

    def kv_capacity_bytes(self) -> float:
        return float("inf")

    def kv_resident_bytes(self, tokens: ArrayLike) -> FloatArray:
        return np.zeros(np.shape(tokens))


@dataclass(frozen=True)
class PlainKv:
    """``per_token`` bytes for every token that moves."""

    per_token: float = 70e3

    def transfer_bytes(self, new_tokens: ArrayLike, total_tokens: ArrayLike) -> FloatArray:
        return self.per_token * np.asarray(new_tokens, dtype=float)


def mix(
    uncached: ArrayLike,
    output: ArrayLike = 200.0,
    rate: float = 1.0,
    weight: ArrayLike | None = None,
    scv: float = 1.0,
    total: ArrayLike = 10000.0,
) -> RequestMix:
    u = np.atleast_1d(np.asarray(uncached, dtype=float))
    shares = np.full(u.size, 1.0 / u.size) if weight is None else np.asarray(weight, dtype=float)
    full = np.broadcast_to(np.asarray(total, dtype=float), u.shape).copy()
    answers = np.broadcast_to(np.asarray(output, dtype=float), u.shape).copy()
    return RequestMix(
        input_tokens=full,
        uncached_tokens=u,
        md_missing_tokens=u.copy(),
        output_tokens=answers,
        weight=shares,
        class_index=np.zeros(u.size, dtype=np.int64),
        class_names=("agent",),
        rate_per_s=rate,
        arrival_scv=scv,
    )


def context(
    requests: RequestMix,
    stages: dict[Role, LineStage] | None = None,
    kv: PlainKv | None = None,
    changes: dict[str, str] | None = None,
) -> PlanContext:
    """Context of SCENARIO (``changes``: values by path, as with --set) with hand-made traffic, KV and stages."""
    scenario = load_scenario(SCENARIO, [f"{path}={value}" for path, value in (changes or {}).items()])
    base = PlanContext.from_scenario(scenario)
    deployment: Deployment = replace(base.deployments["main"], mix=requests, kv=kv or PlainKv())
    made = replace(base, deployments={"main": deployment})
    chosen = {role: LineStage() for role in ("P", "RLD", "MD", "AGG")} | (stages or {})
    for role, stage in chosen.items():
        for site in ("A", "B"):
            for chunk in (2048, 8192):
                made._stages[configuration(role, site), chunk, True] = stage  # type: ignore[index]
    return made


def configuration(role: str, site: str) -> Configuration:
    chip = "h100-sxm" if site == "A" else "h200-sxm"
    return Configuration("main", "Qwen/Qwen3-32B", site, role, chip, "vllm", Parallel(tp=8), 8)  # type: ignore[arg-type]


def two_rooms(
    p: int = 2, rld: int = 1, md: int = 2, circuits: int = 1, threshold_s: float | None = 1.0, **settings: Any
) -> Decision:
    """P and RLD in room A, MD in room B."""
    pools = [Pool(configuration("P", "A"), p), Pool(configuration("RLD", "A"), rld), Pool(configuration("MD", "B"), md)]
    return Decision(
        tuple(pool for pool in pools if pool.instances),
        (LinkPlan("A-B", "A", "B", circuits, 1.25e9),),
        Settings(
            relay_threshold_s=threshold_s,
            handoff=settings.pop("handoff", "one-shot"),
            prefill_chunk_tokens=8192,
            tail_packing=True,
            **settings,
        ),
    )


def one_room(p: int = 2, md: int = 2) -> Decision:
    """P and MD in room A."""
    pools = (Pool(configuration("P", "A"), p), Pool(configuration("MD", "A"), md))
    return Decision(pools, (), Settings(relay_threshold_s=None, handoff="one-shot", prefill_chunk_tokens=8192, tail_packing=True))


def aggregated(instances: int = 2) -> Decision:
    pools = (Pool(configuration("AGG", "A"), instances),)
    return Decision(pools, (), Settings(relay_threshold_s=None, handoff="one-shot", prefill_chunk_tokens=8192, tail_packing=True))
