"""Bad traces end in an error at their line, or in a counted skip; odd but sound ones are read."""

from __future__ import annotations

import gzip
import json

import pytest

from pddplan.errors import InputError
from pddplan.workload.trace_reader import Columns, read_trace


def row(t=0, n=100, o=10, ids=(0, 1), **more):
    return {"timestamp": t, "input_length": n, "output_length": o, "hash_ids": list(ids), **more}


def turn(s="a", t=0.0, n=130, o=10, runs=((1, 2),), **more):
    return {"session": s, "agent": "main", "t": t, "input_length": n, "output_length": o, "hash_runs": [list(r) for r in runs], **more}


def lines(*rows):
    return "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows)


def write(tmp_path, text, name="trace.jsonl"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def without(r, key):
    return {k: v for k, v in r.items() if k != key}


BAD_JSONL = {
    "missing column": (without(row(5), "input_length"), "input_length is missing"),
    "misspelt column": ({**without(row(5), "output_length"), "ouput_length": 3}, "did you mean 'ouput_length'"),
    "time goes back": (row(-1 + 1, n=100), None),
    "negative time": (row(-5), "timestamp is -5"),
    "zero-length input": (row(5, n=0, ids=()), "input_length is 0"),
    "output of 0": (row(5, o=0), "output_length is 0"),
    "negative output": (row(5, o=-3), "output_length is -3"),
    "text for a number": (row(5, n="many"), "input_length is 'many'"),
    "boolean for a number": (row(5, n=True), "input_length is True"),
    "fraction of a token": (row(5, n=10.5), "input_length is 10.5"),
    "null": (row(5, o=None), "output_length is None"),
    "time as text": (row("soon"), "timestamp is 'soon'"),
    "infinite time": ('{"timestamp": Infinity, "input_length": 1, "output_length": 1, "hash_ids": []}', "timestamp is inf"),
    "absurd length": (row(5, n=10**30), "at most"),
    "ids of mixed types": (row(5, ids=(1, "a")), "hash_ids holds int, str"),
    "ids that are floats": (row(5, ids=(1.5,)), "hash_ids holds float"),
    "no list of ids": ({**row(5), "hash_ids": 7}, "hash_ids is 7"),
    "hashes missing in one row": (without(row(5), "hash_ids"), "hash_ids is missing"),
    "more blocks than tokens": (row(5, n=1), "2 blocks for 1 input tokens"),
    "cut line": ('{"timestamp": 5, "input_le', "is not JSON"),
    "no object": ("[1, 2]", "is a JSON list"),
    "deep nesting": ("[" * 100_000, "is not JSON"),
}


@pytest.mark.parametrize("case", BAD_JSONL)
def test_a_bad_line_is_named_or_skipped_and_counted(tmp_path, case):
    bad, said = BAD_JSONL[case]
    first = row(3) if case == "time goes back" else row(0)
    path = write(tmp_path, lines(first, bad, row(9)))
    with pytest.raises(InputError) as error:
        read_trace(path)
    assert "trace.jsonl:2" in str(error.value)
    assert said is None or said in str(error.value)
    trace = read_trace(path, skip_bad=True)
    assert trace.requests == 2
    assert [(s.lines, s.first_line) for s in trace.skipped] == [(1, 2)]


BAD_TURNS = {
    "missing column": (without(turn(t=1), "t"), "t is missing"),
    "missing runs": (without(turn(t=1), "hash_runs"), "hash_runs is missing"),
    "time goes back in its session": (turn(t=2), None),
    "negative time": (turn(t=-1), "t is -1"),
    "zero-length input": (turn(t=6, n=0, runs=()), "input_length is 0"),
    "no session": (turn(s=None, t=6), "session is None"),
    "empty run": (turn(t=6, runs=((1, 0),)), "hash_runs is"),
    "run of three": (turn(t=6, runs=((1, 2, 3),)), "hash_runs is"),
    "a run longer than the prompt": (turn(t=6, runs=((1, 10**18),)), "blocks for 130 input tokens"),
    "negative id": (turn(t=6, runs=((-1, 2),)), "hash_runs is"),
}


@pytest.mark.parametrize("case", BAD_TURNS)
def test_a_bad_turn_of_a_session_is_named_or_skipped_and_counted(tmp_path, case):
    bad, said = BAD_TURNS[case]
    path = write(tmp_path, lines(turn(t=5), bad, turn(t=9), turn(s="b", t=0)))
    with pytest.raises(InputError) as error:
        read_trace(path, format="sessions")
    assert "trace.jsonl:2" in str(error.value)
    assert said is None or said in str(error.value)
    trace = read_trace(path, skip_bad=True)
    assert trace.requests == 3
    assert [(s.lines, s.first_line) for s in trace.skipped] == [(1, 2)]


HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BAD_CSV = {
    "values missing": ("2023-11-16 18:15:47,374", "2 values under 3 columns"),
    "no number": ("2023-11-16 18:15:47,many,44", "'many'"),
    "zero-length input": ("2023-11-16 18:15:47,0,44", "ContextTokens is 0"),
    "output of 0": ("2023-11-16 18:15:47,374,0", "GeneratedTokens is 0"),
    "negative": ("2023-11-16 18:15:47,-3,44", "ContextTokens is -3"),
    "time goes back": ("2023-11-15 18:15:47,374,44", "before the row above"),
    "no time": ("noon,374,44", "is 'noon'"),
    "a number among dates": ("1700158547,374,44", "is a date and time"),
    "empty value": ("2023-11-16 18:15:47,,44", "ContextTokens is ''"),
    "infinite": ("2023-11-16 18:15:47,inf,44", "ContextTokens is inf"),
}


@pytest.mark.parametrize("case", BAD_CSV)
def test_a_bad_row_of_a_csv_is_named_or_skipped_and_counted(tmp_path, case):
    bad, said = BAD_CSV[case]
    good = "2023-11-16 18:15:46.6805900,374,44\n"
    path = write(tmp_path, HEADER + good + bad + "\n" + good.replace("46.68", "59.68"), "trace.csv")
    with pytest.raises(InputError) as error:
        read_trace(path)
    assert "trace.csv:3" in str(error.value)
    assert said in str(error.value)
    trace = read_trace(path, skip_bad=True)
    assert trace.requests == 2
    assert [(s.lines, s.first_line) for s in trace.skipped] == [(1, 3)]


def test_a_misspelt_column_of_a_csv_names_the_columns_there_are(tmp_path):
    path = write(tmp_path, "TIMESTAMP,ContextTokenz,GeneratedTokens\n1,2,3\n", "trace.csv")
    with pytest.raises(InputError, match=r"trace.csv:1.*'ContextTokenz'.*did you mean 'ContextTokenz'"):
        read_trace(path)
    with pytest.raises(InputError, match="no column 'when'"):
        read_trace(path, columns=Columns("when", "ContextTokenz", "GeneratedTokens"))
    assert read_trace(path, columns=Columns("TIMESTAMP", "ContextTokenz", "GeneratedTokens")).requests == 1


def test_columns_of_burstgpt_are_known(tmp_path):
    text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    text += "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,10,2,12,API log\n"
    trace = read_trace(write(tmp_path, text, "trace.csv"))
    assert (trace.time_s.tolist(), trace.input_tokens.tolist(), trace.output_tokens.tolist()) == ([0.0, 40.0], [472, 10], [18, 2])


@pytest.mark.parametrize("unit", [("s", 40.0), ("ms", 0.04), ("us", 4e-5)])
def test_numeric_times_are_in_the_unit_asked_for(tmp_path, unit):
    path = write(tmp_path, "time,input_tokens,output_tokens\n5,1,1\n45,1,1\n", "trace.csv")
    assert read_trace(path, time_unit=unit[0]).time_s[1] == pytest.approx(unit[1])


def test_times_of_several_zones_are_the_same_clock(tmp_path):
    text = "time,input_tokens,output_tokens\n2026-03-29T01:30:00+01:00,1,1\n2026-03-29T03:00:10+02:00,1,1\n"
    assert read_trace(write(tmp_path, text, "trace.csv")).time_s.tolist() == [0.0, 1810.0]


@pytest.mark.parametrize("text", ["", "\n\n", HEADER])
def test_an_empty_file_holds_no_requests(tmp_path, text):
    with pytest.raises(InputError, match="holds no requests"):
        read_trace(write(tmp_path, text), skip_bad=True)


def test_a_file_of_only_bad_lines_is_an_error_even_when_they_are_skipped(tmp_path):
    with pytest.raises(InputError, match="all 2 requests are bad"):
        read_trace(write(tmp_path, lines(row(n=0), row(o=0))), skip_bad=True)


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path / "none.jsonl")


