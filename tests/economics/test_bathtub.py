"""Section by section: the closed forms of the bathtub, and the classes of curves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from pddplan.economics.bathtub import Empirical, Mechanistic, losing_price_ratio
from pddplan.economics.benefit_curve import TAIL, BenefitCurve, classify, singular_points
from pddplan.economics.tokens import TokenPrices
from pddplan.errors import InputError

GRID = np.linspace(0, 1, 1001)
GFLOP_S = 1 / 400e3  # seconds per GFLOP of a chip that reaches 400 TFLOP/s


@pytest.mark.parametrize(
    ("ratio", "bottom", "depth", "recovery"), [(0.10, 0.68, 0.78, 0.90), (1 / 6, 0.58, 0.855, 0.82), (0.25, 0.45, 0.92, 0.70)]
)
def test_the_published_form_has_its_published_bottoms(ratio: float, bottom: float, depth: float, recovery: float) -> None:
    valley = Empirical.from_drop(ratio).valley()
    assert valley is not None
    assert valley.bottom == pytest.approx(bottom, abs=0.005)
    assert valley.depth == pytest.approx(depth, abs=0.005)
    assert valley.right_edge == pytest.approx(recovery, abs=0.005)


def test_throughput_of_the_published_form_falls_by_a_fifth_from_04_to_07() -> None:
    form = Empirical.from_drop(0.1)
    assert (1 - form.fall * 0.7) / (1 - form.fall * 0.4) == pytest.approx(0.8)


def test_revenue_at_07_is_below_that_at_04_only_under_a_sixth() -> None:
    def falls(ratio: float) -> bool:
        low, high = Empirical.from_drop(ratio).revenue(np.array([0.4, 0.7]))
        return bool(high < low)

    assert falls(0.10)
    assert falls(1 / 6 - 0.003)
    assert not falls(1 / 6 + 0.003)
    assert not falls(0.25)


def test_a_published_form_without_a_discount_has_no_valley() -> None:
    assert Empirical.from_drop(1.0).valley() is None
    assert Empirical.from_drop(0.0).valley() is None  # free cached tokens: revenue only falls
    for bad in ({"drop": 0.0}, {"from_hit": 0.8}, {"price_ratio": -0.1}):
        with pytest.raises(InputError):
            Empirical.from_drop(**({"price_ratio": 0.1} | bad))


@given(st.floats(0.02, 0.4), st.floats(0.05, 0.45))
def test_numerical_bottoms_of_the_published_form_agree(ratio: float, drop: float) -> None:
    form = Empirical.from_drop(ratio, drop)
    valley = form.valley()
    found = minimize_scalar(lambda x: float(form.revenue(x)), bounds=(0, 0.999), method="bounded", options={"xatol": 1e-8})
    if valley is not None and valley.bottom < 0.99:
        assert found.x == pytest.approx(valley.bottom, rel=0.01, abs=1e-4)
        assert float(form.revenue(valley.right_edge)) == pytest.approx(1.0)


def dense(input_tokens: float = 64_000, hit_ratio: float = 0.10, decode_share: float = 0.03, output_tokens: float = 0) -> Mechanistic:
    """A dense 70B-class model: 140 GFLOP per token, 80 layers of 8192-wide attention (4 x 80 x 8192 FLOP per token pair)."""
    linear, pair = 140 * GFLOP_S, 4 * 80 * 8192 / 1e9 * GFLOP_S
    prefill = linear * input_tokens + pair * input_tokens**2 / 2
    prices = TokenPrices(miss=1.0, hit=hit_ratio, output=2.0)
    return Mechanistic(input_tokens, output_tokens, prices, linear, pair, decode_share * prefill)


def v4_pro(hit_ratio: float, fixed_share: float, output_tokens: float = 1000) -> Mechanistic:
    """DeepSeek-V4-Pro at 64K: 95.7 GFLOP per token linear, 14.2 core attention of a fixed top-k, 7.9 indexer (mean over the context)."""
    linear, L = (95.7 + 14.2) * GFLOP_S, 64_000.0
    pair = 2 * 7.9 * GFLOP_S / L
    prefill = linear * L + pair * L**2 / 2
    return Mechanistic(L, output_tokens, TokenPrices(1.0, hit_ratio, 2.0), linear, pair, fixed_share * prefill)


def test_dense_attention_at_64k_and_a_tenth_of_the_price_makes_a_valley() -> None:
    form = dense(decode_share=0.08)
    found = classify(form.curve(GRID))
    assert (found.shape, found.term) == ("valley", "attention")
    assert found.valley is not None
    assert 0.85 < found.valley.depth < 0.97


@pytest.mark.parametrize("ratio", [0.008, 0.01, 0.10, 0.25])
@pytest.mark.parametrize("output_tokens", [500, 1000, 4000])
def test_v4_pro_with_packed_prefill_has_no_valley_at_any_price_ratio(ratio: float, output_tokens: int) -> None:
    shares = (0.002, *np.linspace(0.005, 0.5, 100), 1.0, 3.0)
    shapes = [classify(v4_pro(ratio, share, output_tokens).curve(GRID)).shape for share in shares]
    assert set(shapes) <= {"rising", "falling"}
    assert shapes == sorted(shapes, reverse=True)  # rising for a small decode share, falling for a large one
    assert shapes[-1] == "falling"


def test_no_discount_or_a_short_context_has_no_valley() -> None:
    assert classify(dense(hit_ratio=1.0).curve(GRID)).shape == "rising"
    for share in (0.01, 0.05, 0.2, 1.0):
        assert classify(dense(2000, decode_share=share).curve(GRID)).shape in ("rising", "falling")


def test_a_large_decode_share_is_named_as_what_makes_the_benefit_fall() -> None:
    found = classify(v4_pro(0.01, 1.0).curve(GRID))
    assert (found.shape, found.term) == ("falling", "decode")
    assert classify(v4_pro(0.25, 0.01).curve(GRID)).term == "prefill work"


@given(st.floats(8_000, 200_000), st.floats(0.01, 0.5), st.floats(0.01, 1.0), st.floats(0, 4000))
def test_numerical_valleys_agree_with_the_closed_form(tokens: float, ratio: float, share: float, output_tokens: float) -> None:
    form = dense(tokens, ratio, share, output_tokens)
    closed, numeric = form.valley(), classify(form.curve(GRID))
    walls = closed is not None and min(1.0, float(form.benefit(1.0)) / float(form.benefit(0.0))) / closed.depth > 1.01
    if closed is not None and walls:
        assert numeric.valley is not None
        assert numeric.valley.bottom == pytest.approx(closed.bottom, rel=0.01)
        assert numeric.valley.depth == pytest.approx(closed.depth, rel=1e-3)
        if closed.right_edge is not None:
            assert numeric.valley.right_edge == pytest.approx(closed.right_edge, rel=0.01)
            assert (numeric.shape == "valley") == (closed.depth < 1 / 1.05)
    if closed is None:
        assert numeric.shape in ("rising", "falling")


def test_serial_tails_make_a_sawtooth_that_packing_removes() -> None:
    packed = v4_pro(0.10, 0.01)
    serial = replace(packed, chunk_tokens=8192, chunk_overhead_s=0.4)
    found = classify(serial.curve(np.linspace(0, 1, 4001)))
    assert (found.shape, found.term) == ("sawtooth", TAIL)
    assert found.underlying in ("rising", "falling")
    assert classify(packed.curve(GRID)).shape == found.underlying


def test_steps_stand_where_the_uncached_tokens_just_exceed_whole_chunks() -> None:
    serial = replace(v4_pro(0.10, 0.01), chunk_tokens=8192, chunk_overhead_s=0.4)
    points = singular_points(serial.benefit, 64_000, 8192)
    expected = sorted(1 - (k * 8192 + 1) / 64_000 for k in range(1, 8))
    assert [point.hit_rate for point in points] == pytest.approx(expected)
    assert all(0 < point.loss < 1 for point in points)
    assert points[-1].loss > points[0].loss  # the smaller the work left, the more one more chunk weighs
    assert singular_points(v4_pro(0.10, 0.01).benefit, 64_000, 8192) == ()
    assert singular_points(serial.benefit, 4_000, 8192) == ()


def test_twenty_forty_and_seventy_percent_do_not_follow_from_one_chunk_and_length() -> None:
    """Multiples of c/L are evenly spaced: 0.2, 0.4 and 0.7 would need c/L = 0.1 and then 0.1, 0.3, 0.5 ... beside them."""
    spacing = np.gcd.reduce(np.array([80, 60, 30])) / 100
    hits = 1 - spacing * np.arange(1, int(1 / spacing))
    assert set(np.round(hits, 2)) - {0.2, 0.4, 0.7}


def test_a_valley_under_a_sawtooth_keeps_its_bottom() -> None:
    smooth = dense(decode_share=0.08)
    serial = replace(smooth, chunk_tokens=8192, chunk_overhead_s=0.5)
    found = classify(serial.curve(np.linspace(0, 1, 4001)))
    closed = serial.valley()
    assert found.shape == "sawtooth"
    assert found.underlying == "valley"
    assert found.valley is not None
    assert closed is not None
    assert found.valley.bottom == pytest.approx(closed.bottom, rel=0.02)


@given(st.floats(0.05, 0.95), st.floats(0.01, 0.5), st.floats(0, 3000))
def test_the_losing_price_ratio_is_where_the_slope_of_the_benefit_is_zero(hit: float, share: float, output_tokens: float) -> None:
    form = dense(64_000, 0.1, share, output_tokens)
    ratio = losing_price_ratio(form.curve(GRID), hit, form.prices, form.input_tokens, form.output_tokens)
    if ratio > 0.01:
        at = replace(form, prices=replace(form.prices, hit=ratio * form.prices.miss))
        left, right = at.benefit(np.array([hit - 1e-4, hit + 1e-4]))
        assert right / left == pytest.approx(1.0, abs=2e-6)


def test_a_ratio_of_straight_lines_is_monotonic() -> None:
    for share in (0.01, 0.1, 1.0):
        form = replace(dense(decode_share=share), attention_s_per_pair=0.0)
        steps = np.sign(np.diff(form.benefit(GRID)))
        assert len(set(steps[steps != 0])) == 1
        assert form.valley() is None


def test_prices_and_time_units_only_scale_the_benefit() -> None:
    form = dense()
    other = replace(form, price_per_gpu_h=7.0, prices=TokenPrices(3.0, 0.3, 6.0))
    assert other.benefit(GRID) / form.benefit(GRID) == pytest.approx(np.full(GRID.size, 3 / 7))
    assert other.valley() == pytest.approx(form.valley()) if form.valley() is None else other.valley() is not None


def test_small_wiggles_are_no_dips() -> None:
    noise = 1 + 0.002 * np.sin(40 * GRID)
    curve = BenefitCurve(GRID, noise * (1 + GRID), {"prefill work": np.ones(GRID.size)}, np.ones(GRID.size), np.ones(GRID.size))
    assert classify(curve).shape == "rising"
    with pytest.raises(InputError):
        classify(BenefitCurve(GRID[:2], GRID[:2], {"a": GRID[:2]}, GRID[:2], GRID[:2]))
