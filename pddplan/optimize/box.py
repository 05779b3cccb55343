"""Best integer point of a box when being good is monotone: more of anything never makes a plan fail, nor fewer requests good.

Plain numbers only. The whole model is the oracle ``assess``; it is asked as seldom as the monotonicity allows.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

Point = tuple[int, ...]


@dataclass(frozen=True)
class Assessment:
    """What the oracle says of a point: whether it meets every limit, and the share of requests that are good.

    free: the answer cost nothing (it does not count as a call).
    """

    feasible: bool
    share: float
    free: bool = False


@dataclass(frozen=True)
class Found:
    """best: the best feasible point (None: none found), of value ``worth``. bound: no point of the box is worth more than this or
    than the cutoff.

    complete: the box was searched to the end.
    """

    best: Point | None
    worth: float
    bound: float
    complete: bool


@dataclass
class _Memory:
    """Points assessed so far. A point under an infeasible one is infeasible; a share is at most that of any point above."""

    infeasible: list[Point] = field(default_factory=list)
    shares: list[tuple[Point, float]] = field(default_factory=list)

    def surely_fails(self, point: Point) -> bool:
        return any(_under(point, bad) for bad in self.infeasible)

    def share_bound(self, point: Point) -> float:
        return min((share for other, share in self.shares if _under(point, other)), default=1.0)


def best_in_box(
    lower: Point,
    upper: Point,
    worth: Callable[[Point, float], float],
    assess: Callable[[Point], Assessment],
    cutoff: float = -math.inf,
    calls: int = 1000,
    slack: float = 0.0,
) -> Found:
    """Point of greatest ``worth(point, share)`` among the feasible points of lower..upper.

    worth falls in every coordinate at equal share (-inf beyond a hard cap) and rises with the share. Only points worth more
    than ``cutoff`` matter. At most ``calls`` assessments; then the result is incomplete and the bound says what was left.
    ``slack``: relative distance from the bound at which the search may stop.
    """
    memory, asked = _Memory(), 0

    def ask(point: Point) -> Assessment:
        nonlocal asked
        answer = assess(point)
        asked += not answer.free
        if not answer.feasible:
            memory.infeasible.append(point)
        memory.shares.append((point, answer.share if answer.feasible else 1.0))
        return answer

    def ceiling(point: Point) -> float:
        return worth(point, memory.share_bound(point))

    if ceiling(lower) <= cutoff:
        return Found(None, -math.inf, -math.inf, True)
    first = ask(lower)
    most, reached = worth(lower, 1.0), worth(lower, first.share)
    if first.feasible and reached >= most - slack * abs(most):
        return Found(lower, reached, most, True) if reached > cutoff else Found(None, -math.inf, most, True)
    neighbours = (_step(lower, axis) for axis in range(len(lower)) if lower[axis] < upper[axis])
    known = max(reached, cutoff) if first.feasible else cutoff
    if all(worth(point, 1.0) <= known for point in neighbours):
        better = first.feasible and reached > cutoff
        return Found(lower, reached, reached, True) if better else Found(None, -math.inf, -math.inf, True)
    highest = ask(upper)
    if not highest.feasible:
        return Found(None, -math.inf, -math.inf, True)

    def promise(point: Point) -> float:
        return worth(point, highest.share)

    corner = lower
    for axis in range(len(lower)):
        if asked >= calls or promise(corner) <= cutoff:
            break
        corner = _raised(corner, upper, axis, ask)
    best: Point | None = None
    best_worth, left = cutoff, -math.inf
    queue: list[tuple[float, Point]] = [(-promise(corner), corner)]
    seen = {corner}
    while queue:
        promised, point = heapq.heappop(queue)
        if -promised <= best_worth + (slack * abs(best_worth) if best else 0.0):
            left = -promised
            break
        if asked >= calls:
            return Found(best, best_worth if best else -math.inf, -promised, False)
        if not memory.surely_fails(point) and ceiling(point) > best_worth:
            answer = ask(point)
            value = worth(point, answer.share)
            if answer.feasible and value > best_worth:
                best, best_worth = point, value
        for axis in range(len(point)):
            following = _step(point, axis)
            if following[axis] <= upper[axis] and following not in seen:
                seen.add(following)
                if promise(following) > best_worth:
                    heapq.heappush(queue, (-promise(following), following))
    return Found(best, best_worth if best else -math.inf, max(best_worth, left), True)


def _raised(corner: Point, upper: Point, axis: int, ask: Callable[[Point], Assessment]) -> Point:
    """``corner`` with one coordinate raised to the least value that can work while all others are at their most."""

    def works(value: int) -> bool:
        return ask((*upper[:axis], value, *upper[axis + 1 :])).feasible

    low, step = corner[axis], 1
    if low >= upper[axis] or works(low):
        return corner
    fails, passes = low, upper[axis]
    while fails + step < upper[axis]:
        if works(fails + step):
            passes = fails + step
            break
        fails, step = fails + step, 2 * step
    while passes - fails > 1:
        middle = (passes + fails) // 2
        fails, passes = (fails, middle) if works(middle) else (middle, passes)
    return (*corner[:axis], passes, *corner[axis + 1 :])


def _step(point: Point, axis: int) -> Point:
    return (*point[:axis], point[axis] + 1, *point[axis + 1 :])


def _under(point: Point, other: Point) -> bool:
    return all(a <= b for a, b in zip(point, other, strict=True))
