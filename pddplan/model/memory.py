"""Does it fit: a waterfall of one GPU's memory under an engine's own meaning of its memory fraction.

vLLM: gpu_memory_utilization x capacity holds weights, the peak of a profiled batch, non-torch memory and KV; CUDA graphs come on
top. SGLang: mem_fraction_static x capacity holds weights and KV; activations and graphs must fit in the rest. TensorRT-LLM:
free_gpu_memory_fraction of what is free after everything else is KV. generic: as vLLM with graphs inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pddplan.errors import InputError, Problem
from pddplan.model.kv_cache import KvCache, kv_cache
from pddplan.model.parallel import Chip, check, legal_parallels, model_experts, valid_tp
from pddplan.model.spec import ModelSpec, Parallel
from pddplan.model.weights import vision_bytes, weight_bytes_per_gpu
from pddplan.units import GIB

FractionOf = Literal["capacity", "static", "free"]
Verdict = Literal["fits", "tight", "no"]

SAMPLER_BYTES_PER_LOGIT = 39.0
"""Peak bytes per logit while sampling (float32 logits, probabilities, sorted copies, 64-bit indices). Measured: vLLM on H100 with
1,024 sequences peaks at 4.76 GiB for a vocabulary of 128,256 (38.9 bytes) and 5.65 GiB for 151,936 (39.0)."""
ACTIVATION_BYTES = 2.0
DRIVER_BYTES = 0.47 * GIB
"""What the driver keeps of the memory a board reports: nvidia-smi prints 79.65 GiB on an H100 where CUDA reports 79.18."""
TIGHT_SHARE = 0.05
LARGE_BOARD_BYTES = 70 * GIB
"""From here on vLLM schedules 1,024 sequences and 8,192 tokens a step by default, below it 256 and 2,048."""


@dataclass(frozen=True)
class EnginePreset:
    """How an engine divides memory. fraction_of: what ``memory_fraction`` is a fraction of; reserves in bytes per GPU.

    sampled_sequences and batch_tokens size the activation peak; graphs_inside: whether CUDA graphs count against the fraction.
    """

    name: str
    memory_fraction: float
    fraction_of: FractionOf
    framework_bytes: float
    graph_bytes: float
    sampled_sequences: int
    batch_tokens: int
    graphs_inside: bool
    source: str

    def on(self, capacity_bytes: float) -> EnginePreset:
        """The engine's defaults on a board of this size."""
        if self.name != "vllm" or capacity_bytes >= LARGE_BOARD_BYTES:
            return self
        source = self.source.replace("of 80 GB and more", "under 70 GiB")
        return replace(self, sampled_sequences=256, batch_tokens=2048, source=source)


_PRESETS = (
    EnginePreset(
        "vllm", 0.9, "capacity", 0.13 * GIB, 1.0 * GIB, 1024, 8192, False,
        "defaults of vLLM V1 on GPUs of 80 GB and more; framework: measured non-torch memory; graphs assumed",
    ),
    EnginePreset(
        "sglang", 0.88, "static", 0.5 * GIB, 2.0 * GIB, 256, 8192, False,
        "SGLang's mem_fraction_static on GPUs of 80 GB; reserves assumed",
    ),
    EnginePreset(
        "trtllm", 0.9, "free", 1.0 * GIB, 1.0 * GIB, 256, 8192, True,
        "TensorRT-LLM's default free_gpu_memory_fraction; reserves assumed",
    ),
    EnginePreset("generic", 0.9, "capacity", 0.5 * GIB, 1.0 * GIB, 256, 8192, True, "assumed"),
)
ENGINES: Mapping[str, EnginePreset] = {preset.name: preset for preset in _PRESETS}


@dataclass(frozen=True)
class Reserves:
    """Overrides of an engine's assumptions, in bytes per GPU; None keeps the preset."""

    memory_fraction: float | None = None
    activation_bytes: float | None = None
    graph_bytes: float | None = None
    framework_bytes: float | None = None


