"""A small valid scenario as text, and a writer that turns text into a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SMALL = """\
name: small
model: {name: Qwen/Qwen3-32B}
engine: vllm
sites:
  A:
    chips:
      - {chip: h100-sxm, stock: 16, price: 2.00 USD/h}
  B:
    chips:
      - {chip: h200-sxm, stock: 16, price: 2.50 USD/h, roles: [MD]}
links:
  A-B: {between: [A, B], circuit: 100 Gbps, rtt: 20 ms}
workload:
  rate: 10 req/s
  classes:
    chat:
      input_tokens: 2k
      output_tokens: 200
      hit_rate: {buckets: {0-90: 50 %, 90-100: 50 %}}
      sla: {ttft: {limit: 2 s, p99: 4 s}, tpot: 50 ms, attainment: 95 %}
"""


@pytest.fixture
def small() -> str:
    return SMALL


@pytest.fixture
def scenario_file(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str | bytes, name: str = "plan.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
