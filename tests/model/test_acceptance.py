"""Acceptance lengths as measured, by name."""

from __future__ import annotations

import pytest

from pddplan.errors import InputError
from pddplan.model.acceptance import acceptance_length, acceptance_tables


def test_shipped_tables_hold_what_was_measured() -> None:
    assert len(acceptance_tables()) == 14
    assert acceptance_length("deepseek-v4-pro-mtp:thinking_on", 1) == 1.79
    assert acceptance_length("deepseek-v4-pro-mtp:thinking_off", 3) == 2.97
    assert acceptance_length("zai-org/GLM-5.2", 8) == 4.06
    assert all("github.com" in table.source for table in acceptance_tables().values())


def test_a_step_gains_between_one_and_draft_plus_one_tokens() -> None:
    for table in acceptance_tables().values():
        assert all(1 <= length <= draft + 1 for draft, length in table.lengths.items()), table.name


def test_what_fits_several_tables_is_not_guessed() -> None:
    with pytest.raises(InputError, match="thinking_off"):
        acceptance_length("deepseek-v4-pro-mtp", 1)
    with pytest.raises(InputError, match="nobody measured"):
        acceptance_length("llama", 1)
    with pytest.raises(InputError, match="depth"):
        acceptance_length("glm-5.2", 9)
