"""Faults around a run: full disks, folders that may not be written, a solver that is missing or dies, odd terminals and names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
EVALUATED = "pdd-88-vs-43-32"
QUICK = ("evaluate", EVALUATED)
# a limit on file sizes would leave broken caches and measurements behind
NO_CACHES = {"PYTHONDONTWRITEBYTECODE": "1", "NUMBA_DISABLE_JIT": "1", "COVERAGE_PROCESS_CONFIG": ""}
HOSTILE_NAME = '=HYPERLINK("http://x")</script><script>alert(1)</script>&\'"<img src=x onerror=alert(1)>'


def one_line(done: subprocess.CompletedProcess[bytes], code: int, text: str) -> None:
    """One line of error, of that exit code, without a traceback."""
    lines = done.stderr.decode().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert done.returncode == code, lines
    assert len(errors) == 1, lines
    assert text in errors[0]
    assert "Traceback" not in done.stderr.decode()


def bound_by_permissions() -> None:
    """Take from root (in this child) what lets it write into any folder."""
    import ctypes

    drop_from_bounding_set, dac_override = 24, 1
    if os.getuid() == 0 and sys.platform == "linux":
        ctypes.CDLL(None).prctl(drop_from_bounding_set, dac_override, 0, 0, 0)


def limited(bytes_max: int) -> Callable[[], None]:
    def limit() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, bytes_max))

    return limit


@POSIX
@pytest.mark.parametrize(
    "arguments",
    [(*QUICK, "--json", "out.json"), ("report", EVALUATED, "-o", "out.html"), ("export", EVALUATED, "-o", "out.xlsx")],
    ids=["json", "report", "workbook"],
)
def test_a_disk_that_fills_while_a_result_is_written_leaves_no_half_file(pddplan: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """The limit of a file's size stands for the disk: the write itself fails, part of the way through."""
    done = pddplan(*arguments, preexec_fn=limited(1000), env=NO_CACHES)
    one_line(done, 2, "cannot be written")
    assert list(tmp_path.iterdir()) == []


@POSIX
def test_a_disk_that_fills_during_a_sweep_keeps_its_finished_points(pddplan: Run, tmp_path: Path) -> None:
    sweep = ("sweep", EVALUATED, "--vary", "workload.rate=5 req/s:9 req/s:5", "--out", "out.csv")
    done = pddplan(*sweep, preexec_fn=limited(2500), env=NO_CACHES)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv.journal"]
    again = pddplan(*sweep)
    assert again.returncode == 0, again.stderr
    assert re.search(r"[1-9] points were finished already", again.stderr.decode())
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 6


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        (*QUICK, "--json", "out.json"),
        ("report", EVALUATED, "-o", "out.html"),
        ("export", EVALUATED, "-o", "out.xlsx"),
        ("export", EVALUATED, "--format", "csv", "-o", "tables"),
        ("sweep", EVALUATED, "--vary", "workload.rate=5 req/s,6 req/s", "--out", "out.csv"),
        ("init", "mine.yaml"),
        ("profiles", "show", "h100-sxm", "--report", "chip.html"),
    ],
    ids=lambda arguments: " ".join(arguments[:1]),
)
def test_a_folder_that_may_not_be_written_is_told_in_one_line(pddplan: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables").chmod(0o555)
    tmp_path.chmod(0o555)
    try:
        done = pddplan(*arguments, preexec_fn=bound_by_permissions)
    finally:
        tmp_path.chmod(0o755)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr.decode()
    assert "ermission denied" in done.stderr.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]
    assert list((tmp_path / "tables").iterdir()) == []


@POSIX
def test_a_read_only_folder_stops_nothing_that_writes_no_file(pddplan: Run, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    tmp_path.chmod(0o555)
    try:
        done = pddplan(*QUICK, env={"HOME": "/nonexistent"}, preexec_fn=bound_by_permissions)
    finally:
        tmp_path.chmod(0o755)
    assert done.returncode == 0, done.stderr


def solver_replaced(folder: Path, code: str) -> dict[str, str]:
    """Environment in which ``import highspy`` runs ``code`` instead."""
    (folder / "fake").mkdir()
    (folder / "fake" / "highspy.py").write_text(code, encoding="utf-8")
    return {"PYTHONPATH": str(folder / "fake")}


def test_a_missing_solver_is_exit_4_with_advice(pddplan: Run, tmp_path: Path) -> None:
    done = pddplan("optimize", "01-minimal", env=solver_replaced(tmp_path, "raise ImportError('no highspy here')"))
    one_line(done, 4, "pip install 'pulp[highs]'")


@POSIX
@pytest.mark.slow
def test_a_solver_that_fails_half_way_is_exit_4(pddplan: Run, tmp_path: Path) -> None:
    """The real solver, whose run raises: what a licence, memory or a bug of it does."""
    code = (
        "import importlib.util, sys\n"
        "here = sys.modules.pop('highspy')\n"
        "folder = __file__.rsplit('/', 1)[0]\n"
        "sys.path.remove(folder)\n"
        "import highspy as real\n"
        "class Highs(real.Highs):\n"
        "    def run(self, *a, **k):\n"
        "        raise RuntimeError('out of licences')\n"
        "    solve = run\n"
        "real.Highs = Highs\n"
        "sys.modules['highspy'] = real\n"
    )
    done = pddplan("optimize", "01-minimal", env=solver_replaced(tmp_path, code))
    one_line(done, 4, "out of licences")


@pytest.mark.parametrize("columns", ["20", "40", "400"])
def test_a_narrow_or_wide_terminal_changes_the_layout_and_not_the_answer(pddplan: Run, columns: str) -> None:
    done = pddplan(*QUICK, env={"COLUMNS": columns, "PYTHONIOENCODING": "utf-8"})
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout
    assert max(len(line) for line in done.stdout.decode().splitlines()) <= max(int(columns), 40)


@POSIX
@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_is_for_terminals_that_have_not_refused_it(pddplan: Run, env: dict[str, str], coloured: bool) -> None:
    import pty

    leader, follower = pty.openpty()
    done = pddplan("--help", env={"TERM": "xterm-256color", **env}, capture_output=False, stdout=follower, stderr=subprocess.PIPE)
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 65536):
            shown += chunk
    except OSError:
        pass
    os.close(leader)
    assert done.returncode == 0
    assert b"optimize" in shown
    assert (re.search(rb"\x1b\[[\d;]*3\d", shown) is not None) == coloured


