"""Feed-forward part of one layer: dense, or a router with shared and routed experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pddplan.model.architectures import Traits
from pddplan.model.geometry import Geometry
from pddplan.model.reading import Keys
from pddplan.model.spec import Ffn, Gemm, WeightGroup

EXPERTS = (
    "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_routed_experts", "ffn_config.moe_num_experts",
)
TOP_K = (
    "num_experts_per_tok", "experts_per_token", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "moe_k",
    "ffn_config.moe_top_k",
)
EXPERT_WIDTH = ("moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size")
DENSE_WIDTH = (
    "intermediate_size", "block_ff_dim", "n_inner", "ffn_hidden_size", "ffn_dim", "inner_dim", "d_ff", "dense_intermediate_size",
    "hidden_dim", "ffn_config.ffn_hidden_size",
)
SHARED_WIDTH = ("shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim")
SHARED_COUNT = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
PREFIX = {
    "mixtral": "block_sparse_moe", "minimax": "block_sparse_moe", "minimax_m2": "block_sparse_moe",
    "minimax_m3": "block_sparse_moe", "kimi_linear": "block_sparse_moe", "llama4_text": "feed_forward",
    "deepseek_v4": "ffn", "deepseek_ref": "ffn", "nemotron_h": "mixer",
}
SCORE_BIAS = frozenset({"noaux_tc"})


def _matrices(name: str, width: int, hidden: int, gated: bool, group: WeightGroup) -> tuple[Gemm, ...]:
    cut = group == "experts"
    parts = ("gate_proj", "up_proj") if gated else ("up_proj",)
    ups = tuple(Gemm(f"{name}.{part}", width, hidden, "experts" if cut else "out", group) for part in parts)
    return (*ups, Gemm(f"{name}.down_proj", hidden, width, "experts" if cut else "in", group))


def dense(keys: Keys, traits: Traits, g: Geometry, width: int | None = None, name: str = "mlp") -> Ffn:
    """Gate, up and down (or up and down) of ``width``, which is read from the config unless given."""
    if width is None:
        width = _dense_width(keys, g)
    gemms = _matrices(name, width, g.hidden, traits.gated, "dense_ffn")
    explicit = keys.get("mlp_bias")
    bias = sum(gemm.out_features for gemm in gemms) if (traits.ffn_bias if explicit is None else explicit) else 0
    return Ffn("dense", intermediate=width, gemms=gemms, vector_params=bias)


def _dense_width(keys: Keys, g: Geometry) -> int:
    if keys.model_type == "llama4_text":
        return keys.need("intermediate_size_mlp", *DENSE_WIDTH)
    if keys.get("dense_intermediate_size") is not None:
        return keys.need("dense_intermediate_size")
    if keys.model_type in ("gpt2", "gpt_bigcode", "gptj") and keys.get(*DENSE_WIDTH) is None:
        keys.origin[DENSE_WIDTH[0]] = "4 x n_embd (n_inner is null)"
        return 4 * g.hidden
    if keys.model_type in ("falcon", "bloom", "mpt") and keys.get(*DENSE_WIDTH) is None:
        times = keys.integer("expansion_ratio", default=4) or 4
        keys.origin[DENSE_WIDTH[0]] = f"{times} x hidden_size"
        return times * g.hidden
    width = keys.need(*DENSE_WIDTH)
    if keys.model_type == "qwen":
        keys.origin[DENSE_WIDTH[0]] += " / 2 (gate and up together)"
        return width // 2
    if keys.flag("block_auto_adjust_ff_dim"):
        return _adjusted_width(keys, width)
    return width


def _adjusted_width(keys: Keys, width: int) -> int:
    """LFM2: 2/3 of the width, times a multiplier, rounded up to a multiple."""
    factor = keys.get("block_ffn_dim_multiplier")
    step = keys.integer("block_multiple_of", default=256) or 256
    if factor is not None and not (isinstance(factor, int | float) and 0 < factor < 100):
        keys.invalid("block_ffn_dim_multiplier", factor, "a factor above 0", "1.0")
        factor = None
    kept = int((1.0 if factor is None else factor) * int(2 * width / 3))
    return -(-kept // step) * step


@dataclass(frozen=True)
class MoeShape:
    experts: int
    top_k: int
    width: int
    shared_width: int
    shared_gate: bool
    expert_hidden: int


def read_moe(keys: Keys, g: Geometry) -> MoeShape | None:
    """Sizes of the MoE layers, or None for a dense model (no experts named, or one of them)."""
    experts = keys.integer(*EXPERTS, minimum=0)
    if not experts or experts == 1 or keys.get("enable_moe_block") is False:
        return None
    width = keys.integer(*EXPERT_WIDTH)
    if width is None:
        width = keys.need(*DENSE_WIDTH)
        keys.origin[EXPERT_WIDTH[0]] = keys.origin.get(DENSE_WIDTH[0], DENSE_WIDTH[0])
    count = keys.integer(*SHARED_COUNT, default=0, minimum=0) or 0
    shared = keys.integer(*SHARED_WIDTH, default=0, minimum=0) or 0
    each = keys.integer("moe_shared_expert_intermediate_size", default=0, minimum=0) or 0
    if each:
        shared = each * max(count, 1)
    elif not shared:
        shared = count * width
    if keys.model_type == "llama4_text":
        shared = width
    if keys.flag("enable_moe_block"):
        shared = keys.need(*DENSE_WIDTH)
    if keys.flag("residual_moe"):  # Grok: a dense FFN beside the experts
        shared = keys.need(*DENSE_WIDTH)
    elif keys.flag("use_residual"):  # Arctic: one as wide as the model
        shared = g.hidden
    top_k = keys.need(*TOP_K)
    if top_k > experts:
        keys.invalid(TOP_K[0], top_k, f"at most the {experts} experts")
    return MoeShape(
        experts=experts,
        top_k=top_k,
        width=width,
        shared_width=shared,
        shared_gate=keys.get("shared_expert_intermediate_size") not in (None, 0),
        expert_hidden=keys.integer("moe_latent_size", "routed_expert_hidden_size", default=g.hidden) or g.hidden,
    )


def moe(keys: Keys, traits: Traits, g: Geometry, shape: MoeShape) -> Ffn:
    """Router, shared experts, latent projections (Nemotron 3, Kimi-K3) and the matrices of one routed expert."""
    name = PREFIX.get(keys.model_type, "mlp")
    router = "router.proj" if keys.flag("enable_moe_block") else f"{name}.gate"
    gemms = [Gemm(router, shape.experts, g.hidden, "none", "router")]
    if shape.shared_width:
        shared = "shared_experts" if keys.get(*SHARED_COUNT) else "shared_expert"
        path = name if keys.flag("enable_moe_block") else f"{name}.{shared}"
        gemms += _matrices(path, shape.shared_width, g.hidden, traits.gated, "shared_experts")
    if shape.shared_gate:
        gemms.append(Gemm(f"{name}.shared_expert_gate", 1, g.hidden, "none", "router"))
    if shape.expert_hidden != g.hidden:
        gemms.append(Gemm(f"{name}.fc1_latent_proj", shape.expert_hidden, g.hidden, "none", "shared_experts"))
        gemms.append(Gemm(f"{name}.fc2_latent_proj", g.hidden, shape.expert_hidden, "none", "shared_experts"))
    bias = str(keys.get("topk_method")) in SCORE_BIAS or keys.flag("use_routing_bias") or keys.flag("use_moe_router_bias")
    router_bias = shape.experts if bias or traits.score_bias or traits.ffn_bias else 0
    path = "experts.0" if keys.flag("enable_moe_block") else f"{name}.experts.0"
    expert = _matrices(path, shape.width, shape.expert_hidden, traits.gated, "experts")
    return Ffn(
        "moe",
        intermediate=shape.width,
        experts=shape.experts,
        top_k=shape.top_k,
        shared_intermediate=shape.shared_width,
        gemms=tuple(gemms),
        expert_gemms=expert,
        vector_params=router_bias,
        expert_vector_params=sum(gemm.out_features for gemm in expert) if traits.ffn_bias else 0,
    )


def moe_layers(keys: Keys, layers: int) -> Callable[[int], bool]:
    """Which layers are MoE, in every encoding the published configs use."""
    kinds = keys.per_layer("mlp_layer_types", layers)
    if kinds is not None:
        unknown = sorted({str(kind) for kind in kinds} - {"dense", "sparse", "moe"})
        if unknown:
            keys.invalid("mlp_layer_types", ", ".join(unknown), "dense, sparse or moe")
        return lambda layer: kinds[layer] != "dense"
    frequencies = keys.per_layer("moe_layer_freq", layers)
    if frequencies is not None:
        return lambda layer: bool(frequencies[layer])
    chosen = keys.marks("moe_layers_enum", "moe_layers")
    if chosen is not None:
        numbers = [str(number).strip() for number in (chosen.split(",") if isinstance(chosen, str) else chosen)]
        if not all(number.isdigit() for number in numbers):
            keys.invalid("moe_layers_enum", ", ".join(numbers), "numbers of layers", "3,4,5")
        members = {int(number) for number in numbers if number.isdigit()}
        return lambda layer: layer in members
    if keys.get("expert_layer_period") is not None:
        period, offset = keys.need("expert_layer_period"), keys.integer("expert_layer_offset", default=0, minimum=0)
        return lambda layer: layer % period == offset
    if keys.get("interleave_moe_layer_step") is not None:
        step = keys.need("interleave_moe_layer_step")
        return lambda layer: (layer + 1) % step == 0
    only_dense = set(keys.marks("mlp_only_layers") or ())
    step = keys.integer("decoder_sparse_step", default=1) or 1
    first = keys.integer("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0, minimum=0) or 0
    every = keys.integer("moe_layer_freq", default=1) or 1
    return lambda layer: layer not in only_dense and (layer + 1) % step == 0 and layer >= first and layer % every == 0
