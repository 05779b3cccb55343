"""A metric explained: its formula, this plan's numbers in it, and where each of them came from."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from pddplan.errors import InputError, Problem
from pddplan.optimize.result import PlanResult
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Evaluation, Metrics
from pddplan.pdd.timeline import Timeline, timelines
from pddplan.report.numbers import duration, percent, significant
from pddplan.units import GBPS_BYTES_PER_S


@dataclass(frozen=True)
class Term:
    """One number of the formula: ``value`` as text, ``source`` says what produced it."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Explanation:
    """``formula`` in words and symbols, ``filled`` with this plan's numbers; ``section`` of the documentation that derives it."""

    metric: str
    value: float | None
    formula: str
    filled: str
    terms: tuple[Term, ...]
    section: str


@dataclass(frozen=True)
class _Case:
    context: PlanContext
    result: PlanResult

    @property
    def evaluation(self) -> Evaluation:
        return self.result.evaluation

    @property
    def metrics(self) -> Metrics:
        return self.result.evaluation.metrics

    @property
    def money(self) -> str:
        return self.context.scenario.currency


def explain(context: PlanContext, result: PlanResult, metric: str) -> Explanation:
    """Explain one of the metrics of the JSON contract. Raises InputError for an unknown metric, with the nearest names."""
    known = asdict(result.evaluation.metrics)
    if metric not in known:
        near = difflib.get_close_matches(metric, known, 3, 0.4)
        raise InputError(Problem("metric", f"'{metric}' is not a metric", f"one of {', '.join(known)}", near[0] if near else "bcr"))
    formula, filled, terms, section = _builder(metric)(_Case(context, result))
    return Explanation(metric, known[metric], formula, filled, tuple(terms), section)


Answer = tuple[str, str, Sequence[Term], str]


def _builder(metric: str) -> Callable[[_Case], Answer]:
    if metric.startswith(("ttft", "e2e")):
        return lambda case: _latency(case, metric)
    if metric.startswith("tpot"):
        return _tpot
    if metric.startswith("task"):
        return _task
    return {
        "goodput_rps": _goodput,
        "p_good": _p_good,
        "cost_usd_per_h": _cost,
        "bcr": _bcr,
        "stall_p99_s": _stall,
        "rld_token_share": _relay,
        "line_gbps_mean": _line,
        "line_gbps_needed": _line,
        "usd_per_million_output_tokens": _per_million,
        "gpus": _gpus,
    }[metric]


def _latency(case: _Case, metric: str) -> Answer:
    q = {"p50": 0.5, "p90": 0.9, "p99": 0.99}[metric.split("_")[1]]
    formula = (
        "Quantile of the mixture over request rows of W_P + S_P(u) + X(v) + tau_M (P-MD), or W_P + S_P(u) + X_rdma(L) "
        "+ W_R + tau_R (relayed); "
        "stage laws are convolved, percentiles are never added"
    )
    if metric.startswith("e2e"):
        formula = "Quantile of TTFT + (O - 1) gaps between tokens, handoff stalls included, over the mixture of request rows"
    found = timelines(case.context, case.evaluation, (q,))
    if not found:
        why = "the plan is unstable: this percentile is never reached" if case.context.rate_per_s else "not defined: no request arrives"
        return formula, why, (), "docs/model/pdd.md"
    timeline = found[0]
    parts = _first_token(timeline) if metric.startswith("ttft") else [(s.activity, s.end_s - s.start_s, s.lane) for s in timeline.spans]
    filled = f"typical request at P{100 * q:g}: " + " + ".join(f"{name} {duration(seconds)}" for name, seconds, _ in parts)
    terms = [Term(name, duration(seconds), _lane_source(case, lane)) for name, seconds, lane in parts]
    terms.append(Term("request", f"{timeline.input_tokens:,.0f} tokens in, {timeline.uncached_tokens:,.0f} uncached", "workload"))
    terms += _loads(case)
    return formula, filled, terms, "docs/model/pdd.md"


def _first_token(timeline: Timeline) -> list[tuple[str, float, str]]:
    """What happens before the first token, clipped at it."""
    parts = [
        (s.activity, min(s.end_s, timeline.ttft_s) - s.start_s, s.lane)
        for s in timeline.spans
        if s.start_s < timeline.ttft_s and not s.hidden
    ]
    return [part for part in parts if part[1] > 0]


