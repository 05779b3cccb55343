"""Lines of a trace file with their numbers, and what is wrong with them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from pddplan.errors import InputError, Problem
from pddplan.workload.trace import Skipped

_SHOWN = 10
_FOUND_LONGEST = 300
_GIVE_UP = 10_000
"""Bad lines after which a file that may have none is not read on."""
LINE_BYTES_MAX = 32 * 2**20
BLANK_LINES_MAX = 1_000_000
"""A file of more blank lines is no trace; a small gzip may hold billions of them."""


class BadLines:
    """Faults of a file, by reason. They are all raised together, or counted when bad lines are to be skipped."""

    def __init__(self, path: Path, skip: bool) -> None:
        self.path, self.skip = path, skip
        self._problems: list[Problem] = []
        self._reasons: dict[str, list[int]] = {}
        self.lines = 0

    def add(self, line: int, reason: str, found: str, accepted: str, example: str = "") -> None:
        """Note a fault; ``reason`` groups it with its like, the rest is as in Problem."""
        self.lines += 1
        first_and_count = self._reasons.setdefault(reason, [line, 0])
        first_and_count[1] += 1
        if len(self._problems) < _SHOWN:
            shown = found if len(found) <= _FOUND_LONGEST else f"{found[:_FOUND_LONGEST]} ..."
            self._problems.append(Problem(f"{self.path}:{line}", shown, accepted, example))
        if self.lines >= _GIVE_UP and not self.skip:
            self.settle(0)

    def settle(self, requests: int) -> tuple[Skipped, ...]:
        """What was skipped. Raises InputError when there were faults and they are not to be skipped, or nothing is left."""
        if self._reasons and not self.skip:
            more = self.lines - len(self._problems)
            if more:
                kinds = "; ".join(f"{count} x {reason}" for reason, (_, count) in self._reasons.items())
                tail = Problem(str(self.path), f"{more} more bad lines, in all: {kinds}", "correct them or use --skip-bad")
                raise InputError([*self._problems, tail])
            raise InputError(self._problems)
        if requests == 0:
            found = f"all {self.lines} requests are bad" if self.lines else "the file holds no requests"
            raise InputError([*self._problems, Problem(str(self.path), found, "a trace needs at least one request")])
        return tuple(Skipped(reason, count, first) for reason, (first, count) in self._reasons.items())


def numbered_lines(path: Path, bad: BadLines) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers from 1; gzip (told by its first bytes), BOM and \\r\\n are unpacked.

    A truncated or damaged gzip stream and bytes that are no UTF-8 are faults at their line.
    Raises InputError when the file cannot be opened, a line is too long to be one, or a million are blank.
    """
    number = blank = 0
    try:
        with path.open("rb") as plain:
            stream = gzip.GzipFile(fileobj=plain) if plain.peek(2)[:2] == b"\x1f\x8b" else plain
            try:
                for number, raw in enumerate(iter(lambda: stream.readline(LINE_BYTES_MAX + 1), b""), start=1):
                    if len(raw) > LINE_BYTES_MAX:
                        found = f"the line is over {LINE_BYTES_MAX >> 20} MiB long"
                        raise InputError(Problem(f"{path}:{number}", found, "a trace has one request, or one session, a line"))
                    try:
                        text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                    except UnicodeDecodeError:
                        bad.add(number, "not UTF-8 text", "the line is not UTF-8 text", "a trace is text, or gzip of text")
                        continue
                    if text and not text.isspace():
                        yield number, text
                        continue
                    blank += 1
                    if blank > BLANK_LINES_MAX:
                        found = f"{BLANK_LINES_MAX:,} lines so far are blank"
                        raise InputError(Problem(f"{path}:{number}", found, "a trace has one request, or one session, a line"))
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                bad.add(
                    number + 1,
                    "gzip ends early or is damaged",
                    f"the gzip stream breaks after line {number} ({error})",
                    "fetch the file again; --skip-bad uses the lines before the break",
                )
    except OSError as error:
        found = error.strerror or str(error)
        raise InputError(Problem(str(path), f"cannot be read: {found}", "a trace is a readable .jsonl or .csv file")) from None
