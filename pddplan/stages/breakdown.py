"""Where the time of a step goes: component by component, each with the resource that binds it."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from pddplan.roofline.step import PrefillTime, StepTime
from pddplan.stages.roofline import RooflineInstance

NAMES = {"attention": "attention", "gemm": "dense GEMM", "experts": "experts"}


@dataclass(frozen=True)
class Component:
    """``share`` of the whole; ``binding``: compute, memory bandwidth, links, launch or CPU.

    compute_s, memory_s: what the arithmetic alone and the memory traffic alone would take (None where there is no such question).
    """

    name: str
    seconds: float
    share: float
    binding: str
    compute_s: float | None = None
    memory_s: float | None = None


def _binding(time: StepTime | PrefillTime, key: str, seconds: float) -> str:
    compute, memory = float(time.compute_s[key]), float(time.memory_s[key])
    if max(compute, memory) < 0.5 * seconds:
        return "launch"
    return "compute" if compute > memory else "memory bandwidth"


def _components(time: StepTime | PrefillTime, rest: dict[str, tuple[float, str]]) -> list[Component]:
    seconds = {key: float(getattr(time, f"{key}_s")) for key in NAMES}
    total = sum(seconds.values()) + sum(s for s, _ in rest.values())
    found = [
        Component(name, s, s / total, _binding(time, key, s), float(time.compute_s[key]), float(time.memory_s[key]))
        for key, name in NAMES.items()
        for s in (seconds[key],)
    ]
    found += [Component(name, s, s / total, binding) for name, (s, binding) in rest.items()]
    return [component for component in found if component.seconds > 0]


def decode_components(instance: RooflineInstance, batch: ArrayLike, context_tokens: ArrayLike) -> list[Component]:
    """One decode step of ``batch`` requests; with speculation the drafter's passes are a component of their own."""
    time = instance.decode_breakdown(batch, context_tokens)
    draft = float(instance.step_s(batch, context_tokens)) - float(time.total_s)
    rest = {"collectives": (float(time.collectives_s), "links"), "overhead": (float(time.overhead_s), "CPU and launch")}
    if draft > 0:
        rest["drafting"] = (draft, "memory bandwidth")
    return _components(time, rest)


def prefill_components(instance: RooflineInstance, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> list[Component]:
    """A lone request's prefill; what the CPU adds over the GPU's time, and request handling, are components of their own."""
    time = instance.prefill_breakdown(uncached_tokens, cached_tokens)
    whole = float(instance.extend_s(uncached_tokens, cached_tokens))
    pipelined = whole / max(float(time.gpu_s), 1e-12) if instance.parallel.pp > 1 else 1.0
    rest = {
        "collectives": (float(time.collectives_s), "links"),
        "elementwise": (float(time.elementwise_s), "memory bandwidth"),
        "launch": (max(whole - float(time.gpu_s) * min(pipelined, 1.0), 0.0), "CPU"),
        "request handling": (float(instance.prefill_s(uncached_tokens, cached_tokens)) - whole, "CPU"),
    }
    return _components(time, rest)