def _lane_source(case: _Case, lane: str) -> str:
    role = lane if lane in ("P", "RLD", "MD", "AGG") else ""
    if not role:
        return "line of the scenario, shared by the transfers in progress" if lane == "line" else "NIC of the chip"
    pool = next((r.pool.configuration for r in case.evaluation.pools if r.pool.configuration.role == role), None)
    if pool is None:
        return "plan"
    if pool.profile is not None:
        return f"measured profile {pool.profile} of {pool.chip}"
    return f"roofline of {pool.chip} ({case.context.chips[pool.chip].efficiency_kind} kernel constants) under {pool.engine}"


def _loads(case: _Case) -> list[Term]:
    terms = [
        Term(
            f"load of {r.pool.configuration.role}",
            percent(r.utilisation),
            f"{r.pool.instances} instances, bound by {r.binding_resource or 'nothing'}",
        )
        for r in case.evaluation.pools
    ]
    terms += [
        Term(
            f"load of line {x.link.name}",
            percent(x.utilisation),
            f"{x.link.circuits} circuits of {x.link.circuit_bytes_per_s / GBPS_BYTES_PER_S:g} Gbit/s",
        )
        for x in case.evaluation.links
    ]
    return terms


def _tpot(case: _Case) -> Answer:
    formula = (
        "(last token - first token) / (O - 1) per request, stalls included; its law over requests from the batch's occupancy: tau(n) / s"
    )
    decode = [r for r in case.evaluation.pools if r.pool.configuration.role in ("MD", "AGG")]
    terms = []
    for r in decode:
        c = r.pool.configuration
        stage = case.context.instance(c, case.evaluation.decision.settings)
        terms.append(Term(f"mean batch of {c.role}", significant(r.batch_mean), f"Little's law on {r.pool.instances} instances"))
        terms.append(Term("tokens per step", significant(stage.tokens_per_step), "speculation of the scenario"))
        terms.append(Term("step time", "from the batch and its context", _lane_source(case, c.role)))
    filled = f"mean {duration(case.metrics.tpot_mean_s)}, P99 {duration(case.metrics.tpot_p99_s)}"
    return formula, filled, [*terms, *_loads(case)], "docs/model/pdd.md"


def _task(case: _Case) -> Answer:
    turns = {name: t for d in case.context.deployments.values() for name, t in zip(d.mix.class_names, d.mix.turns_per_task, strict=False)}
    filled = ", ".join(f"{name}: {significant(t)} calls per task" for name, t in turns.items())
    return "Law of an agent task: the end-to-end laws of its calls, convolved", filled, _loads(case), "docs/model/workload.md"


def _goodput(case: _Case) -> Answer:
    m = case.metrics
    rate = case.context.rate_per_s
    filled = f"{significant(rate)} requests/s x {percent(m.p_good)} = {significant(m.goodput_rps)} requests/s"
    return (
        "request rate x P(good)",
        filled,
        [Term("rate", f"{significant(rate)} requests/s", "workload"), *_p_good(case)[2]],
        "docs/model/pdd.md",
    )


def _p_good(case: _Case) -> Answer:
    terms = []
    for deployment in case.context.deployments.values():
        for name, sla in zip(deployment.mix.class_names, deployment.slas, strict=True):
            limits = [
                f"{kind} <= {duration(limit)}" for kind, limit in (("TTFT", sla.ttft.limit), ("TPOT", sla.tpot.limit)) if limit is not None
            ]
            terms.append(Term(name, " and ".join(limits) or "no limits", "sla of the class"))
    return (
        "P(TTFT and TPOT both within the limits of the class), jointly over request rows",
        percent(case.metrics.p_good),
        terms,
        "docs/model/pdd.md",
    )


