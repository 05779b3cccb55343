"""Instances from the roofline: legality, memory, and agreement of the many-at-once path with the single one."""

from pathlib import Path

import numpy as np
import pytest

from pddplan.errors import InputError
from pddplan.hardware import load_chip
from pddplan.model import load_model
from pddplan.model.config import with_weights
from pddplan.model.spec import Parallel
from pddplan.roofline.speculation import Speculation
from pddplan.stages.roofline import RooflineTable, roofline_instance

CONFIGS = Path(__file__).parent.parent / "data" / "configs"


def _llama(tp=4, **options):
    return roofline_instance(load_model("meta-llama/Llama-3.1-70B"), load_chip("h100-sxm"), "vllm", Parallel(tp=tp), **options)


def test_weights_that_do_not_fit_are_refused_with_the_bytes():
    with pytest.raises(InputError, match="does not fit"):
        _llama(tp=1)


def test_a_mapping_that_breaks_a_rule_is_refused_with_the_rule():
    with pytest.raises(InputError, match="divisible by tp 3"):
        _llama(tp=3)


def test_occupancy_is_never_more_than_latency():
    instance = _llama()
    tokens = np.geomspace(1, 200_000, 40)
    assert np.all(instance.prefill_occupancy_s(tokens, 0) <= instance.prefill_s(tokens, 0))


def test_without_tail_packing_a_small_tail_costs_more_than_its_share():
    packed, serial = _llama(), _llama(tail_packing=False)
    just_over = 8192 + 16
    assert serial.prefill_occupancy_s(just_over, 0) > 1.03 * packed.prefill_occupancy_s(just_over, 0)


def test_many_instances_at_once_give_what_each_gives_alone():
    deepseek = roofline_instance(
        load_model("deepseek-ai/DeepSeek-V3"),
        load_chip("h200-sxm"),
        "sglang",
        Parallel(tp=1, dp=16, moe_ep=16),
        speculation=Speculation(1, 1.8),
    )
    alone = [_llama(), deepseek, _llama(tp=8)]
    batch, context = np.array([1.0, 32.0, 256.0]), 4096.0
    table = RooflineTable.of(alone)
    np.testing.assert_allclose(table.step_s(batch, context), [i.step_s(batch, context) for i in alone], rtol=1e-12)
    np.testing.assert_allclose(table.prefill_s(batch * 64, 0), [i.prefill_s(batch * 64, 0) for i in alone], rtol=1e-12)
    np.testing.assert_allclose(table.prefill_occupancy_s(batch * 64, 0), [i.prefill_occupancy_s(batch * 64, 0) for i in alone], rtol=1e-12)


def test_speculation_lengthens_the_step_and_shortens_the_time_per_token_at_batch_one():
    plain, drafting = _llama(), _llama(speculation=Speculation(1, 1.8))
    assert plain.step_s(1, 4096) < drafting.step_s(1, 4096) < 1.8 * plain.step_s(1, 4096)


@pytest.mark.parametrize("weights", ["bf16", "int8"])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "generic"])
def test_no_decode_step_beats_reading_the_weights_once(weights, engine):
    """Batch 1 on an RTX 4090 (1,008 GB/s): 14.2 GB of weights take 14.1 ms, half of them 7.0 ms."""
    model = with_weights(load_model(CONFIGS / "Llama-2-7B_config.json"), weights)
    chip = load_chip("RTX 4090")
    instance = roofline_instance(model, chip, engine, Parallel())
    read_s = instance.memory.weights / chip.hbm_bytes_per_s.value
    embedding_s = model.vocab_size * model.hidden_size * 2 / chip.hbm_bytes_per_s.value
    assert 14.2e9 / chip.hbm_bytes_per_s.value == pytest.approx(14.1e-3, abs=0.05e-3)
    assert instance.step_s(1, 100) > read_s - embedding_s
    assert read_s == pytest.approx(13.4e-3 if weights == "bf16" else 6.9e-3, rel=0.03)
