"""Which parallel mappings a model allows, as a list of rules: each gives its reason and the values that would do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from pddplan.errors import Problem
from pddplan.model.spec import Gemm, Layer, ModelSpec, Parallel

TP_LIMIT = 1024


class _Number(Protocol):
    @property
    def value(self) -> float | None: ...


class Chip(Protocol):
    """What the rules need of a chip: how many GPUs its scale-up links join."""

    @property
    def scaleup_domain(self) -> _Number: ...


@dataclass(frozen=True)
class Reason:
    """Why a mapping is refused: the rule, the parameter at fault, its value, the arithmetic, and the values that pass."""

    rule: str
    parameter: str
    value: int
    detail: str
    valid: tuple[int, ...]

    @property
    def problem(self) -> Problem:
        accepted = f"valid {self.parameter}: {', '.join(map(str, self.valid))}" if self.valid else "no value of it passes"
        return Problem(f"parallel.{self.parameter}", f"{self.value}: {self.detail}", accepted)

    def __str__(self) -> str:
        return str(self.problem)


@dataclass(frozen=True)
class Rule:
    """A validity rule: ``test`` returns the reasons against a mapping (none: it passes)."""

    name: str
    text: str
    test: Callable[[ModelSpec, Parallel, Chip | None], Iterator[Reason]]


def stages(model: ModelSpec, parallel: Parallel) -> int:
    """Pipeline stages, never more than layers."""
    return min(parallel.pp, len(model.layers))


def stage_sizes(layers: int, pp: int) -> tuple[int, ...]:
    """Layers of each stage: even, the remainder on the stages before the last (vLLM's rule: the last also has the head)."""
    sizes = [layers // pp] * pp
    for extra in range(2, layers % pp + 2):
        sizes[-extra] += 1
    return tuple(sizes)


def layers_of_stage(model: ModelSpec, parallel: Parallel, stage: int) -> tuple[Layer, ...]:
    sizes = stage_sizes(len(model.layers), stages(model, parallel))
    before = sum(sizes[:stage])
    return model.layers[before : before + sizes[stage]]


def divisors(number: int, limit: int = TP_LIMIT) -> tuple[int, ...]:
    return tuple(value for value in range(1, min(number, limit) + 1) if number % value == 0)


def head_counts(model: ModelSpec) -> tuple[int, ...]:
    """Counts that tensor parallelism must divide: attention heads, and heads of linear attention."""
    counts = set()
    for layer in model.distinct_layers:
        attention = layer.attention
        if attention.heads:
            counts.add(attention.heads)
        if attention.state is not None and attention.state.kind == "gdn":
            counts.add(attention.state.key_heads)
    return tuple(sorted(counts))


def kv_head_counts(model: ModelSpec) -> tuple[int, ...]:
    """KV heads that are split (a latent or a shared vector is not: it is replicated)."""
    split = [
        layer.attention.kv_heads
        for layer in model.distinct_layers
        if layer.attention.kind in ("full", "window") and not layer.attention.shared_kv
    ]
    return tuple(sorted(set(split)))


def _heads_pass(model: ModelSpec, tp: int) -> bool:
    return all(heads % tp == 0 for heads in head_counts(model))


def _kv_heads_pass(model: ModelSpec, tp: int) -> bool:
    return all(kv % tp == 0 or tp % kv == 0 for kv in kv_head_counts(model))


def _valid_tp(model: ModelSpec, *tests: Callable[[ModelSpec, int], bool]) -> tuple[int, ...]:
    most = min(head_counts(model), default=TP_LIMIT)
    return tuple(tp for tp in range(1, min(most, TP_LIMIT) + 1) if all(test(model, tp) for test in tests))


def _sizes(model: ModelSpec, parallel: Parallel, chip: Chip | None) -> Iterator[Reason]:
    for name in ("tp", "pp", "dp", "moe_ep", "moe_tp"):
        value = getattr(parallel, name)
        if value < 1:
            yield Reason("sizes", name, value, "a parallel size is at least 1", (1, 2, 4, 8))
    if parallel.redundant_experts < 0:
        yield Reason("sizes", "redundant_experts", parallel.redundant_experts, "0 or more", (0,))


def _heads(model: ModelSpec, parallel: Parallel, chip: Chip | None) -> Iterator[Reason]:
    for heads in head_counts(model):
        if heads % parallel.tp:
            alone, both = _valid_tp(model, _heads_pass), _valid_tp(model, _heads_pass, _kv_heads_pass)
            more = "" if alone == both else f" (by heads alone {', '.join(map(str, alone))}; KV heads must divide or repeat too)"
            detail = f"{heads} attention heads are not divisible by tp {parallel.tp}{more}"
            yield Reason("heads", "tp", parallel.tp, detail, both)
            return


def _kv_heads(model: ModelSpec, parallel: Parallel, chip: Chip | None) -> Iterator[Reason]:
    for kv in kv_head_counts(model):
        if kv % parallel.tp and parallel.tp % kv:
            detail = f"{kv} KV heads can be neither divided nor repeated over tp {parallel.tp}"
            yield Reason("kv_heads", "tp", parallel.tp, detail, _valid_tp(model, _heads_pass, _kv_heads_pass))
            return


def _moe_product(model: ModelSpec, parallel: Parallel, chip: Chip | None) -> Iterator[Reason]:
    ep, moe_tp, width = parallel.moe_ep, parallel.moe_tp, parallel.tp * parallel.dp
    if not model_experts(model):
        if ep > 1:
            yield Reason("moe_product", "moe_ep", ep, "the model has no experts", (1,))
        if parallel.redundant_experts:
            yield Reason("moe_product", "redundant_experts", parallel.redundant_experts, "the model has no experts", (0,))
        return
    if ep * moe_tp != width:
        detail = f"moe_ep {ep} x moe_tp {moe_tp} must equal tp {parallel.tp} x dp {parallel.dp} = {width}"
        if width % ep:
            yield Reason("moe_product", "moe_ep", ep, detail, divisors(width))
        else:
            yield Reason("moe_product", "moe_tp", moe_tp, detail, (width // ep,))


def _experts(model: ModelSpec, parallel: Parallel, chip: Chip | None) -> Iterator[Reason]:
    for experts in model_experts(model):
        total = experts + parallel.redundant_experts
        if total % parallel.moe_ep:
            more = -total % parallel.moe_ep + parallel.redundant_experts
            detail = (
                f"{experts} experts"
                + (f" + {parallel.redundant_experts} redundant" if parallel.redundant_experts else "")
                + f" are not divisible by ep {parallel.moe_ep} (with {more} redundant experts: "
                f"{experts + more} / {parallel.moe_ep} = {(experts + more) // parallel.moe_ep})"
            )
            yield Reason("experts", "moe_ep", parallel.moe_ep, detail, divisors(total))


def _widths(model: ModelSpec, parallel: Parallel, chip: Chip | None) -> Iterator[Reason]:
    for width in sorted({layer.ffn.intermediate for layer in model.distinct_layers if layer.ffn.kind == "dense"}):
        if width % parallel.tp:
            yield Reason("ffn_width", "tp", parallel.tp, f"FFN width {width} is not divisible by tp {parallel.tp}", valid_tp(model))
    for width in sorted({layer.ffn.intermediate for layer in model.distinct_layers if layer.ffn.kind == "moe"}):
        if width % parallel.moe_tp:
            detail = f"expert width {width} is not divisible by moe_tp {parallel.moe_tp}"
            yield Reason("ffn_width", "moe_tp", parallel.moe_tp, detail, divisors(width, 64))


def _block_faults(gemm: Gemm, ways: int, block: tuple[int, int]) -> str:
    """The arithmetic by which a cut matrix breaks FP8 blocks, or nothing."""
    ways = min(ways, gemm.max_shards) if gemm.max_shards else ways
    size, step = (gemm.out_features, block[0]) if gemm.shard == "out" else (gemm.in_features, block[1])
    if ways == 1 or gemm.shard == "none" or (size % ways == 0 and (size // ways) % step == 0):
        return ""
    part = size / ways
    return f"{gemm.name}: {size} / {ways} = {part:g} is not a multiple of the FP8 block {step}"


def _fp8_blocks(model: ModelSpec, parallel: Parallel, chip: Chip | None) -> Iterator[Reason]:
    if model.fp8_block is None:
        return
    seen = set()
    for layer in model.distinct_layers:
        for gemm in (*layer.attention.gemms, *layer.ffn.gemms):
            if model.weight_dtype[gemm.group] != "fp8_block":
                continue
            fault = _block_faults(gemm, parallel.tp, model.fp8_block)
            arithmetic = fault.rpartition(": ")[2]
            if fault and arithmetic not in seen:
                seen.add(arithmetic)
                yield Reason("fp8_block", "tp", parallel.tp, fault, valid_tp(model))
        if model.weight_dtype["experts"] != "fp8_block":
            continue
        by_tp = parallel.moe_tp == parallel.tp
        for gemm in layer.ffn.expert_gemms:
            is_down = gemm.name.endswith("down_proj")
            fault = _block_faults(replace(gemm, name="expert width", shard="in" if is_down else "out"), parallel.moe_tp, model.fp8_block)
            if fault and fault not in seen:
                seen.add(fault)
                width = layer.ffn.intermediate
                cuts = tuple(ways for ways in divisors(width, 64) if ways == 1 or (width // ways) % model.fp8_block[0] == 0)
                parameter, valid = ("tp", valid_tp(model)) if by_tp else ("moe_tp", cuts)
                yield Reason("fp8_block", parameter, parallel.moe_tp, f"{fault}; or spread the experts (ep {parallel.tp})", valid)


def _pipeline(model: ModelSpec, parallel: Parallel, chip: Chip | None) -> Iterator[Reason]:
    layers = len(model.layers)
    if parallel.pp > layers:
        yield Reason("pipeline", "pp", parallel.pp, f"{parallel.pp} stages for {layers} layers", tuple(range(1, layers + 1)))


def _domain(model: ModelSpec, parallel: Parallel, chip: Chip | None) -> Iterator[Reason]:
    domain = None if chip is None else chip.scaleup_domain.value
    if domain is not None and parallel.tp > domain:
        detail = f"tensor parallelism over {parallel.tp} GPUs leaves the scale-up domain of {domain:g}"
        yield Reason("domain", "tp", parallel.tp, detail, tuple(tp for tp in valid_tp(model) if tp <= domain))


RULES: tuple[Rule, ...] = (
    Rule("sizes", "every parallel size is at least 1", _sizes),
    Rule("heads", "attention heads (and heads of linear attention) are divisible by tp", _heads),
    Rule("kv_heads", "KV heads are divisible by tp, or tp by them (then they are repeated); not for latents", _kv_heads),
    Rule("moe_product", "moe_ep x moe_tp = tp x dp; a dense model has neither", _moe_product),
    Rule("experts", "experts with their redundant copies are divisible by ep", _experts),
    Rule("ffn_width", "FFN widths are divisible by tp, expert widths by moe_tp", _widths),
    Rule("fp8_block", "a cut matrix stays whole in the blocks of a block-scaled FP8 checkpoint", _fp8_blocks),
    Rule("pipeline", "at least one layer a pipeline stage", _pipeline),
    Rule("domain", "a tensor-parallel group stays inside the chip's scale-up domain", _domain),
)


def check(model: ModelSpec, parallel: Parallel, chip: Chip | None = None, gpus: int | None = None) -> tuple[Reason, ...]:
    """Every reason against ``parallel``; empty when it is legal. ``chip`` adds its scale-up domain, ``gpus`` the count that
    the caller named."""
    found = list(_sizes(model, parallel, chip))
    if found:
        return tuple(found)
    if gpus is not None and gpus != parallel.gpus:
        detail = f"gpus {gpus} does not equal tp {parallel.tp} x pp {parallel.pp} x dp {parallel.dp} = {parallel.gpus}"
        found.append(Reason("gpus", "gpus", gpus, detail, (parallel.gpus,)))
    for rule in RULES[1:]:
        found.extend(rule.test(model, parallel, chip))
    return tuple(found)


def model_experts(model: ModelSpec) -> tuple[int, ...]:
    """Distinct numbers of routed experts over the layers; empty for a dense model."""
    return tuple(sorted({layer.ffn.experts for layer in model.distinct_layers if layer.ffn.experts}))


def experts_per_gpu(model: ModelSpec, parallel: Parallel) -> int:
    """Routed experts (redundant copies included) that one GPU holds of a layer; 0 for a dense model."""
    return max((-(-(experts + parallel.redundant_experts) // parallel.moe_ep) for experts in model_experts(model)), default=0)


def valid_tp(model: ModelSpec, *, spread_experts: bool = False) -> tuple[int, ...]:
    """Every tp that all rules allow without attention DP, experts cut by tp (or spread over it)."""
    found = []
    for tp in _valid_tp(model, _heads_pass, _kv_heads_pass):
        if any(layer.ffn.intermediate % tp for layer in model.distinct_layers if layer.ffn.kind == "dense"):
            continue
        if not _tp_breaks_blocks(model, tp, spread_experts):
            found.append(tp)
    return tuple(found)


def _tp_breaks_blocks(model: ModelSpec, tp: int, spread_experts: bool) -> bool:
    for layer in model.distinct_layers:
        width = layer.ffn.intermediate
        if layer.ffn.kind == "moe" and (layer.ffn.experts % tp if spread_experts else width % tp):
            return True
        if model.fp8_block is None:
            continue
        if any(
            model.weight_dtype[gemm.group] == "fp8_block" and _block_faults(gemm, tp, model.fp8_block)
            for gemm in (*layer.attention.gemms, *layer.ffn.gemms)
        ):
            return True
        cut = layer.ffn.kind == "moe" and not spread_experts and model.weight_dtype["experts"] == "fp8_block"
        if cut and tp > 1 and (width // tp) % model.fp8_block[0]:
            return True
    return False


def legal_parallels(model: ModelSpec, chip: Chip | None, max_gpus: int, *, max_pp: int = 8) -> tuple[Parallel, ...]:
    """Every sensible legal mapping of one instance on at most ``max_gpus`` GPUs, fewest GPUs first.

    tp: any valid width inside the scale-up domain. pp: powers of two. dp, only for models with experts (a dense model's ranks
    would be separate instances): powers of two with experts over any divisor of tp x dp, or whole domains with experts over
    all ranks, copied where their number asks for it (at most a quarter more).
    """
    domain = 0 if chip is None or chip.scaleup_domain.value is None else int(chip.scaleup_domain.value)
    most_pp = min(max_pp, len(model.layers))
    found = []
    for tp in _valid_tp(model, _heads_pass, _kv_heads_pass):
        if tp > min(domain or max_gpus, max_gpus):
            continue
        for flat in _flat_mappings(model, tp, max_gpus // tp, domain):
            if not check(model, flat, chip):
                stages_tried = (1 << exponent for exponent in range(most_pp.bit_length()))
                found += [replace(flat, pp=pp) for pp in stages_tried if pp <= most_pp and flat.gpus * pp <= max_gpus]
    return tuple(sorted(found, key=lambda p: (p.gpus, p.pp, p.dp, p.tp, -p.moe_ep)))


def _flat_mappings(model: ModelSpec, tp: int, most_dp: int, domain: int) -> Iterator[Parallel]:
    """Mappings without pipeline stages, legal or not."""
    experts = max(model_experts(model), default=0)
    if not experts:
        yield Parallel(tp)
        return
    for dp in range(1, most_dp + 1):
        ranks = tp * dp
        if dp & (dp - 1) == 0:
            yield from (Parallel(tp, 1, dp, ep, ranks // ep) for ep in divisors(ranks))
        elif domain > 1 and ranks % domain == 0:
            copies = -experts % ranks
            if copies <= experts // 4:
                yield Parallel(tp, 1, dp, ranks, 1, copies)
