"""The documentation site builds offline, without a broken link or anchor."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_the_site_builds_strictly_and_its_pages_ask_for_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "unrecognized relative link" not in done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        fetched = re.findall(r'<(?:script|img|iframe|source)[^>]*\ssrc="([^"]+)"', page.read_text(encoding="utf-8"))
        fetched += re.findall(r'<link[^>]*rel="(?:stylesheet|icon)"[^>]*href="([^"]+)"', page.read_text(encoding="utf-8"))
        assert not [url for url in fetched if re.match(r"(?:https?:)?//", url)], page