@dataclass(frozen=True)
class Waterfall:
    """Memory of the fullest GPU, bytes.

    vision: the vision tower, where there is one. kv_pool: left for KV (negative: missing). kv_needed: of the asked requests.

    required: non-KV inside the engine's budget plus kv_needed; available: that budget. shortfall = max(0, required - available).
    """

    engine: str
    memory_fraction: float
    parallel: Parallel
    capacity: float
    weights: float
    vision: float
    activations: float
    graphs: float
    framework: float
    kv_pool: float
    kv_needed: float
    required: float
    available: float
    verdict: Verdict
    why: str

    @property
    def shortfall(self) -> float:
        return max(0.0, self.required - self.available)


def engine_preset(name: str) -> EnginePreset:
    """Raises InputError for an unknown engine."""
    plain = name.strip().lower().replace("-", "").replace("tensorrtllm", "trtllm")
    if plain not in ENGINES:
        raise InputError(Problem("engine", name, f"one of {', '.join(ENGINES)}", "vllm"))
    return ENGINES[plain]


def visible_bytes(hbm_bytes: float) -> float:
    """Memory that a process can use of a board's ``hbm_bytes``."""
    return hbm_bytes - DRIVER_BYTES


def kv_pool_bytes(fraction_of: FractionOf, fraction: float, capacity: float, non_kv: float) -> float:
    """Bytes left for KV: fraction x capacity - non_kv, or fraction x (capacity - non_kv) where it is of free memory."""
    if fraction_of == "free":
        return fraction * (capacity - non_kv)
    return fraction * capacity - non_kv


def activation_bytes(model: ModelSpec, preset: EnginePreset, parallel: Parallel) -> float:
    """Peak of one forward pass: the sampler's copies of the logits, or the widest layer for ``batch_tokens``."""
    sampler = SAMPLER_BYTES_PER_LOGIT * preset.sampled_sequences * model.vocab_size
    widest = 0.0
    for layer in model.distinct_layers:
        ffn, attention = layer.ffn, layer.attention
        is_moe = ffn.kind == "moe"
        tokens_wide = 2.0 * ffn.intermediate * (ffn.top_k / parallel.moe_tp if is_moe else 1.0 / parallel.tp)
        expert_rows = ffn.top_k * model.hidden_size if is_moe else 0
        heads = attention.heads * (attention.qk_head_dim + attention.v_head_dim) / parallel.tp
        widest = max(widest, tokens_wide + expert_rows, heads)
    return max(sampler, preset.batch_tokens * (widest + 4.0 * model.hidden_size) * ACTIVATION_BYTES)


