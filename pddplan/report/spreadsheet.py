"""The what-if workbook: live formulas over the inputs, with the value each has now stored beside it."""

from __future__ import annotations

from dataclasses import dataclass

from pddplan.optimize.result import PlanResult
from pddplan.pdd.context import PlanContext
from pddplan.report.sheets.bathtub import bathtub_sheet
from pddplan.report.sheets.inputs import inputs_sheet, plan_sheet
from pddplan.report.sheets.money import cost_sheet, sensitivity_sheet
from pddplan.report.sheets.operation import bandwidth_sheet, capacity_sheet, latency_sheet
from pddplan.report.sheets.response import response_sheet
from pddplan.report.sheets.source import WorkbookSource
from pddplan.report.workbook import Book, Content


@dataclass(frozen=True)
class Equation:
    name: str
    text: str
    section: str


EQUATIONS = (
    Equation("Cost of a pool", "GPUs x price per GPU-hour x (1 + premium outside the first room)", "docs/model/economics.md"),
    Equation("Cost of a line", "circuits x Gbit/s x price per Gbps-month / 730 + GB moved x egress price", "docs/model/economics.md"),
    Equation("Goodput", "demand x share of requests within TTFT and TPOT limits", "docs/model/pdd.md"),
    Equation("BCR", "goodput / cost per hour", "docs/model/economics.md"),
    Equation(
        "Load of a pool",
        "full model at demand x planned instances / your instances, times the answers to hit rate and output length",
        "docs/model/pdd.md",
    ),
    Equation("Needed bandwidth", "mean traffic / target utilisation / usable share", "docs/model/pdd.md"),
    Equation("KV of a request", "missing tokens x KV per token + windows and state", "docs/model/models.md"),
    Equation("Transfer alone", "KV / rate of one transfer + round trip", "docs/model/pdd.md"),
    Equation("Eager tokens", "transfer / time per token on RLD", "docs/model/pdd.md"),
    Equation(
        "Bathtub",
        "V(h) / (T(h) x price); V = L p [(1 - h) + d h] + O p_out; T = a (1 - h) L + q L^2 (1 - h^2) / 2 + b",
        "docs/model/economics.md",
    ),
)


def workbook(source: WorkbookSource) -> bytes:
    """The workbook as bytes of an .xlsx file. Sheets: Read me, Inputs, Plan, Cost, Capacity, Bandwidth, Latency, Bathtub, Sensitivity,
    Full model, Assumptions, Equations."""
    book = Book(source.context.scenario.name, f"pddplan; {source.command}")
    _read_me(book, source)
    inputs = inputs_sheet(book, source)
    counts = plan_sheet(book, source)
    model = response_sheet(book, source, inputs)
    cost, goodput = cost_sheet(book, source, inputs, counts, model)
    capacity_sheet(book, source, inputs, counts, model)
    bandwidth_sheet(book, source, inputs, counts, model)
    latency_sheet(book, source, inputs, model)
    bathtub_sheet(book, source, inputs)
    sensitivity_sheet(book, source, inputs, counts, cost, goodput)
    _assumptions(book, source)
    _equations(book)
    return book.finish()


def _read_me(book: Book, source: WorkbookSource) -> None:
    sheet = book.sheet("Read me", (110,))
    texts = (
        f"Plan of the scenario '{source.context.scenario.name}' ({source.result.status}).",
        "Yellow cells are inputs: change them and every formula follows. Grey italic cells are values that only the "
        "full model gives; they do not move.",
        "Exact at any input: costs, counts, needed bandwidth from a given traffic, the closed-form bathtub.",
        "Interpolated from the full model (sheet 'Full model'): share of good requests, loads, traffic on the line, "
        "latencies. Exact at its grid points for one changed "
        "input at the planned counts; with several changed inputs the answers are multiplied, an approximation.",
        "Not covered: another input length, another chip or parallelism, other service levels. For these run the full model again:",
        source.command,
    )
    for text in texts:
        sheet.cell(0, text, "label")
        sheet.row += 2


def _assumptions(book: Book, source: WorkbookSource) -> None:
    sheet = book.sheet("Assumptions", (28, 28, 18, 14, 12, 60, 12, 40))
    sheet.title("Assumptions", "Every number the plan rests on.")
    sheet.heading("Subject", "What", "Value", "Unit", "Kind", "Source", "Date", "Note")
    sheet.freeze()
    for a in source.assumptions:
        cells: tuple[Content, ...] = (a.subject, a.what, a.value, a.unit, a.kind, a.source, a.date, a.note)
        for column, content in enumerate(cells):
            sheet.cell(column, content, "label", "General" if column == 2 else "")
        sheet.row += 1


def _equations(book: Book) -> None:
    sheet = book.sheet("Equations", (28, 100, 30))
    sheet.title("Equations", "What the formulas compute, and where the documentation derives it.")
    sheet.heading("Quantity", "Equation", "Section")
    sheet.freeze()
    for equation in EQUATIONS:
        for column, text in enumerate((equation.name, equation.text, equation.section)):
            sheet.cell(column, text, "label")
        sheet.row += 1


def workbook_source(context: PlanContext, result: PlanResult, command: str) -> WorkbookSource:
    """Everything the workbook needs, from a planned scenario: the responses of the whole model, the bathtub, the assumptions."""
    from pddplan.errors import InputError
    from pddplan.report.assumptions import assumptions
    from pddplan.studies.bathtub import bathtub
    from pddplan.studies.response import responses

    decision = result.evaluation.decision
    try:
        closed = bathtub(context, decision, plan_points=0).closed
    except InputError:
        closed = None
    return WorkbookSource(context, result, responses(context, decision), closed, assumptions(context, result.evaluation), command)
