"""Quantities as pydantic types: floats in base units, written in a scenario as numbers with units (pddplan.units).

A value serialises with its base unit, so a dumped scenario reads back exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from pddplan import units
from pddplan.scenario.base import teach
from pddplan.units import Quantity, UnitError


@dataclass(frozen=True)
class In:
    """Marks a float as a quantity: parsed from text with a unit, dumped with the base unit."""

    quantity: Quantity

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        quantity = self.quantity

        def parse(value: Any, info: core_schema.ValidationInfo) -> float:
            try:
                return quantity.parse(value, (info.context or {}).get("currency", "USD"))
            except UnitError as error:
                raise teach(error.found, error.accepted, error.example) from None

        def dump(value: Any, info: core_schema.SerializationInfo) -> Any:
            if isinstance(value, str) or (quantity.bare and not quantity.money):
                return value
            return quantity.show(value, (info.context or {}).get("currency", "USD"))

        return core_schema.with_info_before_validator_function(
            parse,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(dump, info_arg=True),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        kinds = [{"type": "string"}, {"type": "number"}] if self.quantity.bare else [{"type": "string"}]
        return {"anyOf": kinds, "title": self.quantity.name, "examples": list(self.quantity.examples)}


Bytes = Annotated[float, Ge(0), In(units.BYTES)]
BytesOrNumber = Annotated[float, Ge(0), In(units.BYTES_OR_BARE)]
BytesPerSecond = Annotated[float, Gt(0), In(units.BANDWIDTH)]
Seconds = Annotated[float, Ge(0), In(units.DURATION)]
SecondsOrNumber = Annotated[float, Ge(0), In(units.SECONDS_OR_BARE)]
RequestRate = Annotated[float, Ge(0), In(units.RATE)]
Tokens = Annotated[float, Ge(0), In(units.TOKENS)]
Fraction = Annotated[float, Ge(0), Le(1), In(units.FRACTION)]
Watts = Annotated[float, Gt(0), In(units.POWER)]
Years = Annotated[float, Gt(0), In(units.YEARS)]
Money = Annotated[float, Ge(0), In(units.MONEY)]
PricePerHour = Annotated[float, Ge(0), In(units.PRICE_PER_HOUR)]
PricePerGbpsMonth = Annotated[float, Ge(0), In(units.LINK_PRICE)]
PricePerGbMonth = Annotated[float, Ge(0), In(units.STORAGE_PRICE)]
PricePerGb = Annotated[float, Ge(0), In(units.VOLUME_PRICE)]
PricePerKwh = Annotated[float, Ge(0), In(units.ENERGY_PRICE)]
PricePerKwMonth = Annotated[float, Ge(0), In(units.RACK_PRICE)]
PricePerMillionTokens = Annotated[float, Ge(0), In(units.TOKEN_PRICE)]
