"""Units: what is written against what is meant."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pddplan import units
from pddplan.units import Quantity, UnitError


@pytest.mark.parametrize(
    ("quantity", "written", "base"),
    [
        (units.BANDWIDTH, "400Gbps", 50e9),
        (units.BANDWIDTH, "400GB/s", 400e9),
        (units.BANDWIDTH, "400 Gb/s", 50e9),
        (units.BANDWIDTH, "400 Gbit/s", 50e9),
        (units.BANDWIDTH, "1 Tbps", 125e9),
        (units.BANDWIDTH, "1 GiB/s", 2**30),
        (units.RATE, "60 req/min", 1.0),
        (units.RATE, "60 requests per minute", 1.0),
        (units.RATE, "3600 req/h", 1.0),
        (units.TOKENS, "64k", 64_000),
        (units.TOKENS, "64Ki", 65_536),
        (units.TOKENS, "64k tokens", 64_000),
        (units.TOKENS, 8192, 8192),
        (units.BYTES, "80 GB", 80e9),
        (units.BYTES, "80 GiB", 85_899_345_920),
        (units.BYTES, "81559 MiB", 81_559 * 2**20),
        (units.DURATION, "200 ms", 0.2),
        (units.DURATION, "2 min", 120),
        (units.FRACTION, "95 %", 0.95),
        (units.FRACTION, 0.95, 0.95),
        (units.PRICE_PER_HOUR, "2.00 USD/h", 2.0),
        (units.PRICE_PER_HOUR, "$2/h", 2.0),
        (units.PRICE_PER_HOUR, "730 USD/month", 1.0),
        (units.LINK_PRICE, "120 USD/Gbps/month", 120),
        (units.LINK_PRICE, "0.12 USD/Mbps/month", 120),
        (units.POWER, "1.2 MW", 1.2e6),
        (units.MONEY, "25000 USD", 25_000),
    ],
)
def test_a_written_quantity_is_read_in_base_units(quantity: Quantity, written: object, base: float) -> None:
    assert quantity.parse(written) == pytest.approx(base, rel=1e-15)


def test_marketed_80_gb_is_neither_80_gib_nor_74_5_gib() -> None:
    """UNIT-01: nvidia-smi's 81,559 MiB is 85.52 GB = 79.65 GiB."""
    size = units.BYTES.parse("81559 MiB")
    assert round(size / units.GB, 2) == 85.52
    assert round(size / units.GIB, 2) == 79.65


@pytest.mark.parametrize(
    ("quantity", "written", "found", "teaches"),
    [
        (units.DURATION, 200, "200 has no unit", "'200 ms' or '200 s'"),
        (units.DURATION, "0.2", "has no unit", "'0.2 ms'"),
        (units.BANDWIDTH, 100, "100 has no unit", "'100 Gbps'"),
        (units.RATE, "1e3", "has no unit", "'1e3 req/s'"),
        (units.BYTES, "80 gb", "'gb' is not a unit", "'80 GB'"),
        (units.PRICE_PER_HOUR, 2.0, "2 has no unit", "'2 USD/h'"),
        (units.PRICE_PER_HOUR, "2/h", "names no currency", "'2.00 USD/h'"),
        (units.PRICE_PER_HOUR, "2 CNY/h", "is in CNY, the scenario in USD", "currency: CNY"),
        (units.TOKENS, "many", "is not a token count", "'64k'"),
        (units.TOKENS, "1e999", "is not a finite token count", "'8192'"),
        (units.RATE, ".nan", "is not a finite rate", "req/s"),
        (units.RATE, float("inf"), "is not a finite rate", "req/s"),
        (units.DURATION, "-.inf s", "is not a finite duration", "ms"),
        (units.RATE, True, "true is not a rate", "req/s"),
        (units.RATE, None, "nothing is not a rate", "req/s"),
        (units.RATE, ["1 req/s"], "is not a rate", "req/s"),
    ],
)
def test_a_bad_quantity_says_what_was_found_and_what_works(quantity: Quantity, written: object, found: str, teaches: str) -> None:
    with pytest.raises(UnitError) as caught:
        quantity.parse(written)
    assert found in caught.value.found
    assert teaches in caught.value.accepted


ALL = [value for value in vars(units).values() if isinstance(value, Quantity)]


@given(st.sampled_from(ALL), st.floats(min_value=0, max_value=1e15))
def test_what_is_shown_reads_back_to_the_same_float(quantity: Quantity, value: float) -> None:
    assert quantity.parse(quantity.show(value)) == value


@given(st.sampled_from(ALL), st.text(max_size=30))
def test_any_text_is_read_or_refused_never_crashes(quantity: Quantity, text: str) -> None:
    with contextlib.suppress(UnitError):
        assert math.isfinite(quantity.parse(text))


@pytest.mark.parametrize("quantity", ALL, ids=lambda q: q.name)
def test_the_examples_of_every_message_work(quantity: Quantity) -> None:
    for example in quantity.examples:
        assert quantity.parse(example) > 0


def test_currency_is_a_label_of_the_scenario() -> None:
    assert units.PRICE_PER_HOUR.parse("14 CNY/h", "CNY") == 14
    assert units.PRICE_PER_HOUR.show(14.0, "CNY") == "14.0 CNY/h"


@pytest.mark.parametrize(
    ("quantity", "text", "value"),
    [
        (units.RATE, "600/min", 10.0),
        (units.RATE, "60 requests per minute", 1.0),
        (units.PRICE_PER_HOUR, "2 USD/GPU/h", 2.0),
        (units.PRICE_PER_HOUR, "2 USD/GPU-hour", 2.0),
        (units.PRICE_PER_HOUR, "$2 per GPU per hour", 2.0),
        (units.PRICE_PER_HOUR, "2 usd/h", 2.0),
        (units.TOKEN_PRICE, "$0.55/1M tokens", 0.55),
        (units.BANDWIDTH, "400 GBit/s", 50e9),
        (units.BANDWIDTH, "400 gbps", 50e9),
        (units.BANDWIDTH, "400 Gb/sec", 50e9),
        (units.BANDWIDTH, "400 GB per second", 400e9),
        (units.DURATION, "200 msec", 0.2),
        (units.BYTES, "1,500 MB", 1.5e9),
    ],
)
def test_other_spellings_that_leave_no_doubt(quantity: Quantity, text: str, value: float) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize(("quantity", "text"), [(units.BYTES, "1,5 GB"), (units.FRACTION, "0,5"), (units.PRICE_PER_HOUR, "$2,50/h")])
def test_a_decimal_comma_is_never_read_as_thousands(quantity: Quantity, text: str) -> None:
    with pytest.raises(UnitError, match="decimal comma"):
        quantity.parse(text)


def test_a_price_without_its_time_says_so() -> None:
    with pytest.raises(UnitError, match="no time or amount"):
        units.PRICE_PER_HOUR.parse("$2")
