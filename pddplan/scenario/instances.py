"""Profiled instances: measured tables that replace the roofline for a chip and a role."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from annotated_types import Ge, Gt, MinLen
from pydantic import model_validator

from pddplan.scenario.base import Section, teach
from pddplan.scenario.quantities import Bytes, BytesOrNumber, SecondsOrNumber, Tokens

Role = Literal["P", "RLD", "MD", "AGG"]
Grid = Annotated[tuple[Tokens, ...], MinLen(1)]
Times = Annotated[tuple[Annotated[SecondsOrNumber, Gt(0)], ...], MinLen(1)]


def _same_length(where: str, **columns: tuple[float, ...]) -> None:
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        text = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise teach(f"columns of {where} differ in length ({text})", "every row needs a value in each column")


def _increasing(name: str, grid: tuple[float, ...]) -> None:
    if any(left >= right for left, right in pairwise(grid)):
        raise teach(f"{name} does not increase: {', '.join(f'{x:g}' for x in grid)}", "list the points in increasing order, each once")


class PrefillTable(Section):
    """Seconds of one prefill by uncached tokens."""

    uncached: Grid
    seconds: Times

    @model_validator(mode="after")
    def _check(self) -> PrefillTable:
        _same_length("prefill_s", uncached=self.uncached, seconds=self.seconds)
        _increasing("uncached", self.uncached)
        return self


class KvTable(Section):
    """Bytes of KV that a request of so many uncached tokens sends on."""

    uncached: Grid
    bytes: Annotated[tuple[BytesOrNumber, ...], MinLen(1)]

    @model_validator(mode="after")
    def _check(self) -> KvTable:
        _same_length("kv_bytes", uncached=self.uncached, bytes=self.bytes)
        _increasing("uncached", self.uncached)
        return self


class StepTable(Section):
    """Seconds of one decode step by running requests in the instance."""

    batch: Annotated[tuple[Annotated[float, Gt(0)], ...], MinLen(1)]
    seconds: Times

    @model_validator(mode="after")
    def _check(self) -> StepTable:
        _same_length("step_s", batch=self.batch, seconds=self.seconds)
        _increasing("batch", self.batch)
        return self


class ExtendTable(Section):
    """Seconds to recompute the KV of so many handed-over tokens in one step."""

    tokens: Grid
    seconds: Times

    @model_validator(mode="after")
    def _check(self) -> ExtendTable:
        _same_length("extend_s", tokens=self.tokens, seconds=self.seconds)
        _increasing("tokens", self.tokens)
        return self


class RateTable(Section):
    """Requests per second that one instance carries within the SLA, by input and output tokens. 0: it cannot serve that bucket.

    req_per_s: shape (input, output).
    """

    input: Grid
    output: Grid
    req_per_s: Annotated[tuple[tuple[Annotated[float, Ge(0)], ...], ...], MinLen(1)]

    @model_validator(mode="after")
    def _check(self) -> RateTable:
        rows, columns = len(self.input), len(self.output)
        if len(self.req_per_s) != rows or any(len(row) != columns for row in self.req_per_s):
            raise teach(
                f"req_per_s is {len(self.req_per_s)} rows of {sorted({len(row) for row in self.req_per_s})} values",
                f"write one row per input ({rows}), each with one value per output ({columns})",
            )
        _increasing("input", self.input)
        _increasing("output", self.output)
        return self


class ProfiledInstance(Section):
    """One measured instance of ``gpus`` GPUs in a role.

    P needs prefill_s; RLD and MD need step_s; AGG needs rate, or both prefill_s and step_s. kv_bytes replaces the model's KV size.
    batch_max: running requests at most. weights_shared_with: role whose memory already holds the weights (RLD on P's chips).
    """

    role: Role
    gpus: Annotated[int, Gt(0)]
    name: str = ""
    deployment: str | None = None
    prefill_s: PrefillTable | None = None
    kv_bytes: KvTable | None = None
    step_s: StepTable | None = None
    extend_s: ExtendTable | None = None
    rate: RateTable | None = None
    batch_max: Annotated[float, Gt(0)] | None = None
    kv_capacity: Annotated[Bytes, Gt(0)] | None = None
    interpolation: Literal["linear", "cubic"] = "linear"
    weights_shared_with: Role | None = None
    source: str = ""

    @model_validator(mode="after")
    def _complete(self) -> ProfiledInstance:
        needed = {
            "P": ("prefill_s",),
            "RLD": ("step_s",),
            "MD": ("step_s",),
            "AGG": () if self.rate is not None else ("prefill_s", "step_s"),
        }[self.role]
        missing = [key for key in needed if getattr(self, key) is None]
        if missing:
            what = " and ".join(missing)
            alternative = " (or rate)" if self.role == "AGG" else ""
            raise teach(f"a profile of role {self.role} without {what}", f"give {what}{alternative}", _EXAMPLES[self.role])
        return self


_EXAMPLES = {
    "P": "prefill_s: {uncached: [1k, 8k], seconds: [0.44, 0.72]}",
    "RLD": "step_s: {batch: [1, 20], seconds: [0.02, 0.025]}",
    "MD": "step_s: {batch: [1, 20], seconds: [0.02, 0.025]}",
    "AGG": "rate: {input: [1k], output: [200], req_per_s: [[2.5]]}",
}
