"""The benefit curve from stage times, against stages whose form is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from pddplan.economics.bathtub import Mechanistic
from pddplan.economics.bathtub_advice import CacheMarket, CacheTierPrice, Traffic, advise
from pddplan.economics.benefit_curve import TAIL, BenefitCurve, classify, singular_points
from pddplan.economics.model_curve import DecodeSide, PrefillSide, largest_batch, model_curve
from pddplan.economics.tokens import TokenPrices
from pddplan.errors import InputError

L, OUT = 64_000.0, 1000.0
GRID = np.linspace(0, 1, 1001)
PRICES = TokenPrices(miss=1.0, hit=0.1, output=2.0)


@dataclass(frozen=True)
class KnownPrefill:
    """a u + q (u c + u^2 / 2) + load c + overhead per chunk (whole chunks where tails are not packed)."""

    per_token_s: float = 3e-4
    pair_s: float = 6e-9
    load_s: float = 0.0
    chunk_s: float = 0.0
    chunk: float = 8192.0
    packed: bool = True
    gpus: int = 8

    def prefill_occupancy_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> NDArray[np.float64]:
        u, c = np.broadcast_arrays(np.asarray(uncached_tokens, dtype=float), np.asarray(cached_tokens, dtype=float))
        chunks = u / self.chunk if self.packed else np.ceil(np.round(u / self.chunk, 9))
        return self.per_token_s * u + self.pair_s * (u * c + u**2 / 2) + self.load_s * c + self.chunk_s * chunks

    def prefill_s(self, uncached_tokens: ArrayLike, cached_tokens: ArrayLike) -> NDArray[np.float64]:
        return replace(self, packed=False).prefill_occupancy_s(uncached_tokens, cached_tokens)


@dataclass(frozen=True)
class KnownDecode:
    """alpha + beta b seconds a step; one request takes a byte per token."""

    alpha_s: float = 0.02
    beta_s: float = 1e-4
    gpus: int = 8
    tokens_per_step: float = 1.0
    batch_max: float = 256.0
    memory: float = 100 * (L + OUT)

    def step_s(self, batch: ArrayLike, context_tokens: ArrayLike) -> NDArray[np.float64]:
        return self.alpha_s + self.beta_s * np.broadcast_arrays(np.asarray(batch, dtype=float), np.asarray(context_tokens))[0]

    def extend_s(self, new_tokens: ArrayLike, context_tokens: ArrayLike) -> NDArray[np.float64]:
        raise NotImplementedError

    def kv_capacity_bytes(self) -> float:
        return self.memory

    def kv_resident_bytes(self, tokens: ArrayLike) -> NDArray[np.float64]:
        return np.asarray(tokens, dtype=float)


def curve(stage: KnownPrefill, decode: DecodeSide | None = None, prices: TokenPrices = PRICES) -> BenefitCurve:
    side = PrefillSide(stage, replace(stage, packed=True), 2.0)
    return model_curve(GRID, L, OUT, prices, side, decode or DecodeSide(KnownDecode(), 100.0, 2.5))


def test_terms_are_the_parts_of_the_known_form() -> None:
    stage = KnownPrefill(load_s=1e-6, chunk_s=0.05, packed=False)
    found = curve(stage)
    u, price = np.maximum((1 - GRID) * L, 1.0), 8 * 2.0 / 3600
    assert found.terms["attention"] / price == pytest.approx(stage.pair_s * (u * (L - u) + u**2 / 2), rel=1e-3, abs=1e-3)
    assert found.terms["cache load"] / price == pytest.approx(stage.load_s * (L - u), rel=1e-2, abs=1e-3)
    assert found.terms["prefill work"] / price == pytest.approx(u * (stage.per_token_s + stage.chunk_s / stage.chunk), rel=1e-3)
    assert found.terms[TAIL].max() / price <= stage.chunk_s
    assert found.cost == pytest.approx(price * stage.prefill_occupancy_s(u, L - u) + found.terms["decode"])


@given(st.floats(1e-9, 2e-8), st.floats(0.02, 0.5), st.floats(1, 100))
def test_numerical_bottoms_agree_with_the_closed_form(pair_s: float, ratio: float, batch: float) -> None:
    prices = replace(PRICES, hit=ratio)
    stage, decode = KnownPrefill(pair_s=pair_s), KnownDecode()
    found = classify(curve(stage, DecodeSide(decode, batch, 2.0), prices))
    step = float(decode.step_s(batch, L)) / batch
    closed = Mechanistic(L, OUT, prices, stage.per_token_s * 8, pair_s * 8, OUT * step * 8, 2.0).valley()
    if closed is not None and closed.depth < 0.97 and closed.right_edge is not None and closed.right_edge < 0.98:
        assert found.valley is not None
        assert found.valley.bottom == pytest.approx(closed.bottom, rel=0.01)
        assert found.valley.right_edge == pytest.approx(closed.right_edge, rel=0.01)


def test_serial_tails_are_teeth_and_packing_removes_them() -> None:
    serial = KnownPrefill(chunk_s=0.3, packed=False)
    assert classify(curve(serial)).shape == "sawtooth"
    assert classify(curve(replace(serial, packed=True))).shape != "sawtooth"
    side = PrefillSide(serial, replace(serial, packed=True), 2.0)
    decode = DecodeSide(KnownDecode(), 100.0, 2.5)
    points = singular_points(lambda h: model_curve(h, L, OUT, PRICES, side, decode).benefit, L, 8192)
    assert len(points) == 7


def test_history_in_decode_memory_costs_instances_once_the_free_memory_is_used() -> None:
    """At batch 50 half of the memory is free: history is free until it fills what one request's decode time leaves."""
    stage = KnownDecode()
    decode_s = OUT * 0.025 / 50
    full = 2 * decode_s * stage.memory
    held = DecodeSide(stage, 50.0, 2.5, GRID * full)
    free, taken = curve(KnownPrefill(), DecodeSide(stage, 50.0, 2.5)), curve(KnownPrefill(), held)
    extra = taken.terms["cache memory"]
    assert extra[GRID <= 0.25] == pytest.approx(0)
    assert extra[-1] / taken.terms["decode"][-1] == pytest.approx(0.5 + 2 - 1)
    assert np.all(taken.benefit <= free.benefit)