def _cost(case: _Case) -> Answer:
    terms, parts = [], []
    for r in case.evaluation.pools:
        c = r.pool.configuration
        price = r.cost_usd_per_h / r.pool.gpus if r.pool.gpus else 0.0
        mean = ", mean of the day by term" if (c.site, c.chip) in case.context.terms else ""
        unit = f"{case.money}/h{mean}"
        parts.append(f"{r.pool.gpus} x {price:.6g}")
        terms.append(
            Term(f"{c.role} at {c.site}", f"{r.pool.gpus} {c.chip} x {price:.6g} {unit}", f"sites.{c.site}: price of {c.chip}")
        )
    for x in case.evaluation.links:
        parts.append(f"{x.cost_usd_per_h:.4g}")
        terms.append(
            Term(
                f"line {x.link.name}", f"{x.cost_usd_per_h:.4g} {case.money}/h", f"links.{x.link.name}: price x {x.link.circuits} circuits"
            )
        )
    filled = " + ".join(parts) + f" = {case.metrics.cost_usd_per_h:.6g} {case.money}/h"
    return "sum of GPUs x price per hour, and of circuits and egress per hour", filled, terms, "docs/model/economics.md"


def _bcr(case: _Case) -> Answer:
    m = case.metrics
    filled = f"{m.goodput_rps:.6g} / {m.cost_usd_per_h:.6g} = {m.bcr:.6g} requests/s per {case.money}/h"
    return "goodput / cost per hour", filled, [*_goodput(case)[2], *_cost(case)[2]], "docs/model/economics.md"


def _per_million(case: _Case) -> Answer:
    tokens = sum((d.mix.mean_rate_per_s or d.mix.rate_per_s) * d.mix.mean(d.mix.output_tokens) for d in case.context.deployments.values())
    m = case.metrics
    filled = f"{m.cost_usd_per_h:.6g} / ({tokens:.6g} tokens/s x 3600) x 1e6 = {m.usd_per_million_output_tokens:.6g} {case.money}"
    if math.isnan(m.usd_per_million_output_tokens):
        filled = "not defined: " + ("no output is asked for" if not tokens else "the plan does not carry the demand")
    terms = [Term("output", f"{tokens:.6g} tokens/s at mean demand", "workload"), *_cost(case)[2]]
    return "whole cost per hour / output tokens per hour x 1e6", filled, terms, "docs/model/economics.md"


def _stall(case: _Case) -> Answer:
    terms = [Term("handoff", case.evaluation.decision.settings.handoff, "policy.handoff"), *_loads(case)]
    formula = (
        "P99 over requests of the longest gap between two tokens: the handoff's stall (RTT/2 + queueing + extend(n)) or the slowest step"
    )
    return formula, duration(case.metrics.stall_p99_s), terms, "docs/model/pdd.md"


def _relay(case: _Case) -> Answer:
    threshold = case.evaluation.decision.settings.relay_threshold_s
    said = "no relay" if threshold is None else duration(threshold)
    terms = [Term("relay threshold", said, "policy.relay_threshold, or chosen by the optimiser"), *_loads(case)]
    formula = "sum of w n / sum of w O with eager tokens n = min(O, ceil((X(v) - X_rdma) / tau_R)), catch-up tokens added"
    return formula, percent(case.metrics.rld_token_share), terms, "docs/model/pdd.md"


def _line(case: _Case) -> Answer:
    terms = []
    for x in case.evaluation.links:
        spec = case.context.lines[x.link.name]
        mean = x.bytes_per_s_mean / GBPS_BYTES_PER_S
        terms.append(Term(f"mean traffic of {x.link.name}", f"{significant(mean)} Gbit/s", "rate x KV of the tokens missing at MD"))
        terms.append(Term("target utilisation, usable share", f"{spec.target_utilisation:g}, {spec.usable:g}", f"links.{x.link.name}"))
    m = case.metrics
    filled = f"mean {significant(m.line_gbps_mean)} Gbit/s, needed {significant(m.line_gbps_needed)} Gbit/s"
    return "needed = mean traffic / target utilisation / usable share", filled, terms, "docs/model/pdd.md"


def _gpus(case: _Case) -> Answer:
    filled = " + ".join(f"{r.pool.instances} x {r.pool.configuration.gpus_per_instance}" for r in case.evaluation.pools)
    return (
        "sum over pools of instances x GPUs per instance (TP x DP x PP)",
        f"{filled} = {case.metrics.gpus}",
        (),
        "docs/model/optimisation.md",
    )
