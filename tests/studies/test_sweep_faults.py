"""Sweeps that are killed, interrupted, spread over processes and machines, or fed with nonsense."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from pddplan import load_scenario
from pddplan.cli import run
from pddplan.errors import InputError
from pddplan.studies import sweep as module
from pddplan.studies.sweep import Journal, check_points, grid, parse_vary, run_point, sample, sweep

NAME = "pdd-88-vs-43-32"
COMMAND = [sys.executable, "-m", "pddplan", "sweep", NAME, "--vary", "workload.rate=5 req/s:10 req/s:40", "--out", "out.parquet"]


@pytest.fixture(scope="module")
def scenario():
    return load_scenario(NAME)


def points_of(text: str):
    return list(grid([parse_vary(text)]))


def test_a_value_varied_twice_is_refused():
    varied = [parse_vary("a=1,2"), parse_vary("a=3")]
    for draw in (lambda: list(grid(varied)), lambda: list(sample(varied, "sobol:4"))):
        with pytest.raises(InputError, match="given twice"):
            draw()


def test_a_path_that_no_point_can_use_is_one_error_and_not_a_table_of_failures(scenario):
    with pytest.raises(InputError, match="did you mean 'rate'"):
        check_points(scenario, points_of("workload.ratte=1 req/s,2 req/s"))
    check_points(scenario, points_of("workload.rate=none of this,2 req/s"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--vary", "workload.ratte=1 req/s,2 req/s"],
        ["--vary", "workload.rate=1 req/s", "--seed", "-1"],
        ["--vary", "workload.rate=1 req/s", "--jobs", "-2"],
        ["--vary", "workload.rate=1 req/s", "--out", "x.xlsx"],
        ["--vary", "workload.rate=1 req/s", "--sample", "sobol:0"],
        ["--vary", "workload.rate=1 req/s:9 req/s"],
        pytest.param(["--vary", "workload.rate=1 req/s", "--dask", "127.0.0.1:1"], marks=pytest.mark.slow),
        ["--vary", "workload.rate=1 req/s", "--dask", "foo://x"],
        ["--vary", "a=" + ",".join(["1"] * 2000), "--vary", "b=" + ",".join(["1"] * 2000)],
    ],
)
def test_wrong_arguments_are_exit_2_and_leave_nothing(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["sweep", NAME, *arguments]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_ours_at_one_point_is_a_row(scenario, tmp_path, monkeypatch):
    evaluate = module.pipeline.evaluate

    def broken(changed):
        if changed.workload.rate > 7.5:
            raise KeyError("lost")
        return evaluate(changed)

    monkeypatch.setattr(module.pipeline, "evaluate", broken)
    rows = sweep(scenario, points_of("workload.rate=7 req/s,8 req/s"), Journal(tmp_path / "j", "d"))
    assert [row["status"] for row in rows] == ["evaluated", "error"]
    assert "KeyError" in rows[1]["reason"]


@pytest.mark.parametrize("line", ["[1]", "3", '{"digest": "d"}', '{"digest": "d", "key": "k", "row": {}, "more": 1}'])
def test_a_file_that_is_no_journal_is_refused(tmp_path, line):
    path = tmp_path / "j"
    path.write_text(line + "\n")
    with pytest.raises(InputError, match="no finished point"):
        Journal(path, "d")


def test_a_point_after_a_torn_line_is_not_lost(tmp_path):
    """A run killed while it wrote leaves half a line; the next point begins a line of its own."""
    path = tmp_path / "j"
    Journal(path, "d").add({"a": "1"}, {"status": "x"})
    with path.open("a") as file:
        file.write('{"digest": "d", "ke')
    Journal(path, "d").add({"a": "2"}, {"status": "y"})
    assert len(Journal(path, "d").rows) == 2


def test_points_that_fail_keep_the_table_rectangular(scenario, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["sweep", NAME, "--vary", "workload.rate=7 req/s,wrong,900 req/s", "--out", "t.parquet", "--json", "t.json"]) == 0
    table = pd.read_parquet("t.parquet")
    assert list(table["status"]) == ["evaluated", "input", "evaluated"]
    assert table["cost_usd_per_h"].dtype == float
    assert table["cost_usd_per_h"].isna().tolist() == [False, True, False]
    assert table["ttft_p99_s"].dtype == float
    assert len(json.loads(Path("t.json").read_text())["rows"]) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json", "t.parquet"]


def finished(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def _heed_interrupts() -> None:
    """Undo the ignored SIGINT that a shell gives its background jobs, and they their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    """A sweep with some points finished, in a process group of its own."""
    process = subprocess.Popen(
        [*COMMAND, *more],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=os.name != "nt",
        preexec_fn=_heed_interrupts if os.name != "nt" else None,
    )
    until = time.monotonic() + 100
    while finished(folder / "out.parquet.journal") < 3:
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_sweep_killed_outright_goes_on_and_ends_with_every_point_once(tmp_path, scenario):
    process = started(tmp_path)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    kept = finished(tmp_path / "out.parquet.journal")
    assert not (tmp_path / "out.parquet").exists()
    again = subprocess.run(COMMAND, cwd=tmp_path, capture_output=True, timeout=200, check=False)
    assert again.returncode == 0, again.stderr.decode()
    assert f"{kept} points were finished already" in again.stderr.decode()
    table = pd.read_parquet(tmp_path / "out.parquet")
    points = points_of("workload.rate=5 req/s:10 req/s:40")
    assert list(table["workload.rate"]) == [point["workload.rate"] for point in points]
    for index in (0, 20, 39):
        assert table["bcr"][index] == run_point(scenario, points[index])["bcr"]
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupted_sweep_says_what_it_kept(tmp_path, jobs):
    process = started(tmp_path, "--jobs", jobs)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    lines = err.decode().splitlines()
    assert process.returncode == 130, err.decode()
    assert any("finished points are kept in out.parquet.journal" in line for line in lines), lines
    assert "Traceback" not in err.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet.journal"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks workers up in /proc")
