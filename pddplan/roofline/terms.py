"""The cost of one configuration as plain numbers: seconds per row, per entry, per expert; no loop over layers is left.

A configuration is model x parallel sizes x chip x engine. ``StepTerms`` holds arrays whose last axis runs over kinds of
term (GEMM shapes, attention kinds, expert shapes); leading axes, if any, run over configurations. Layer counts are
already multiplied in. roofline/step.py evaluates them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class StepTerms:
    """Coefficients, per rank of the instance. Shapes: ``gemm_*`` (..., G), ``attn_*`` (..., A), ``moe_*`` (..., E), others (...).

    gemm_row_s: arithmetic seconds per row; gemm_half_rows: rows at half speed; gemm_weight_s: seconds to stream the
    weights; gemm_io_s: seconds per row of activations. gemm_launch_s: sum of measured floors.
    attn_window: entries read at most; attn_ratio: tokens per entry; attn_entry_s: seconds to read one entry of one
    request; attn_pair_s, attn_prefill_pair_s: arithmetic seconds per (query, entry); attn_key_s, attn_key_pair_s: the same
    for the indexer's keys; attn_state_s: per-request state; attn_token_s: recurrence per token; attn_s_half: query tokens at half
    speed; attn_prefix_s: expansion of one cached latent.
    moe_experts, moe_top_k: routed; moe_row_s: arithmetic seconds per routed row; moe_expert_s: seconds to stream one expert's
    weights; moe_io_s, moe_permute_s: seconds per routed row of GEMM activations and of permutation; moe_token_s: per token.
    head_*: output projection (one GEMM, one row per sequence). reduce_*: all-reduces of a step (alpha, seconds per row).
    exchange_*: expert dispatch and combine, decode and prefill; exchange_hidden: share that can run behind arithmetic.
    hop_*: pipeline sends. pass_s: one pass of a layer's hidden state over memory, summed over layers, per row.
    *_compute_share, *_memory_share: efficiencies e_c and e_m inside the seconds above (no factor may fall below them).
    layers, moe_layers, mla_layers, linear_layers, sparse_layers (with an indexer), shared_layers (with shared experts),
    block_layers (block-scaled fp8 weights): counts for the per-layer overheads. tp, dp, pp, ep: parallel sizes;
    balance: share of the expert ranks' imbalance that redundant experts leave.
    """

    gemm_row_s: FloatArray
    gemm_half_rows: FloatArray
    gemm_weight_s: FloatArray
    gemm_io_s: FloatArray
    gemm_compute_share: FloatArray
    gemm_memory_share: FloatArray
    gemm_launch_s: FloatArray
    attn_window: FloatArray
    attn_ratio: FloatArray
    attn_entry_s: FloatArray
    attn_pair_s: FloatArray
    attn_key_s: FloatArray
    attn_key_pair_s: FloatArray
    attn_state_s: FloatArray
    attn_token_s: FloatArray
    attn_prefill_pair_s: FloatArray
    attn_s_half: FloatArray
    attn_prefix_s: FloatArray
    attn_compute_share: FloatArray
    attn_prefill_compute_share: FloatArray
    attn_memory_share: FloatArray
    attn_launch_s: FloatArray
    attn_prefill_launch_s: FloatArray
    moe_experts: FloatArray
    moe_top_k: FloatArray
    moe_row_s: FloatArray
    moe_half_rows: FloatArray
    moe_expert_s: FloatArray
    moe_io_s: FloatArray
    moe_permute_s: FloatArray
    moe_token_s: FloatArray
    moe_compute_share: FloatArray
    moe_memory_share: FloatArray
    moe_launch_s: FloatArray
    head_row_s: FloatArray
    head_half_rows: FloatArray
    head_weight_s: FloatArray
    head_io_s: FloatArray
    reduce_alpha_s: FloatArray
    reduce_row_s: FloatArray
    exchange_alpha_s: FloatArray
    exchange_row_s: FloatArray
    exchange_prefill_alpha_s: FloatArray
    exchange_prefill_row_s: FloatArray
    exchange_hidden: FloatArray
    hop_alpha_s: FloatArray
    hop_row_s: FloatArray
    pass_s: FloatArray
    layers: FloatArray
    moe_layers: FloatArray
    mla_layers: FloatArray
    linear_layers: FloatArray
    sparse_layers: FloatArray
    shared_layers: FloatArray
    block_layers: FloatArray
    tp: FloatArray
    dp: FloatArray
    pp: FloatArray
    ep: FloatArray
    balance: FloatArray

    def take(self, index: ArrayLike) -> StepTerms:
        """Terms of the configurations ``index`` (any shape) of a stacked table."""
        return self._map(lambda values, _: values[np.asarray(index)])

    def broadcast(self, axes: int) -> StepTerms:
        """The same terms with ``axes`` new axes of length 1 after the configuration axes (for batch or context grids)."""
        return self._map(
            lambda values, trailing: np.expand_dims(values, tuple(range(values.ndim - trailing, values.ndim - trailing + axes)))
        )

    def _map(self, change) -> StepTerms:  # type: ignore[no-untyped-def]
        return replace(self, **{f.name: change(getattr(self, f.name), term_axes(f.name)) for f in fields(self)})


def term_axes(name: str) -> int:
    """1 for a field with a term axis, 0 for a number per configuration."""
    return int(name.startswith(("gemm_", "attn_", "moe_")) and not name.endswith("launch_s") and name != "moe_layers")


_NEUTRAL = {"attn_window": np.inf, "attn_ratio": 1.0, "moe_experts": 1.0, "moe_top_k": 0.0}


def stack(terms: Sequence[StepTerms]) -> StepTerms:
    """Table of many configurations, padded with terms that cost nothing: shapes (C, G), (C, A), (C, E) and (C,)."""
    out: dict[str, FloatArray] = {}
    for f in fields(StepTerms):
        values = [np.asarray(getattr(t, f.name), dtype=float) for t in terms]
        if term_axes(f.name):
            width = max(v.shape[-1] for v in values)
            padded = np.full((len(values), width), _NEUTRAL.get(f.name, 0.0))
            for row, v in enumerate(values):
                padded[row, : v.shape[-1]] = v
            out[f.name] = padded
        else:
            out[f.name] = np.array([float(v) for v in values])
    return StepTerms(**out)
