"""Which pddplan made a page, and with which command."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata


def version() -> str:
    return metadata.version("pddplan")


def footer(command: str, t: Callable[..., str]) -> str:
    return t("page.footer", version=version(), command=command)
