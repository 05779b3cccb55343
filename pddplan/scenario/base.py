"""What every section of a scenario shares: frozen, no unknown keys, errors that teach."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError


class Section(BaseModel):
    """Base of all scenario models: immutable, unknown keys are errors, no NaN or infinity in plain numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True)


class ShortForm(Section):
    """A section that may be written as one bare value, which then stands for its field ``short_form``."""

    short_form: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _from_bare_value(cls, value: Any) -> Any:
        bare = isinstance(value, str | int | float) and not isinstance(value, bool)
        return {cls.short_form: value} if bare else value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        reference = handler(schema)
        definition = handler.resolve_ref_schema(reference)
        if "anyOf" not in definition:
            mapping = dict(definition)
            definition.clear()
            definition.update({"anyOf": [{"type": ["number", "string"]}, mapping]})
        return reference


def teach(found: str, accepted: str, example: str = "") -> PydanticCustomError:
    """The error a validator raises: what was found, what is accepted, a value that works.

    The loader adds the place (file, line and path), so the texts name none.
    """
    return PydanticCustomError("teach", "{found}; {accepted}", {"found": found, "accepted": accepted, "example": example})
