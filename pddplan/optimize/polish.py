"""The best plan under every setting that its search took as decided, and one instance smaller where a setting allows that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pddplan.optimize.candidates import Candidates
from pddplan.pdd.context import PlanContext
from pddplan.pdd.fixed_plan import MD_CACHE_SHARES, cache_is_open, md_room_bytes
from pddplan.pdd.plan import Decision, Handoff, Settings

MODES: tuple[Handoff, ...] = ("one-shot", "catch-up", "ship-kv")


def cache_shares(context: PlanContext) -> tuple[float, ...]:
    """Shares of MD's KV memory that may hold history, where the policy leaves them open and the traffic tells what they give."""
    return MD_CACHE_SHARES[::2] if any(cache_is_open(deployment) for deployment in context.deployments.values()) else ()


def with_cache(context: PlanContext, decision: Decision, share: float) -> Decision:
    """The decision with a share of the smallest MD instance's KV memory kept for history; as it is where it has no MD pool."""
    room = md_room_bytes(context, decision)
    return decision if room is None else replace(decision, settings=replace(decision.settings, md_cache_bytes=share * room))


def variants(context: PlanContext, decision: Decision, thresholds: Sequence[float | None]) -> Iterator[Decision]:
    """``decision`` at every relay threshold, every handoff mode that ``auto`` may be, and every split of MD's memory, one at a time."""

    def but(settings: Settings) -> Decision:
        return replace(decision, settings=settings)

    chosen = decision.settings
    if chosen.relay_threshold_s is not None:
        yield from (but(replace(chosen, relay_threshold_s=threshold)) for threshold in thresholds)
        if chosen.handoff == "auto":
            yield from (but(replace(chosen, handoff=mode)) for mode in MODES)
    if cache_shares(context) and chosen.md_cache_bytes is not None:
        yield from (with_cache(context, decision, share) for share in MD_CACHE_SHARES)


def smaller(decision: Decision, candidates: Candidates) -> Iterator[Decision]:
    """One step less of each pool that may shrink. None where instances are kept for failures: those do not serve."""
    known = {candidate.configuration: candidate for candidate in candidates.found}
    for i, pool in enumerate(decision.pools):
        candidate = known.get(pool.configuration)
        if candidate is None or candidate.spare or pool.instances - candidate.step < max(candidate.counts_min, 1):
            continue
        fewer = replace(pool, instances=pool.instances - candidate.step)
        yield replace(decision, pools=(*decision.pools[:i], fewer, *decision.pools[i + 1 :]))