def waterfall(
    model: ModelSpec,
    capacity_bytes: float,
    parallel: Parallel,
    *,
    engine: str = "vllm",
    context_tokens: float = 4096,
    concurrency: float = 1,
    cache: KvCache | None = None,
    reserves: Reserves | None = None,
) -> Waterfall:
    """Memory of one GPU with ``capacity_bytes`` for ``concurrency`` requests of ``context_tokens`` in the whole instance.

    With attention DP the requests are dealt out over the ranks, so the fullest rank holds ceil(concurrency / dp) of them.
    """
    preset, own = engine_preset(engine).on(capacity_bytes), reserves or Reserves()
    fraction = preset.memory_fraction if own.memory_fraction is None else own.memory_fraction
    if not 0.0 < fraction <= 1.0:
        raise InputError(Problem("memory_fraction", f"{fraction:g}", "more than 0, at most 1", "0.9"))
    if not capacity_bytes > 0:
        raise InputError(Problem("memory", f"{capacity_bytes:g} bytes", "more than 0", "80 GiB"))
    if not concurrency > 0:
        raise InputError(Problem("concurrency", f"{concurrency:g}", "at least 1", "1"))
    weights = weight_bytes_per_gpu(model, parallel)
    activations = activation_bytes(model, preset, parallel) if own.activation_bytes is None else own.activation_bytes
    graphs = preset.graph_bytes if own.graph_bytes is None else own.graph_bytes
    framework = preset.framework_bytes if own.framework_bytes is None else own.framework_bytes
    vision = vision_bytes(model) / parallel.tp
    if preset.fraction_of == "static":
        inside = weights + vision
        outside = activations + graphs + framework
    else:
        inside = weights + vision + activations + framework + (graphs if preset.graphs_inside else 0.0)
        outside = 0.0 if preset.graphs_inside else graphs
    pool = kv_pool_bytes(preset.fraction_of, fraction, capacity_bytes, inside)
    pool = min(pool, capacity_bytes - inside - outside)
    whole = (cache or kv_cache(model)).per_gpu(parallel)
    per_rank = -(-concurrency // parallel.dp) * parallel.dp
    needed = float(whole.bytes_resident(context_tokens)) * per_rank
    required, available = inside + needed, inside + pool
    verdict: Verdict = "fits"
    why = "weights, reserves and KV fit"
    if required > available:
        verdict = "no"
        if inside > available:
            why = f"weights and reserves of {inside / GIB:.2f} GiB exceed the {available / GIB:.2f} GiB the engine may use"
        else:
            why = f"{needed / GIB:.2f} GiB of KV are needed and {pool / GIB:.2f} GiB are left"
    elif pool < TIGHT_SHARE * capacity_bytes:
        verdict = "tight"
        why = f"only {pool / GIB:.2f} GiB ({pool / capacity_bytes:.1%} of the GPU) are left for KV"
    return Waterfall(
        engine=preset.name, memory_fraction=fraction, parallel=parallel, capacity=capacity_bytes, weights=weights, vision=vision,
        activations=activations, graphs=graphs, framework=framework, kv_pool=pool, kv_needed=needed, required=required,
        available=available, verdict=verdict, why=why,
    )


@dataclass(frozen=True)
class Smallest:
    """memory_minimum: GPUs by memory alone, divisibility aside. parallel: the first legal mapping that fits (None: none does)."""

    memory_minimum: int
    parallel: Parallel | None
    alternative: Parallel | None


def plain_parallel(model: ModelSpec, tp: int, *, pp: int = 1, spread: bool = False) -> Parallel:
    """Tensor parallelism alone: experts cut by it, or spread over it."""
    if not model_experts(model):
        return Parallel(tp, pp)
    return Parallel(tp, pp, 1, tp if spread else 1, 1 if spread else tp)


def smallest_fit(
    model: ModelSpec, chip: Chip | None, capacity_bytes: float, max_gpus: int = 1024, *, context_tokens: float = 4096,
    concurrency: float = 1, engine: str = "vllm", cache: KvCache | None = None, reserves: Reserves | None = None,
) -> Smallest:
    """Smallest tensor parallelism that fits (experts cut, or spread where cutting is illegal), and the smallest mapping inside
    the chip's scale-up domain where that differs."""

    def fits(parallel: Parallel) -> bool:
        return (
            waterfall(
                model, capacity_bytes, parallel, engine=engine, context_tokens=context_tokens, concurrency=concurrency,
                cache=cache, reserves=reserves,
            ).verdict
            != "no"
        )

    chosen = None
    for tp in sorted({*valid_tp(model), *valid_tp(model, spread_experts=True)}):
        options = [plain_parallel(model, tp, spread=spread) for spread in (False, True)]
        legal = [option for option in options if not check(model, option) and option.gpus <= max_gpus]
        chosen = next((option for option in legal if fits(option)), None)
        if chosen:
            break
    alternative = None
    if chosen is None or check(model, chosen, chip):
        most = min(max_gpus, 4 * chosen.gpus if chosen else 256)
        alternative = next((option for option in legal_parallels(model, chip, most) if fits(option)), None)
    return Smallest(_memory_minimum(model, capacity_bytes, engine, context_tokens, concurrency, cache, reserves), chosen, alternative)


def _memory_minimum(
    model: ModelSpec, capacity_bytes: float, engine: str, context_tokens: float, concurrency: float,
    cache: KvCache | None, reserves: Reserves | None,
) -> int:
    """GPUs whose KV pools and weights would do if everything but latents and reserves could be cut at will."""
    one = waterfall(
        model, capacity_bytes, Parallel(), engine=engine, context_tokens=context_tokens, concurrency=concurrency, cache=cache,
        reserves=reserves,
    )
    room = one.available - (one.required - one.weights - one.kv_needed)
    if room <= 0:
        return 0
    return max(1, int(-(-(one.weights + one.kv_needed) // room)))

