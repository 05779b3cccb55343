"""What every section of a scenario shares: frozen, no unknown keys, errors that teach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError


class Section(BaseModel):
    """Base of all scenario models: immutable, unknown keys are errors, no NaN or infinity in plain numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True)

    @model_validator(mode="before")
    @classmethod
    def _true_is_not_one(cls, value: Any) -> Any:
        """A truth value where a number is meant goes on as text, which no number is read from (pydantic takes true for 1)."""
        if not isinstance(value, dict):
            return value
        fields = cls.model_fields
        return {k: _truth_as_text(v, fields[k].annotation) if k in fields else v for k, v in value.items()}


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


def _truth_as_text(value: Any, annotation: Any) -> Any:
    """``value`` with true and false as text wherever ``annotation`` means a number, in lists and maps of numbers too."""
    if isinstance(value, bool):
        return str(value).lower() if _is_number(annotation) else value
    if not isinstance(value, list | tuple | dict):
        return value
    kind = Mapping if isinstance(value, dict) else Sequence
    inner = [get_args(a) for a in _alternatives(annotation) if isinstance(get_origin(a), type) and issubclass(get_origin(a), kind)]
    if not inner or not inner[0]:
        return value
    if isinstance(value, dict):
        return {k: _truth_as_text(v, inner[0][1]) for k, v in value.items()}
    return [_truth_as_text(v, inner[0][0]) for v in value]


def _is_number(annotation: Any) -> bool:
    """Whether a field takes a number and neither text nor truth values."""
    kinds = set(_alternatives(annotation))
    return bool(kinds & {int, float}) and not kinds & {bool, str}


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The members of a union, at any depth, without their annotations."""
    if get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _alternatives(member)
    else:
        yield annotation


def teach(found: str, accepted: str, example: str = "") -> PydanticCustomError:
    """The error a validator raises: what was found, what is accepted, a value that works.

    The loader adds the place (file, line and path), so the texts name none.
    """
    return PydanticCustomError("teach", "{found}; {accepted}", {"found": found, "accepted": accepted, "example": example})
