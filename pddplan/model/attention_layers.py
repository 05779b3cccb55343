"""Attention of one layer from its dimensions: the matrices with their sizes, norms and biases, and what it caches."""

from __future__ import annotations

from dataclasses import replace

from pddplan.model.architectures import Traits
from pddplan.model.geometry import PURE_STATE, Geometry
from pddplan.model.reading import Keys
from pddplan.model.spec import Attention, Gemm, Indexer, LinearState, Shard, WeightGroup

SSM_DTYPE = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
DTYPE_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}


def _gemm(name: str, out: int, inner: int, shard: Shard, group: WeightGroup = "attention", max_shards: int = 0) -> Gemm:
    return Gemm(name, out, inner, shard, group, max_shards)


def grouped_query(keys: Keys, traits: Traits, g: Geometry, window: int | None, name: str = "self_attn") -> Attention:
    """Multi-head, grouped-query or multi-query attention, with ``window`` tokens or all."""
    heads, kv_heads, qk, v = g.heads, g.kv_heads, g.qk_head_dim, g.v_head_dim
    keys_are_values = keys.flag("attention_k_eq_v") and window is None
    gate = 2 if keys.flag("attn_output_gate", default=traits.gated_attention) else 1
    shared_query = keys.integer("share_q_dim")  # Step-3: queries through one projection that all heads share
    query = [_gemm(f"{name}.q_proj", gate * heads * qk, g.hidden, "out")]
    if shared_query:
        query = [_gemm(f"{name}.q_proj", shared_query, g.hidden, "none"), _gemm(f"{name}.wq", heads * qk, shared_query, "out")]
    gemms = [
        *query,
        _gemm(f"{name}.k_proj", kv_heads * qk, g.hidden, "out", max_shards=kv_heads),
        _gemm(f"{name}.v_proj", kv_heads * v, g.hidden, "out", max_shards=kv_heads),
        _gemm(f"{name}.o_proj", g.hidden, heads * v, "in"),
    ]
    if keys_are_values:
        del gemms[-2]
    explicit = keys.get("attention_bias", "qkv_bias")
    qkv_bias = traits.qkv_bias if explicit is None else bool(explicit)
    vectors = sum(gemm.out_features for gemm in gemms[:-1]) if qkv_bias else 0
    vectors += g.hidden if traits.o_bias or (qkv_bias and not traits.qkv_bias) else 0
    if keys.flag("use_qk_norm", default=traits.qk_norm_default):
        vectors += {"": 0, "head": 2 * qk, "full": (heads + kv_heads) * qk}[traits.qk_norm]
    sinks = traits.sinks or keys.flag("add_full_attention_sink_bias" if window is None else "add_swa_attention_sink_bias")
    return Attention(
        kind="full" if window is None else "window",
        heads=heads,
        kv_heads=kv_heads,
        qk_head_dim=qk,
        v_head_dim=v,
        window_tokens=window,
        indexer=_block_indexer(keys),
        gemms=tuple(gemms),
        vector_params=vectors + (heads if sinks else 0),
    )


def _block_indexer(keys: Keys) -> Indexer | None:
    """Block-sparse attention of MiniMax-M3: an indexer key per token, ``sparse_topk_blocks`` blocks kept."""
    if not keys.flag("sparse_attention_config.use_sparse_attention"):
        return None
    section = "sparse_attention_config."
    blocks = keys.need(f"{section}sparse_topk_blocks") + (keys.integer(f"{section}sparse_local_block", default=0, minimum=0) or 0)
    return Indexer(
        heads=keys.need(f"{section}sparse_num_index_heads"),
        head_dim=keys.need(f"{section}sparse_index_dim"),
        top_k=blocks * keys.need(f"{section}sparse_block_size"),
        key_format="kv",
    )


def with_indexer_weights(attention: Attention, hidden: int, query_width: int, name: str = "self_attn") -> Attention:
    """Adds the indexer's own matrices: queries from ``query_width``, keys and head weights from the hidden state."""
    indexer = attention.indexer
    if indexer is None or not indexer.owns_keys:
        return attention
    gemms = (
        _gemm(f"{name}.indexer.wq_b", indexer.heads * indexer.head_dim, query_width, "none", "indexer"),
        _gemm(f"{name}.indexer.wk", indexer.head_dim, hidden, "none", "indexer"),
        _gemm(f"{name}.indexers_proj", indexer.heads, hidden, "none", "indexer"),
    )
    return replace(attention, gemms=attention.gemms + gemms, vector_params=attention.vector_params + 2 * indexer.head_dim)


