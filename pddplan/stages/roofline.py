"""Instances whose stage times come from the roofline: one configuration, or many at once.

``RooflineInstance`` implements AggregatedStage and KvTransfer (stages/protocol.py) for one configuration;
``RooflineTable`` evaluates many configurations in one array expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from pddplan.errors import InputError, Problem
from pddplan.hardware.types import Chip, Kind
from pddplan.model.kv_cache import KvCache, kv_cache
from pddplan.model.memory import Reserves, Waterfall, waterfall
from pddplan.model.parallel import check
from pddplan.model.spec import ModelSpec, Parallel
from pddplan.roofline.configuration import configuration_terms, configuration_warnings
from pddplan.roofline.kernels import kernel_set
from pddplan.roofline.overlay import Overlay
from pddplan.roofline.overlay_file import base_engine, load_overlay
from pddplan.roofline.speculation import Speculation, draft_terms, speculative_step
from pddplan.roofline.step import PrefillTime, StepTime, decode_step, prefill_latency, prefill_occupancy, prefill_passes
from pddplan.roofline.terms import FloatArray, StepTerms, stack

DEFAULT_MAX_RUNNING = 1024.0  # requests per attention-DP rank that an engine batches


@dataclass(frozen=True)
class RooflineInstance:
    """One model replica in one configuration. Build with ``roofline_instance``, which checks it.

    basis: measured where the chip's kernels were measured, else assumed. warnings: dtype fallbacks and the like.
    """

    model: ModelSpec
    chip: Chip
    engine: str
    parallel: Parallel
    kv_format: str
    role: str
    prefill_chunk_tokens: float
    tail_packing: bool
    terms: StepTerms
    overlay: Overlay
    memory: Waterfall
    cache: KvCache
    speculation: Speculation | None = None
    draft: StepTerms | None = None
    basis: Kind = "measured"
    warnings: tuple[str, ...] = ()
    batch_max: float = DEFAULT_MAX_RUNNING
    _per_gpu_cache: KvCache = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_per_gpu_cache", self.cache.per_gpu(self.parallel))

    @property
    def gpus(self) -> int:
        return self.parallel.gpus

    @property
    def tokens_per_step(self) -> float:
        return 1.0 if self.speculation is None else self.speculation.acceptance_length

    @property
    def queries_per_step(self) -> float:
        """Query tokens per request in a decode step: the draft and the token before it."""
        return 1.0 if self.speculation is None else 1.0 + self.speculation.draft_tokens

    def prefill_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
        """Seconds of a lone request's prefill, request handling included; chunks in sequence, the tail alone."""
        time = prefill_latency(self.terms, self.overlay, uncached_tokens, cached_tokens, self.prefill_chunk_tokens)
        return np.asarray(time + np.asarray(self.overlay.ttft_s))

    def prefill_occupancy_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
        """Seconds of capacity at high load: tails packed with other requests' if the engine can, all DP ranks busy."""
        return prefill_occupancy(
            self.terms, self.overlay, uncached_tokens, cached_tokens, self.prefill_chunk_tokens, packed=self.tail_packing
        )

    def step_s(self, batch: ArrayLike, context_tokens: ArrayLike) -> FloatArray:
        """Seconds of one decode step of ``batch`` requests in the whole instance, drafting included."""
        return speculative_step(self.terms, self.draft, self.overlay, batch, context_tokens, self.queries_per_step - 1.0)

    def extend_s(self, new_tokens: ArrayLike, context_tokens: ArrayLike) -> FloatArray:
        """Seconds to recompute the KV of ``new_tokens`` on ``context_tokens``: a small prefill pass, CPU launch floor included."""
        return prefill_latency(self.terms, self.overlay, new_tokens, context_tokens, self.prefill_chunk_tokens)

    def kv_capacity_bytes(self) -> float:
        """KV pool of the whole instance: that of the fullest GPU times the GPUs."""
        return self.memory.kv_pool * self.gpus

    def kv_resident_bytes(self, tokens: ArrayLike) -> FloatArray:
        """Bytes of one request in the whole instance, replication counted (per-GPU bytes of the fullest stage times the GPUs)."""
        return self._per_gpu_cache.bytes_resident(tokens) * self.gpus

    def transfer_bytes(self, new_tokens: ArrayLike, total_tokens: ArrayLike) -> FloatArray:
        """Bytes that leave P: entries of the new tokens, windows and states once, no replication."""
        return self.cache.transfer_bytes(new_tokens, total_tokens)

    def decode_breakdown(self, batch: ArrayLike, context_tokens: ArrayLike) -> StepTime:
        """One decode step by component."""
        return decode_step(self.terms, self.overlay, batch, context_tokens, self.queries_per_step, detail=True)

    def prefill_breakdown(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> PrefillTime:
        """A lone request's prefill by component (GPU time)."""
        time, _ = prefill_passes(
            self.terms, self.overlay, uncached_tokens, cached_tokens, self.prefill_chunk_tokens, packed=False, filled=False
        )
        return time


def check_configuration(model: ModelSpec, chip: Chip, parallel: Parallel) -> None:
    """Raises InputError with every rule that the mapping breaks."""
    reasons = check(model, parallel, chip)
    if reasons:
        raise InputError([reason.problem for reason in reasons])


def roofline_instance(
    model: ModelSpec,
    chip: Chip,
    engine: str,
    parallel: Parallel,
    *,
    kv_format: str | None = None,
    prefill_chunk_tokens: float = 8192,
    tail_packing: bool = True,
    speculation: Speculation | None = None,
    role: str = "AGG",
    reserves: Reserves | None = None,
    checked: bool = True,
) -> RooflineInstance:
    """An instance of ``model`` on ``chip`` under ``engine`` (vllm, sglang, trtllm, generic, or an overlay file).

    Raises InputError: an illegal mapping (every broken rule), weights that do not fit (with the bytes), an unknown engine
    or KV format. ``checked=False`` skips the legality rules (memory is always checked).
    """
    if checked:
        check_configuration(model, chip, parallel)
    base = base_engine(engine)
    cache = kv_cache(model, kv_format)
    memory = waterfall(model, _hbm_bytes(chip), parallel, engine=base, cache=cache, context_tokens=1.0, reserves=reserves)
    if memory.kv_pool <= 0:
        raise InputError(
            Problem(
                f"{model.name} on {parallel.gpus} x {chip.slug}",
                f"does not fit: {memory.why}",
                f"at least {memory.required / 1e9:.1f} GB per GPU, more GPUs or fewer bits per weight",
                f"tp {2 * parallel.tp}",
            )
        )
    terms = configuration_terms(model, parallel, kernel_set(chip, base), cache.format)
    draft = draft_terms(model, parallel, kernel_set(chip, base), cache.format) if speculation else None
    return RooflineInstance(
        model=model, chip=chip, engine=engine, parallel=parallel, kv_format=cache.format, role=role,
        prefill_chunk_tokens=float(prefill_chunk_tokens), tail_packing=tail_packing, terms=terms,
        overlay=load_overlay(engine, chip), memory=memory, cache=cache, speculation=speculation, draft=draft,
        basis=chip.efficiency_kind, warnings=configuration_warnings(model, chip), batch_max=DEFAULT_MAX_RUNNING * parallel.dp,
    )  # fmt: skip


def _hbm_bytes(chip: Chip) -> float:
    if not chip.hbm_bytes.value:
        raise InputError(Problem(f"chip {chip.slug} hbm_bytes", "not given", "a positive number of bytes", "80 GB"))
    return float(chip.hbm_bytes.value)


@dataclass(frozen=True)
class RooflineTable:
    """Many instances as one: arrays of shape (instances,) inside, results (instances, ...) where arguments broadcast to that.

    Arguments have shape (instances, K) or anything that broadcasts to it.
    """

    instances: tuple[RooflineInstance, ...]
    terms: StepTerms
    draft: StepTerms | None
    overlay: Overlay
    draft_tokens: FloatArray
    chunk_tokens: FloatArray

    @staticmethod
    def of(instances: Sequence[RooflineInstance]) -> RooflineTable:
        """Table of ``instances`` (at least one), in order."""
        overlay = Overlay(**{name: np.array([float(getattr(i.overlay, name)) for i in instances])[:, None] for name in Overlay.names()})
        return RooflineTable(
            tuple(instances),
            stack([i.terms for i in instances]).broadcast(1),
            stack([i.draft or i.terms for i in instances]).broadcast(1) if any(i.draft for i in instances) else None,
            overlay,
            np.array([i.queries_per_step - 1.0 for i in instances])[:, None],
            np.array([i.prefill_chunk_tokens for i in instances])[:, None],
        )

    def step_s(self, batch: ArrayLike, context_tokens: ArrayLike) -> FloatArray:
        """Decode step of every instance, shape (instances, K)."""
        return speculative_step(self.terms, self.draft, self.overlay, batch, context_tokens, self.draft_tokens)

    def prefill_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
        """Lone prefill of every instance, shape (instances, K)."""
        time = prefill_latency(self.terms, self.overlay, uncached_tokens, cached_tokens, self.chunk_tokens)
        return np.asarray(time + np.asarray(self.overlay.ttft_s))

    def prefill_occupancy_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> FloatArray:
        """Capacity that a prefill takes on every instance, shape (instances, K)."""
        packed = np.array([i.tail_packing for i in self.instances])[:, None]
        args = (self.terms, self.overlay, uncached_tokens, cached_tokens, self.chunk_tokens)
        return np.where(packed, prefill_occupancy(*args, packed=True), prefill_occupancy(*args, packed=False))


def with_role(instance: RooflineInstance, role: str) -> RooflineInstance:
    """The same instance in another role."""
    return replace(instance, role=role)
