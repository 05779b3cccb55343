"""Size of the KV cache: slope (bytes per token), constant (bytes per request) and cap (windows), whole and per GPU.

Per layer and token, b bytes per element:
  full, window  n_kv (d_k + d_v) b, a window at most W tokens of it
  MLA           (kv_lora_rank + rope) b, one latent for all heads
  DSA, CSA      an indexer key besides
  CSA, HCA      one entry per ``compress_ratio`` tokens, a window besides, and the compressor's buffers per request
  linear        nothing; a constant state per request
Sources: the papers of DeepSeek-V2, V3.2 and V4 and the cache layouts of vLLM and SGLang (fp8_ds_mla: 512 or 448 FP8 values,
their scales and bf16 RoPE dimensions: 656 or 584 bytes an entry).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pddplan.errors import InputError, Problem
from pddplan.model.parallel import stage_sizes, stages
from pddplan.model.spec import Attention, Indexer, ModelSpec, Parallel

FloatArray = NDArray[np.float64]
Part = Literal["latent", "indexer", "window", "state", "convolution", "compressor"]
PARTS: tuple[Part, ...] = ("latent", "indexer", "window", "state", "convolution", "compressor")

ELEMENT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "nvfp4": 0.5625, "mxfp4": 0.53125}
ALIASES = {
    "bfloat16": "bf16", "fp16": "bf16", "float16": "bf16", "half": "bf16", "float32": "fp32", "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8", "float8": "fp8", "fp4": "int4", "4bit": "int4", "4_bit": "int4", "8bit": "fp8",
    "mxfp4_key": "mxfp4_keys", "fp8_ds_mla_mxfp4": "mxfp4_keys", "fp8_ds_mla_mxfp4_keys": "mxfp4_keys",
}
FP8_DS_MLA = {"mla": 656.0, "v4": 584.0}  # bytes an entry: 512 fp8 + 16 scales + 128 rope; 448 fp8 + 128 rope + 8 scales
INDEX_KEY_SCALE_BYTES = 4.0  # an fp8 key carries one float32 scale
MXFP4_KEY_BLOCK = 32
COMPRESSOR_BYTES = 4.0  # float32 partial sums and gates


def normalise_format(name: str) -> str:
    """Canonical name of a KV format: case, hyphens and synonyms (fp16, fp8_e4m3 ...) aside."""
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    return ALIASES.get(plain, plain)


@dataclass(frozen=True)
class KvTerm:
    """What one layer keeps of one kind: ``slope`` bytes a token (only the last ``window_tokens`` of them, if given) or
    ``constant`` bytes a request; at most ``max_shards`` tensor-parallel ranks can hold different shares."""

    part: Part
    layer: int
    slope: float = 0.0
    constant: float = 0.0
    window_tokens: float | None = None
    max_shards: int = 1


@dataclass(frozen=True)
class KvCache:
    """KV of one request as a function of its tokens.

    slope: bytes/token beyond every window. constant: bytes/request of recurrent state, convolutions and compressor buffers.
    windows: (tokens, bytes/token) of each window size. transferable_constant: the constant without compressor buffers, which
    are rebuilt from the last tokens and not shipped. other_stages: of ``per_gpu``, the pipeline stages that are fuller at some
    lengths; bytes_resident and bytes_marginal answer for the fullest stage at each length.
    """

    format: str
    slope: float
    constant: float
    windows: tuple[tuple[float, float], ...]
    transferable_constant: float
    terms: tuple[KvTerm, ...]
    layers: int
    model: ModelSpec
    unified_pages: bool = False
    other_stages: tuple[KvCache, ...] = ()

    @property
    def cap(self) -> float:
        """Bytes per request of all full windows."""
        return sum((tokens * slope for tokens, slope in self.windows), 0.0)

    def entries_bytes(self, tokens: ArrayLike) -> FloatArray:
        """Cache entries and windows of a request (no state, no buffers), shape of ``tokens``."""
        count = _tokens(tokens)
        total = self.slope * count
        for window, slope in self.windows:
            total = total + slope * np.minimum(count, window)
        return np.asarray(total, dtype=np.float64)

    def bytes_resident(self, tokens: ArrayLike) -> FloatArray:
        """All bytes that a request of ``tokens`` holds in memory; 0 at 0 tokens. Raises InputError for negative tokens."""
        count = _tokens(tokens)
        largest = self._own_resident(count)
        for stage in self.other_stages:
            largest = np.maximum(largest, stage._own_resident(count))
        return np.asarray(largest, dtype=np.float64)

    def _own_resident(self, count: FloatArray) -> FloatArray:
        return np.asarray(self.entries_bytes(count) + self.constant * (count > 0), dtype=np.float64)

    def bytes_marginal(self, tokens: ArrayLike) -> FloatArray:
        """Growth at ``tokens``: bytes that the next token adds (a full window adds nothing)."""
        count = _tokens(tokens)
        total = np.full(count.shape, self.slope)
        for window, slope in self.windows:
            total = total + slope * (count < window)
        held = self._own_resident(count)
        for stage in self.other_stages:
            fuller = stage._own_resident(count)
            total = np.where(fuller > held, stage.bytes_marginal(count), total)
            held = np.maximum(held, fuller)
        return np.asarray(total, dtype=np.float64)

    def transfer_bytes(self, new_tokens: ArrayLike, total_tokens: ArrayLike) -> FloatArray:
        """Bytes that leave P when the other side lacks the last ``new_tokens`` of ``total_tokens``: their entries, and windows
        and recurrent state once. 0 where nothing is new."""
        new, total = np.broadcast_arrays(_tokens(new_tokens), _tokens(total_tokens))
        once = self.transferable_constant + sum(slope * np.minimum(total, window) for window, slope in self.windows)
        return np.asarray(self.slope * new + once * (new > 0), dtype=np.float64)

    def tokens_in(self, budget_bytes: float, requests: int = 1, page_tokens: int = 1) -> int:
        """Most tokens that each of ``requests`` equal requests can hold in ``budget_bytes``, whole pages of ``page_tokens``."""
        share = budget_bytes / requests
        if float(self.bytes_resident(1.0)) > share:
            return 0
        low, high = 1.0, 2.0
        while float(self.bytes_resident(high)) <= share:
            low, high = high, 2.0 * high
            if high > 1e15:
                raise InputError(Problem("kv budget", f"{budget_bytes:g} bytes", "a cache that grows with its tokens"))
        while high - low > 0.5:
            middle = (low + high) / 2.0
            low, high = (middle, high) if float(self.bytes_resident(middle)) <= share else (low, middle)
        whole = int(high) if float(self.bytes_resident(float(int(high)))) <= share else int(low)
        return whole // page_tokens * page_tokens

    def per_gpu(self, parallel: Parallel) -> KvCache:
        """Bytes that one request costs a GPU of the fullest pipeline stage, averaged over the attention data-parallel ranks.

        MLA latents and indexer keys are whole on every tensor-parallel rank, KV heads are repeated once tp exceeds them;
        attention DP ranks hold different requests, so they share the load without repetition.
        """
        share = {id(term): _share(term, parallel.tp) / parallel.dp for term in self.terms}
        first, found = 0, list[KvCache]()
        for size in stage_sizes(len(self.model.layers), stages(self.model, parallel)):
            kept = tuple(
                KvTerm(
                    *(term.part, term.layer, term.slope * share[id(term)], term.constant * share[id(term)]),
                    *(term.window_tokens, term.max_shards),
                )
                for term in self.terms
                if first <= term.layer < first + size
            )
            first += size
            found.append(_assemble(self.model, self.format, kept, self.unified_pages))
        found.sort(key=lambda stage: (stage.slope, stage.cap + stage.constant), reverse=True)
        fullest, others = found[0], list[KvCache]()
        for stage in found[1:]:
            if stage.cap + stage.constant > max((kept.cap + kept.constant for kept in (fullest, *others)), default=0.0):
                others.append(stage)
        return replace(fullest, other_stages=tuple(others))

    def part_bytes(self, tokens: ArrayLike) -> dict[Part, FloatArray]:
        """Bytes per request of each part at ``tokens``."""
        count = _tokens(tokens)
        found: dict[Part, FloatArray] = {part: np.zeros(count.shape) for part in PARTS}
        for term in self.terms:
            held = count if term.window_tokens is None else np.minimum(count, term.window_tokens)
            found[term.part] = found[term.part] + term.slope * held + term.constant * (count > 0)
        return found

    def part_slopes(self) -> dict[Part, float]:
        """Bytes per token of the parts that grow without bound."""
        found: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
        for term in self.terms:
            if term.window_tokens is None:
                found[term.part] += term.slope
        return found


def _share(term: KvTerm, tp: int) -> float:
    """Share of a term on the fullest of ``tp`` ranks: heads are whole, so an uneven split rounds up."""
    if term.max_shards <= 1:
        return 1.0
    return -(-term.max_shards // tp) / term.max_shards


def _tokens(tokens: ArrayLike) -> FloatArray:
    count = np.asarray(tokens, dtype=np.float64)
    if np.any(count < 0) or np.any(np.isnan(count)):
        raise InputError(Problem("context", f"{float(np.min(count)):g} tokens", "0 or more tokens", "8192"))
    return count


def kv_cache(
    model: ModelSpec, kv_format: str | None = None, *, unified_pages: bool = False, window_slack_tokens: int = 0
) -> KvCache:
    """KV cache of ``model`` in ``kv_format`` (the model's default when None).

    unified_pages: as engines without per-layer page pools allocate, every windowed layer keeps all tokens (an upper bound).
    window_slack_tokens: tokens beyond the window that an engine keeps (the batch being prefilled).
    Raises InputError for a format that the model does not allow.
    """
    name = normalise_format(kv_format or model.default_kv_format)
    if name in ("auto", "checkpoint"):
        name = model.default_kv_format
    if name == "mxfp4" and "mxfp4_keys" in model.kv_formats:
        name = "mxfp4_keys"
    allowed = {*model.kv_formats, *(("int8",) if "fp8" in model.kv_formats else ())}
    if name not in allowed:
        accepted = ", ".join(model.kv_formats)
        raise InputError(Problem("kv_format", str(kv_format), f"one of {accepted} for {model.name}", model.kv_formats[0]))
    terms = []
    for index, layer in enumerate(model.layers):
        for term in _terms(layer.attention, index, name):
            if term.window_tokens is not None and (unified_pages or window_slack_tokens):
                kept = None if unified_pages and not layer.attention.shared_kv else term.window_tokens + window_slack_tokens
                term = replace(term, window_tokens=kept)
            terms.append(term)
    return _assemble(model, name, tuple(terms), unified_pages)


def _assemble(model: ModelSpec, name: str, terms: tuple[KvTerm, ...], unified: bool) -> KvCache:
    windows: dict[float, float] = {}
    for term in terms:
        if term.window_tokens is not None:
            windows[term.window_tokens] = windows.get(term.window_tokens, 0.0) + term.slope
    return KvCache(
        format=name,
        slope=sum(term.slope for term in terms if term.window_tokens is None),
        constant=sum(term.constant for term in terms),
        windows=tuple(sorted(windows.items())),
        transferable_constant=sum(term.constant for term in terms if term.part != "compressor"),
        terms=terms,
        layers=len(model.layers),
        model=model,
        unified_pages=unified,
    )


def _terms(attention: Attention, layer: int, name: str) -> list[KvTerm]:
    """The terms of one layer."""
    found: list[KvTerm] = []
    state = attention.state
    if state is not None:
        found.append(KvTerm("state", layer, constant=state.state_bytes, max_shards=max(state.value_heads, 1)))
        if not state.conv_fused and state.conv_bytes:
            found.append(KvTerm("convolution", layer, constant=state.conv_bytes, max_shards=max(state.value_heads, 1)))
    if attention.kind in ("none", "linear") or not attention.stores_kv:
        return found
    if attention.shared_kv:
        return found + _compressed_terms(attention, layer, name)
    if attention.kind == "mla":
        found.append(KvTerm("latent", layer, slope=_latent_bytes(attention, name)))
    else:
        wide = attention.kv_heads * (attention.qk_head_dim + attention.v_head_dim) * ELEMENT_BYTES[name]
        part: Part = "latent" if attention.kind == "full" else "window"
        found.append(KvTerm(part, layer, wide, window_tokens=attention.window_tokens, max_shards=attention.kv_heads))
    if attention.indexer is not None and attention.indexer.owns_keys:
        found.append(KvTerm("indexer", layer, slope=_index_key_bytes(attention.indexer, name)))
    return found


def _latent_bytes(attention: Attention, name: str) -> float:
    if name in ("fp8_ds_mla", "mxfp4_keys"):
        return FP8_DS_MLA["mla"]
    return (attention.kv_lora_rank + attention.qk_rope_head_dim) * ELEMENT_BYTES[name]


def _index_key_bytes(indexer: Indexer, name: str) -> float:
    """One indexer key: fp8 with a scale, MXFP4 blocks, or the cache's own dtype (MiniMax-M3; DeepSeek-V4 in bf16)."""
    if name == "mxfp4_keys":
        return indexer.head_dim / 2.0 + indexer.head_dim / MXFP4_KEY_BLOCK
    if name == "nominal":
        return indexer.head_dim / 2.0
    if indexer.key_format == "kv" or (indexer.key_format == "entry" and name == "bf16"):
        return indexer.head_dim * ELEMENT_BYTES[name]
    return indexer.head_dim + INDEX_KEY_SCALE_BYTES


def _compressed_terms(attention: Attention, layer: int, name: str) -> list[KvTerm]:
    """DeepSeek-V4: compressed entries, the window's entries, indexer keys and the compressor's buffers.

    nominal counts one byte a value and half a byte an indexer value, without scales; buffers hold values and gates in float32
    for one block, two where the blocks of CSA overlap.
    """
    dim = attention.qk_head_dim
    entry = FP8_DS_MLA["v4"] if name in ("fp8_ds_mla", "mxfp4_keys") else dim * {"bf16": 2.0}.get(name, 1.0)
    found = [KvTerm("window", layer, slope=entry, window_tokens=attention.window_tokens)]
    if attention.kind == "window":
        return found
    ratio, overlap = attention.compress_ratio, 2 if attention.kind == "csa" else 1
    found.append(KvTerm("latent", layer, slope=entry / ratio))
    widths = [dim]
    if attention.indexer is not None:
        found.append(KvTerm("indexer", layer, slope=_index_key_bytes(attention.indexer, name) / ratio))
        widths.append(attention.indexer.head_dim)
    buffers = sum(overlap * ratio * 2 * overlap * width * COMPRESSOR_BYTES for width in widths)
    found.append(KvTerm("compressor", layer, constant=buffers))
    return found
