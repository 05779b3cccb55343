"""DeepSeek-V4 and V3.2: entry formats, windows and buffers, weights and FLOPs, against their published and derived sizes."""

import numpy as np
import pytest

from pddplan.model import load_model, with_weights
from pddplan.model.flops import decode_flops_parts, head_flops_per_token
from pddplan.model.kv_cache import kv_cache
from pddplan.model.weights import weight_bytes
from pddplan.units import GIB

PRO, FLASH = "deepseek-ai/DeepSeek-V4-Pro", "deepseek-ai/DeepSeek-V4-Flash"
# format: average bytes/token at 65,536 tokens, GiB of Pro and of Flash at 1,048,576 tokens
FORMATS = {
    "nominal": (4505, 4.34, 3.03),
    "mxfp4_keys": (5101, 4.92, 3.43),
    "fp8_ds_mla": (5581, 5.39, 3.76),
    "bf16": (9970, 9.62, 6.72),
}


@pytest.mark.parametrize("kv_format", sorted(FORMATS))
def test_entry_formats_give_their_sizes(kv_format):
    average, pro, flash = FORMATS[kv_format]
    cache = kv_cache(load_model(PRO), kv_format)
    assert float(cache.entries_bytes(65_536)) / 65_536 == pytest.approx(average, abs=0.5)
    assert float(cache.entries_bytes(2**20)) / GIB == pytest.approx(pro, abs=0.005)
    assert float(kv_cache(load_model(FLASH), kv_format).entries_bytes(2**20)) / GIB == pytest.approx(flash, abs=0.005)


def test_eighty_requests_of_64k_are_23_gb_nominal_and_28_6_as_stored():
    nominal = 80 * float(kv_cache(load_model(PRO), "nominal").transfer_bytes(64_000, 64_000))
    assert nominal / 1e9 == pytest.approx(23.07, abs=0.005)
    assert nominal * 8 / 1e9 == pytest.approx(184.6, abs=0.05)
    stored = 80 * float(kv_cache(load_model(PRO), "fp8_ds_mla").entries_bytes(64_000))
    assert stored / 1e9 == pytest.approx(28.6, abs=0.05)


def test_at_ninety_percent_hits_a_tenth_crosses_the_line():
    """About 18.5 Gbps at 80 requests a second, growth alone; the windows that travel each time add 2.3."""
    cache = kv_cache(load_model(PRO), "nominal")
    assert 80 * cache.slope * 6400 * 8 / 1e9 == pytest.approx(18.2, abs=0.05)
    assert 80 * float(cache.transfer_bytes(6400, 64_000)) * 8 / 1e9 == pytest.approx(20.8, abs=0.05)


def test_the_slope_leaves_the_window_out():
    assert kv_cache(load_model(PRO), "fp8_ds_mla").slope == pytest.approx(5511, abs=0.5)


def test_what_a_request_keeps_besides():
    """Window 4.56 MB, CSA state 2.46 MB, HCA state 16.25 MB."""
    model = load_model(PRO)
    cache = kv_cache(model, "fp8_ds_mla")
    assert cache.cap / 1e6 == pytest.approx(4.56, abs=0.005)
    buffers = {kind: sum(t.constant for t in cache.terms if model.layers[t.layer].attention.kind == kind) for kind in ("csa", "hca")}
    assert buffers["csa"] / 1e6 == pytest.approx(2.46, abs=0.005)
    assert buffers["hca"] / 1e6 == pytest.approx(16.25, abs=0.005)
    assert cache.constant == buffers["csa"] + buffers["hca"]
    assert cache.transferable_constant == 0


def test_the_layers_are_30_csa_and_31_hca():
    kinds = [layer.attention.kind for layer in load_model(PRO).layers]
    assert (kinds.count("csa"), kinds.count("hca"), len(kinds)) == (30, 31, 61)
    kinds = [layer.attention.kind for layer in load_model(FLASH).layers]
    assert (kinds.count("csa"), kinds.count("hca"), kinds.count("window")) == (21, 20, 2)


def test_v3_2_stores_656_bytes_and_a_132_byte_key():
    cache = kv_cache(load_model("deepseek-ai/DeepSeek-V3.2"), "fp8_ds_mla")
    assert cache.slope == 61 * (656 + 132)
    assert float(cache.entries_bytes(2**20)) / GIB == pytest.approx(46.94, abs=0.005)


def test_weights_of_pro_with_fp4_and_with_fp8_experts():
    """845 and 1,573 GB are quoted; the second is the parameters at one byte each. The matrices give 0.6 and 0.1 % more, with
    scales and with router, embedding and head in 16 bits (see docs/validation/arithmetic.md)."""
    model = load_model(PRO)
    assert weight_bytes(model) / 1e9 == pytest.approx(845, rel=0.006)
    assert weight_bytes(with_weights(model, "fp8")) / 1e9 == pytest.approx(1573, rel=0.002)
    assert weight_bytes(load_model("sgl-project/DeepSeek-V4-Pro-FP8")) / 1e9 == pytest.approx(1573, rel=0.002)


def test_flops_of_a_token_at_64k():
    """95.7 GFLOP linear, 14.2 core, 7.9 indexer."""
    model = load_model(PRO)
    parts = decode_flops_parts(model, np.array(64_000.0))
    assert (float(parts["linear"]) - head_flops_per_token(model)) / 1e9 == pytest.approx(95.7, abs=0.05)
    assert float(parts["core"]) / 1e9 == pytest.approx(14.2, abs=0.05)
    assert float(parts["indexer"]) / 1e9 == pytest.approx(7.9, abs=0.05)
