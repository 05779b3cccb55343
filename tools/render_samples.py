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
    run("optimize", SCENARIO, "--json", f"reports/{SCENARIO}.json", "--force")
    run("report", SCENARIO, "-o", f"reports/{SCENARIO}.html", "--force")
    run("export", SCENARIO, "-o", f"reports/{SCENARIO}.xlsx", "--force")
    shutil.copyfile(ROOT / "docs" / "validation.md", REPORTS / "validation.md")


if __name__ == "__main__":
    main()
