"""Random small programs for hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from pddplan.optimize.program import Market, Option, Path, Program, Resource, Row


@st.composite
def options(draw, rows, pools, superadditive=False):
    """One option: a table of 1 to 3 columns whose capacity grows at least in proportion (pooling gains)."""
    index = draw(st.integers(0, 10**6))
    columns = draw(st.integers(1, 3))
    mine = draw(st.lists(st.sampled_from(rows), min_size=1, max_size=2, unique=True))
    replicas = np.arange(1, columns + 1)
    unit = draw(st.integers(1, 6))
    gain = draw(st.integers(0, 2))
    capacity = replicas * unit + gain * (replicas - 1)
    cost = replicas * draw(st.integers(1, 9))
    uses = {f"stock{draw(st.integers(0, 1))}": replicas * float(draw(st.integers(1, 3)))}
    loads = {row: draw(st.sampled_from([0.5, 1.0, 2.0])) for row in mine}
    return Option(f"o{index}", draw(st.sampled_from(pools)), loads, replicas, capacity.astype(float), cost.astype(float), uses)


@st.composite
def programs(draw, scalable=False):
    """Up to 4 options on up to 2 rows, a market of up to 3 paths, perhaps divided, two stocks, perhaps a budget and a cap per pool."""
    rows_named = ["r0", "r1"][: draw(st.integers(1, 2))]
    exclusive = draw(st.booleans())
    low = draw(st.sampled_from([0.25, 0.5, 1.0])) if scalable else 1.0
    high = draw(st.sampled_from([1.0, 1.5, 3.0])) if scalable else 1.0
    number = draw(st.integers(1, 3 if exclusive else 2))
    parts = draw(st.integers(1, number)) if exclusive else 1
    markets = (Market("m0", draw(st.sampled_from([1.0, 2.0, 5.0])), low, high, exclusive, parts, draw(st.sampled_from([0.0, 0.1]))),)
    share = st.sampled_from([0.8, 1.0])
    paths = tuple(Path(f"p{i}", "m0", draw(share) if scalable else 1.0) for i in range(number))
    rate = st.sampled_from([0.0, 1.0, 3.0, 7.0])
    rows = tuple(Row(name, {p.name: draw(rate) for p in paths}) for name in rows_named)
    found = draw(st.lists(options(rows_named, ["a", "b"]), min_size=1, max_size=4, unique_by=lambda o: o.name))
    limits = tuple(Resource(f"stock{i}", float(draw(st.integers(1, 12)))) for i in range(2))
    most = {"a": 1} if draw(st.booleans()) else {}
    budget = float(draw(st.integers(2, 40))) if draw(st.booleans()) else None
    return Program(markets, paths, rows, tuple(found), limits, most, budget)
