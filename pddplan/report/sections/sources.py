"""Where every number came from, how accurate the model has been, and the scenario itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pddplan.report.assumptions import Assumption
from pddplan.report.document import Block, Column, Paragraph, Preformatted, Section, Table

Translate = Callable[..., str]


def assumptions_section(listed: Sequence[Assumption], t: Translate) -> Section:
    columns = (
        Column(t("column.subject"), align="left"),
        Column(t("column.what"), align="left"),
        Column(t("column.value")),
        Column(t("column.unit"), align="left"),
        Column(t("column.kind"), align="left"),
        Column(t("column.source"), align="left"),
        Column(t("column.date"), align="left"),
        Column(t("column.note"), align="left"),
    )
    rows = tuple((a.subject, a.what, a.value, a.unit, t(f"kind.{a.kind}"), a.source, a.date, a.note) for a in listed)
    table = Table("assumption-list", t("section.assumptions"), columns, rows)
    return Section("assumptions", t("section.assumptions"), (Paragraph(t("assumptions.kinds")), table))


def scenario_section(text: str, command: str, t: Translate) -> Section:
    blocks: tuple[Block, ...] = (
        Paragraph(t("scenario.command", command=command)),
        Preformatted("scenario-text", t("scenario.text"), text),
    )
    return Section("scenario", t("section.scenario"), blocks)
