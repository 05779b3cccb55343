"""Measured tables as stages: interpolation, what lies outside the points, and what a profile does not know."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from pddplan.errors import InputError
from pddplan.scenario.instances import ProfiledInstance
from pddplan.stages.profiled import RateGrid, Table, profiled_stage

H200 = {"uncached": ["1k", "8k", "32k", "128k"], "seconds": [0.44, 0.72, 1.84, 7.40]}


def stage(**given):
    return profiled_stage(ProfiledInstance.model_validate({"gpus": 8, **given}), "sites.A.chips[0].profiles[0]")


def test_a_cubic_profile_is_the_not_a_knot_spline_through_its_points():
    p = stage(role="P", prefill_s=H200, interpolation="cubic")
    at = np.array([1e3, 5e3, 19.4e3, 64e3, 128e3])
    expected = CubicSpline([1e3, 8e3, 32e3, 128e3], H200["seconds"], bc_type="not-a-knot")(at)
    assert np.allclose(p.prefill_s(at, 0.0), expected, rtol=1e-12)
    assert np.allclose(p.prefill_occupancy_s(at, 0.0), expected, rtol=1e-12)


def test_a_linear_profile_is_exact_on_a_line_and_broadcasts():
    p = stage(role="P", prefill_s={"uncached": [100, 1000], "seconds": [0.1, 1.0]})
    assert np.allclose(p.prefill_s(np.array([[100], [550], [1000]]), np.zeros(3)), np.array([[0.1], [0.55], [1.0]]) * np.ones(3))


def test_below_its_first_point_a_table_keeps_its_slope_and_never_goes_negative():
    table = Table((1000.0, 2000.0), (1.0, 3.0))
    assert table(750.0) == pytest.approx(0.5)
    assert table(100.0) == 0.0


def test_far_above_its_last_point_a_table_refuses_to_answer():
    p = stage(role="P", prefill_s=H200, interpolation="cubic")
    assert p.prefill_s(130_000, 0) > 7.4
    with pytest.raises(InputError, match=r"200,000 uncached tokens asked of a table measured up to 128,000"):
        p.prefill_s(200_000, 0)


def test_a_table_of_one_point_is_constant():
    assert np.all(stage(role="P", prefill_s={"uncached": [64000], "seconds": [3.478]}).prefill_s([10, 64000, 1e6], 0) == 3.478)


@pytest.mark.parametrize(
    ("points", "values", "kind"),
    [
        ((1.0, 1.0), (1.0, 2.0), "linear"),
        ((1.0,), (1.0, 2.0), "linear"),
        ((1.0, 2.0), (-1.0, 2.0), "linear"),
        ((1, 2, 3), (1, 2, 3), "cubic"),
    ],
)
def test_bad_tables_are_input_errors(points, values, kind):
    with pytest.raises(InputError):
        Table(points, values, kind)


def test_a_decode_profile_knows_steps_and_its_batch_and_no_memory_limit():
    md = stage(role="MD", step_s={"batch": [1, 20], "seconds": [0.020, 0.025]}, batch_max=20)
    assert md.batch_max == 20
    assert np.allclose(md.step_s([1, 20], 4096), [0.020, 0.025])
    assert md.kv_capacity_bytes() == float("inf")
    assert np.all(md.kv_resident_bytes([1000, 64000]) == 0)


def test_what_a_profile_does_not_give_is_named_with_an_example():
    md = stage(role="MD", step_s={"batch": [1, 20], "seconds": [0.020, 0.025]})
    with pytest.raises(InputError, match="extend_s") as caught:
        md.extend_s([100], [64000])
    assert caught.value.problems[0].example.startswith("extend_s:")
    with pytest.raises(InputError, match="prefill_s"):
        md.prefill_s([100], [0])


def test_rates_are_exact_on_the_grid_and_mix_as_times_between():
    grid = RateGrid((100.0, 1000.0), (100.0, 1000.0), ((2.0, 1.0), (5.0, 2.0)))
    assert np.allclose(grid.seconds_per_request([100, 1000], [100, 1000]), [1 / 2, 1 / 2])
    assert grid.seconds_per_request(550, 100) == pytest.approx((1 / 2 + 1 / 5) / 2)


def test_a_rate_of_0_is_a_bucket_that_cannot_be_served():
    grid = RateGrid((100.0, 1000.0), (100.0, 1000.0), ((2.0, 1.0), (0.0, 2.0)))
    assert np.isinf(grid.seconds_per_request(1000, 100))
    assert np.isinf(grid.seconds_per_request(999, 101))
    assert np.isfinite(grid.seconds_per_request(100, 100))
