"""Compiled functions. Importing this loads numba (half a second): import the modules that use it where they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """``function`` compiled by numba, kept on disk between runs where a cache can be written (beside the module or in the user's)."""
    try:
        return cast(Function, njit(cache=True)(function))
    except RuntimeError:  # numba finds no folder to write to: a read-only installation without a home
        return cast(Function, njit(function))
