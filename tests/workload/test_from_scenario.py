"""Words of a scenario to a request mix."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from pddplan.errors import InputError
from pddplan.scenario.workload import Workload
from pddplan.workload.from_scenario import load_trace, request_mix
from pddplan.workload.mix import RequestMix

ROOT = Path(__file__).parents[2]
CHAT = {"input_tokens": "2k", "output_tokens": 200}


def mix_of(words, base=ROOT):
    return request_mix(Workload.model_validate(words), base_path=base)


def test_the_reference_workload_has_its_shares():
    names = ("0-90", "90-95", "95-96", "96-97", "97-98", "98-99", "99-100")
    shares = ("7.2 %", "4.8 %", "2.4 %", "3.7 %", "7.1 %", "17.8 %", "57.0 %")
    hit_rate = {"buckets": dict(zip(names, shares, strict=True)), "below_90": {"beta": [1, 1]}}
    mix = mix_of({"rate": "11.5 req/s", "classes": {"agent": {"input_tokens": "64k", "output_tokens": 1000, "hit_rate": hit_rate}}})
    assert (mix.rate_per_s, mix.mean_rate_per_s, mix.arrival_scv, mix.class_names) == (11.5, 11.5, 1.0, ("agent",))
    assert set(mix.input_tokens) == {64000.0}
    assert mix.weight.sum() == pytest.approx(1)
    hit = 1 - mix.uncached_tokens / mix.input_tokens
    assert mix.weight[hit > 0.99].sum() == pytest.approx(0.57, abs=0.003)
    assert mix.weight[hit < 0.90].sum() == pytest.approx(0.072, abs=0.003)
    assert 1 - mix.mean(mix.uncached_tokens) / 64000 == pytest.approx(0.946, abs=0.002)


def test_classes_side_by_side_have_their_shares():
    chat = {**CHAT, "share": 0.7, "hit_rate": {"beta": [2, 5]}}
    answers = {"histogram": {"1-100": 0.5, "100-1k": "50 %"}}
    agent = {"share": "30 %", "input_tokens": {"lognormal": {"p50": "20k", "p90": "90k"}}, "output_tokens": answers}
    mix = mix_of({"rate": "1 req/s", "classes": {"chat": chat, "agent": agent}})
    assert mix.class_names == ("chat", "agent")
    for index, share in enumerate((0.7, 0.3)):
        assert mix.weight[mix.class_index == index].sum() == pytest.approx(share)
    of_agent = mix.class_index == 1
    assert np.all(mix.uncached_tokens[of_agent] == mix.input_tokens[of_agent])
    assert mix.weight[of_agent] @ mix.output_tokens[of_agent] / 0.3 == pytest.approx(0.5 * 50 + 0.5 * 550, rel=0.02)


def test_a_tail_that_nobody_gave_is_noted():
    chat = {"input_tokens": {"quantiles": {"p0": 10, "p50": "2k", "p99": "30k"}}, "output_tokens": 9}
    words = {"rate": "1 req/s", "classes": {"chat": chat}}
    assert mix_of(words).notes == ("chat: input_tokens is not known above p99; taken as 30000 there (give p100 to say otherwise)",)


def test_factors_of_the_day_size_for_the_peak_and_count_the_mean():
    words = {"rate": "10 req/s", "classes": {"chat": CHAT}, "demand": {"hourly": [0.2] * 12 + [1.0] * 11 + [1.5]}}
    mix = mix_of(words)
    assert mix.rate_per_s == pytest.approx(15)
    assert mix.mean_rate_per_s == pytest.approx(10 * (0.2 * 12 + 11 + 1.5) / 24)
    assert mix.demand.peak_to_mean == pytest.approx(mix.rate_per_s / mix.mean_rate_per_s)
    assert mix.demand.share_of_time_over(0.5) == pytest.approx(0.5)
    assert mix.demand.mean_over(1.0) == pytest.approx(0.5 / 24)
    words["demand"]["size_for"] = "p90"
    assert mix_of(words).rate_per_s == pytest.approx(10)


def servegen(tmp_path, clients, name="clients.tar"):
    path = tmp_path / name
    with tarfile.open(path, "w:xz") as archive:
        for i, rates in enumerate(clients):
            text = "".join(f"{600 * k},{rate},1.0,Gamma,1,1\n" for k, rate in enumerate(rates)).encode()
            info = tarfile.TarInfo(f"language/chunk-{i}-trace.csv")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    return path


def test_windows_of_servegen_clients_add_up_to_the_shape_of_the_day(tmp_path):
    servegen(tmp_path, [[1, 2, 3], [0, 2, 4]])
    words = {"rate": "10 req/s", "classes": {"chat": CHAT}, "demand": {"file": "clients.tar"}}
    mix = mix_of(words, tmp_path)
    assert (mix.mean_rate_per_s, mix.rate_per_s) == pytest.approx((10, 10 * 7 / 4))
    words["demand"]["rate_is"] = "peak"
    mix = mix_of(words, tmp_path)
    assert (mix.mean_rate_per_s, mix.rate_per_s) == pytest.approx((10 * 4 / 7, 10))


def test_a_bad_demand_file_is_named_with_its_line(tmp_path):
    servegen(tmp_path, [["x"]])
    words = {"rate": "10 req/s", "classes": {"chat": CHAT}, "demand": {"file": "clients.tar"}}
    with pytest.raises(InputError, match=r"clients.tar\(language/chunk-0-trace.csv\):1"):
        mix_of(words, tmp_path)
    words["demand"]["file"] = "none.tar"
    with pytest.raises(InputError, match=r"none.tar: cannot be read"):
        mix_of(words, tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0,1\n", "under two windows"),
        ("0,1\n600,2\n1800,2\n", "600 to 1200 s"),
        ("0,0\n600,0\n", "every rate is 0"),
        ("0,1\n600,-1\n", "demand.csv:2"),
        ("0,1\n600,nan\n", "demand.csv:2"),
        ("0,1\n600\n", "demand.csv:2"),
    ],
)
def test_windows_that_make_no_day_are_refused(tmp_path, text, said):
    (tmp_path / "demand.csv").write_text(text)
    with pytest.raises(InputError, match=re.escape(said)):
        mix_of({"rate": "10 req/s", "classes": {"chat": CHAT}, "demand": {"file": "demand.csv", "format": "servegen"}}, tmp_path)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_single_clients_windows_are_read_plain_and_zipped_blank_lines_left_out(tmp_path, zipped):
    text = b"0,1\n\n600,2\n1200,3\n"
    (tmp_path / "demand.csv").write_bytes(gzip.compress(text) if zipped else text)
    mix = mix_of({"rate": "10 req/s", "classes": {"chat": CHAT}, "demand": {"file": "demand.csv", "format": "servegen"}}, tmp_path)
    assert (mix.mean_rate_per_s, mix.rate_per_s) == pytest.approx((10, 15))


def trace_file(tmp_path):
    rows = [{"timestamp": 500 * i, "input_length": 64 * (i + 1), "output_length": 5, "hash_ids": list(range(i + 1))} for i in range(41)]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def test_a_trace_brings_its_rate_or_is_scaled_to_another(tmp_path):
    trace_file(tmp_path)
    trace = {"file": "t.jsonl"}
    assert mix_of({"trace": trace}, tmp_path).rate_per_s == pytest.approx(2.0)
    assert mix_of({"trace": {**trace, "scale_rate": "3x"}}, tmp_path).rate_per_s == pytest.approx(6.0)
    assert mix_of({"trace": {**trace, "scale_rate": "9 req/s"}}, tmp_path).rate_per_s == pytest.approx(9.0)
    assert mix_of({"rate": "4 req/s", "trace": trace}, tmp_path).rate_per_s == pytest.approx(4.0)
    mix = mix_of({"trace": trace}, tmp_path)
    assert mix.uncached_tokens.tolist() == [64.0] * 41
    assert mix.arrival_scv == pytest.approx(0.0, abs=1e-9)


def test_a_trace_that_plays_faster_forgets_less(tmp_path):
    trace_file(tmp_path)
    slow = {"file": "t.jsonl", "p_cache": {"ttl": "400 ms"}}
    assert mix_of({"trace": slow}, tmp_path).mean(mix_of({"trace": slow}, tmp_path).uncached_tokens) > 1000
    fast = mix_of({"trace": {**slow, "scale_rate": "2x"}}, tmp_path)
    assert set(fast.uncached_tokens) == {64.0}


def test_a_smaller_cache_at_md_is_its_own():
    trace = {"file": "scenarios/traces/mooncake_conversation.jsonl.gz", "p_cache": {"tokens": "50M"}, "md_cache": {"tokens": "5M"}}
    mix = mix_of({"trace": trace})
    assert 1 - mix.mean(mix.uncached_tokens) / mix.mean(mix.input_tokens) == pytest.approx(0.370, abs=0.002)
    # P would hit 21.6 % with 5M tokens; at MD answers that nobody asks for again take room
    assert 1 - mix.mean(mix.md_missing_tokens) / mix.mean(mix.input_tokens) == pytest.approx(0.21, abs=0.005)
    assert mix.md_curves[0].hit_rate(5e6) == pytest.approx(0.21, abs=0.005)


def test_sessions_without_a_clock_need_a_rate():
    trace = {"file": "scenarios/traces/kct_examples_flat.jsonl.gz"}
    with pytest.raises(InputError, match="no clock of its own"):
        mix_of({"trace": trace})
    mix = mix_of({"rate": "10 req/s", "trace": trace})
    assert mix.turns_per_task[0] > 3
    assert mix.md_curves[0].capacity_for(0.9) > 0
    assert any("no output token" in note for note in mix.notes)


def test_sessions_may_share_the_prompt_of_their_tools():
    words = {"rate": "10 req/s", "trace": {"file": "scenarios/traces/kct_examples_flat.jsonl.gz"}}
    alone = mix_of(words)
    words["trace"]["shared_prefix"] = True
    shared = mix_of(words)
    saved = shared.mean(shared.input_tokens - shared.uncached_tokens) - alone.mean(alone.input_tokens - alone.uncached_tokens)
    trace = load_trace(Workload.model_validate(words).trace, ROOT)
    assert saved == pytest.approx(trace.shared_prefix_tokens.mean(), rel=0.05)


def test_a_csv_without_hashes_draws_hits_from_a_law_or_says_that_it_has_none():
    trace = {"file": "tests/data/azure2023_conv.csv.gz"}
    mix = mix_of({"trace": trace})
    assert np.array_equal(mix.uncached_tokens, mix.input_tokens)
    assert any("no block hashes" in note for note in mix.notes)
    mix = mix_of({"trace": {**trace, "hit_rate": {"beta": [3, 1]}}})
    assert mix.mean(mix.uncached_tokens) / mix.mean(mix.input_tokens) == pytest.approx(0.25, abs=0.01)


def test_burstiness_of_classes_is_weighed_by_their_rates():
    azure = {"share": 0.5, "trace": {"file": "tests/data/azure2023_conv.csv.gz"}}
    mix = mix_of({"rate": "8 req/s", "classes": {"a": azure, "b": {**CHAT, "share": 0.5}}})
    assert mix.arrival_scv == pytest.approx(0.5 * 1.0942**2 + 0.5, abs=0.001)
    assert mix_of({"rate": "8 req/s", "arrival_scv": 2.5, "classes": {"b": CHAT}}).arrival_scv == 2.5


def test_all_faulty_classes_are_told_at_once(tmp_path):
    bad = {"share": 0.5, "input_tokens": {"lognormal": {"p50": "2k", "sigma": 0.1, "min": "1M", "max": "2M"}}, "output_tokens": 9}
    gone = {"share": 0.5, "trace": {"file": "gone.jsonl"}}
    with pytest.raises(InputError) as error:
        mix_of({"rate": "1 req/s", "classes": {"one": bad, "two": gone}}, tmp_path)
    assert "workload.classes.one" in str(error.value)
    assert "gone.jsonl" in str(error.value)


BAD_WORDS = {
    "nothing": {},
    "two sources": {"rate": "1 req/s", "classes": {"a": CHAT}, "trace": {"file": "x"}},
    "no rate": {"classes": {"a": CHAT}},
    "shares": {"rate": "1 req/s", "classes": {"a": {**CHAT, "share": 0.6}, "b": {**CHAT, "share": 0.6}}},
    "bucket shares": {"rate": "1 req/s", "classes": {"a": {**CHAT, "hit_rate": {"buckets": {"0-90": "50 %", "90-100": "40 %"}}}}},
    "overlapping buckets": {"rate": "1 req/s", "classes": {"a": {**CHAT, "hit_rate": {"buckets": {"0-90": "50 %", "80-100": "50 %"}}}}},
    "bucket over 100": {"rate": "1 req/s", "classes": {"a": {**CHAT, "hit_rate": {"buckets": {"0-90": "50 %", "90-110": "50 %"}}}}},
    "falling quantiles": {"rate": "1 req/s", "classes": {"a": {**CHAT, "input_tokens": {"quantiles": {"p50": 9, "p90": 3}}}}},
    "undetermined law": {"rate": "1 req/s", "classes": {"a": {**CHAT, "input_tokens": {"lognormal": {"mean": 9}}}}},
    "no output": {"rate": "1 req/s", "classes": {"a": {"input_tokens": 9}}},
    "no tokens": {"rate": "1 req/s", "classes": {"a": {**CHAT, "input_tokens": 0}}},
    "unknown key": {"rate": "1 req/s", "classes": {"a": {**CHAT, "hitrate": 0.5}}},
    "rate twice": {"rate": "1 req/s", "trace": {"file": "x", "scale_rate": "2x"}},
    "no scale": {"trace": {"file": "x", "scale_rate": "twice"}},
    "demand of zeros": {"rate": "1 req/s", "classes": {"a": CHAT}, "demand": {"hourly": [0, 0]}},
    "correlation": {"rate": "1 req/s", "classes": {"a": {**CHAT, "rank_correlation": 1.5}}},
}


@pytest.mark.parametrize("case", BAD_WORDS)
def test_words_that_mean_nothing_are_refused(case):
    with pytest.raises(ValidationError):
        Workload.model_validate(BAD_WORDS[case])


def test_the_traffic_of_some_classes_is_their_part_of_the_whole():
    names = ("a", "b", "c")
    rng = np.random.default_rng(3)
    index = np.array([0, 1, 2, 0, 1, 2])
    weight = np.array([0.1, 0.2, 0.3, 0.1, 0.1, 0.2])
    tokens = rng.integers(1, 1000, 6).astype(float)
    whole = RequestMix(tokens, tokens, tokens, tokens, weight, index, names, 10.0, 3.0, 5.0, (1.0, 2.0, 3.0))
    part = whole.of_classes((0, 2))
    assert part.class_names == ("a", "c")
    assert part.turns_per_task == (1.0, 3.0)
    assert part.rate_per_s == pytest.approx(7.0)
    assert part.arrival_scv == pytest.approx(1.0 + 0.7 * 2.0)
    assert part.weight.sum() == pytest.approx(1.0)
    other = whole.of_classes((1,))
    total = part.rate_per_s * part.mean(part.input_tokens) + other.rate_per_s * other.mean(other.input_tokens)
    assert total == pytest.approx(whole.rate_per_s * whole.mean(whole.input_tokens))
