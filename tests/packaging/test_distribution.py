"""The built wheel and source archive: pure Python, small, complete, and at work in an environment without the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(wheel, source archive), built once."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,), (archive,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, archive


def test_the_wheel_is_pure_small_and_holds_the_data(distributions: tuple[Path, Path]) -> None:
    wheel, _ = distributions
    assert wheel.name.endswith("-py3-none-any.whl")
    assert wheel.stat().st_size < 5_000_000
    names = zipfile.ZipFile(wheel).namelist()
    for needed in ("hardware_profiles/chips/h100-sxm.yaml", "model_profiles/Qwen--Qwen3-32B_config.json", "scenarios/pdd-reference.yaml"):
        assert f"pddplan/_data/{needed}" in names
    assert {"pddplan/py.typed", "pddplan/scenario/starter.yaml", "pddplan/report/templates/report.html.j2"} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "docs/")) or name.endswith((".so", ".pyc"))]


def test_the_source_archive_holds_what_its_tests_need(distributions: tuple[Path, Path]) -> None:
    _, archive = distributions
    with tarfile.open(archive) as opened:
        names = {name.split("/", 1)[-1] for name in opened.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "scenarios/01-minimal.yaml", "tests/scenario/conftest.py"} <= names


def test_the_installed_wheel_plans_in_an_empty_folder(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    """A new environment gets the wheel by pip; its dependencies are lent by the running environment, the checkout is not."""
    wheel, _ = distributions
    home = tmp_path / "environment"
    venv.create(home, with_pip=False)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    install = [sys.executable, "-m", "pip", "--python", str(home), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (own / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    empty = tmp_path / "空 folder"
    empty.mkdir()
    scripts = home / ("Scripts" if os.name == "nt" else "bin")

    def run(*args: str) -> bytes:
        command = [str(scripts / "pddplan"), *args]
        done = subprocess.run(command, cwd=empty, capture_output=True, timeout=120, check=False, env={"PATH": os.environ["PATH"]})
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    where = subprocess.run(
        [str(scripts / "python"), "-c", "import pddplan; print(pddplan.__file__)"], cwd=empty, capture_output=True, text=True, check=True
    )
    assert Path(where.stdout.strip()).is_relative_to(own)
    assert b"optimize" in run("--help")
    run("init")
    run("validate", "scenario.yaml")
    assert b"H100" in run("profiles", "list") or b"h100" in run("profiles", "list")
    assert b"Qwen3-32B" in run("models", "list")
    plan = json.loads(run("optimize", "01-minimal", "--json", "-"))
    assert plan["metrics"]["gpus"] > 0
