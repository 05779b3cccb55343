"""Plain caches, slow and obvious: what the compiled passes must agree with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from pddplan.workload.trace import Trace, runs_from_ids


def trace_of(
    ids: Sequence[Sequence[int]],
    block_tokens: int,
    lengths: Sequence[int] | None = None,
    outputs: Sequence[int] | None = None,
    times: Sequence[float] | None = None,
) -> Trace:
    n = len(ids)
    flat = np.array([i for row in ids for i in row], dtype=np.int64)
    return Trace(
        "made", "mooncake",
        np.arange(n, dtype=float) if times is None else np.array(times, dtype=float),
        np.array([max(1, len(row) * block_tokens) for row in ids] if lengths is None else lengths, dtype=np.int64),
        np.array([1] * n if outputs is None else outputs, dtype=np.int64),
        runs_from_ids(flat, np.array([len(row) for row in ids], dtype=np.int64)),
        block_tokens,
    )  # fmt: skip


def lru_leading_blocks(
    prompts: Sequence[Sequence[int]],
    capacity: int,
    *,
    times: Sequence[float] | None = None,
    ttl: float = float("inf"),
    enters: Sequence[bool] | None = None,
    left_behind: Sequence[Sequence[int]] | None = None,
) -> list[int]:
    """Leading known blocks of each prompt in an LRU cache of ``capacity`` blocks.

    A prompt is looked up whole, then its blocks (``left_behind``, the prompt when None) are touched from last to first.
    """
    cache: OrderedDict[int, float] = OrderedDict()
    found = []
    for i, prompt in enumerate(prompts):
        now = float(i) if times is None else times[i]
        run = 0
        while run < len(prompt) and prompt[run] in cache and now - cache[prompt[run]] <= ttl:
            run += 1
        found.append(run)
        if enters is not None and not enters[i]:
            continue
        for block in reversed(prompt if left_behind is None else left_behind[i]):
            cache[block] = now
            cache.move_to_end(block)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return found