def test_truncated_gzip_is_named_at_its_line(tmp_path):
    whole = gzip.compress(lines(*(row(t, ids=(t, t + 1000 * t)) for t in range(2000))).encode())
    path = write(tmp_path, whole[: len(whole) // 2], "trace.jsonl.gz")
    with pytest.raises(InputError, match=r"trace.jsonl.gz:\d+.*gzip stream breaks after line \d+"):
        read_trace(path)
    trace = read_trace(path, skip_bad=True)
    assert 0 < trace.requests < 2000
    assert any("gzip" in s.reason for s in trace.skipped)


def test_damaged_gzip_is_an_error(tmp_path):
    whole = bytearray(gzip.compress(lines(*(row(t) for t in range(2000))).encode()))
    whole[len(whole) // 2] ^= 0xFF
    with pytest.raises(InputError):
        read_trace(write(tmp_path, bytes(whole), "trace.jsonl.gz"))


def test_gzip_is_told_by_its_content_and_not_by_its_name(tmp_path):
    assert read_trace(write(tmp_path, gzip.compress(lines(row()).encode()), "trace.jsonl")).requests == 1


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_windows_line_ends_and_byte_order_marks_are_read(tmp_path, newline, mark):
    text = mark + lines(row(0), row(5)).replace("\n", newline)
    assert read_trace(write(tmp_path, text)).requests == 2
    text = (mark + HEADER + "2023-11-16 18:15:46.68,374,44\n").replace("\n", newline)
    assert read_trace(write(tmp_path, text, "t.csv")).requests == 1


def test_a_line_that_is_no_utf8_is_named(tmp_path):
    path = write(tmp_path, lines(row(0)).encode() + b"\xff\xfe{}\n")
    with pytest.raises(InputError, match=r"trace.jsonl:2: the line is not UTF-8"):
        read_trace(path)


def test_huge_negative_and_text_ids_are_ids_like_any_other(tmp_path):
    big = [2**64 - 1, 2**200, -5]
    text = lines(row(0, n=9, ids=big), row(1, n=9, ids=[*big[:2], 7]), row(2, n=9, ids=["a9", "b1"]), row(3, n=9, ids=["a9", "c1"]))
    trace = read_trace(write(tmp_path, text), block_tokens=3)
    from pddplan.workload.prefix_cache import cache_hits, p_sequence

    assert cache_hits(p_sequence(trace)).cached_tokens.tolist() == [0, 6, 0, 3]


def test_huge_ids_local_to_sessions_do_not_cost_memory(tmp_path):
    text = lines(turn(runs=((2**60, 2),)), turn(t=1, n=300, runs=((2**60, 2), (5, 2))), turn(s="b", runs=((2**60, 2),)))
    trace = read_trace(write(tmp_path, text))
    assert trace.blocks.distinct == 6


def test_session_ids_are_local_to_their_session(tmp_path):
    from pddplan.workload.prefix_cache import cache_hits, p_sequence

    text = lines(turn("a"), turn("b"), turn("a", t=1), turn("b", t=1, runs=((2, 1), (9, 1))))
    trace = read_trace(write(tmp_path, text))
    assert trace.session.tolist() == [0, 0, 1, 1]
    assert cache_hits(p_sequence(trace)).cached_tokens.tolist() == [0, 128, 0, 64]


def test_a_file_written_session_by_session_is_put_in_order_of_time(tmp_path):
    text = lines(row(0, ids=(1,), session_id="a"), row(9, ids=(2,), session_id="a"), row(4, ids=(3, 4, 9), session_id="b"))
    trace = read_trace(write(tmp_path, text))
    assert trace.time_s == pytest.approx([0.0, 0.004, 0.009])
    assert trace.session.tolist() == [0, 1, 0]
    assert trace.blocks.per_request().tolist() == [1, 3, 1]
    assert trace.blocks.first[trace.blocks.offset[:-1]].tolist() == [1, 3, 2]
    assert "put in order of time" in trace.notes[0]
    with pytest.raises(InputError, match=r"trace.jsonl:2"):
        read_trace(write(tmp_path, lines(row(5, session_id="a"), row(3, session_id="a"), row(9, session_id="b"))))


def test_a_clock_that_restarts_with_every_session_gives_no_rate(tmp_path):
    text = lines(row(0, session_id="a"), row(9, session_id="a"), row(0, session_id="b"), row(4, session_id="b"))
    trace = read_trace(write(tmp_path, text))
    assert (trace.rate_per_s, trace.session.tolist()) == (None, [0, 0, 1, 1])
    assert "restarts" in trace.notes[0]


@pytest.mark.parametrize("mark", [";", "\t"])
def test_other_separators_of_a_csv_are_read(tmp_path, mark):
    text = (HEADER + "2023-11-16 18:15:47,374,44\n").replace(",", mark)
    assert read_trace(write(tmp_path, text, "t.csv")).input_tokens.tolist() == [374]


def test_every_fault_of_a_file_is_told_at_once_and_summed_up(tmp_path):
    path = write(tmp_path, lines(row(0), *(row(1, n=0, ids=()) for _ in range(30)), row(2, o=-1)))
    with pytest.raises(InputError) as error:
        read_trace(path)
    assert len(error.value.problems) == 11
    assert "30 x input_length is 0; 1 x output_length is negative" in str(error.value)


def test_answers_of_no_token_are_counted_and_told_in_session_traces(tmp_path):
    trace = read_trace(write(tmp_path, lines(turn(o=0), turn(t=1))))
    assert trace.requests == 2
    assert "1 requests ended with no output token" in trace.notes[0]


def test_a_block_size_that_does_not_fit_is_told(tmp_path):
    trace = read_trace(write(tmp_path, lines(*(row(t, n=130, ids=(0, 1, 2)) for t in range(3)))), block_tokens=16)
    assert "as many blocks as 16 tokens" in trace.notes[0]


@pytest.mark.parametrize("text", ["3,374,44\r2\n", "3," + "9" * 200_000 + ",44\n", '3,"374,44\n'])
def test_what_is_no_line_of_a_csv_is_named(tmp_path, text):
    path = write(tmp_path, "time,input_tokens,output_tokens\n1,374,44\n" + text, "t.csv")
    with pytest.raises(InputError, match=r"t.csv:3"):
        read_trace(path)


def test_times_a_thousand_years_apart_cost_no_memory(tmp_path):
    from pddplan.workload.trace_stats import measure_trace

    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{1023 + 1000 * (i > 20)}-01-01 00:00:{i:02d},5,5\n" for i in range(40))
    stats = measure_trace(read_trace(write(tmp_path, text, "t.csv")))
    assert stats.arrivals.span_s == pytest.approx(3.156e10, rel=1e-3)
    assert stats.rates.rate_per_s.size <= 500
