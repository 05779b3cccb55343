"""Trace: recorded requests as arrays, and the blocks of their prompts as runs of ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class BlockRuns:
    """Blocks of each request in prompt order, coded as runs of consecutive ids.

    first, count: shape (runs,); request i has runs offset[i] to offset[i + 1], offset: shape (requests + 1,).
    Ids are dense: 0 <= id < distinct. The same id is the same block behind the same prefix.
    """

    first: IntArray
    count: IntArray
    offset: IntArray
    distinct: int

    @property
    def requests(self) -> int:
        return int(self.offset.size - 1)

    @property
    def blocks(self) -> int:
        return int(self.count.sum())

    def segments(self) -> tuple[BlockRuns, IntArray]:
        """The same runs over segments of blocks that every run takes whole or not at all, and the blocks of each segment."""
        edges = np.unique(np.concatenate((self.first, self.first + self.count)))
        low, high = np.searchsorted(edges, self.first), np.searchsorted(edges, self.first + self.count)
        runs = BlockRuns(low.astype(np.int64), (high - low).astype(np.int64), self.offset, max(edges.size - 1, 0))
        return runs, np.diff(edges)

    def reordered(self, order: IntArray) -> BlockRuns:
        """The runs of requests order[0], order[1] ...; shape (requests,)."""
        runs = np.diff(self.offset)[order]
        offset = np.concatenate(([0], np.cumsum(runs)))
        index = np.repeat(self.offset[:-1][order] - offset[:-1], runs) + np.arange(offset[-1])
        return BlockRuns(self.first[index], self.count[index], offset.astype(np.int64), self.distinct)

    def per_request(self) -> IntArray:
        """Blocks of each request, shape (requests,)."""
        ends = np.concatenate(([0], np.cumsum(self.count)))
        return np.asarray(np.diff(ends[self.offset]), dtype=np.int64)


def runs_from_ids(ids: IntArray, per_request: IntArray) -> BlockRuns:
    """Runs of the flat block ids of all requests; ids may be any integers, per_request: shape (requests,)."""
    if ids.size and (ids.min() < 0 or ids.max() >= 4 * ids.size + 1024):
        known, ids = np.unique(ids, return_inverse=True)
        distinct = int(known.size)
    else:
        distinct = int(ids.max()) + 1 if ids.size else 0
    starts = np.concatenate(([0], np.cumsum(per_request)))
    new_run = np.ones(ids.size, dtype=bool)
    new_run[1:] = np.diff(ids) != 1
    new_run[starts[:-1][per_request > 0]] = True
    at = np.flatnonzero(new_run)
    count = np.diff(np.concatenate((at, [ids.size])))
    offset = np.concatenate(([0], np.cumsum(new_run)))[starts]
    return BlockRuns(np.asarray(ids[at], dtype=np.int64), count.astype(np.int64), offset.astype(np.int64), distinct)


@dataclass(frozen=True)
class Skipped:
    """Lines left out because the user asked for it: how many, the first of them, and why."""

    reason: str
    lines: int
    first_line: int


@dataclass(frozen=True)
class Trace:
    """Recorded requests in order of arrival (session by session where times are relative to a session's start).

    time_s, input_tokens, output_tokens: shape (requests,). blocks: None where the trace has no hashes.
    block_tokens: tokens of a whole block; the last block of a prompt may be partial.
    session: index of each request's session, or None. session_times: time_s counts from each session's start, so that
    the trace has no arrival rate of its own. local_ids: block ids mean nothing outside their session.
    ends_task: the model handed back to its user after this request. pause_s: idle time before the request (tools, thinking),
    NaN where unknown. shared_prefix_tokens: leading tokens (tools, system prompt) of a session's first request, 0 elsewhere.
    """

    name: str
    format: str
    time_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    blocks: BlockRuns | None = None
    block_tokens: int | None = None
    session: IntArray | None = None
    session_times: bool = False
    local_ids: bool = False
    ends_task: NDArray[np.bool_] | None = None
    pause_s: FloatArray | None = None
    shared_prefix_tokens: IntArray | None = None
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        return int(self.time_s.size)

    @property
    def independent_sessions(self) -> bool:
        """Whether sessions share neither blocks nor a clock, so that only idle times inside them are known."""
        return self.session_times and self.local_ids

    @property
    def span_s(self) -> float | None:
        """First to last arrival, or None where arrivals are relative to sessions."""
        return None if self.session_times else float(self.time_s[-1] - self.time_s[0])

    @property
    def rate_per_s(self) -> float | None:
        """Gaps per second between the first and the last arrival; None where the trace has no clock of its own."""
        span = self.span_s
        return (self.requests - 1) / span if span else None