def test_the_largest_batch_is_bound_by_engine_memory_or_pace() -> None:
    decode = KnownDecode()
    assert largest_batch(decode, L + OUT) == 100  # memory
    assert largest_batch(decode, 1000.0) == 256  # engine
    assert largest_batch(decode, L + OUT, kv_share=0.5) == 50
    assert largest_batch(decode, 1000.0, tpot_limit_s=0.025) == pytest.approx(50, rel=0.05)
    assert largest_batch(replace(decode, tokens_per_step=2.0), 1000.0, tpot_limit_s=0.025) == 256
    for context, limit in ((1e9, None), (1000.0, 0.01)):
        with pytest.raises(InputError):
            largest_batch(decode, context, limit)


@given(st.floats(1e-5, 1e-3), st.floats(0, 1e-8), st.floats(0.0, 0.1))
def test_more_hits_never_cost_more_chip_time(per_token_s: float, pair_s: float, chunk_s: float) -> None:
    found = curve(KnownPrefill(per_token_s, pair_s, chunk_s=chunk_s))
    assert np.all(np.diff(found.cost) <= 1e-12)
    assert np.all(np.diff(found.ttft_s) <= 1e-9)


def traffic(hit: float) -> Traffic:
    spread = np.array([max(0.0, hit - 0.1), hit, min(1.0, hit + 0.1)])
    return Traffic(spread, np.full(3, 1 / 3), np.full(3, L))


def test_traffic_is_weighted_by_tokens_and_by_requests() -> None:
    mixed = Traffic(np.array([0.0, 1.0]), np.array([0.5, 0.5]), np.array([3.0, 1.0]))
    assert mixed.mean_hit_rate == 0.25
    assert mixed.share_between(0.5, 1.1) == 0.5
    assert mixed.histogram(np.array([0.0, 0.5, 1.0])).tolist() == [0.5, 0.5]


def market(capacity: float | None) -> CacheMarket:
    return CacheMarket(lambda h: capacity, lambda h: h * 1e9, (CacheTierPrice("ssd", 0.1),))


def test_advice_in_a_valley_names_the_far_edge_its_bytes_and_its_bill() -> None:
    stage = KnownPrefill(per_token_s=1e-4, pair_s=8e-9)
    found = curve(stage)
    shape = classify(found)
    assert shape.shape == "valley"
    assert shape.valley is not None
    cache, price, chunk = advise(found, shape, traffic(0.5), PRICES, L, OUT, market(5e12), {"other": found})
    assert cache.numbers["target_hit_rate"] == shape.valley.right_edge
    assert cache.numbers["bytes"] == 5e12
    assert cache.numbers["per_month_in_ssd"] == pytest.approx(500)
    assert "5,000 GB" in cache.text
    ratio = price.numbers["losing_price_ratio"]
    assert isinstance(ratio, float)
    assert ratio == pytest.approx(0.1, abs=0.12)
    assert chunk.kind == "chunk"
    unknown = advise(found, shape, traffic(0.5), PRICES, L, OUT, market(None), {})[0]
    assert "live contexts" in unknown.text
    assert unknown.numbers["bytes"] is None


def test_advice_does_not_sell_cache_where_hits_do_not_pay() -> None:
    found = curve(KnownPrefill(), DecodeSide(KnownDecode(), 1.0, 20.0))
    shape = classify(found)
    assert shape.shape == "falling"
    advice = advise(found, shape, traffic(0.5), PRICES, L, OUT, market(5e12), {})
    assert "does not pay" in advice[0].text
    assert "rise loses" in advice[1].text


def test_packing_is_advised_where_it_gains() -> None:
    serial, packed = curve(KnownPrefill(chunk_s=0.3, packed=False)), curve(KnownPrefill(chunk_s=0.3))
    advice = advise(serial, classify(serial), traffic(0.9), PRICES, L, OUT, market(None), {"packing tails": packed})
    assert advice[-1].text.startswith("packing tails")
    gain = advice[-1].numbers["gain_packing tails"]
    assert isinstance(gain, float)
    assert gain > 0.01
