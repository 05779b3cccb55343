"""A small plan of profiled instances, whose every time is known, and ways to change it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pddplan.api import load_scenario
from pddplan.model.spec import Parallel
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Configuration, Decision, LinkPlan, Pool

SCENARIO = """
name: two small rooms
model: {name: deepseek-ai/DeepSeek-V4-Pro, kv_format: nominal}
engine: generic
sites:
  A:
    chips:
      - chip: h100-sxm
        stock: 512
        price: 2.00 USD/h
        roles: [P, RLD]
        profiles:
          - {role: P, gpus: 1, prefill_s: {uncached: [1, 6400, 64000], seconds: [0.1, 2.0, 24]}}
          - {role: RLD, gpus: 1, step_s: {batch: [1, 48], seconds: [0.03, 0.05]}, batch_max: 48}
  B:
    chips:
      - chip: h200-sxm
        stock: 512
        price: 2.40 USD/h
        roles: [MD]
        profiles:
          - {role: MD, gpus: 1, step_s: {batch: [1, 32], seconds: [0.02, 0.045]}, batch_max: 32,
             extend_s: {tokens: [1, 100, 4096], seconds: [0.25, 0.305, 2.5]}}
links:
  A-B: {between: [A, B], circuit: 20 Gbps, max_circuits: 8, rtt: 20 ms, per_flow: 0.5 Gbps, connections: 64, usable: 0.9,
        price: 120 USD/Gbps/month}
workload:
  rate: 11.5 req/s
  classes:
    agent:
      input_tokens: 64k
      output_tokens: 1000
      hit_rate:
        buckets: {0-90: 7.2 %, 90-95: 4.8 %, 95-96: 2.4 %, 96-97: 3.7 %, 97-98: 7.1 %, 98-99: 17.8 %, 99-100: 57.0 %}
        below_90: {beta: [1, 1]}
      sla: {ttft: {limit: 15 s, p99: 15 s}, tpot: {limit: 60 ms}, attainment: 95 %}
policy: {relay_threshold: 2 s, handoff: auto, dispatch: shortest_queue}
"""


def pool(
    site: str, role: str, chip: str, instances: int, profile: int | None, parallel: Parallel | None = None, engine: str = "generic"
) -> Pool:
    """A pool of one deployment."""
    cut = parallel or Parallel()
    return Pool(Configuration("main", "model", site, role, chip, engine, cut, cut.gpus, profile), instances)  # type: ignore[arg-type]


PlanMaker = Callable[..., tuple[PlanContext, Decision]]


@pytest.fixture
def two_rooms(tmp_path: Path) -> PlanMaker:
    """two_rooms(p, rld, md, circuits, *overrides): context and decision of the small plan."""
    file = tmp_path / "two-rooms.yaml"
    file.write_text(SCENARIO, encoding="utf-8")

    def make(p: int = 22, rld: int = 2, md: int = 24, circuits: int = 1, *overrides: str) -> tuple[PlanContext, Decision]:
        context = PlanContext.from_scenario(load_scenario(file, overrides))
        pools = (
            pool("A", "P", "h100-sxm", p, 0),
            pool("A", "RLD", "h100-sxm", rld, 1),
            pool("B", "MD", "h200-sxm", md, 0),
        )
        link = LinkPlan("A-B", "A", "B", circuits, context.lines["A-B"].circuit_bytes_per_s)
        return context, Decision(pools, (link,), context.settings("main"))

    return make


@pytest.fixture
def one_room() -> PlanMaker:
    """one_room(p, md, agg, *overrides): the minimal scenario on roofline instances of two GPUs."""

    def make(p: int = 4, md: int = 3, agg: int = 0, *overrides: str) -> tuple[PlanContext, Decision]:
        context = PlanContext.from_scenario(load_scenario("01-minimal", overrides))
        cut = Parallel(tp=2, moe_tp=2)
        pools = (
            (pool("A", "AGG", "h100-sxm", agg, None, cut, "vllm"),)
            if agg
            else (pool("A", "P", "h100-sxm", p, None, cut, "vllm"), pool("A", "MD", "h100-sxm", md, None, cut, "vllm"))
        )
        return context, Decision(pools, (), context.settings("main"))

    return make
