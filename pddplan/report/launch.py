"""Engine flags for each pool of a plan: what to type to start the instances that the plan assumes.

Flags of vLLM (``vllm serve``), SGLang (``sglang.launch_server``) and TensorRT-LLM (``trtllm-serve``) as their documentation names them
(vLLM 0.24, SGLang 0.5.14, TensorRT-LLM 1.3). The plan's numbers hold for these settings and no others.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from pddplan.errors import InputError, Problem
from pddplan.model.memory import engine_preset
from pddplan.pdd.context import PlanContext, published_model
from pddplan.pdd.plan import Configuration, Evaluation, PoolResult, Role
from pddplan.roofline.overlay_file import base_engine

PREFILL_SEQUENCES = 256
MULTI_NODE = {
    "vllm": "on each node the same command with --nnodes, --node-rank and --master-addr, or over a Ray cluster",
    "sglang": "on each node the same command with --nnodes, --node-rank and --dist-init-addr",
    "trtllm": "under mpirun or srun with trtllm-llmapi-launch before the command",
}  # what the command of one node lacks where an instance spans several
KV_ROLE = {"P": "prefill", "RLD": "decode", "MD": "decode"}


@dataclass(frozen=True)
class ServingOptions:
    """What the plan assumes of a pool beyond its parallel sizes.

    memory_fraction: share in the engine's own meaning. context_max: longest request, tokens. kv_dtype: bf16 | fp8.
    draft_tokens: speculative tokens per step, 0 for none. quantize: the engine must store a 16-bit checkpoint as fp8. notes: what else
    must hold.
    """

    memory_fraction: float
    context_max: int
    max_sequences: int
    chunk_tokens: int
    kv_dtype: str
    draft_tokens: int = 0
    quantize: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PoolLaunch:
    """How to start one instance of a pool. ``extra_config`` is a YAML file's content where the engine wants one (TensorRT-LLM)."""

    pool: str
    role: Role
    instances: int
    gpus_per_instance: int
    nodes_per_instance: int
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    extra_config: Mapping[str, object] = field(default_factory=dict)
    assumes: tuple[str, ...] = ()

    def shell(self) -> str:
        return shlex.join(self.command)


def launch_plan(context: PlanContext, evaluation: Evaluation) -> tuple[PoolLaunch, ...]:
    """Launch flags of every pool of a plan that has instances. Raises InputError with every pool that has no flags."""
    problems: list[Problem] = []
    launches: list[PoolLaunch] = []
    for result in evaluation.pools:
        c = result.pool.configuration
        if not result.pool.instances:
            continue
        try:
            nodes_of = context.stocks[c.site, c.chip][1].node_gpus or context.chips[c.chip].gpus_per_node
            launches.append(launch_pool(result, _options(context, evaluation, result), nodes_of))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return tuple(launches)


def _options(context: PlanContext, evaluation: Evaluation, result: PoolResult) -> ServingOptions:
    c = result.pool.configuration
    deployment = context.deployments[c.deployment]
    given = context.scenario.each_deployment()[c.deployment]
    mix = deployment.mix
    longest = given.model.context_max or float((mix.input_tokens + mix.output_tokens).max())
    fraction = given.engine_options.memory_fraction
    weights, positions = given.model.weights, deployment.spec.max_position_embeddings
    stored = set(published_model(context.scenario, given.model.name).weight_dtype.values())
    quantize = weights == "fp8" and base_engine(c.engine) in ("vllm", "sglang") and stored <= {"bf16", "fp32"}
    notes = []
    if given.model.context_max is None:
        notes.append(f"no request is longer than {longest:,.0f} tokens, the longest planned for (model.context_max sets the limit)")
    if positions and longest > positions:
        notes.append(f"the model reaches beyond its {positions:,} positions (rope scaling); engines refuse that unless told")
    if not quantize and set(deployment.spec.weight_dtype.values()) != stored:
        notes.append(f"the checkpoint named is stored as {weights}, not as {given.model.name} was published")
    return ServingOptions(
        memory_fraction=engine_preset(base_engine(c.engine)).memory_fraction if fraction is None else fraction,
        context_max=math.ceil(longest),
        max_sequences=max(1, int(result.batch_max)) if c.role != "P" else given.engine_options.max_sequences or PREFILL_SEQUENCES,
        chunk_tokens=evaluation.decision.settings.prefill_chunk_tokens,
        kv_dtype="bf16" if deployment.kv_format == "bf16" else "fp8",
        draft_tokens=deployment.speculation.draft_tokens if deployment.speculation and c.role != "P" else 0,
        quantize=quantize,
        notes=tuple(notes),
    )


