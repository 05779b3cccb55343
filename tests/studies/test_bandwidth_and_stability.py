"""The studies of line and sessions: their arithmetic, and their commands."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pddplan.api import load_scenario
from pddplan.cli.studies import app
from pddplan.errors import InputError
from pddplan.pdd.context import PlanContext
from pddplan.pdd.fixed_plan import fixed_decision
from pddplan.studies.bandwidth import at_hit_rate, bandwidth, hit_rate_of
from pddplan.studies.stability import stability_study

SCENARIO = Path(__file__).parents[2] / "scenarios" / "validation" / "pdd-ttft-rows.yaml"


def planned(*overrides):
    context = PlanContext.from_scenario(load_scenario(SCENARIO, list(overrides)))
    return context, fixed_decision(context)


@pytest.fixture(scope="module")
def study():
    return bandwidth(*planned())


class TestBandwidth:
    def test_bits_moved_are_rate_times_missing_kv(self, study):
        context, _ = planned()
        mix = context.deployments["main"].mix
        kv = context.deployments["main"].kv
        own = next(row for row in study.rows if row.own and row.machines == 10)
        size = mix.mean(np.asarray(kv.transfer_bytes(mix.md_missing_tokens, mix.input_tokens)))
        assert own.with_md_cache.gbps_mean == pytest.approx(own.rate_rps * size * 8 / 1e9)

    def test_at_ninety_percent_the_cache_cuts_the_line_by_almost_ten(self, study):
        row = next(row for row in study.rows if row.hit_rate == 0.9 and row.machines == 100)
        assert 5.5 < row.cut < 10.0

    def test_without_hits_the_cache_saves_nothing(self, study):
        row = next(row for row in study.rows if row.hit_rate == 0.0 and row.machines == 100)
        assert row.cut == pytest.approx(1.0)

    def test_need_grows_with_the_cluster_and_circuits_are_whole(self, study):
        for h in {row.hit_rate for row in study.rows}:
            rows = [row for row in study.rows if row.hit_rate == h]
            assert [r.with_md_cache.gbps_mean / r.machines for r in rows] == pytest.approx(
                [rows[0].with_md_cache.gbps_mean / 10] * 3
            )
            assert all(r.with_md_cache.circuits * study.circuit_gbps >= r.with_md_cache.gbps_target for r in rows)

    def test_a_higher_hit_rate_serves_more_with_the_same_machines(self, study):
        rates = [row.rate_rps for row in study.rows if row.machines == 100]
        assert all(b > a for a, b in itertools.pairwise(rates))

    def test_scaled_hits_keep_the_mean_asked_and_the_order_of_rows(self):
        mix = planned()[0].deployments["main"].mix
        for h in (0.0, 0.3, 0.8, 0.99):
            scaled = at_hit_rate(mix, h)
            assert hit_rate_of(scaled) == pytest.approx(h, abs=1e-9)
            assert np.all(scaled.uncached_tokens <= mix.input_tokens + 1e-9)
            order = np.argsort(mix.uncached_tokens)
            assert np.all(np.diff(scaled.uncached_tokens[order]) >= -1e-9)

    def test_a_flow_too_slow_for_the_limit_needs_no_line_but_another_cap(self):
        context, decision = planned("workload.classes.agent.sla.ttft={limit: 5 s, p99: 5 s}")
        found = bandwidth(context, decision)
        assert all(row.with_md_cache.circuits_sla is None for row in found.rows if row.hit_rate == 0.5)
        assert any("too slow at its cap" in note for note in found.notes)

    def test_a_scenario_of_one_room_is_an_input_error(self):
        context = PlanContext.from_scenario(load_scenario("01-minimal"))
        with pytest.raises(InputError, match="no line"):
            bandwidth(context, planned()[1])


class TestStability:
    def test_it_tells_the_three_policies_apart(self):
        found = stability_study(*planned())
        names = [t.variant for t in found.stability.trajectories]
        assert names == ["P-RLD", "PDD", "PDD with filter"]
        assert found.verdict.startswith("bounded")

    def test_a_plan_without_relay_is_an_input_error(self):
        with pytest.raises(InputError, match="no request is relayed"):
            stability_study(*planned("policy.relay_threshold=never"))


class TestCommands:
    def run(self, *arguments):
        return CliRunner().invoke(app, list(arguments), catch_exceptions=False)

    def test_bandwidth_prints_a_table_and_json(self, tmp_path):
        target = tmp_path / "bandwidth.json"
        result = self.run("bandwidth", str(SCENARIO), "--json", str(target), "--machines", "10,100")
        assert result.exit_code == 0
        assert "Circuits of 100 Gbit/s needed" in result.output
        document = json.loads(target.read_text())
        assert {row["machines"] for row in document["rows"]} == {10, 100}
        assert set(document["rows"][0]) >= {"hit_rate", "rate_rps", "with_md_cache", "without_md_cache", "cut"}

    def test_bandwidth_writes_a_page_and_refuses_to_overwrite_it(self, tmp_path):
        page = tmp_path / "line.html"
        assert self.run("bandwidth", str(SCENARIO), "--report", str(page)).exit_code == 0
        assert "How much line" in page.read_text()
        with pytest.raises(InputError):
            self.run("bandwidth", str(SCENARIO), "--report", str(page))

    def test_a_hit_rate_over_one_is_told(self):
        with pytest.raises(InputError, match="--hit-rates"):
            self.run("bandwidth", str(SCENARIO), "--hit-rates", "56.3")

    def test_stability_tells_turn_by_turn(self, tmp_path):
        target, page = tmp_path / "stability.json", tmp_path / "stability.html"
        result = self.run("stability", str(SCENARIO), "--turns", "20", "--json", str(target), "--report", str(page))
        assert result.exit_code == 0
        document = json.loads(target.read_text())
        assert document["bounded"] is True
        assert [len(t["rld_utilisation"]) for t in document["trajectories"]] == [20, 20, 20]
        assert "turn" in page.read_text()