def latent(keys: Keys, g: Geometry, indexer: Indexer | None, name: str = "self_attn") -> Attention:
    """MLA: one latent of kv_lora_rank + qk_rope_head_dim a token for all heads; with ``indexer`` it is DSA."""
    q_rank = keys.integer("q_lora_rank", default=0) or 0
    rank, rope, nope = keys.need("kv_lora_rank"), keys.need("qk_rope_head_dim"), keys.need("qk_nope_head_dim")
    if keys.model_type == "minicpm3" and keys.get("v_head_dim") is None:
        v = g.v_head_dim
        keys.origin["v_head_dim"] = "hidden_size / num_attention_heads"
    else:
        v = keys.need("v_head_dim")
    heads, qk = g.heads, nope + rope
    query = (
        [_gemm(f"{name}.q_a_proj", q_rank, g.hidden, "none"), _gemm(f"{name}.q_b_proj", heads * qk, q_rank, "out")]
        if q_rank
        else [_gemm(f"{name}.q_proj", heads * qk, g.hidden, "out")]
    )
    gemms = [
        *query,
        _gemm(f"{name}.kv_a_proj_with_mqa", rank + rope, g.hidden, "none"),
        _gemm(f"{name}.kv_b_proj", heads * (nope + v), rank, "out"),
        _gemm(f"{name}.o_proj", g.hidden, heads * v, "in"),
    ]
    if keys.flag("mla_use_output_gate"):
        gemms.append(_gemm(f"{name}.g_proj", heads * v, g.hidden, "out"))
    attention = Attention(
        kind="mla",
        heads=heads,
        kv_heads=1,
        qk_head_dim=qk,
        v_head_dim=v,
        q_lora_rank=q_rank,
        kv_lora_rank=rank,
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        indexer=indexer,
        gemms=tuple(gemms),
        vector_params=q_rank + rank,
    )
    return with_indexer_weights(attention, g.hidden, q_rank or g.hidden, name)


