import sys
from pathlib import Path

import pytest

from pddplan import load_scenario

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def load(tmp_path):
    """A scenario from its text and changes by path."""

    def loaded(text, changes=None):
        path = tmp_path / "scenario.yaml"
        path.write_text(text, encoding="utf-8")
        return load_scenario(path, changes or {})

    return loaded
