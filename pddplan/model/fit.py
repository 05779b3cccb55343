"""Does a model fit on a chip: the mapping, its memory waterfall and the way out, as one document."""

from __future__ import annotations

from typing import Any

from pddplan.errors import InputError
from pddplan.model.describe import SCHEMA_VERSION, flops_document, kv_document, notes, parallel_document, weights_document
from pddplan.model.kv_cache import KvCache
from pddplan.model.memory import (
    Reserves,
    Smallest,
    Waterfall,
    engine_preset,
    plain_parallel,
    smallest_fit,
    waterfall,
)
from pddplan.model.parallel import Chip, check, legal_parallels, model_experts
from pddplan.model.spec import ModelSpec, Parallel
from pddplan.units import GIB


def mapping(
    model: ModelSpec,
    *,
    tp: int | None = None,
    pp: int = 1,
    dp: int = 1,
    ep: int | None = None,
    moe_tp: int | None = None,
    redundant_experts: int = 0,
) -> Parallel:
    """Parallel sizes from what was named. Experts are cut by tensor parallelism unless ``ep`` spreads them; with attention
    DP they are spread over all ranks. The sizes may be illegal: ``check`` says so."""
    tp = 1 if tp is None else tp
    width = tp * dp
    if not model_experts(model):
        return Parallel(tp, pp, dp, ep or 1, moe_tp or 1, redundant_experts)
    if ep is None:
        ep = width // moe_tp if moe_tp else width if dp > 1 else 1
    if moe_tp is None:
        moe_tp = max(1, width // ep) if ep > 0 else 1
    return Parallel(tp, pp, dp, ep, moe_tp, redundant_experts)


def require_legal(model: ModelSpec, parallel: Parallel, gpus: int | None = None) -> None:
    """Raises InputError with every reason against the mapping. A scale-up domain exceeded is legal, only slow."""
    reasons = check(model, parallel, gpus=gpus)
    if reasons:
        raise InputError(reason.problem for reason in reasons)


def mapping_for_gpus(model: ModelSpec, chip: Chip | None, gpus: int, fits: Any) -> Parallel | None:
    """A legal mapping on exactly ``gpus`` GPUs: tensor parallelism alone inside the scale-up domain, else the first that fits,
    else the first. None where no mapping uses exactly that many."""
    for spread in (False, True):
        plain = plain_parallel(model, gpus, spread=spread)
        if not check(model, plain, chip):
            return plain
    options = [option for option in legal_parallels(model, chip, gpus, max_pp=gpus) if option.gpus == gpus]
    return next((option for option in options if fits(option)), options[0] if options else None)


def nearest_counts(model: ModelSpec, chip: Chip | None, gpus: int) -> tuple[int, ...]:
    """The counts below and above ``gpus`` that a legal mapping uses exactly, at most twice as many."""
    counts = {option.gpus for option in legal_parallels(model, chip, min(2 * gpus, 256))}
    below = [count for count in counts if count < gpus]
    above = [count for count in counts if count > gpus]
    return (*([max(below)] if below else []), *([min(above)] if above else []))


def fit_document(
    model: ModelSpec,
    cache: KvCache,
    capacity_bytes: float,
    parallel: Parallel,
    *,
    chip: Chip | None,
    chip_name: str,
    context_tokens: float,
    concurrency: float,
    engine: str,
    reserves: Reserves | None = None,
    page_tokens: int = 16,
) -> dict[str, Any]:
    """The document of ``models fit``."""
    result = waterfall(
        model, capacity_bytes, parallel, engine=engine, context_tokens=context_tokens, concurrency=concurrency, cache=cache,
        reserves=reserves,
    )
    smallest = smallest_fit(
        model, chip, capacity_bytes, context_tokens=context_tokens, concurrency=concurrency, engine=engine, cache=cache,
        reserves=reserves,
    )
    whole = cache.per_gpu(parallel)
    per_request = float(whole.bytes_resident(context_tokens))
    pool = max(result.kv_pool, 0.0)
    tokens = whole.tokens_in(pool, 1, page_tokens) if whole.slope or whole.windows else 0
    found = notes(model, cache, parallel, context_tokens) + fit_notes(model, result, smallest, chip)
    return {
        "schema_version": SCHEMA_VERSION,
        "name": model.name,
        "chip": chip_name,
        "engine": result.engine,
        "context_tokens": context_tokens,
        "concurrency": concurrency,
        "parallel": parallel_document(model, parallel),
        "fit": {
            "verdict": result.verdict,
            "why": result.why,
            "required_bytes": result.required,
            "available_bytes": result.available,
            "shortfall_bytes": result.shortfall,
            "shortfall_gib": result.shortfall / GIB,
            "kv_pool_bytes": result.kv_pool,
            "kv_needed_bytes": result.kv_needed,
            "kv_tokens": tokens,
            "kv_pages": tokens // page_tokens,
            "page_tokens": page_tokens,
            "max_concurrency": int(pool // per_request) if per_request > 0 else None,
            "memory_fraction": result.memory_fraction,
            "capacity_bytes": result.capacity,
            "waterfall": waterfall_rows(result),
            "smallest": smallest_document(model, smallest),
        },
        "kv": kv_document(model, cache, parallel, context_tokens, concurrency),
        "weights": weights_document(model, parallel),
        **flops_document(model, context_tokens),
        "notes": found,
    }


def waterfall_rows(result: Waterfall) -> list[dict[str, Any]]:
    """Capacity of the fullest GPU, line by line; what is left is last."""
    rows = [
        ("weights", result.weights),
        ("vision tower", result.vision),
        ("activations", result.activations),
        ("CUDA graphs", result.graphs),
        ("framework", result.framework),
        ("KV of the requests", result.kv_needed),
    ]
    left = result.capacity - sum(amount for _, amount in rows)
    rows = [row for row in rows if row[0] != "vision tower" or result.vision]
    return [{"item": name, "bytes": amount, "gib": amount / GIB} for name, amount in (*rows, ("left on the GPU", left))]


def smallest_document(model: ModelSpec, smallest: Smallest) -> dict[str, Any]:
    chosen = smallest.parallel or smallest.alternative
    other = smallest.alternative if smallest.parallel else None
    return {
        "memory_minimum_gpus": smallest.memory_minimum,
        "mapping": parallel_document(model, chosen) if chosen else None,
        "inside_domain": parallel_document(model, other) if other else None,
    }


def fit_notes(model: ModelSpec, result: Waterfall, smallest: Smallest, chip: Chip | None) -> list[str]:
    found = []
    preset = engine_preset(result.engine).on(result.capacity)
    meaning = {
        "capacity": "of the GPU for weights, activations, framework and KV",
        "static": "of the GPU for weights and KV",
        "free": "of what is free after everything else for KV",
    }[preset.fraction_of]
    found.append(f"{result.engine}: memory fraction {result.memory_fraction:g} {meaning} ({preset.source})")
    domain = [reason.detail for reason in check(model, result.parallel, chip) if reason.rule == "domain"]
    found += domain
    if result.verdict == "no":
        found.append(f"short by {result.shortfall / GIB:.2f} GiB per GPU: {result.why}")
        chosen = smallest.parallel
        if chosen is not None:
            text = f"by memory alone {smallest.memory_minimum} GPUs would do; the next valid mapping that fits is tp {chosen.tp}"
            found.append(text + (f", ep {chosen.moe_ep}" if chosen.moe_ep > 1 else ""))
        if smallest.alternative is not None:
            other = smallest.alternative
            found.append(
                f"inside the scale-up domain: tp {other.tp} x pp {other.pp} x dp {other.dp}"
                + (f", ep {other.moe_ep}" if other.moe_ep > 1 else "")
                + f" = {other.gpus} GPUs"
            )
        elif smallest.memory_minimum:
            found.append(f"by memory alone {smallest.memory_minimum} GPUs would do, but no tensor parallelism alone is legal and fits")
        if chosen is None and smallest.alternative is None:
            found.append("no mapping of up to 256 GPUs fits: a shorter context, fewer requests or smaller weights are needed")
    return found
