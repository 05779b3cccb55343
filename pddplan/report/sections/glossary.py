"""Glossary: the words of the report, both definitions of TPOT among them."""

from __future__ import annotations

from collections.abc import Callable

from pddplan.report.document import Column, Section, Table

Translate = Callable[..., str]
TERMS = (
    "P",
    "RLD",
    "MD",
    "AGG",
    "instance",
    "TTFT",
    "TPOT",
    "TPOT (inclusive)",
    "stall",
    "good request",
    "goodput",
    "BCR",
    "hit rate",
    "eager output tokens",
    "singular traffic",
    "line needed",
    "utilisation",
    "EP, TP, PP, DP",
    "GB, GiB",
)


def section(t: Translate) -> Section:
    columns = (Column(t("column.term"), align="left"), Column(t("column.meaning"), align="left"))
    rows = tuple((term, t(f"term.{term}")) for term in TERMS)
    return Section("glossary", t("section.glossary"), (Table("terms", t("section.glossary"), columns, rows),))
