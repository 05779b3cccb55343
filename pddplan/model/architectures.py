"""What a config does not say about its architecture: biases, norms, gating, tying; by model_type, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Traits:
    """Conventions of one family (its reference implementation in transformers or the model's own repository).

    gated: FFN has gate, up and down (else up and down). norms: RMS or layer norms per block, each ``hidden`` wide
    (``norm_bias`` doubles them). tied: default of tie_word_embeddings. sliding_default: layers that a bare
    ``sliding_window`` caps ("all", "even", "N:1" windows to full, or "none": only where use_sliding_window asks for it).
    qk_norm_default: whether query and key norms stand where use_qk_norm is silent. gated_attention: queries have a gate of
    their width. score_bias: the router has a correction bias per expert. position_offset: unused rows of learned positions.
    embedding_norm: a norm after the embedding.
    """

    gated: bool = True
    qkv_bias: bool = False
    o_bias: bool = False
    ffn_bias: bool = False
    qk_norm: str = ""  # "" | head | full | shared
    norms: int = 2
    norm_bias: bool = False
    tied: bool = False
    lm_head_bias: bool = False
    sinks: bool = False
    learned_positions: bool = False
    sliding_default: str = "all"
    qk_norm_default: bool = True
    gated_attention: bool = False
    score_bias: bool = False
    position_offset: int = 0
    embedding_norm: bool = False
    validated: bool = True


_LLAMA = Traits()
_GPT = Traits(gated=False, qkv_bias=True, o_bias=True, ffn_bias=True, norm_bias=True, tied=True, learned_positions=True)
_QWEN2 = Traits(qkv_bias=True, sliding_default="none")
_QWEN3 = Traits(qk_norm="head", sliding_default="none")
_DEEPSEEK = Traits(sliding_default="none")
_GEMMA3 = Traits(qk_norm="head", norms=4, tied=True, sliding_default="5:1")

TRAITS: dict[str, Traits] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "nemotron-nas": _LLAMA,
    "deci": _LLAMA,
    "jamba": _LLAMA,
    "minimax_text_01": _LLAMA,
    "granitemoehybrid": _LLAMA,
    "falcon_h1": _LLAMA,
    "llama4_text": replace(_LLAMA, sliding_default="3:1"),
    "granite": _LLAMA,
    "granitemoe": _LLAMA,
    "internlm2": _LLAMA,
    "internlm3": _LLAMA,
    "baichuan": _LLAMA,
    "smollm3": replace(_LLAMA, tied=True),
    "phi3": _LLAMA,
    "seed_oss": _QWEN2,
    "chatglm": Traits(qkv_bias=True),
    "glm4": Traits(qkv_bias=True, norms=4),
    "glm": Traits(qkv_bias=True),
    "glm4_moe": Traits(qkv_bias=True, qk_norm="head", qk_norm_default=False, score_bias=True),
    "olmo": Traits(norms=0),
    "olmo2": Traits(qk_norm="full"),
    "olmo3": Traits(qk_norm="full"),
    "olmoe": Traits(qk_norm="full"),
    "minicpm": _LLAMA,
    "bailing_moe": _LLAMA,
    "ernie4_5": replace(_LLAMA, tied=True),
    "ernie4_5_moe": replace(_LLAMA, tied=True),
    "dots1": Traits(qk_norm="head", sliding_default="none"),
    "hunyuan_v1_moe": Traits(qk_norm="head", tied=True),
    "qwen3_omni_moe_text": _QWEN3,
    "qwen": Traits(qkv_bias=True),
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_moe": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "qwen3_vl_moe_text": _QWEN3,
    "qwen3_next": replace(_QWEN3, gated_attention=True),
    "qwen3_5_text": _QWEN3,
    "qwen3_5_moe_text": _QWEN3,
    "mimo": _QWEN2,
    "mimo_v2_flash": Traits(),
    "minimax": Traits(),
    "minimax_m2": Traits(qk_norm="full"),
    "minimax_m3": Traits(qk_norm="head"),
    "gpt_oss": Traits(qkv_bias=True, o_bias=True, ffn_bias=True, sinks=True),
    "step3p7": Traits(qk_norm="head"),
    "step3p5": Traits(qk_norm="head"),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "deepseek_v4": _DEEPSEEK,
    "deepseek_ref": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "kimi_linear": replace(_DEEPSEEK, score_bias=True),
    "minicpm3": replace(_DEEPSEEK, tied=True),
    "deepseek": _LLAMA,
    "glm_moe_dsa": _DEEPSEEK,
    "longcat_flash": _DEEPSEEK,
    "bailing_hybrid": replace(_DEEPSEEK, validated=False),
    "nemotron_h": Traits(gated=False, norms=1),
    "nemotron": Traits(gated=False, norm_bias=True),
    "gemma": Traits(tied=True),
    "gemma2": Traits(norms=4, tied=True, sliding_default="even"),
    "gemma3_text": _GEMMA3,
    "gemma3": _GEMMA3,
    "gemma3n_text": _GEMMA3,
    "gemma4_text": _GEMMA3,
    "cohere": Traits(norms=1, tied=True, qk_norm="full", qk_norm_default=False),
    "cohere2": Traits(norms=1, tied=True, sliding_default="3:1"),
    "exaone4": Traits(qk_norm="head", sliding_default="3:1"),
    "gpt2": _GPT,
    "gpt_bigcode": _GPT,
    "gptj": Traits(gated=False, ffn_bias=True, norms=1, norm_bias=True, lm_head_bias=True),
    "gpt_neox": Traits(gated=False, qkv_bias=True, o_bias=True, ffn_bias=True, norm_bias=True),
    "opt": replace(_GPT, position_offset=2),
    "bloom": Traits(
        gated=False, qkv_bias=True, o_bias=True, ffn_bias=True, norm_bias=True, tied=True, embedding_norm=True
    ),
    "falcon": Traits(gated=False, norms=1, norm_bias=True, tied=True),
    "mpt": Traits(gated=False, tied=True),
    "mamba": Traits(norms=1, tied=True),
    "falcon_mamba": Traits(norms=1),
    "mamba2": Traits(norms=1, tied=True),
    "mllama_text_model": _LLAMA,
    "step3_text": _LLAMA,
    "dbrx": _LLAMA,
    "bamba": _LLAMA,
    "exaone": _LLAMA,
    "bailing_moe_v2": Traits(qk_norm="head", score_bias=True),
    "apertus": Traits(gated=False, qk_norm="head"),
    "lfm2": Traits(qk_norm="head", tied=True),
    "lfm2_moe": Traits(qk_norm="head", tied=True, score_bias=True),
    "phi": Traits(gated=False, qkv_bias=True, o_bias=True, ffn_bias=True, norms=1, norm_bias=True, lm_head_bias=True),
    "phimoe": Traits(qkv_bias=True, o_bias=True, norm_bias=True, lm_head_bias=True),
    "starcoder2": Traits(gated=False, qkv_bias=True, o_bias=True, ffn_bias=True, norm_bias=True, tied=True),
}
UNGATED_ACTIVATIONS = frozenset({"relu", "relu2", "gelu", "gelu_new", "gelu_fast", "quick_gelu", "xielu"})
MODEL_TYPE_ALIASES = {"RefinedWeb": "falcon", "RefinedWebModel": "falcon", "minimax_m1": "minimax_text_01", "hunyuan": "hunyuan_v1_moe"}
CLASS_DEFAULTS: dict[str, dict[str, int]] = {
    "gemma3_text": {"vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256},
    "mistral": {"num_attention_heads": 32},
}
"""What transformers' configuration classes fill in: the language part of a published multimodal config is written as differences
from them (Gemma-3-4B names no heads, Gemma-3-27B no vocabulary, Pixtral no attention heads)."""


def traits_of(model_type: str, activation: str) -> Traits:
    """Conventions of the family; of an unknown one, Llama's with ``validated=False`` and gating by its activation."""
    if model_type in TRAITS:
        return TRAITS[model_type]
    return Traits(gated=activation not in UNGATED_ACTIVATIONS, validated=False)
