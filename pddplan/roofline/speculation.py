"""Speculative decoding: draft + 1 query tokens a step, the draft model's own passes beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from pddplan.errors import InputError, Problem
from pddplan.model.spec import ModelSpec, Parallel
from pddplan.roofline.configuration import configuration_terms
from pddplan.roofline.kernels import KernelSet
from pddplan.roofline.overlay import Overlay
from pddplan.roofline.step import decode_step
from pddplan.roofline.terms import FloatArray, StepTerms


@dataclass(frozen=True)
class Speculation:
    """``draft_tokens`` proposed a step, ``acceptance_length`` tokens gained a step on average (1 to draft_tokens + 1, measured)."""

    draft_tokens: int
    acceptance_length: float

    def __post_init__(self) -> None:
        if self.draft_tokens < 1:
            raise InputError(Problem("speculation.draft_tokens", str(self.draft_tokens), "1 or more", "1"))
        if not 1.0 <= self.acceptance_length <= self.draft_tokens + 1:
            raise InputError(
                Problem("speculation.acceptance_length", f"{self.acceptance_length:g}", f"between 1 and {self.draft_tokens + 1}", "1.8")
            )


def tokens_per_step(acceptance: float, draft_tokens: int) -> float:
    """Mean tokens per step at acceptance probability a and depth d: (1 - a^(d+1)) / (1 - a), d + 1 at a = 1 (Leviathan 2023, eq. 1)."""
    if acceptance >= 1.0:
        return draft_tokens + 1.0
    return (1.0 - acceptance ** (draft_tokens + 1)) / (1.0 - acceptance)


def draft_terms(model: ModelSpec, parallel: Parallel, kernels: KernelSet, kv_format: str) -> StepTerms:
    """One pass of the drafter: the model's MTP layer, or a layer like its last, with the output head."""
    layers = (model.mtp_layers[0],) if model.mtp_layers else (model.layers[-1],)
    return configuration_terms(replace(model, layers=layers), replace(parallel, pp=1), kernels, kv_format)


def speculative_step(
    terms: StepTerms, draft: StepTerms | None, overlay: Overlay, batch: ArrayLike, context_tokens: ArrayLike, draft_tokens: ArrayLike
) -> FloatArray:
    """Seconds of one step: the target on draft_tokens + 1 queries a request, and ``draft_tokens`` passes of the drafter."""
    step = decode_step(terms, overlay, batch, context_tokens, np.asarray(draft_tokens) + 1.0).total_s
    if draft is None:
        return step
    once = decode_step(draft, replace(overlay, step_s=0.0, sequence_s=0.0), batch, context_tokens).total_s
    return step + np.asarray(draft_tokens) * once
