"""The bathtub of one deployment: benefit over the hit rate on the chips of a plan, with the closed forms and advice beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pddplan.economics.bathtub import Empirical, Mechanistic
from pddplan.economics.bathtub_advice import Advice, CacheMarket, CacheTierPrice, Traffic, advise
from pddplan.economics.benefit_curve import (
    BenefitCurve,
    Classification,
    FloatArray,
    SingularPoint,
    classify,
    singular_points,
)
from pddplan.economics.model_curve import DecodeSide, PrefillSide, largest_batch, model_curve
from pddplan.economics.tokens import TokenPrices
from pddplan.errors import InputError, Problem
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.money import chosen_deployment, token_prices
from pddplan.pdd.plan import Decision, Evaluation, Pool, Settings
from pddplan.units import GB, HOURS_PER_MONTH, SECONDS_PER_HOUR
from pddplan.workload.mix import RequestMix

POINTS = 401
PLAN_POINTS = 6
RATE_STEP = 1.05
GOOD_SHARE = 0.95  # a demand counts as served when this share of requests is within both limits
CHUNKS = (2048, 4096, 8192, 16384, 32768)


@dataclass(frozen=True)
class PlanPoint:
    """The plan as it stands when every request hits at ``hit_rate``: the largest demand it serves within every limit, 95 % of requests
    good (found to 5 %), waiting included. All 0 and TTFT inf where it serves none."""

    hit_rate: float
    goodput_rps: float
    bcr: float
    ttft_p50_s: float
    ttft_p99_s: float


@dataclass(frozen=True)
class BathtubStudy:
    """Everything that is known of the bathtub of one deployment.

    curve: by the stages of the plan's own instances at a free P:D ratio. closed: the mechanistic closed form with the same linear,
    attention and fixed time (in seconds of P's chips). empirical: the published form at the same price ratio.
    """

    deployment: str
    input_tokens: float
    output_tokens: float
    prices: TokenPrices
    price_source: str
    chunk_tokens: int
    tail_packing: bool
    decode_batch: float
    curve: BenefitCurve
    found: Classification
    singular: tuple[SingularPoint, ...]
    closed: Mechanistic
    empirical: Empirical
    traffic: Traffic
    advice: tuple[Advice, ...]
    plan_curve: tuple[PlanPoint, ...] = ()
    currency: str = "USD"
    notes: tuple[str, ...] = field(default=())


def bathtub(
    context: PlanContext,
    decision: Decision,
    *,
    deployment: str | None = None,
    prices: tuple[TokenPrices, str] | None = None,
    points: int = POINTS,
    plan_points: int = PLAN_POINTS,
) -> BathtubStudy:
    """Bathtub of ``deployment`` (the first one when None) on the instances of ``decision``.

    prices: what a provider bills and where that comes from (see ``token_prices``, the default). Raises InputError: no token
    prices, no such deployment, or a plan without pools that prefill and decode it.
    """
    chosen = chosen_deployment(context, deployment)
    mix = chosen.mix
    input_tokens, output_tokens = mix.mean(mix.input_tokens), mix.mean(mix.output_tokens)
    bills, source = prices if prices is not None else token_prices(context, chosen.name)
    if not bills.miss > 0:
        raise InputError(Problem("token_prices.input", f"{bills.miss:g}", "a price over 0: benefit is revenue over cost", "0.55 USD/Mtok"))
    prefill_pool = _pool(decision, chosen.name, ("P", "AGG"))
    decode_pool = _pool(decision, chosen.name, ("MD", "AGG"))
    stage = context.instance(decode_pool.configuration, decision.settings)
    limits = [sla.tpot.limit for sla in chosen.slas if sla.tpot.limit is not None]
    batch = largest_batch(stage, input_tokens + output_tokens, min(limits, default=None))
    grid = np.linspace(0.0, 1.0, points)
    market = _market(context, chosen, decode_pool, input_tokens)
    held = None if chosen.policy.md_cache.tier is not None else _held_bytes(market, chosen, grid)
    decode = DecodeSide(stage, batch, _price(context, decode_pool))
    beside = decode if held is None else replace(decode, cache_byte_s=held / mix.rate_per_s)

    def side(settings: Settings) -> PrefillSide:
        stage = context.instance(prefill_pool.configuration, settings)
        packed = context.instance(prefill_pool.configuration, replace(settings, tail_packing=True))
        return PrefillSide(stage, packed, _price(context, prefill_pool))

    def curve_at(hit_rate: FloatArray, settings: Settings, decode: DecodeSide = decode) -> BenefitCurve:
        return model_curve(hit_rate, input_tokens, output_tokens, bills, side(settings), decode)

    curve = curve_at(grid, decision.settings, beside)
    found = classify(curve.upto(market.highest))
    traffic = Traffic(1.0 - mix.uncached_tokens / mix.input_tokens, mix.weight, mix.input_tokens)
    chunks = {name: curve_at(grid, changed, beside) for name, changed in _other_chunks(decision.settings).items()}
    block = float(context.scenario.each_deployment()[chosen.name].engine_options.page_tokens or 1)
    return BathtubStudy(
        deployment=chosen.name,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        prices=bills,
        price_source=source,
        chunk_tokens=decision.settings.prefill_chunk_tokens,
        tail_packing=decision.settings.tail_packing,
        decode_batch=batch,
        curve=curve,
        found=found,
        singular=singular_points(
            lambda h: curve_at(h, decision.settings).benefit, input_tokens, decision.settings.prefill_chunk_tokens, block
        ),
        closed=_closed_form(curve, input_tokens, output_tokens, bills, _price(context, prefill_pool)),
        empirical=Empirical.from_drop(bills.hit_ratio),
        traffic=traffic,
        advice=advise(curve, found, traffic, bills, input_tokens, output_tokens, market, chunks),
        plan_curve=tuple(_plan_point(context, decision, float(h)) for h in np.linspace(0.0, 1.0, plan_points)) if plan_points else (),
        currency=context.scenario.currency,
        notes=_notes(chosen, traffic, curve, market.highest),
    )


def _pool(decision: Decision, deployment: str, roles: tuple[str, ...]) -> Pool:
    """The largest pool of the deployment in the first of ``roles`` that the plan has."""
    mine = [pool for pool in decision.pools if pool.configuration.deployment == deployment and pool.instances > 0]
    for role in roles:
        fitting = [pool for pool in mine if pool.configuration.role == role]
        if fitting:
            return max(fitting, key=lambda pool: pool.gpus)
    raise InputError(Problem("plan", f"no pool in role {' or '.join(roles)} for {deployment}", "a plan that serves it"))


def _price(context: PlanContext, pool: Pool) -> float:
    return context.prices_usd_h[pool.configuration.site, pool.configuration.chip]


def _other_chunks(settings: Settings) -> Mapping[str, Settings]:
    others = {f"chunks of {size} tokens": replace(settings, prefill_chunk_tokens=size) for size in CHUNKS}
    others.pop(f"chunks of {settings.prefill_chunk_tokens} tokens", None)
    return others if settings.tail_packing else {"packing tails": replace(settings, tail_packing=True), **others}


def _closed_form(
    curve: BenefitCurve, input_tokens: float, output_tokens: float, prices: TokenPrices, price_per_gpu_h: float
) -> Mechanistic:
    """The closed form whose ends are those of the curve: its linear and attention work at h = 0, and what hits do not save."""
    per_s = price_per_gpu_h / SECONDS_PER_HOUR
    fixed = float(curve.terms["decode"][0])
    return Mechanistic(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        prices=prices,
        linear_s_per_token=float(curve.terms["prefill work"][0]) / per_s / input_tokens,
        attention_s_per_pair=float(curve.terms["attention"][0]) / per_s * 2.0 / input_tokens**2,
        fixed_s=fixed / per_s,
        price_per_gpu_h=price_per_gpu_h,
    )


def _market(context: PlanContext, deployment: Deployment, decode_pool: Pool, input_tokens: float) -> CacheMarket:
    kv, curves = deployment.kv, [curve for curve in deployment.mix.md_curves if curve is not None]
    chip = context.chips[decode_pool.configuration.chip]
    tiers = [
        CacheTierPrice(f"{name} at {site}", tier.price)
        for site, entry in context.scenario.sites.items()
        for name, tier in entry.cache.items()
        if tier.price is not None
    ]
    if chip.hbm_bytes.value:
        hourly = _price(context, decode_pool) / (chip.hbm_bytes.value / GB)
        tiers.append(CacheTierPrice(f"HBM of {chip.slug}", hourly * HOURS_PER_MONTH))

    def bytes_for(hit_rate: float) -> float | None:
        if len(curves) != 1 or len(deployment.mix.class_names) != 1:
            return None
        tokens = curves[0].capacity_for(hit_rate)
        per_token = float(kv.transfer_bytes(input_tokens, input_tokens)) / input_tokens
        return tokens * per_token if math.isfinite(tokens) else None

    def bytes_per_context(hit_rate: float) -> float:
        tokens = hit_rate * input_tokens
        return float(kv.transfer_bytes(tokens, tokens))

    highest = curves[0].highest if len(curves) == 1 and len(deployment.mix.class_names) == 1 else 1.0
    return CacheMarket(bytes_for, bytes_per_context, tiers, highest)


def _held_bytes(market: CacheMarket, deployment: Deployment, grid: FloatArray) -> FloatArray | None:
    """Bytes of history that MD's memory must hold for each hit rate, shape (points,); None where the traffic does not tell."""
    curves = [curve for curve in deployment.mix.md_curves if curve is not None]
    if len(curves) != 1:
        return None
    held = [market.bytes_for(min(float(h), market.highest)) for h in grid]
    return None if any(each is None for each in held) else np.array(held, dtype=np.float64)


def _plan_point(context: PlanContext, decision: Decision, hit_rate: float) -> PlanPoint:
    deployments = {name: replace(each, mix=_all_hitting(each.mix, hit_rate)) for name, each in context.deployments.items()}
    best = _largest_served(context.with_deployments(deployments), decision)
    if best is None:
        return PlanPoint(hit_rate, 0.0, 0.0, math.inf, math.inf)
    m = best.metrics
    return PlanPoint(hit_rate, m.goodput_rps, m.bcr, m.ttft_p50_s, m.ttft_p99_s)


def _all_hitting(mix: RequestMix, hit_rate: float) -> RequestMix:
    """``mix`` with the same hit rate for every request, at P and at MD."""
    uncached = np.maximum((1.0 - hit_rate) * mix.input_tokens, 1.0)
    return replace(mix, uncached_tokens=uncached, md_missing_tokens=uncached)


def _largest_served(context: PlanContext, decision: Decision) -> Evaluation | None:
    """Evaluation at the largest multiple of the demand that is served; None when not even 2^-10 of it is."""

    def served(found: Evaluation) -> bool:
        return found.feasible and found.metrics.p_good >= GOOD_SHARE

    best, low, high = evaluate(context, decision, brief=True), 1.0, 2.0
    if served(best):
        while high <= 1024.0 and served(found := evaluate(context, decision, high, brief=True)):
            best, low, high = found, high, 2.0 * high
    while not served(best):
        low, high = low / 2.0, low
        if low < 2.0**-10:
            return None
        best = evaluate(context, decision, low, brief=True)
    while high / low > RATE_STEP:
        middle = math.sqrt(low * high)
        found = evaluate(context, decision, middle, brief=True)
        best, low, high = (found, middle, high) if served(found) else (best, low, middle)
    return best


def _notes(deployment: Deployment, traffic: Traffic, curve: BenefitCurve, highest: float) -> tuple[str, ...]:
    spread = float(np.sqrt(np.dot(traffic.weight, (traffic.hit_rate - np.dot(traffic.weight, traffic.hit_rate)) ** 2)))
    notes = []
    if len(deployment.mix.class_names) > 1:
        notes.append("the curve is of the mean request of all classes; a class of its own needs a scenario of its own")
    work = curve.terms["prefill work"] + curve.terms["attention"]
    if work[0] <= work[-1]:
        notes.append("P's profile tells no prefill time over the uncached length: what hits save is not in this curve")
    if highest < 1.0:
        notes.append(f"this traffic's prefixes reach a hit rate of {highest:.1%} at most: the curve is judged up to there")
    if spread > 0.2:
        notes.append("hit rates of this traffic differ widely: judge by the histogram, not by the mean")
    return tuple(notes)
