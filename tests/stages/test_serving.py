"""One replica under load: against its own step and prefill, by Little's law, and in directions that hold whatever the constants."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pddplan.errors import InputError
from pddplan.hardware import load_chip
from pddplan.model import load_model
from pddplan.model.spec import Parallel
from pddplan.roofline.overlay_file import read_overlay
from pddplan.roofline.speculation import Speculation
from pddplan.roofline.step import decode_step, prefill_latency, prefill_occupancy
from pddplan.stages.breakdown import decode_components, prefill_components
from pddplan.stages.roofline import RooflineInstance, check_configuration, roofline_instance, with_role
from pddplan.stages.serving import (
    UNMEASURED_BAND,
    ServerEstimate,
    backtest,
    band_of,
    errors_of,
    estimate_closed,
    estimate_open,
    estimate_table,
    kv_limit,
)


def instance(chip: str = "h100-sxm", engine: str = "vllm", **options: object) -> RooflineInstance:
    return roofline_instance(load_model("Qwen/Qwen3-32B"), load_chip(chip), engine, Parallel(tp=4), **options)  # type: ignore[arg-type]


SERVER = instance()
DRAFTING = instance(speculation=Speculation(2, 2.0))


@pytest.mark.parametrize("server", [SERVER, DRAFTING], ids=["plain", "drafting"])
def test_an_instance_is_the_step_and_the_prefill_of_its_terms(server: RooflineInstance) -> None:
    batch, context = np.array([1.0, 16.0, 200.0]), np.array([100.0, 4000.0, 30_000.0])
    step = decode_step(server.terms, server.overlay, batch, context, server.queries_per_step).total_s
    if server.draft is not None:
        drafter = decode_step(server.draft, replace(server.overlay, step_s=0.0, sequence_s=0.0), batch, context).total_s
        step = step + 2 * drafter
    np.testing.assert_allclose(server.step_s(batch, context), step, rtol=1e-12)
    lone = prefill_latency(server.terms, server.overlay, context, 0, 8192)
    np.testing.assert_allclose(server.extend_s(context, 0), lone, rtol=1e-12)
    np.testing.assert_allclose(server.prefill_s(context, 0), lone + float(server.overlay.ttft_s), rtol=1e-12)
    busy = prefill_occupancy(server.terms, server.overlay, context, 0, 8192)
    np.testing.assert_allclose(server.prefill_occupancy_s(context, 0), busy, rtol=1e-12)
    assert float(server.decode_breakdown(16, 4000).total_s) == pytest.approx(
        float(decode_step(server.terms, server.overlay, 16, 4000, server.queries_per_step).total_s)
    )


def test_a_breakdown_adds_up_to_the_whole() -> None:
    for server in (SERVER, DRAFTING):
        for parts, whole in ((decode_components(server, 32, 4000), server.step_s(32, 4000)), (prefill_components(server, 3000, 0), None)):
            assert sum(part.share for part in parts) == pytest.approx(1.0)
            if whole is not None:
                assert sum(part.seconds for part in parts) == pytest.approx(float(whole))
    assert "drafting" in {part.name for part in decode_components(DRAFTING, 32, 4000)}


def test_kv_of_requests_at_the_limit_fills_the_pool() -> None:
    limit = kv_limit(SERVER, 8000, 1000)
    assert limit * float(SERVER.kv_resident_bytes(8500)) == pytest.approx(SERVER.kv_capacity_bytes())
    assert kv_limit(SERVER, 1, 1) == SERVER.batch_max


@settings(max_examples=40, deadline=None)
@given(
    isl=st.floats(10, 60_000),
    osl=st.floats(2, 4000),
    load=st.integers(1, 2000),
    more=st.floats(1.05, 4),
    law=st.sampled_from(["random", "fixed"]),
)
def test_a_closed_loop_keeps_littles_law_and_more_in_flight_never_shortens_a_token(
    isl: float, osl: float, load: int, more: float, law: str
) -> None:
    few, many = (estimate_closed(SERVER, isl, osl, n, law) for n in (load, math.ceil(load * more)))
    assert few.requests_per_s * (few.ttft_s + few.tpot_s * osl) == pytest.approx(load)
    assert few.output_tokens_per_s_per_gpu * SERVER.gpus == pytest.approx(few.requests_per_s * osl)
    assert few.running <= load
    if math.ceil(load * more) <= few.kv_limit:
        assert many.tpot_s >= few.tpot_s * (1 - 1e-9)
    assert many.ttft_s >= few.ttft_s * (1 - 1e-9)


@settings(max_examples=15, deadline=None)
@example(isl=10.0, osl=2744.0, share=0.5, more=1.0625)
@given(isl=st.floats(10, 60_000), osl=st.floats(2, 4000), share=st.floats(0.01, 0.9), more=st.floats(1.01, 1.1))
def test_in_an_open_loop_more_arrivals_never_wait_less(isl: float, osl: float, share: float, more: float) -> None:
    most = 1.0 / float(SERVER.prefill_occupancy_s(isl, 0.0))
    few, many = (estimate_open(SERVER, isl, osl, share * most * factor) for factor in (1.0, more))
    assert few.ttft_s <= many.ttft_s
    if math.isfinite(many.ttft_s):
        assert few.tpot_s <= many.tpot_s * (1 + 1e-6)
        assert many.running == pytest.approx(share * most * more * many.tpot_s * osl, rel=1e-2)


def test_a_lone_request_waits_for_nobody() -> None:
    """At a rate near none: TTFT is a lone prefill and a step of one request, TPOT that step."""
    found = estimate_open(SERVER, 2000, 300, 1e-6)
    step = float(SERVER.step_s(1, 2150))
    assert found.ttft_s == pytest.approx(float(SERVER.prefill_s(2000, 0)) + step, rel=1e-4)
    assert found.tpot_s == pytest.approx(step, rel=1e-4)
    assert found.binding == "offered rate"


def test_what_limits_a_server_is_named() -> None:
    def closed(isl: float, osl: float, load: float) -> ServerEstimate:
        return estimate_closed(SERVER, isl, osl, load)

    assert closed(1000, 500, 4).binding == "requests in flight"
    assert closed(30_000, 500, 4000).binding == "KV memory"
    assert closed(8000, 8, 60).binding == "prefill"
    flooded = estimate_open(SERVER, 8000, 8, 500)
    assert (flooded.binding, flooded.ttft_s) == ("prefill", math.inf)
    assert flooded.warnings[-1].startswith("unstable: 500 requests/s arrive")
    full = estimate_open(SERVER, 100, 20_000, 30)
    assert (full.binding, full.ttft_s) == ("KV memory and decode", math.inf)
    assert full.requests_per_s < 30


@pytest.mark.parametrize(
    ("call", "places"),
    [
        (lambda: estimate_closed(SERVER, 0, -1, 0), ["isl", "osl", "concurrency"]),
        (lambda: estimate_open(SERVER, 100, 100, -2), ["rate"]),
        (lambda: estimate_open(SERVER, math.nan, 100, 1), ["isl"]),
    ],
)
def test_loads_that_are_none_are_refused_all_at_once(call, places: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert [problem.place for problem in caught.value.problems] == places


def test_requests_beyond_the_models_positions_and_single_tokens_are_doubted() -> None:
    positions = SERVER.model.max_position_embeddings
    assert positions is not None
    assert any("positions" in warning for warning in estimate_closed(SERVER, positions, 100, 1).warnings)
    single = estimate_closed(SERVER, 1000, 1, 4)
    assert math.isnan(single.tpot_s)
    assert any("one token" in warning for warning in single.warnings)


def test_a_band_is_the_overlays_where_chip_and_engine_were_measured_and_wider_where_not(tmp_path) -> None:
    shipped = read_overlay("vllm")["bands"]["hopper"]
    for load, level in ((16, "low"), (17, "high")):
        band = band_of("vllm", SERVER, load)
        assert (list(band.ttft), list(band.tpot), band.basis) == (shipped[level]["ttft"], shipped[level]["tpot"], "measured")
    borrowed = instance("h20-96")
    assert borrowed.chip.efficiency_kind != "measured"
    wide, narrow = band_of("vllm", borrowed, 1), band_of("vllm", SERVER, 1)
    assert wide.basis == "assumed"
    assert wide.ttft == pytest.approx((narrow.ttft[0] / UNMEASURED_BAND, narrow.ttft[1] * UNMEASURED_BAND))
    assert band_of("generic", SERVER, 1).basis == "assumed"
    bandless = tmp_path / "bandless.yaml"
    bandless.write_text("constants: {}", encoding="utf-8")
    assert band_of(str(bandless), SERVER, 1).tpot == (0.5, 2.0)


def rows(**columns: object) -> pd.DataFrame:
    base: dict[str, object] = {
        "engine": "vllm", "system": "h100-sxm", "model_path": "Qwen/Qwen3-32B", "tp_size": 4, "mode": "agg", "length_law": "random",
    }  # fmt: skip
    return pd.DataFrame({**base, **columns})


def test_a_table_says_of_each_row_what_the_single_server_says() -> None:
    """Lengths as written (random ones have a mean of 95 % of them); a full memory is doubted in both."""
    sizes = [(1000, 100, 1), (2000, 300, 8), (4000, 500, 64), (30_000, 500, 4000)]
    isl, osl, loads = (list(values) for values in zip(*sizes, strict=True))
    table = estimate_table(rows(isl=isl, osl=osl, concurrency=loads, length_law="fixed"))
    for (_, row), size in zip(table.iterrows(), sizes, strict=True):
        alone = estimate_closed(SERVER, *size, "fixed")
        assert ("KV memory" in row["warning"]) == (alone.binding == "KV memory")
        if alone.binding != "KV memory":
            assert row["ttft_ms"] == pytest.approx(1e3 * alone.ttft_s, rel=1e-6)
            assert row["tpot_ms"] == pytest.approx(1e3 * alone.tpot_s, rel=1e-6)
            assert row["output_tok_s_per_gpu"] == pytest.approx(alone.output_tokens_per_s_per_gpu, rel=1e-6)
    assert set(table["basis"]) == {"measured"}


def test_errors_are_those_of_the_ratio_over_measured_rows() -> None:
    measured = np.array([1.0, 2.0, 4.0, np.nan, 0.0])
    found = errors_of(np.array([1.1, 1.8, np.nan, 3.0, 1.0]), measured)
    assert found == {
        "rows": 3.0, "median": pytest.approx(10.0), "mean": pytest.approx(10.0), "p90": pytest.approx(10.0), "bias": pytest.approx(0.0),
        "within_20": 1.0, "coverage": pytest.approx(2 / 3),
    }  # fmt: skip
    assert errors_of(np.array([np.nan]), np.array([1.0])) == {"rows": 1.0, "coverage": 0.0}


def test_a_backtest_of_its_own_predictions_has_no_error_and_leaves_unusable_ttft_out() -> None:
    table = rows(isl=[1000, 2000], osl=[100, 300], concurrency=[1, 20])
    predicted = estimate_table(table)
    measured = table.assign(measured_tpot_ms=predicted["tpot_ms"], measured_ttft_ms=1.25 * predicted["ttft_ms"], usable_ttft=[True, False])
    overall = {row["metric"]: row for row in backtest(measured)["overall"]}
    assert (overall["tpot"]["rows"], overall["tpot"]["mean"]) == (2.0, pytest.approx(0.0, abs=1e-9))
    assert (overall["ttft"]["rows"], overall["ttft"]["bias"]) == (1.0, pytest.approx(-20.0))
    assert {row["group"] for row in backtest(measured)["requests in flight"]} == {"1-4", "17-64"}
    with pytest.raises(InputError, match="measured_tpot_ms"):
        backtest(table)


def test_a_mapping_that_breaks_rules_and_a_chip_without_memory_are_refused() -> None:
    with pytest.raises(InputError, match="divisible"):
        check_configuration(SERVER.model, SERVER.chip, Parallel(tp=3))
    check_configuration(SERVER.model, SERVER.chip, Parallel(tp=4))
    bare = replace(SERVER.chip, hbm_bytes=replace(SERVER.chip.hbm_bytes, value=None))
    with pytest.raises(InputError, match="hbm_bytes"):
        roofline_instance(SERVER.model, bare, "vllm", Parallel(tp=4))


def test_a_role_is_all_that_changes_with_the_role() -> None:
    relay = with_role(SERVER, "RLD")
    assert relay.role == "RLD"
    assert with_role(relay, SERVER.role) == SERVER
