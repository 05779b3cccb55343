"""Engine flags of a plan: what is typed must start what was planned."""

from __future__ import annotations

import pytest

from pddplan.pdd.context import PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.fixed_plan import fixed_decision
from pddplan.report.launch import PoolLaunch, launch_plan
from pddplan.scenario.load import load_scenario


def launched(*overrides: str, tp: int = 2) -> PoolLaunch:
    plan = f"plan={{pools: [{{site: A, role: AGG, chip: h100-sxm, instances: 4, tp: {tp}}}]}}"
    context = PlanContext.from_scenario(load_scenario("01-minimal", [plan, *overrides]))
    (pool,) = launch_plan(context, evaluate(context, fixed_decision(context)))
    return pool


def test_a_checkpoint_that_the_plan_stores_as_fp8_is_quantised_by_the_engine() -> None:
    assert "--quantization" not in launched().command
    assert "--quantization fp8" in launched("model.weights=fp8").shell()
    assert "--quantization fp8" in launched("model.weights=fp8", "engine=sglang").shell()
    assert "--quantization" not in launched("model.weights=fp8", "model.name=Qwen/Qwen3-32B-FP8").command


def test_weights_that_no_flag_makes_are_said_to_be_needed() -> None:
    pool = launched("model.weights=nvfp4")
    assert "--quantization" not in pool.command
    assert any("stored as nvfp4" in text for text in pool.assumes)


def test_a_limit_that_only_the_sample_sets_is_said() -> None:
    assert any("model.context_max sets the limit" in text for text in launched().assumes)
    pool = launched("model.context_max=40k")
    assert "--max-model-len 40000" in pool.shell()
    assert not any("context_max" in text for text in pool.assumes)


def test_lengths_beyond_the_model_s_positions_are_said() -> None:
    assert any("beyond its 40,960 positions" in text for text in launched("model.context_max=64k").assumes)


@pytest.mark.parametrize(("engine", "option"), [("vllm", "--master-addr"), ("sglang", "--dist-init-addr"), ("trtllm", "mpirun")])
def test_an_instance_over_several_nodes_says_what_its_command_lacks(engine: str, option: str) -> None:
    assert not any("nodes per instance" in text for text in launched(f"engine={engine}").assumes)
    pool = launched(f"engine={engine}", "sites.A.chips[0].node_gpus=4", tp=8)
    assert any("2 nodes per instance" in text and option in text for text in pool.assumes)