def launch_pool(result: PoolResult, options: ServingOptions, gpus_per_node: int) -> PoolLaunch:
    """Flags for the pool's engine.

    Raises InputError for an engine without launch flags (``generic``) or a profiled instance, whose settings pddplan does not know.
    """
    configuration = result.pool.configuration
    name = f"{configuration.deployment}.{configuration.site}.{configuration.role}.{configuration.chip}"
    if configuration.profile is not None:
        raise InputError(
            Problem(name, "is a profiled instance", "launch flags exist for roofline instances; start it as it was when measured")
        )
    builders = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}
    engine = base_engine(configuration.engine)
    if engine not in builders:
        raise InputError(
            Problem(
                f"{name}: engine",
                f"'{configuration.engine}' has no launch flags",
                f"plan with one of {', '.join(builders)}",
                "engine: vllm",
            )
        )
    command, extra = builders[engine](configuration, options)
    nodes = -(-configuration.gpus_per_instance // gpus_per_node)
    return PoolLaunch(
        pool=name,
        role=configuration.role,
        instances=result.pool.instances,
        gpus_per_instance=configuration.gpus_per_instance,
        nodes_per_instance=nodes,
        command=tuple(command),
        extra_config=extra,
        assumes=(
            *_assumptions(configuration, options, result),
            *([f"{nodes} nodes per instance: {MULTI_NODE[engine]}"] if nodes > 1 else []),
        ),
    )


def check_kv_meets(pools: tuple[PoolResult, ...]) -> None:
    """P's KV must be readable where it arrives: same model and same engine in P, RLD and MD of a deployment.

    Tensor-parallel sizes may differ (the connectors re-shard). Raises InputError with every pair that cannot meet.
    """
    problems = []
    senders = [p.pool.configuration for p in pools if p.pool.configuration.role == "P"]
    receivers = [p.pool.configuration for p in pools if p.pool.configuration.role in ("RLD", "MD")]
    for sender in senders:
        for receiver in receivers:
            if sender.deployment == receiver.deployment and sender.engine != receiver.engine:
                problems.append(
                    Problem(
                        f"{sender.deployment}: P on {sender.chip} and {receiver.role} on {receiver.chip}",
                        f"KV of {sender.engine} cannot be read by {receiver.engine}",
                        "use one engine for all roles of a deployment",
                        f"sites.{receiver.site}.chips[0].engine: {sender.engine}",
                    )
                )
    if problems:
        raise InputError(problems)


def _vllm(c: Configuration, o: ServingOptions) -> tuple[list[str], dict[str, object]]:
    p = c.parallel
    command = ["vllm", "serve", c.model, "--tensor-parallel-size", str(p.tp)]
    if p.pp > 1:
        command += ["--pipeline-parallel-size", str(p.pp)]
    if p.dp > 1:
        command += ["--data-parallel-size", str(p.dp)]
    if p.moe_ep > 1:
        command += ["--enable-expert-parallel"]
    if o.quantize:
        command += ["--quantization", "fp8"]
    command += [
        "--gpu-memory-utilization",
        f"{o.memory_fraction:g}",
        "--max-model-len",
        str(o.context_max),
        "--max-num-seqs",
        str(o.max_sequences),
    ]
    command += [
        "--max-num-batched-tokens",
        str(o.chunk_tokens),
        "--kv-cache-dtype",
        "fp8" if o.kv_dtype == "fp8" else "auto",
        "--enable-prefix-caching",
    ]
    if o.draft_tokens:
        command += ["--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": o.draft_tokens})]
    if c.role in KV_ROLE:
        role = {"P": "kv_producer", "RLD": "kv_both", "MD": "kv_consumer"}[c.role]
        command += ["--kv-transfer-config", json.dumps({"kv_connector": "NixlConnector", "kv_role": role})]
    return command, {}


