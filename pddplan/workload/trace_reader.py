"""Reading of recorded traces: Mooncake JSONL, flattened agent sessions JSONL, CSV with a column map.

Every fault carries its line; with ``skip_bad`` the line is left out and counted.
"""

from __future__ import annotations

import csv
import difflib
import json
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pddplan.errors import InputError, Problem
from pddplan.workload.trace import BlockRuns, IntArray, Trace, runs_from_ids
from pddplan.workload.trace_lines import BadLines, numbered_lines

Format = Literal["auto", "mooncake", "sessions", "csv"]
Lines = Iterator[tuple[int, str]]
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
DEFAULT_BLOCK_TOKENS = {"mooncake": 512, "sessions": 64}
_BLOCK_SIZES = (512, 64, 16, 32, 128, 256, 1024, 2048, 4096, 8, 4, 2, 1)
_LARGEST_TOKENS = 10**9
_LARGEST_TIME_S = 1e12
_COLUMN_NAMES = {
    "time": ("timestamp", "time", "arrival_time", "arrival_timestamp", "arrived_at", "arrival", "start_time"),
    "input_tokens": (
        "contexttokens", "request_tokens", "input_length", "input_tokens", "prompt_tokens", "prompt_length", "num_prefill_tokens",
        "input_len", "prompt_len",
    ),
    "output_tokens": (
        "generatedtokens", "response_tokens", "output_length", "output_tokens", "completion_tokens", "generation_length",
        "num_decode_tokens", "output_len",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a CSV."""

    time: str
    input_tokens: str
    output_tokens: str


def read_trace(
    path: Path,
    *,
    format: Format = "auto",
    block_tokens: int | None = None,
    columns: Columns | None = None,
    time_unit: str | None = None,
    skip_bad: bool = False,
) -> Trace:
    """The trace in ``path``, .gz or not.

    block_tokens: found from lengths and block counts when None. columns: told from usual names when None.
    time_unit: of numeric times; ms in Mooncake's format and s elsewhere when None.
    Raises InputError with the line of every fault, or of a file with nothing usable in it.
    """
    bad = BadLines(path, skip_bad)
    lines = numbered_lines(path, bad)
    first = next(lines, None)
    if first is None:
        bad.settle(0)
        raise AssertionError("settle raises when there is no request")
    if format == "auto":
        format = _told_format(first[1])
    lines = chain([first], lines)
    if format == "csv":
        trace = _read_csv(lines, bad, columns, time_unit)
    elif format == "sessions":
        trace = _read_sessions(lines, bad, TIME_UNITS[time_unit or "s"])
    else:
        trace = _read_mooncake(lines, bad, TIME_UNITS[time_unit or "ms"])
    trace = replace(trace, name=path.name)
    return trace if trace.blocks is None else _with_block_size(trace, block_tokens)


def _told_format(line: str) -> Format:
    if not line.lstrip().startswith("{"):
        return "csv"
    try:
        keys = json.loads(line).keys()
    except (ValueError, AttributeError, RecursionError):
        return "mooncake"
    return "sessions" if "timestamp" not in keys and ({"hash_runs", "session", "t"} & set(keys)) else "mooncake"


def _object(number: int, line: str, bad: BadLines) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        bad.add(number, "not JSON", f"is not JSON ({error})", "each line is one JSON object")
        return None
    if type(row) is not dict:
        bad.add(number, "not a JSON object", f"is a JSON {type(row).__name__}", "each line is one JSON object")
        return None
    return row


def _missing(number: int, name: str, keys: Sequence[str], bad: BadLines) -> None:
    near = difflib.get_close_matches(name, keys, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"found {', '.join(map(repr, keys)) or 'nothing'}"
    bad.add(number, f"{name} is missing", f"{name} is missing", f"each request has one ({hint})", f'"{name}": 1000')


def _tokens(number: int, name: str, value: Any, least: int, bad: BadLines) -> int | None:
    """Whole tokens between ``least`` and a sane ceiling, or None after noting the fault."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is int and least <= value <= _LARGEST_TOKENS:
        return value
    if type(value) is not int:
        bad.add(number, f"{name} is no whole number", f"{name} is {value!r}", f"{name} is a whole number of tokens", "1000")
    elif value < least:
        kind = f"{name} is {value}" if value == 0 else f"{name} is negative"
        advice = "; failed requests are logged so: --skip-bad leaves them out" if name.startswith("output") else ""
        bad.add(number, kind, f"{name} is {value}", f"{name} is at least {least}{advice}", "1000")
    else:
        bad.add(number, f"{name} is too large", f"{name} is {value!s:.40}", f"{name} is at most {_LARGEST_TOKENS}", "1000")
    return None


def _time(number: int, name: str, value: Any, second: float, least: float, bad: BadLines) -> float | None:
    """A time in units of ``second`` that does not go back before ``least``, or None after noting the fault."""
    if type(value) not in (int, float) or not abs(value) < _LARGEST_TIME_S / second:
        bad.add(number, f"{name} is no number", f"{name} is {value!r:.80}", f"{name} is a finite number", "1500")
    elif value < 0:
        bad.add(number, f"{name} is negative", f"{name} is {value!r}", "times count up from 0")
    elif value < least:
        bad.add(number, f"{name} goes back", f"{name} is {value!r} after {least!r}", "times never go back: sort the file by time")
    else:
        return float(value)
    return None


def _request(
    number: int, row: dict[str, Any], time_name: str, second: float, after: float, least_output: int, bad: BadLines
) -> tuple[int, int, float] | None:
    """Input tokens, output tokens and time of a row, or None after noting its fault."""
    for name in (time_name, "input_length", "output_length"):
        if name not in row:
            _missing(number, name, list(row), bad)
            return None
    length = _tokens(number, "input_length", row["input_length"], 1, bad)
    output = _tokens(number, "output_length", row["output_length"], least_output, bad) if length is not None else None
    if length is None or output is None:
        return None
    time = _time(number, time_name, row[time_name], second, after, bad)
    return None if time is None else (length, output, time)


def _read_mooncake(lines: Lines, bad: BadLines, second: float) -> Trace:
    times, inputs, outputs = array("d"), array("q"), array("q")
    ids, per_request = array("q"), array("q")
    sessions: dict[str, int] = {}
    session = array("q")
    last_of: dict[str, float] = {}
    outside: dict[Any, int] = {}
    hashed: bool | None = None
    for number, line in lines:
        row = _object(number, line, bad)
        if row is None:
            continue
        name = str(row.get("session_id", ""))
        request = _request(number, row, "timestamp", second, last_of.get(name, 0.0), 1, bad)
        if request is None:
            continue
        length, output, time = request
        given = row.get("hash_ids")
        if hashed is None:
            hashed = given is not None
        if hashed != (given is not None):
            _missing(number, "hash_ids", [key for key in row if key != "hash_ids"], bad)
            continue
        if hashed:
            blocks = given if _plain_ids(given) else _dense_ids(number, given, outside, bad)
            if blocks is None:
                continue
            if len(blocks) > length:
                _too_many_blocks(number, len(blocks), length, bad)
                continue
            ids.extend(blocks)
            per_request.append(len(blocks))
        last_of[name] = time
        times.append(time)
        inputs.append(length)
        outputs.append(output)
        session.append(sessions.setdefault(name, len(sessions)))
    skipped = bad.settle(len(times))
    blocks_of = runs_from_ids(np.array(ids, dtype=np.int64), np.array(per_request, dtype=np.int64)) if hashed else None
    trace = Trace(
        name="",
        format="mooncake",
        time_s=np.array(times) * second,
        input_tokens=np.array(inputs, dtype=np.int64),
        output_tokens=np.array(outputs, dtype=np.int64),
        blocks=blocks_of,
        session=np.array(session, dtype=np.int64) if len(sessions) > 1 else None,
        skipped=skipped,
    )
    return trace if np.all(np.diff(trace.time_s) >= 0) else _one_after_another(trace)


def _one_after_another(trace: Trace) -> Trace:
    """A trace written session by session: put in order of time, unless its clock restarts with every session."""
    assert trace.session is not None
    starts = trace.time_s[np.unique(trace.session, return_index=True)[1]]
    if np.all(starts == starts[0]):
        note = "the clock restarts with every session; requests are taken in the order of the file"
        return replace(trace, session_times=True, notes=(*trace.notes, note))
    order = np.argsort(trace.time_s, kind="stable")
    return replace(
        trace,
        time_s=trace.time_s[order],
        input_tokens=trace.input_tokens[order],
        output_tokens=trace.output_tokens[order],
        blocks=None if trace.blocks is None else trace.blocks.reordered(order),
        session=trace.session[order],
        notes=(*trace.notes, "the file is written session by session; its requests were put in order of time"),
    )


_INT = {int}


def _plain_ids(ids: Any) -> bool:
    return type(ids) is list and set(map(type, ids)) <= _INT and (not ids or (min(ids) >= 0 and max(ids) < 2**62))


def _dense_ids(number: int, ids: Any, outside: dict[Any, int], bad: BadLines) -> list[int] | None:
    """Ids as int64: hashes that are text, negative or wider than 62 bits get negative numbers of their own."""
    if type(ids) is not list or len(kinds := set(map(type, ids))) > 1 or not kinds <= {int, str}:
        found = f"holds {', '.join(sorted(k.__name__ for k in set(map(type, ids))))}" if type(ids) is list else f"is {ids!r:.60}"
        bad.add(number, "hash_ids is no list of ids", f"hash_ids {found}", "hash_ids is a list of whole numbers", "[0, 1, 2]")
        return None
    return [i if type(i) is int and 0 <= i < 2**62 else -1 - outside.setdefault(i, len(outside)) for i in ids]


def _too_many_blocks(number: int, blocks: int, length: int, bad: BadLines) -> None:
    found = f"{blocks} blocks for {length} input tokens"
    bad.add(number, "more blocks than tokens", found, "a block holds at least one token")


def _read_sessions(lines: Lines, bad: BadLines, second: float) -> Trace:
    sessions: dict[str, int] = {}
    last: dict[int, float] = {}
    rows: list[tuple[int, float, int, int, bool, float, int]] = []
    runs: list[list[list[int]]] = []
    empty_answers = 0
    for number, line in lines:
        row = _object(number, line, bad)
        if row is None:
            continue
        for key in ("session", "hash_runs"):
            if key not in row:
                _missing(number, key, list(row), bad)
        if "session" not in row or "hash_runs" not in row:
            continue
        name = row["session"]
        if type(name) not in (str, int) or name == "":
            bad.add(number, "session is no name", f"session is {name!r:.80}", "session is a name", '"trace_0001"')
            continue
        index = sessions.get(str(name), len(sessions))
        request = _request(number, row, "t", second, last.get(index, 0.0), 0, bad)
        if request is None or not _good_runs(number, row["hash_runs"], request[0], bad):
            continue
        length, output, time = request
        sessions[str(name)] = index
        last[index] = time
        empty_answers += output == 0
        pause = row.get("think_time")
        pause_s = pause * second if isinstance(pause, int | float) and 0 <= pause < _LARGEST_TIME_S else math.nan
        prefix = sum(v for k in ("session_tool_tokens", "session_system_tokens") if type(v := row.get(k)) is int and v > 0)
        rows.append((index, time * second, length, output, row.get("stop", "tool_use") != "tool_use", pause_s, min(prefix, length)))
        runs.append(row["hash_runs"])
    skipped = bad.settle(len(rows))
    order = sorted(range(len(rows)), key=lambda i: rows[i][0])
    session, time_s, lengths, outputs, ends, pauses, prefixes = (np.array(column) for column in zip(*(rows[i] for i in order), strict=True))
    notes = []
    if empty_answers:
        notes.append(f"{empty_answers} requests ended with no output token; they count as prompts, and with one token in a mix")
    return Trace(
        name="",
        format="sessions",
        time_s=time_s,
        input_tokens=lengths,
        output_tokens=outputs,
        blocks=_session_runs(session, [runs[i] for i in order]),
        session=session,
        session_times=True,
        local_ids=True,
        ends_task=ends if ends.any() else None,
        pause_s=pauses,
        shared_prefix_tokens=prefixes,
        skipped=skipped,
        notes=tuple(notes),
    )


def _good_runs(number: int, runs: Any, length: int, bad: BadLines) -> bool:
    good = type(runs) is list and all(
        type(run) is list and len(run) == 2 and type(run[0]) is int and type(run[1]) is int and run[0] >= 0 and run[1] >= 1 for run in runs
    )
    if not good:
        found = f"hash_runs is {runs!r:.80}"
        bad.add(number, "hash_runs is no list of runs", found, "hash_runs is a list of [first id, count]", "[[1, 1112]]")
        return False
    if (blocks := sum(count for _, count in runs)) > length:
        _too_many_blocks(number, blocks, length, bad)
        return False
    return True


def _session_runs(session: IntArray, runs: Sequence[Sequence[Sequence[int]]]) -> BlockRuns:
    """Runs with session-local ids made dense: the ids in use, session after session in rising order, count up from 0."""
    of_session: dict[int, list[tuple[int, int]]] = {}
    for index, parts in zip(session.tolist(), runs, strict=True):
        of_session.setdefault(index, []).extend((first, first + count) for first, count in parts)
    place: dict[tuple[int, int], int] = {}
    base = 0
    for index, spans in of_session.items():
        low = high = -1
        for first, end in sorted(set(spans)):
            if first > high or low < 0:
                base += high - low
                low, high = first, end
            high = max(high, end)
            place[index, first] = base + first - low
        base += high - low
    firsts = [place[index, f] for index, parts in zip(session.tolist(), runs, strict=True) for f, _ in parts]
    counts = [c for parts in runs for _, c in parts]
    offset = np.concatenate(([0], np.cumsum([len(parts) for parts in runs])))
    return BlockRuns(np.array(firsts, dtype=np.int64), np.array(counts, dtype=np.int64), offset.astype(np.int64), base)


def _read_csv(lines: Lines, bad: BadLines, columns: Columns | None, time_unit: str | None) -> Trace:
    number, header = next(lines)
    delimiter = next((mark for mark in ",;\t" if mark in header), ",")
    names = [name.strip() for name in _cells(header, delimiter)]
    time_at, input_at, output_at = _column_places(bad.path, number, names, columns)
    second = TIME_UNITS[time_unit or "s"]
    times, inputs, outputs = array("d"), array("q"), array("q")
    last, start, dated = -math.inf, 0.0, None
    for number, line in lines:
        values = _cells(line, delimiter)
        if len(values) <= max(time_at, input_at, output_at):
            found = f"{len(values)} values under {len(names)} columns"
            bad.add(number, "values are missing", found, "every row has a value in every column")
            continue
        length = _tokens(number, names[input_at], _number(values[input_at]), 1, bad)
        output = _tokens(number, names[output_at], _number(values[output_at]), 1, bad) if length is not None else None
        if length is None or output is None:
            continue
        moment, is_date = _moment(values[time_at])
        if moment is None or (dated is not None and is_date != dated):
            kind = "a number or a date and time" if dated is None else "a date and time" if dated else "a number"
            found = f"{names[time_at]} is {values[time_at]!r}"
            bad.add(number, f"{names[time_at]} is no time", found, f"{names[time_at]} is {kind}", "2023-11-16 18:15:46.68")
            continue
        if not is_date:
            moment *= second
        if not is_date and moment >= _LARGEST_TIME_S:
            found = f"{names[time_at]} is {values[time_at]}"
            bad.add(number, "time is too large", found, "times are seconds unless --time-unit says otherwise", "0.5")
            continue
        if not is_date and moment < 0:
            bad.add(number, "time is negative", f"{names[time_at]} is {values[time_at]}", "times are not negative", "0.5")
            continue
        if moment < last:
            found = f"{names[time_at]} {values[time_at]} is before the row above"
            bad.add(number, "time goes back", found, "times never go back: sort the file by time")
            continue
        if not times:
            start = moment
        dated, last = is_date, moment
        times.append(moment - start)
        inputs.append(length)
        outputs.append(output)
    skipped = bad.settle(len(times))
    return Trace(
        name="",
        format="csv",
        time_s=np.array(times),
        input_tokens=np.array(inputs, dtype=np.int64),
        output_tokens=np.array(outputs, dtype=np.int64),
        skipped=skipped,
    )


def _cells(line: str, delimiter: str) -> list[str]:
    """Values of a line; none where it is no line of a CSV (stray carriage returns, an unbounded field)."""
    try:
        return next(csv.reader([line], delimiter=delimiter))
    except csv.Error:
        return []


def _number(text: str) -> int | float | str:
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def _moment(text: str) -> tuple[float | None, bool]:
    """Seconds of a time that is a number or an ISO date and time (UTC when it names no zone), and whether it is a date."""
    try:
        value = float(text)
        return (value if math.isfinite(value) else None), False
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None, False
    epoch = datetime(1970, 1, 1, tzinfo=UTC if moment.tzinfo else None)
    return (moment - epoch).total_seconds(), True


def _column_places(path: Path, line: int, names: list[str], columns: Columns | None) -> tuple[int, int, int]:
    """Places of time, input and output columns. Raises InputError naming the ones that are not there."""
    wanted: Mapping[str, str | None] = vars(columns) if columns else dict.fromkeys(_COLUMN_NAMES)
    plain = {name.lower().replace(" ", "_"): i for i, name in reversed(list(enumerate(names)))}
    places, problems = [], []
    for role, given in wanted.items():
        usual = _COLUMN_NAMES[role]
        place = names.index(given) if given in names else None
        if given is None:
            place = next((plain[name] for name in usual if name in plain), None)
        if place is None:
            target = given or usual[0]
            near = difflib.get_close_matches(target.lower().replace(" ", "_"), list(plain), n=1)
            hint = f"; did you mean {names[plain[near[0]]]!r}?" if near else ""
            found = f"no column {given!r}" if given else f"no column for {role} is recognised"
            more = f" and {len(names) - 20} more" if len(names) > 20 else ""
            accepted = f"the columns are {', '.join(f'{name[:40]!r}' for name in names[:20])}{more}{hint}"
            problems.append(Problem(f"{path}:{line}", found, accepted, "time=TIMESTAMP,input=ContextTokens,output=GeneratedTokens"))
        else:
            places.append(place)
    if problems:
        raise InputError(problems)
    return places[0], places[1], places[2]


def _with_block_size(trace: Trace, block_tokens: int | None) -> Trace:
    """The trace with its block size: as told, or the size that lengths and block counts agree on."""
    assert trace.blocks is not None
    count, length = trace.blocks.per_request(), trace.input_tokens

    def agreement(size: int) -> float:
        return float(np.mean((count == length // size) | (count == -(-length // size))))

    if block_tokens is None:
        default = DEFAULT_BLOCK_TOKENS[trace.format]
        sizes = sorted(_BLOCK_SIZES, key=lambda size: (size != default, -agreement(size)))
        block_tokens = next((size for size in sizes if agreement(size) >= 0.99), default)
    agreed = agreement(block_tokens)
    notes = trace.notes
    if agreed < 0.99:
        notes += (f"only {100 * agreed:.3g} % of prompts have as many blocks as {block_tokens} tokens a block would give",)
    return replace(trace, block_tokens=block_tokens, notes=notes)
