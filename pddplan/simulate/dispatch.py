"""How a pool spreads its requests over its instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np


class Loaded(Protocol):
    @property
    def load(self) -> int:
        """Requests on the instance and in the queue in front of it; least where it would start another at once."""


Instance = TypeVar("Instance", bound=Loaded)


class Dispatcher:
    """cache_affinity: a session keeps its instance; round_robin: in turn; shortest_queue: one of the least loaded, by chance;
    central: the queue is the pool's own, and the least loaded instance is the one to wake.
    """

    def __init__(self, dispatch: str, rng: np.random.Generator) -> None:
        self.dispatch, self.rng, self.turn = dispatch, rng, 0

    def pick(self, instances: Sequence[Instance], session: int = -1) -> Instance:
        """The instance of a request; ``session`` under 0: of no session."""
        if self.dispatch == "cache_affinity":
            key = session if session >= 0 else int(self.rng.integers(0, 1 << 30))
            return instances[spread(key, len(instances))]
        if self.dispatch == "round_robin":
            self.turn += 1
            return instances[self.turn % len(instances)]
        if self.dispatch == "central":
            return min(instances, key=lambda i: i.load)
        fewest = min(i.load for i in instances)
        level = [i for i in instances if i.load == fewest]
        return level[int(self.rng.integers(0, len(level)))]


def spread(key: int, buckets: int) -> int:
    """A bucket for a session, always the same, even over the buckets (Fibonacci hashing)."""
    return ((key * 11400714819323198485) & ((1 << 64) - 1)) * buckets >> 64