def _sglang(c: Configuration, o: ServingOptions) -> tuple[list[str], dict[str, object]]:
    p = c.parallel
    command = ["python", "-m", "sglang.launch_server", "--model-path", c.model, "--tp-size", str(p.tp * p.dp)]
    if p.pp > 1:
        command += ["--pp-size", str(p.pp)]
    if p.dp > 1:
        command += ["--dp-size", str(p.dp), "--enable-dp-attention"]
    if p.moe_ep > 1:
        command += ["--ep-size", str(p.moe_ep)]
    if o.quantize:
        command += ["--quantization", "fp8"]
    command += [
        "--mem-fraction-static",
        f"{o.memory_fraction:g}",
        "--context-length",
        str(o.context_max),
        "--max-running-requests",
        str(o.max_sequences),
    ]
    command += ["--chunked-prefill-size", str(o.chunk_tokens), "--kv-cache-dtype", "fp8_e4m3" if o.kv_dtype == "fp8" else "auto"]
    if o.draft_tokens:
        command += ["--speculative-algorithm", "EAGLE", "--speculative-num-steps", str(o.draft_tokens)]
        command += ["--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", str(o.draft_tokens + 1)]
    if c.role in KV_ROLE:
        command += ["--disaggregation-mode", KV_ROLE[c.role], "--disaggregation-transfer-backend", "mooncake"]
    return command, {}


def _trtllm(c: Configuration, o: ServingOptions) -> tuple[list[str], dict[str, object]]:
    p = c.parallel
    command = ["trtllm-serve", c.model, "--tp_size", str(p.tp * p.dp), "--pp_size", str(p.pp), "--ep_size", str(p.moe_ep)]
    command += ["--max_batch_size", str(o.max_sequences), "--max_num_tokens", str(o.chunk_tokens), "--max_seq_len", str(o.context_max)]
    command += ["--kv_cache_free_gpu_memory_fraction", f"{o.memory_fraction:g}", "--extra_llm_api_options", f"{c.role.lower()}.yaml"]
    extra: dict[str, object] = {
        "enable_attention_dp": p.dp > 1,
        "enable_chunked_prefill": True,
        "kv_cache_config": {"dtype": "fp8" if o.kv_dtype == "fp8" else "auto", "enable_block_reuse": True},
    }
    if o.draft_tokens:
        extra["speculative_config"] = {"decoding_type": "MTP", "num_nextn_predict_layers": o.draft_tokens}
    if c.role in KV_ROLE:
        extra["cache_transceiver_config"] = {"backend": "UCX", "max_tokens_in_buffer": o.context_max}
    return command, extra


def _assumptions(c: Configuration, o: ServingOptions, result: PoolResult) -> tuple[str, ...]:
    notes = [f"prefix caching is on; chunked prefill of {o.chunk_tokens} tokens", f"at most {o.max_sequences} requests run in an instance"]
    if c.role in ("MD", "RLD", "AGG"):
        notes.append(f"about {result.batch_mean:.0f} requests run at the planned load")
    if c.role == "RLD":
        notes.append("a router that streams from RLD first and hands token ids over to MD (extend-decode); no stock engine does this yet")
    if o.draft_tokens == 0:
        notes.append("speculative decoding is off")
    return (*notes, *o.notes)
