"""Two scenarios that plan in a second: one room, and two rooms with a line between them."""

from __future__ import annotations

import pytest

from pddplan.api import load_scenario
from pddplan.scenario.schema import Scenario

ONE_ROOM = """\
name: one room
model: {name: Qwen/Qwen3-32B-FP8}
sites: {A: {chips: [{chip: h100-sxm, stock: 24, price: 2 USD/h}]}}
workload:
  rate: 6 req/s
  rows: 100
  classes: {c: {input_tokens: 4k, output_tokens: 300, hit_rate: 0.3, sla: {ttft: {limit: 3 s}, tpot: {limit: 50 ms}, attainment: 95 %}}}
search: {tp: [1, 2]}
objective: min-cost
"""
TWO_ROOMS = """\
name: two rooms
model: {name: Qwen/Qwen3-32B-FP8}
engine: vllm
sites:
  A: {chips: [{chip: h100-sxm, price: 2 USD/h, stock: 32, roles: [P]}]}
  B: {chips: [{chip: h20-96, price: 1 USD/h, stock: 32, roles: [MD]}]}
links:
  A-B: {between: [A, B], circuit: 25 Gbps, max_circuits: 4, rtt: 10 ms, price: 20 USD/Gbps/month}
workload:
  rate: 4 req/s
  rows: 100
  classes: {c: {input_tokens: 8k, output_tokens: 300, hit_rate: 0.5, sla: {ttft: {limit: 4 s}, tpot: {limit: 60 ms}, attainment: 95 %}}}
search: {tp: [1, 2]}
objective: min-cost
"""


@pytest.fixture(scope="session")
def one_room(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return _read(tmp_path_factory, ONE_ROOM)


@pytest.fixture(scope="session")
def two_rooms(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return _read(tmp_path_factory, TWO_ROOMS)


def _read(factory: pytest.TempPathFactory, text: str) -> Scenario:
    path = factory.mktemp("scenario") / "scenario.yaml"
    path.write_text(text, encoding="utf-8")
    return load_scenario(path)
