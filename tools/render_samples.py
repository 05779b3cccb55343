"""Render the samples in reports/: the reference scenario as page and workbook, and the validation page.

python tools/render_samples.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "reports"
SCENARIO = "pdd-reference"


def run(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pddplan", *arguments], cwd=ROOT, check=True)


def main() -> None:
    REPORTS.mkdir(exist_ok=True)
    plan = REPORTS / f"{SCENARIO}.json"
    run("optimize", SCENARIO, "--json", str(plan), "--force")
    run("report", SCENARIO, "-o", str(REPORTS / f"{SCENARIO}.html"), "--force")
    run("export", SCENARIO, "-o", str(REPORTS / f"{SCENARIO}.xlsx"), "--force")
    shutil.copyfile(ROOT / "docs" / "validation.md", REPORTS / "validation.md")


if __name__ == "__main__":
    main()
