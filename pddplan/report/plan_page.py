"""The whole report of a plan: studies gathered, sections put in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pddplan.economics.tokens import TokenPrices
from pddplan.errors import InputError, Problem
from pddplan.optimize.result import PlanResult, SeenPlan
from pddplan.pdd.context import PlanContext
from pddplan.pdd.roofline_position import StagePosition, roofline_positions
from pddplan.pdd.timeline import Timeline, timelines
from pddplan.report.assumptions import Assumption, assumptions
from pddplan.report.bathtub import bathtub_page
from pddplan.report.catalogue import Lang, translator
from pddplan.report.diagram import deployment_summary, deployment_svg
from pddplan.report.document import Block, Document, Drawing, Paragraph, Section
from pddplan.report.made_by import footer, version
from pddplan.report.numbers import percent
from pddplan.report.sections import accuracy, alternatives, decision, glossary, hiding, money, pools, service, sources, whatif
from pddplan.report.studies_page import bandwidth_headline, bandwidth_page
from pddplan.studies.bandwidth import BandwidthStudy, bandwidth
from pddplan.studies.bathtub import BathtubStudy, bathtub
from pddplan.studies.neighbours import neighbours
from pddplan.studies.sensitivity import KeptSwing, kept_swings


@dataclass(frozen=True)
class ReportSource:
    """A planned (or evaluated) scenario with the studies its report shows."""

    context: PlanContext
    result: PlanResult
    command: str
    timelines: Sequence[Timeline]
    assumptions: Sequence[Assumption]
    bandwidth: BandwidthStudy | None
    bathtub: BathtubStudy | None
    bathtub_missing: str = ""
    swings: Sequence[KeptSwing] = ()
    neighbours: Sequence[SeenPlan] = ()
    positions: Sequence[StagePosition] = ()


def report_source(context: PlanContext, result: PlanResult, command: str, prices: tuple[TokenPrices, str] | None = None) -> ReportSource:
    """Run the studies on the plan. A bathtub without token prices is left out, with the reason.

    Raises InputError for a plan in which nothing stands: there is nothing to draw.
    """
    evaluation = result.evaluation
    if not evaluation.pools and not evaluation.links:
        raise InputError(Problem("plan", "nothing is deployed", "a report needs pools or lines to show", "pddplan evaluate says it all"))
    tub, missing = None, ""
    try:
        tub = bathtub(context, evaluation.decision, prices=prices)
    except InputError as error:
        missing = str(error)
    line = bandwidth(context, evaluation.decision) if evaluation.links and context.rate_per_s > 0.0 else None
    swings = kept_swings(context, evaluation.decision, result.served_share)
    shown = timelines(context, evaluation, relayed=True)
    near = neighbours(context, evaluation)
    positions = roofline_positions(context, evaluation)
    return ReportSource(context, result, command, shown, assumptions(context, evaluation), line, tub, missing, swings, near, positions)


def plan_page(source: ReportSource, lang: Lang = "en") -> Document:
    """The report as a document, decision first. Labels in ``lang``; reasons and notes of the model stay in English."""
    t = translator(lang)
    context, result = source.context, source.result
    names = {slug: chip.name for slug, chip in context.chips.items()}
    evaluation = result.evaluation
    limits = [
        (name, metric, limit)
        for deployment in context.deployments.values()
        for name, sla in zip(deployment.mix.class_names, deployment.slas, strict=True)
        for metric, limit in (("ttft", sla.ttft.limit), ("tpot", sla.tpot.limit), ("stall", sla.stall.limit))
        if limit is not None
    ]
    drawing = Drawing("fig-deployment", t("diagram.title"), deployment_summary(evaluation, names, t), deployment_svg(evaluation, names, t))
    sections = (
        decision.section(result, names, t),
        money.section(result, names, t),
        service.section(result, limits, t),
        Section("deployment", t("section.deployment"), (drawing,)),
        _bandwidth(source, t("section.bandwidth"), t("bandwidth.none")),
        hiding.section(result, source.timelines, t),
        _bathtub(source, t("section.bathtub")),
        pools.section(result, source.positions, t),
        whatif.section(result, source.swings, source.neighbours, t),
        alternatives.section(result, t),
        sources.assumptions_section(source.assumptions, t),
        accuracy.section((r.pool.configuration.engine for r in evaluation.pools if r.pool.configuration.profile is None), t),
        glossary.section(t),
        sources.scenario_section(json.dumps(context.scenario.document(), ensure_ascii=False, indent=2), source.command, t),
    )
    return Document(
        lang=lang,
        title=t("page.title", name=context.scenario.name),
        headline=decision.headline(result, names, t),
        facts=(
            (t("fact.objective"), result.objective.kind),
            (t("fact.gap"), percent(result.gap)),
            (t("fact.digest"), result.scenario_digest),
            (t("fact.version"), version()),
        ),
        sections=sections,
        footer=footer(source.command, t),
    )


def _bandwidth(source: ReportSource, title: str, one_room: str) -> Section:
    if source.bandwidth is None:
        return Section("bandwidth", title, (Paragraph(one_room),))
    page = bandwidth_page(source.bandwidth, source.context.scenario.name)
    blocks = tuple(block for section in page.sections for block in section.blocks)
    return Section("bandwidth", title, (Paragraph(bandwidth_headline(source.bandwidth), "lead"), *blocks))


def _bathtub(source: ReportSource, title: str) -> Section:
    if source.bathtub is None:
        return Section("bathtub", title, (Paragraph(source.bathtub_missing, "note"),))
    page = bathtub_page(source.bathtub, source.context.scenario.name)
    blocks: list[Block] = [Paragraph(page.headline, "lead")]
    blocks += [block for section in page.sections for block in section.blocks]
    return Section("bathtub", title, tuple(blocks))
