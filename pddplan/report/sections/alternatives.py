"""What binds the plan, and why the alternatives lost."""

from __future__ import annotations

from collections.abc import Callable

from pddplan.optimize.result import PlanResult
from pddplan.report.document import Block, Column, Paragraph, Section, Table
from pddplan.report.numbers import signed_percent

Translate = Callable[..., str]


def section(result: PlanResult, t: Translate) -> Section:
    blocks: list[Block] = []
    if result.binding:
        columns = (
            Column(t("column.constraint"), align="left"),
            Column(t("column.value")),
            Column(t("column.limit")),
            Column(t("column.unit"), align="left"),
            Column(t("column.one_more"), align="left"),
            Column(t("column.worth"), align="left"),
        )
        rows = tuple(
            (b.constraint, b.value, b.limit, b.unit, b.step, signed_percent(b.worth_share) if b.worth_share is not None else b.note)
            for b in result.binding
        )
        blocks.append(Table("binding", t("caption.binding"), columns, rows, note=t("alternatives.worth_note")))
    else:
        blocks.append(Paragraph(t("alternatives.nothing_binds")))
    if result.rejected:
        blocks.append(_rejected(result, t))
    return Section("alternatives", t("section.alternatives"), tuple(blocks))


def _rejected(result: PlanResult, t: Translate) -> Table:
    columns = (
        Column(t("column.alternative"), align="left"),
        Column(t("column.reason"), align="left"),
        Column(t("column.value")),
        Column(t("column.limit")),
        Column(t("column.unit"), align="left"),
    )
    rows = tuple((r.candidate, r.note or r.reason, r.value, r.limit, r.unit) for r in result.rejected)
    return Table("rejected", t("caption.rejected"), columns, rows)