def test_a_killed_worker_is_told_and_costs_no_finished_point(tmp_path):
    process = started(tmp_path, "--jobs", "2")
    children = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _is_worker(p, process.pid)]
    assert children
    with contextlib.suppress(ProcessLookupError):
        os.kill(children[-1], signal.SIGKILL)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 2, err.decode()
    assert "a worker process was killed" in err.decode()
    assert "Traceback" not in err.decode()
    assert finished(tmp_path / "out.parquet.journal") >= 3


def _is_worker(process: Path, parent: int) -> bool:
    try:
        status, command = (process / "stat").read_text(), (process / "cmdline").read_text()
    except OSError:
        return False
    return int(status.rpartition(")")[2].split()[1]) == parent and "loky" in command and "tracker" not in command


@pytest.mark.slow
def test_a_dask_cluster_gives_the_rows_of_one_process(scenario, tmp_path):
    distributed = pytest.importorskip("distributed")
    points = points_of("workload.rate=7 req/s,8 req/s,minus one,9 req/s")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        spread = sweep(scenario, points, Journal(tmp_path / "a", "d"), dask=cluster.scheduler_address)
    assert spread == sweep(scenario, points, Journal(tmp_path / "b", "d"))
    assert [row["status"] for row in spread] == ["evaluated", "evaluated", "input", "evaluated"]


@pytest.mark.slow
def test_a_dask_worker_that_dies_fails_its_point_alone(scenario, tmp_path):
    """A point that kills its worker again and again is given up by the scheduler; the sweep goes on."""
    distributed = pytest.importorskip("distributed")
    points = points_of("workload.rate=7 req/s,8 req/s")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        run_here = module.run_point

        def dying(scenario, point):
            if point["workload.rate"].startswith("8"):
                raise distributed.scheduler.KilledWorker("point", "worker", 3)
            return run_here(scenario, point)

        module.run_point = dying
        try:
            rows = sweep(scenario, points, Journal(tmp_path / "j", "d"), dask=cluster.scheduler_address)
        finally:
            module.run_point = run_here
    assert [row["status"] for row in rows] == ["evaluated", "error"]
