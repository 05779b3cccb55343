"""Laws as quantile functions: textbook values and round trips."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pddplan.workload.laws import BetaMixture, Bucket, Fixed, Histogram, LogNormal, Quantiles, lognormal_parameters
from pddplan.workload.parametric import ClassLaws, RankCorrelation, class_rows, stratified_levels

LEVELS = np.array([0.01, 0.1, 0.5, 0.9, 0.99])


def test_a_log_normal_has_the_quantiles_of_scipy():
    expected = stats.lognorm(s=0.8, scale=math.exp(7)).ppf(LEVELS)
    assert LogNormal(7, 0.8).quantile(LEVELS) == pytest.approx(expected)


def test_a_cut_log_normal_is_conditioned_and_not_clipped():
    law = LogNormal(9.9, 1.0, 128, 128_000)
    full = stats.lognorm(s=1.0, scale=math.exp(9.9))
    below, above = full.cdf(128), full.cdf(128_000)
    assert law.quantile(LEVELS) == pytest.approx(full.ppf(below + LEVELS * (above - below)))
    assert law.quantile(1 - 1e-6) < 128_000


def test_prfaas_lengths_have_the_published_moments():
    """arXiv 2604.15039: log-normal mu 9.90, sigma 1.00 on [128, 128000]; 49.6 % of requests are over 19.4K tokens."""
    rows = class_rows(ClassLaws(LogNormal(9.9, 1.0, 128, 128_000), Fixed(1024)), 3000)
    assert rows.weight[rows.input_tokens > 19_400].sum() == pytest.approx(0.496, abs=0.002)
    assert rows.weight @ rows.input_tokens == pytest.approx(27_000, rel=0.02)


@pytest.mark.parametrize(
    "given",
    [
        {"mean": 400, "cv": 0.8},
        {"p50": 2000, "p90": 9000},
        {"p50": 2000, "p99": 16000},
        {"mean": 3000, "p50": 2000},
        {"p50": 50, "cv": 2},
        {"mean": 9, "sigma": 1},
    ],
)
def test_two_parameters_determine_a_log_normal_that_has_them(given):
    mu, sigma = lognormal_parameters(**given)
    law = stats.lognorm(s=sigma, scale=math.exp(mu))
    has = {"mean": law.mean(), "cv": law.std() / law.mean(), "sigma": sigma, "p50": law.ppf(0.5), "p90": law.ppf(0.9), "p99": law.ppf(0.99)}
    assert {name: has[name] for name in given} == pytest.approx(given)


def test_a_law_without_mass_is_refused():
    with pytest.raises(ValueError, match="no mass"):
        LogNormal(7, 0.1, 1e6, 2e6)


def test_seven_buckets_keep_their_shares_and_the_shape_of_the_first():
    shares = (0.072, 0.048, 0.024, 0.037, 0.071, 0.178, 0.570)
    edges = (0, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 1)
    buckets = [Bucket(low, high, share) for low, high, share in zip(edges, edges[1:], shares, strict=False)]
    buckets[0] = Bucket(0, 0.9, 0.072, 2.0, 5.0)
    hits = Histogram(tuple(buckets)).quantile((np.arange(100_000) + 0.5) / 100_000)
    counted = np.histogram(hits, edges)[0] / 100_000
    assert counted == pytest.approx(np.array(shares) / sum(shares), abs=2e-5)
    low = hits[hits < 0.9]
    assert low.mean() == pytest.approx(0.9 * 2 / 7, rel=1e-3)
    assert low.var() == pytest.approx(0.81 * stats.beta(2, 5).var(), rel=1e-2)


def test_a_gap_between_buckets_stays_empty():
    hits = Histogram((Bucket(0, 1, 1), Bucket(5, 6, 3))).quantile(np.linspace(0.001, 0.999, 999))
    assert not np.any((hits > 1) & (hits < 5))
    assert np.mean(hits >= 5) == pytest.approx(0.75, abs=0.002)


def test_a_beta_mixture_inverts_its_distribution_function():
    law = BetaMixture(((0.8, 50, 1), (0.2, 1, 3)))
    value = law.quantile(LEVELS)
    assert 0.8 * stats.beta(50, 1).cdf(value) + 0.2 * stats.beta(1, 3).cdf(value) == pytest.approx(LEVELS)
    assert BetaMixture(((3.0, 2, 5),)).quantile(LEVELS) == pytest.approx(stats.beta(2, 5).ppf(LEVELS))


def test_quantiles_are_straight_between_and_flat_outside():
    law = Quantiles((0.1, 0.5, 0.9), (10, 50, 130))
    assert law.quantile([0.05, 0.3, 0.5, 0.7, 0.95]) == pytest.approx([10, 30, 50, 90, 130])


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(2, 700), rho=st.floats(-0.95, 0.95))
def test_every_margin_has_one_point_in_each_stratum(rows, rho):
    levels = stratified_levels(rows, RankCorrelation(input_hit=rho))
    for margin in levels:
        assert np.sort(margin) == pytest.approx((np.arange(rows) + 0.5) / rows)


def test_points_fill_the_cube_evenly_when_nothing_is_correlated():
    """A 10 x 10 grid over each pair of margins: no cell is empty, none has twice its share."""
    levels = stratified_levels(3000, RankCorrelation())
    for a, b in ((0, 1), (0, 2), (1, 2)):
        counts = np.histogram2d(levels[a], levels[b], bins=10, range=[[0, 1], [0, 1]])[0]
        assert 20 <= counts.min() <= counts.max() <= 40


@pytest.mark.parametrize("rho", [(-0.4, 0.2, 0.0), (0.7, 0.0, 0.3), (0.0, 0.0, -0.9), (1.0, 0.0, 0.0)])
def test_rank_correlations_come_out_as_asked(rho):
    law = LogNormal(8, 1)
    rows = class_rows(ClassLaws(law, law, BetaMixture(((1, 4, 2),)), correlation=RankCorrelation(*rho)), 3000)
    hit = 1 - rows.uncached_tokens / rows.input_tokens
    pairs = ((rows.input_tokens, hit), (rows.input_tokens, rows.output_tokens), (hit, rows.output_tokens))
    for wanted, (x, y) in zip(rho, pairs, strict=True):
        assert stats.spearmanr(x, y)[0] == pytest.approx(wanted, abs=0.03)


def test_correlations_that_cannot_hold_together_are_refused():
    with pytest.raises(ValueError, match="contradict"):
        class_rows(ClassLaws(Fixed(1), Fixed(1), correlation=RankCorrelation(0.9, 0.9, -0.9)), 100)


def test_fixed_laws_leave_one_row_and_a_full_hit_still_computes_a_token():
    rows = class_rows(ClassLaws(Fixed(8000), Fixed(500), Fixed(0.5)), 3000)
    assert (rows.weight.tolist(), rows.uncached_tokens.tolist()) == ([1.0], [4000.0])
    rows = class_rows(ClassLaws(Fixed(8000), Fixed(500), Fixed(1.0), md_hit_rate=Fixed(1.0)), 3000)
    assert (rows.uncached_tokens.tolist(), rows.md_missing_tokens.tolist()) == ([1.0], [0.0])


def test_md_hit_rate_is_that_of_p_unless_it_is_given():
    hits = BetaMixture(((1, 9, 1),))
    same = class_rows(ClassLaws(Fixed(10_000), Fixed(10), hits), 500)
    assert np.array_equal(same.uncached_tokens, same.md_missing_tokens)
    other = class_rows(ClassLaws(Fixed(10_000), Fixed(10), hits, md_hit_rate=Fixed(0.8)), 500)
    assert set(other.md_missing_tokens) == {2000.0}
