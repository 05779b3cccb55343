"""One colour scheme, safe for colour-blind readers (Okabe and Ito, Color Universal Design, 2008), used by page, charts and drawing."""

from __future__ import annotations

BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
GREY = "#7F8790"

SERIES = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GREY)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")

ROLE = {"P": ORANGE, "RLD": PURPLE, "MD": BLUE, "AGG": GREEN}
PIPELINE = {"P-MD": BLUE, "P-RLD-MD": ORANGE, "local": PURPLE, "P-RLD": VERMILION, "AGG": GREEN}
