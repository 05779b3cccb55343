"""Plotly structures that the sections share: lines, bars and the layout they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pddplan.report.palette import DASHES, SERIES

Trace = dict[str, Any]
Numbers = Sequence[float] | NDArray[np.float64]
MARGIN = {"l": 64, "r": 16, "t": 16, "b": 56}


def line(x: Numbers, y: Numbers, name: str, index: int = 0, hover: str = "", **extra: Any) -> Trace:
    """A line in series colour and dash ``index`` (dash as well as colour tells the series apart)."""
    style = {"color": SERIES[index % len(SERIES)], "dash": DASHES[index % len(DASHES)], "width": 2}
    trace: Trace = {"type": "scatter", "mode": "lines", "x": [float(v) for v in x], "y": [float(v) for v in y], "name": name, "line": style}
    if hover:
        trace["hovertemplate"] = hover
    return trace | extra


def bars(labels: Sequence[str], values: Numbers, name: str, index: int = 0, hover: str = "", **extra: Any) -> Trace:
    trace: Trace = {
        "type": "bar",
        "x": list(labels),
        "y": [float(v) for v in values],
        "name": name,
        "marker": {"color": SERIES[index % len(SERIES)]},
    }
    if hover:
        trace["hovertemplate"] = hover
    return trace | extra


def layout(x_title: str, y_title: str, **extra: Any) -> dict[str, Any]:
    """Axes with titles; ``extra`` is merged over (``xaxis`` and ``yaxis`` are merged key by key)."""
    axes = {"xaxis": {"title": {"text": x_title}}, "yaxis": {"title": {"text": y_title}, "rangemode": "tozero"}}
    for axis in ("xaxis", "yaxis"):
        axes[axis] |= extra.pop(axis, {})
    return {"margin": MARGIN, "legend": {"orientation": "h", "y": 1.12, "x": 0}, "hovermode": "closest", **axes, **extra}


def limit_line(x: float, label: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A vertical line at a limit, as (shape, annotation) of a layout."""
    shape = {
        "type": "line",
        "x0": x,
        "x1": x,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": "#D55E00", "dash": "dash", "width": 1.5},
    }
    annotation = {"x": x, "yref": "paper", "y": 1, "yanchor": "bottom", "text": label, "showarrow": False}
    return shape, annotation
