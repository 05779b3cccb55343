"""The shell around the commands: help, exit codes, streams, locales."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import typer

from pddplan import api
from pddplan.cli import COMMANDS, run
from pddplan.errors import InfeasibleError, InputError, Problem, SolverError

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pddplan.cli import run; code = run(['--help']);"
        "heavy = {'numpy', 'scipy', 'pandas', 'pydantic', 'pulp', 'plotly', 'yaml', 'numba'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for name in COMMANDS:
        assert f" {name} " in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_page_says_of_each_command_how_its_own_help_begins(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module, _, line = COMMANDS[name]
    group = typer.main.get_group(import_module(f"pddplan.cli.{module}").app)
    command = group.commands.get(name, group)
    assert (command.help or line).startswith(line.removesuffix("."))
    assert run([name, "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            InputError([Problem("a.yaml:1 x", "3", "must be text"), Problem("a.yaml:2 y", "4", "must be text")]),
            2,
            "a.yaml:2 y: 4; must be text",
        ),
        (InfeasibleError("sla.ttft.p99", "best candidate has 3 s against 2 s", ["ttft.p99 3.1 s"]), 3, "would help: ttft.p99 3.1 s"),
        (SolverError("HiGHS is not there: pip install 'pulp[highs]'"), 4, "HiGHS is not there"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(errno.ENOSPC, "No space left on device", "out.json"), 2, "out.json: No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "out.json"), 2, "out.json: Permission denied"),
        (MemoryError(), 1, "out of memory"),
        (ZeroDivisionError("division by zero"), 1, "a bug in pddplan: ZeroDivisionError"),
        (RecursionError("deep"), 1, "a bug in pddplan: RecursionError"),
        (EOFError("ends too soon"), 1, "a bug in pddplan: EOFError"),
    ],
)
def test_each_failure_has_its_exit_code_and_lines_on_stderr(
    error: BaseException, code: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(api, "optimize", fail)
    assert run(["optimize", "01-minimal"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err
    assert "Traceback" not in err
    assert "interrupted" not in err or code == 130
    assert all(line.startswith(("error: ", "  ")) for line in err.splitlines() if line)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["optimise"], "Did you mean 'optimize'"),
        (["optimize"], "Missing argument"),
        (["optimize", "01-minimal", "--json", "no/such/folder/plan.json"], "there is no folder no/such/folder"),
        (["evaluate", "pdd-88-vs-43-32", "--vs", "43 A"], "43 A + 32 B at 1.2 A"),
        (["optimize", "x", "--jsn", "-"], "No such option"),
        (["optimize", "no-such-scenario"], "no such file"),
        (["validate", "01-minimal", "--set", "model.nam=x"], "did you mean 'name'"),
    ],
)
def test_wrong_usage_is_exit_2_with_a_hint(args: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(args) == 2
    assert text in capsys.readouterr().err


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.yaml"
    file.write_text('"\\e[31mred\\u202e": 1\n', encoding="utf-8")
    assert run(["validate", str(file)]) == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "\u202e" not in err


@pytest.mark.parametrize("arguments", ["schema", "models show zai-org/GLM-5"])
def test_a_reader_that_goes_away_is_no_error(arguments: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -u -m pddplan {arguments} | head -c 20 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert done.stdout == "0\n"
    assert done.stderr == ""


@pytest.mark.parametrize("content", [b"", b"half", b"\xff" * 40])
def test_a_damaged_compiled_file_is_told_as_that(content: bytes, tmp_path: Path, pddplan: Run) -> None:
    import py_compile

    source = tmp_path / "pulp.py"
    source.write_text("x = 1\n")
    compiled = Path(py_compile.compile(str(source), doraise=True) or "")
    compiled.write_bytes(compiled.read_bytes()[:16] + content)
    done = pddplan("optimize", "01-minimal", env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    (line,) = done.stderr.decode().split("\n")[-2:-1]
    assert line.startswith("error: a damaged installation: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_stdout_is_one_line_and_exit_2(pddplan: Run) -> None:
    with open("/dev/full", "wb") as full:
        done = pddplan("schema", stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == ["error: No space left on device"]


def test_piped_output_has_no_colour_and_fits_a_page(pddplan: Run) -> None:
    done = pddplan("validate", "pdd-reference")
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout
    assert max(len(line) for line in done.stdout.decode().splitlines()) <= 100


@pytest.mark.parametrize(
    "env", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "cp1252"}, {"PYTHONIOENCODING": "gbk"}]
)
def test_another_locale_changes_neither_reading_nor_json(pddplan: Run, tmp_path: Path, env: dict[str, str]) -> None:
    text = (Path(api.__file__).parent / "scenario" / "starter.yaml").read_text(encoding="utf-8").replace("my plan", "推理 é")
    (tmp_path / "方案 1.yaml").write_text(text, encoding="utf-8")
    done = pddplan("validate", "方案 1.yaml", "--json", "-", env=env)
    assert done.returncode == 0, done.stderr
    assert "推理 é".encode() in done.stdout
    assert pddplan("--help", env=env).returncode == 0


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "optimize" in capsys.readouterr().out


def test_version_is_the_package_version(pddplan: Run) -> None:
    from importlib.metadata import version

    assert pddplan("--version").stdout.decode().strip() == f"pddplan {version('pddplan')}"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("after_s", [3.0, 5.0])
def test_an_interrupt_leaves_no_half_file_and_one_line(tmp_path: Path, after_s: float) -> None:
    import signal
    import time

    command = [sys.executable, "-m", "pddplan", "optimize", "pdd-reference", "--json", "plan.json"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("finished before the interrupt")
    assert list(tmp_path.iterdir()) == []
    assert process.returncode == 130
    assert err.decode().splitlines() == ["error: interrupted; files already finished are kept, none is half written"]


def test_the_functions_of_the_api_work_after_their_namesakes_were_imported() -> None:
    code = (
        "import pddplan.optimize.search, pddplan.simulate\n"
        "from pddplan import evaluate, load_scenario, optimize, simulate\n"
        "assert optimize(load_scenario('melange')).status == 'optimal'\n"
        "assert callable(simulate) and callable(evaluate)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_an_interrupt_while_the_command_line_is_imported_is_one_line(tmp_path: Path, pddplan: Run) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    done = pddplan("schema", env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 130
    assert done.stderr.decode() == "error: interrupted before anything was done\n"
