"""Dimensions that every family shares: layers, width, heads, head sizes."""

from __future__ import annotations

from dataclasses import dataclass

from pddplan.model.reading import Keys

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "num_attention_groups", "attn_config.kv_n_heads")
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
VOCAB = ("vocab_size", "padded_vocab_size")
PURE_STATE = frozenset({"mamba", "falcon_mamba", "mamba2"})
"""Families without attention: every layer is one Mamba mixer."""
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")


@dataclass(frozen=True)
class Geometry:
    layers: int
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    qk_head_dim: int
    v_head_dim: int
    notes: tuple[str, ...]


def read_geometry(keys: Keys, layers: int) -> Geometry:
    """Width and head sizes; records missing keys in ``keys.problems``.

    A missing head_dim is hidden / heads; missing KV heads mean as many as heads (multi-head attention) or, with
    ``multi_query``, one. Both are said in ``notes``.
    """
    hidden, vocab = keys.need(*HIDDEN), keys.need(*VOCAB)
    if keys.model_type in PURE_STATE:
        return Geometry(layers, hidden, vocab, heads=1, kv_heads=1, qk_head_dim=1, v_head_dim=1, notes=())
    heads = keys.need(*HEADS)
    notes: list[str] = []
    qk_head_dim = keys.integer(*HEAD_DIM)
    mla = keys.get("kv_lora_rank") is not None
    if qk_head_dim is None:
        if hidden % heads and not mla and not keys.problems:
            keys.invalid(HEADS[0], heads, f"a divisor of hidden_size {hidden}, or a head_dim", f"{HEAD_DIM[0]}: 128")
        qk_head_dim = max(1, hidden // heads)
        keys.origin["head_dim"] = "hidden_size / num_attention_heads"
        if not mla:
            notes.append(f"head_dim is not in the config: hidden_size {hidden} / {heads} heads = {qk_head_dim}")
    return Geometry(
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        heads=heads,
        kv_heads=_kv_heads(keys, heads, mla, notes),
        qk_head_dim=qk_head_dim,
        v_head_dim=keys.integer("v_head_dim", default=qk_head_dim) or qk_head_dim,
        notes=tuple(notes),
    )


def _kv_heads(keys: Keys, heads: int, mla: bool, notes: list[str]) -> int:
    groups = keys.integer("multi_query_group_num") if keys.flag("multi_query_attention") else None
    if groups is not None:
        return groups
    if keys.get("attn_config.attn_type") == "multiquery_attention":
        keys.origin[KV_HEADS[0]] = keys.origin["attn_config.attn_type"]
        return 1
    if keys.flag("multi_query") and not keys.flag("new_decoder_architecture"):
        keys.origin[KV_HEADS[0]] = keys.origin["multi_query"]
        return 1
    found = keys.integer(*KV_HEADS)
    if found is None:
        keys.origin[KV_HEADS[0]] = keys.origin.get(HEADS[0], HEADS[0])
        if not mla and keys.get("block_configs") is None:
            notes.append(f"num_key_value_heads is absent or null: multi-head attention with {heads} KV heads")
        return heads
    if heads % found:
        keys.invalid(KV_HEADS[0], found, f"a divisor of the {heads} attention heads")
        return heads
    return found
