"""Blocks of weights that share a scale: two whole numbers over 0, or an error that says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pddplan.errors import InputError
from pddplan.model.catalog import load_model

SHIPPED = Path(__file__).parent.parent.parent / "model_profiles" / "deepseek-ai--DeepSeek-V3_config.json"


@pytest.mark.parametrize("size", [[0, 0], [128, 0], [-1, 128], [128], "x", 5, [1.5, 2]])
@pytest.mark.parametrize("style", ["fp8", "compressed-tensors"])
def test_a_block_of_no_size_is_an_error_of_the_config(size: object, style: str, tmp_path: Path) -> None:
    group = {"weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": size}}
    block = {"quant_method": "fp8", "weight_block_size": size}
    if style == "compressed-tensors":
        block = {"quant_method": style, "format": "float-quantized", "config_groups": {"g": group}}
    config = {**json.loads(SHIPPED.read_text()), "quantization_config": block}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match="weight block"):
        load_model(path)
