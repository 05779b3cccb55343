"""Every number that a plan rests on, with its kind, source and date."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pddplan.economics.gpu_price import TERMS
from pddplan.hardware.types import Chip, Sourced
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Evaluation
from pddplan.units import GB, GBPS_BYTES_PER_S, TERA

SCENARIO = "scenario"


@dataclass(frozen=True)
class Assumption:
    """kind: datasheet, measured, secondary, assumed (of the profiles), config (a model's own file) or given (the scenario)."""

    subject: str
    what: str
    value: float | str
    unit: str
    kind: str
    source: str
    date: str = ""
    note: str = ""


def assumptions(context: PlanContext, evaluation: Evaluation) -> tuple[Assumption, ...]:
    """Chips of the plan, prices, models, engines, lines and traffic, in that order."""
    return (
        *_chips(context, evaluation),
        *_prices(context, evaluation),
        *_models(context),
        *_engines(context, evaluation),
        *_lines(context),
        *_traffic(context),
    )


def _chips(context: PlanContext, evaluation: Evaluation) -> Iterator[Assumption]:
    for slug in dict.fromkeys(r.pool.configuration.chip for r in evaluation.pools):
        chip = context.chips[slug]
        for what, number, scale, unit in _numbers(chip):
            yield Assumption(
                chip.name,
                what,
                number.value / scale if number.value is not None else "not known",
                unit,
                number.kind,
                number.source,
                number.date,
                number.note,
            )
        note = f"kernel constants of {chip.efficiency_of}"
        yield Assumption(chip.name, "kernel efficiency", chip.efficiency_of, "", chip.efficiency_kind, note)


def _numbers(chip: Chip) -> Iterator[tuple[str, Sourced, float, str]]:
    for dtype, peak in chip.peak_flops.items():
        yield f"dense peak {dtype}", peak, TERA, "TFLOP/s"
    yield "memory", chip.hbm_bytes, GB, "GB"
    yield "memory bandwidth", chip.hbm_bytes_per_s, GB, "GB/s"
    yield "scale-up link per direction", chip.scaleup_bytes_per_s, GB, "GB/s"
    yield "scale-up domain", chip.scaleup_domain, 1.0, "GPUs"
    yield "NIC per direction", chip.scaleout_bytes_per_s, GBPS_BYTES_PER_S, "Gbit/s"
    yield "board power", chip.tdp_w, 1.0, "W"


def _prices(context: PlanContext, evaluation: Evaluation) -> Iterator[Assumption]:
    for site, slug in dict.fromkeys((r.pool.configuration.site, r.pool.configuration.chip) for r in evaluation.pools):
        stock = context.stocks[site, slug][1]
        name, unit = f"{context.chips[slug].name} at {site}", f"{context.scenario.currency}/GPU/h"
        if (by_term := context.terms.get((site, slug))) is not None:
            for term in TERMS:
                if (price := getattr(by_term, term)) is not None:
                    yield Assumption(name, f"price, {term.replace('_', ' ')}", price, unit, "given", SCENARIO)
            continue
        price = context.prices_usd_h[site, slug]
        kind, source = ("given", SCENARIO) if stock.price_source is None else ("secondary", f"profile of {slug}: {stock.price_source}")
        yield Assumption(name, "price", price, unit, kind, source)


def _models(context: PlanContext) -> Iterator[Assumption]:
    for name, deployment in context.deployments.items():
        spec = deployment.spec
        yield Assumption(
            name,
            "model",
            spec.name,
            "",
            "config",
            f"config.json of {spec.name}, read by pddplan",
            note="" if spec.validated else "architecture not validated",
        )
        yield Assumption(name, "KV format", deployment.kv_format, "", "given", SCENARIO)
        speculation = deployment.speculation
        if speculation is not None:
            yield Assumption(name, "acceptance length", speculation.acceptance_length, "tokens/step", "given", SCENARIO)


def _engines(context: PlanContext, evaluation: Evaluation) -> Iterator[Assumption]:
    for result in evaluation.pools:
        c = result.pool.configuration
        if c.profile is not None:
            profile = context.stocks[c.site, c.chip][1].profiles[c.profile]
            yield Assumption(
                f"{c.role} on {c.chip}", "measured profile", profile.name or f"profile {c.profile}", "", "given", profile.source or SCENARIO
            )
    for engine in dict.fromkeys(r.pool.configuration.engine for r in evaluation.pools if r.pool.configuration.profile is None):
        yield Assumption(engine, "engine constants", engine, "", "measured", "fitted to measured servers; see the validation table")


def _lines(context: PlanContext) -> Iterator[Assumption]:
    for name, link in context.scenario.links.items():
        money = context.scenario.currency
        given = "given"
        yield Assumption(f"line {name}", "circuit", link.circuit / GBPS_BYTES_PER_S, "Gbit/s", given, SCENARIO)
        yield Assumption(f"line {name}", "round trip", 1e3 * link.rtt, "ms", given, SCENARIO)
        if link.per_flow is not None:
            yield Assumption(f"line {name}", "rate of one transfer", link.per_flow / GBPS_BYTES_PER_S, "Gbit/s", given, SCENARIO)
        yield Assumption(f"line {name}", "usable share", link.usable, "fraction", given, SCENARIO)
        price, unit = (link.price, f"{money}/Gbps/month") if link.price is not None else (link.circuit_price, f"{money}/h")
        yield Assumption(f"line {name}", "price", "not known" if price is None else price, unit, given, SCENARIO)


def _traffic(context: PlanContext) -> Iterator[Assumption]:
    for name, deployment in context.deployments.items():
        mix = deployment.mix
        yield Assumption(name, "request rate", mix.rate_per_s, "requests/s", "given", SCENARIO)
        yield Assumption(name, "arrival SCV", mix.arrival_scv, "", "given", SCENARIO)
        yield Assumption(name, "mean input", mix.mean(mix.input_tokens), "tokens", "given", SCENARIO)
        yield Assumption(name, "mean uncached", mix.mean(mix.uncached_tokens), "tokens", "given", SCENARIO)
        yield Assumption(name, "mean output", mix.mean(mix.output_tokens), "tokens", "given", SCENARIO)