def compressed(keys: Keys, g: Geometry, ratio: int, name: str = "attn") -> Attention:
    """DeepSeek-V4: CSA (ratio 4, with indexer), HCA (larger ratio) or, at ratio 0, the window alone.

    Matrices after the published reference implementation: low-rank queries, one shared key/value vector, grouped low-rank
    output, and a compressor (values and gates, twice as wide where the blocks of CSA overlap).
    """
    heads, dim, q_rank = g.heads, g.qk_head_dim, keys.need("q_lora_rank")
    o_groups, o_rank, window = keys.need("o_groups"), keys.need("o_lora_rank"), keys.need("sliding_window")
    gemms = [
        _gemm(f"{name}.wq_a", q_rank, g.hidden, "none"),
        _gemm(f"{name}.wq_b", heads * dim, q_rank, "out"),
        _gemm(f"{name}.wkv", dim, g.hidden, "none"),
        _gemm(f"{name}.wo_a", o_groups * o_rank, heads * dim // o_groups, "out", max_shards=o_groups),
        _gemm(f"{name}.wo_b", g.hidden, o_groups * o_rank, "in"),
    ]
    vectors = q_rank + dim + heads
    indexer = None
    is_csa = ratio == CSA_RATIO
    if ratio:
        width = dim * (2 if is_csa else 1)
        gemms += [_gemm(f"{name}.compressor.{part}", width, g.hidden, "none") for part in ("wkv", "wgate")]
        vectors += ratio * width + dim
    if is_csa:
        indexer = Indexer(keys.need("index_n_heads"), keys.need("index_head_dim"), keys.need("index_topk"), key_format="entry")
        width = 2 * indexer.head_dim
        gemms += [
            _gemm(f"{name}.indexer.wq_b", indexer.heads * indexer.head_dim, q_rank, "none", "indexer"),
            _gemm(f"{name}.indexer.weights_proj", indexer.heads, g.hidden, "none", "indexer"),
            _gemm(f"{name}.indexer.compressor.wkv", width, g.hidden, "none", "indexer"),
            _gemm(f"{name}.indexer.compressor.wgate", width, g.hidden, "none", "indexer"),
        ]
        vectors += ratio * width + indexer.head_dim
    return Attention(
        kind="csa" if is_csa else "hca" if ratio else "window",
        heads=heads,
        kv_heads=1,
        qk_head_dim=dim,
        v_head_dim=dim,
        window_tokens=window,
        q_lora_rank=q_rank,
        qk_rope_head_dim=keys.need("qk_rope_head_dim"),
        compress_ratio=max(ratio, 1),
        indexer=indexer,
        shared_kv=True,
        gemms=tuple(gemms),
        vector_params=vectors,
    )


CSA_RATIO = 4


def _state_bytes(keys: Keys) -> tuple[float, bool]:
    """Bytes per element of recurrent state and whether the config says so (float32 otherwise)."""
    name = keys.get(*SSM_DTYPE)
    if name is None:
        return 4.0, False
    if str(name) not in DTYPE_BYTES:
        keys.invalid(SSM_DTYPE[0], name, f"one of {', '.join(DTYPE_BYTES)}", "float32")
        return 4.0, False
    return DTYPE_BYTES[str(name)], True


def gated_delta(keys: Keys, g: Geometry, name: str = "linear_attn") -> Attention:
    """Gated DeltaNet (Qwen3-Next, Qwen3.5): value_heads matrices of key_dim x value_dim, one convolution over q, k, v."""
    key_heads, value_heads = keys.need("linear_num_key_heads"), keys.need("linear_num_value_heads")
    key_dim, value_dim = keys.need("linear_key_head_dim"), keys.need("linear_value_head_dim")
    kernel = keys.need("linear_conv_kernel_dim")
    element, _ = _state_bytes(keys)
    values = value_heads * value_dim
    channels = 2 * key_heads * key_dim + values
    gemms = (
        _gemm(f"{name}.in_proj_qkv", channels, g.hidden, "out"),
        _gemm(f"{name}.in_proj_z", values, g.hidden, "out"),
        _gemm(f"{name}.in_proj_b", value_heads, g.hidden, "out"),
        _gemm(f"{name}.in_proj_a", value_heads, g.hidden, "out"),
        _gemm(f"{name}.out_proj", g.hidden, values, "in"),
    )
    state = LinearState("gdn", key_heads, value_heads, key_dim, value_dim, channels, kernel - 1, element, element)
    return Attention("linear", heads=value_heads, state=state, gemms=gemms, vector_params=channels * kernel + 2 * value_heads + value_dim)


def kimi_delta(keys: Keys, g: Geometry, name: str = "self_attn") -> Attention:
    """Kimi Delta Attention: heads matrices of head_dim x head_dim, three separate short convolutions (q, k, v)."""
    section = "linear_attn_config."
    heads, dim, kernel = (keys.need(section + key) for key in ("num_heads", "head_dim", "short_conv_kernel_size"))
    width = heads * dim
    gate = (
        [_gemm(f"{name}.g_proj", width, g.hidden, "out")]
        if keys.flag(f"{section}use_full_rank_gate")
        else [_gemm(f"{name}.g_a_proj", dim, g.hidden, "none"), _gemm(f"{name}.g_b_proj", width, dim, "out")]
    )
    gemms = (
        *(_gemm(f"{name}.{part}_proj", width, g.hidden, "out") for part in "qkv"),
        _gemm(f"{name}.f_a_proj", dim, g.hidden, "none"),
        _gemm(f"{name}.f_b_proj", width, dim, "out"),
        _gemm(f"{name}.b_proj", heads, g.hidden, "out"),
        *gate,
        _gemm(f"{name}.o_proj", g.hidden, width, "in"),
    )
    element, _ = _state_bytes(keys)
    state = LinearState("kda", heads, heads, dim, dim, 3 * width, kernel - 1, element, 2.0, conv_fused=False)
    return Attention("linear", heads=heads, state=state, gemms=gemms, vector_params=3 * width * kernel + heads + width + dim)


def mamba2(keys: Keys, g: Geometry, name: str = "mixer") -> Attention:
    """Mamba2: heads matrices of state size x head_dim; convolution over x, B and C."""
    alone = keys.model_type == "mamba2"
    heads = keys.need("mamba_num_heads", "mamba_n_heads", *(("num_heads",) if alone else ()))
    dim = keys.need("mamba_head_dim", "mamba_d_head", *(("head_dim",) if alone else ()))
    size = keys.need("ssm_state_size", "mamba_d_state", *(("state_size",) if alone else ()))
    groups = keys.need("n_groups", "mamba_n_groups")
    kernel = keys.need("conv_kernel", "mamba_d_conv")
    inner = heads * dim
    channels = inner + 2 * groups * size
    gemms = (
        _gemm(f"{name}.in_proj", inner + channels + heads, g.hidden, "out"),
        _gemm(f"{name}.out_proj", g.hidden, inner, "in"),
    )
    element, _ = _state_bytes(keys)
    state = LinearState("mamba2", groups, heads, size, dim, channels, kernel - 1, element, element)
    conv_bias = channels if keys.flag("use_conv_bias", keys.flag("mamba_conv_bias", True)) else 0
    return Attention("linear", heads=heads, state=state, gemms=gemms, vector_params=channels * kernel + conv_bias + 3 * heads + inner)


def mamba1(keys: Keys, g: Geometry, name: str = "mamba") -> Attention:
    """Mamba (alone, or in Jamba with three more norms): inner channels x state size; convolution over the inner channels."""
    size, kernel = keys.need("mamba_d_state", "state_size"), keys.need("mamba_d_conv", "conv_kernel")
    alone = keys.model_type in PURE_STATE
    inner = (keys.integer("intermediate_size") if alone else None) or keys.need("mamba_expand", "expand") * g.hidden
    default_rank = -(-g.hidden // 16)
    named = keys.get("mamba_dt_rank", "time_step_rank") != "auto"
    rank = (keys.integer("mamba_dt_rank", "time_step_rank", default=default_rank) if named else default_rank) or 1
    gemms = (
        _gemm(f"{name}.in_proj", 2 * inner, g.hidden, "out"),
        _gemm(f"{name}.x_proj", rank + 2 * size, inner, "in"),
        _gemm(f"{name}.dt_proj", inner, rank, "out"),
        _gemm(f"{name}.out_proj", g.hidden, inner, "in"),
    )
    element, _ = _state_bytes(keys)
    state = LinearState("mamba", 1, inner, size, 1, inner, kernel - 1, element, element)
    vectors = inner * kernel + inner + inner * size + 2 * inner + (0 if alone else rank + 2 * size)
    return Attention("linear", heads=inner, state=state, gemms=gemms, vector_params=vectors)


def lightning(keys: Keys, g: Geometry, name: str = "self_attn") -> Attention:
    """Lightning attention (MiniMax-01, Ring-2.5): heads matrices of head_dim x head_dim, no convolution."""
    width = g.heads * g.qk_head_dim
    gemms = (
        _gemm(f"{name}.qkv_proj", 3 * width, g.hidden, "out"),
        _gemm(f"{name}.output_gate", width, g.hidden, "out"),
        _gemm(f"{name}.out_proj", g.hidden, width, "in"),
    )
    element, _ = _state_bytes(keys)
    state = LinearState("lightning", g.heads, g.heads, g.qk_head_dim, g.qk_head_dim, 0, 0, element, element)
    return Attention("linear", heads=g.heads, state=state, gemms=gemms, vector_params=width)


def short_convolution(keys: Keys, g: Geometry, name: str = "conv") -> Attention:
    """Gated short convolution (LFM2): the inputs of the last taps - 1 tokens are kept."""
    taps = keys.need("conv_L_cache")
    gemms = (_gemm(f"{name}.in_proj", 3 * g.hidden, g.hidden, "out"), _gemm(f"{name}.out_proj", g.hidden, g.hidden, "in"))
    state = LinearState("conv", 0, 0, 0, 0, g.hidden, taps - 1, 4.0, 2.0)
    return Attention("linear", state=state, gemms=gemms, vector_params=g.hidden * taps)
