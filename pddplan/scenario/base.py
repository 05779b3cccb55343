"""What every section of a scenario shares: frozen, no unknown keys, errors that teach."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """Base of all scenario models: immutable, unknown keys are errors, no NaN or infinity in plain numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True)


def teach(found: str, accepted: str, example: str = "") -> PydanticCustomError:
    """The error a validator raises: what was found, what is accepted, a value that works.

    The loader adds the place (file, line and path), so the texts name none.
    """
    return PydanticCustomError("teach", "{found}; {accepted}", {"found": found, "accepted": accepted, "example": example})
