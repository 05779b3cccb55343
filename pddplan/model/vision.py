"""Parameters of a vision tower and its projector from its own config: they occupy memory beside the language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def vision_params(root: Mapping[str, Any], text_hidden: int) -> tuple[int, str]:
    """Parameters and a note on how they were counted; (0, "") without a vision section. ``text_hidden``: width of the language model.

    Counted from the published layouts of Qwen-VL, MoonViT (Kimi), Gemma and SigLIP-like towers: patch embedding, position
    table, transformer blocks, projector. A section without readable sizes gives 0 and says so.
    """
    config = root.get("vision_config") or root.get("visual")
    if not isinstance(config, Mapping):
        return 0, ""
    kind = str(root.get("model_type") or "")
    try:
        if "deepstack_visual_indexes" in config:
            return _qwen(config), ""
        if "vt_hidden_size" in config:
            return _moon(config), ""
    except (KeyError, TypeError, ValueError, IndexError) as error:
        return 0, f"the vision section of {kind} cannot be read ({error}): its parameters are not counted"
    layers, hidden = _first(config, "num_hidden_layers", "depth", "layers"), _first(config, "hidden_size", "width", "embed_dim")
    if layers is None or hidden is None:
        return 0, f"the vision section of {kind} has no readable sizes: its parameters are not counted"
    ratio = config.get("mlp_ratio")
    inner = _first(config, "intermediate_size", "mlp_dim") or int((ratio if isinstance(ratio, int | float) else 4.0) * hidden)
    matrices = 3 if str(config.get("model_type") or "").startswith("gemma4") else 2
    patch = _first(config, "patch_size") or 14
    block = 4 * hidden * hidden + matrices * hidden * inner + 4 * hidden
    total = layers * block + 3 * patch * patch * hidden + hidden * text_hidden
    return total, "vision parameters are a generic estimate (blocks, patch embedding, linear projector)"


def _first(config: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        if isinstance(config.get(name), int) and not isinstance(config[name], bool) and config[name] > 0:
            return int(config[name])
    return None


def _qwen(config: Mapping[str, Any]) -> int:
    """Qwen3-VL tower: biases everywhere, a merger of spatial_merge_size^2 patches, one more per deepstack level."""
    hidden, inner, out = (int(config[key]) for key in ("hidden_size", "intermediate_size", "out_hidden_size"))
    patch = int(config["in_channels"]) * int(config["temporal_patch_size"]) * int(config["patch_size"]) ** 2
    block = 4 * hidden + 3 * hidden * hidden + 3 * hidden + hidden * hidden + hidden + 2 * hidden * inner + inner + hidden
    merged = hidden * int(config["spatial_merge_size"]) ** 2
    merger = merged * merged + merged + merged * out + out
    positions = int(config["num_position_embeddings"]) * hidden
    levels = len(config["deepstack_visual_indexes"])
    norms = 2 * hidden + levels * 2 * merged
    return patch * hidden + hidden + positions + int(config["depth"]) * block + (1 + levels) * merger + norms


def _moon(config: Mapping[str, Any]) -> int:
    """MoonViT of Kimi-K2.5 and K3."""
    hidden, inner, out = (int(config[key]) for key in ("vt_hidden_size", "vt_intermediate_size", "text_hidden_size"))
    width = int(config.get("qkv_hidden_size") or hidden)
    bias = 0 if config.get("attn_bias") is False else 1
    block = 4 * hidden + 4 * hidden * width + bias * (3 * width + hidden) + 2 * hidden * inner + inner + hidden
    positions = int(config["init_pos_emb_height"]) * int(config["init_pos_emb_width"]) * hidden
    merged = hidden * int(config["merge_kernel_size"][0]) * int(config["merge_kernel_size"][1])
    projector = 2 * hidden + merged * merged + merged + merged * out + out
    patch = 3 * int(config["patch_size"]) ** 2 * hidden + hidden
    return patch + positions + int(config["vt_num_hidden_layers"]) * block + 2 * hidden + projector