def test_hostile_names_stay_text_in_every_output(pddplan: Run, tmp_path: Path) -> None:
    """Names become neither elements of the page nor formulas of the workbook."""
    import openpyxl

    named = ("--set", f"name={json.dumps(HOSTILE_NAME)}")
    for arguments in (("report", EVALUATED, "-o", "r.html"), ("export", EVALUATED, "-o", "w.xlsx")):
        done = pddplan(*arguments, *named)
        assert done.returncode == 0, done.stderr
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page
    assert "alert(1)" in page, "the name itself is shown"
    formulas = {}
    for cell in (cell for sheet in openpyxl.load_workbook(tmp_path / "w.xlsx") for row in sheet for cell in row):
        if isinstance(cell.value, str) and "HYPERLINK" in cell.value:
            formulas[cell.coordinate] = cell.data_type
    assert formulas
    assert "f" not in formulas.values()
    with zipfile.ZipFile(tmp_path / "w.xlsx") as book:
        assert not [name for name in book.namelist() if "externalLink" in name or name.endswith(".bin")]


@pytest.mark.parametrize("name", ["../../../../etc/passwd", "/etc/passwd", "..", "a\x00b", "x" * 5000, "../scenarios/01-minimal", "~root"])
@pytest.mark.parametrize("path", ["model.name", "sites.A.chips[0].chip", "engine"])
def test_a_name_that_leaves_its_folder_is_no_name(path: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from pddplan.cli import run

    assert run(["validate", "01-minimal", "--set", f"{path}={json.dumps(name)}"]) == 2
    err = capsys.readouterr().err
    assert "root:" not in err
    assert len(err) < 4000 + len(name)


@POSIX
def test_an_output_that_is_a_link_is_replaced_and_not_followed(pddplan: Run, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep me")
    (tmp_path / "out.json").symlink_to(tmp_path / "precious")
    assert pddplan(*QUICK, "--json", "out.json").returncode == 2
    assert pddplan(*QUICK, "--json", "out.json", "--force").returncode == 0
    assert (tmp_path / "precious").read_text() == "keep me"
    (tmp_path / "new.json").symlink_to(tmp_path / "absent")
    assert pddplan(*QUICK, "--json", "new.json").returncode in (0, 2)
    assert not (tmp_path / "absent").exists()


def test_results_are_written_to_folders_with_spaces_and_chinese_names(pddplan: Run, tmp_path: Path) -> None:
    folder = tmp_path / "结果 与 spaces"
    folder.mkdir()
    plan = str(folder / "方案 1.json")
    assert pddplan(*QUICK, "--json", plan, env={"LC_ALL": "C"}).returncode == 0
    for arguments in (("report", plan, "-o", str(folder / "报告.html")), ("export", plan, "-o", str(folder / "表 格.xlsx"))):
        done = pddplan(*arguments, env={"LC_ALL": "C"})
        assert done.returncode == 0, done.stderr
    assert {path.name for path in folder.iterdir()} == {"方案 1.json", "报告.html", "表 格.xlsx"}


def test_tables_go_to_a_folder_that_is_made_for_them_and_are_not_overwritten(pddplan: Run, tmp_path: Path) -> None:
    assert pddplan("export", EVALUATED, "--format", "csv", "-o", "new").returncode == 0
    assert (tmp_path / "new" / "pools.csv").is_file()
    done = pddplan("export", EVALUATED, "--format", "csv", "-o", "new")
    assert done.returncode == 2
    assert "--force" in done.stderr.decode()
    (tmp_path / "file").write_text("")
    assert "is a file" in pddplan("export", EVALUATED, "--format", "csv", "-o", "file").stderr.decode()
