"""Where the shipped data lives: inside the wheel under ``pddplan/_data``, in a checkout at the top level."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def data_root() -> Path:
    """Folder that holds hardware_profiles/, model_profiles/ and scenarios/.

    Raises FileNotFoundError when the installation is incomplete.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / "_data", package.parent):
        if (candidate / "hardware_profiles").is_dir() and (candidate / "scenarios").is_dir():
            return candidate
    raise FileNotFoundError(f"the shipped data (hardware_profiles/, scenarios/) is missing beside {package}; reinstall pddplan")
