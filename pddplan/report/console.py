"""A plan on the console: the decision first, then what it delivers, what binds, what lost, and the baselines."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pddplan.optimize.result import Binding, PlanResult, Rejection
from pddplan.pdd.plan import Evaluation, Metrics, PoolResult
from pddplan.report.json import relative, ways_of
from pddplan.report.money import money_lines
from pddplan.report.numbers import duration, missed, percent, significant
from pddplan.scenario.schema import Scenario
from pddplan.units import GBPS_BYTES_PER_S

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

REJECTED_SHOWN = 6
Compared = Sequence[tuple[str, PlanResult]]


def show_plan(console: Console, result: PlanResult, scenario: Scenario) -> None:
    """Print one plan with its explanations."""
    evaluation, money = result.evaluation, scenario.currency
    _say(console, f"{scenario.name}: {_fleet(evaluation)}", "bold")
    idle = result.money is None
    cost = f"{significant(evaluation.metrics.cost_usd_per_h, 4)} {money}/h"
    _say(console, f"{_status(result)}. {f'{cost}; no requests arrive' if idle else _outcome(evaluation.metrics, money)}")
    if not evaluation.stable:
        _say(console, "This plan is unstable: at least one pool or line is asked for more than it can do.", "bold red")
    for violation in evaluation.violations:
        value, limit = missed(violation)
        _say(console, f"misses {violation.constraint}: {value} against {limit}", "red")
    if evaluation.pools:
        console.print(_pools(evaluation, money))
    for line in (*_ways(evaluation), *_lines(evaluation, money), *_terms(evaluation, money)):
        _say(console, line)
    if not idle:
        console.print(_latency(evaluation))
    for text in _bindings(result.binding):
        _say(console, text)
    for text in _rejections(result.rejected):
        _say(console, text)
    if result.pd_ratio is not None:
        _say(console, f"\nP:D  {result.pd_ratio.advice}")
    if result.money is not None:
        lines = list(money_lines(result.money))
        if not evaluation.stable:  # what a token costs divides by tokens that are not served
            lines = [*lines[:2], "  cost per token and per request: unknown, the plan does not carry the demand"]
        _say(console, "\nMoney  " + "\n".join(lines))
    if result.baselines:
        console.print(_baselines(result, money))
    for warning in dict.fromkeys((*result.warnings, *evaluation.warnings)):
        _say(console, f"note: {warning}", "yellow")


def show_comparison(console: Console, compared: Compared, money: str) -> None:
    """Print plans side by side, each relative to the first."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_edge=False, title_justify="left")
    table.add_column("", no_wrap=True)
    for label, _ in compared:
        table.add_column(label, justify="right", overflow="fold")
    metrics = [result.evaluation.metrics for _, result in compared]
    table.add_row("plan", *(_fleet(result.evaluation, short=True) for _, result in compared))
    table.add_row(
        "served", *("within SLA" if r.evaluation.feasible else "misses SLA" if r.evaluation.stable else "unstable" for _, r in compared)
    )
    for name, label, form in _comparison_rows(money):
        values = [getattr(m, name) for m in metrics]
        changes = [relative(m, metrics[0]).get(name) for m in metrics]
        cells = [
            form(value) if index == 0 or change is None else f"{form(value)} ({_change(change)})"
            for index, (value, change) in enumerate(zip(values, changes, strict=True))
        ]
        table.add_row(label, *cells)
    console.print(table)


def _comparison_rows(money: str) -> Iterator[tuple[str, str, Callable[[float], str]]]:
    yield "gpus", "GPUs", lambda v: f"{v}"
    yield "cost_usd_per_h", f"cost, {money}/h", _plain
    yield "goodput_rps", "goodput, req/s", _plain
    yield "bcr", f"BCR, req/s per {money}/h", lambda v: significant(v, 4)
    yield "ttft_p50_s", "TTFT P50", duration
    yield "ttft_p90_s", "TTFT P90", duration
    yield "ttft_p99_s", "TTFT P99", duration
    yield "tpot_mean_s", "TPOT mean", duration
    yield "tpot_p99_s", "TPOT P99", duration
    yield "line_gbps_needed", "line needed, Gbps", _plain


def _plain(value: float) -> str:
    return significant(value, 4)


def _say(console: Console, text: str, style: str | None = None) -> None:
    """Lines of text, each wrapped with a hanging indent."""
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        wrapped = textwrap.wrap(line, console.width, subsequent_indent=indent, break_on_hyphens=False) or [""]
        console.print("\n".join(wrapped), style=style, markup=False, soft_wrap=True)


def _fleet(evaluation: Evaluation, short: bool = False) -> str:
    by_chip: dict[str, int] = {}
    for pool in evaluation.pools:
        chip = pool.pool.configuration.chip
        by_chip[chip] = by_chip.get(chip, 0) + pool.pool.gpus
    parts = [f"{gpus} {chip}" for chip, gpus in by_chip.items()]
    parts += [f"{r.link.circuits} x {_gbps(r.link.circuit_bytes_per_s)} Gbps" for r in evaluation.links if r.link.circuits]
    text = " + ".join(parts) or "nothing deployed"
    return text if short or len(by_chip) < 2 else f"{text} ({evaluation.metrics.gpus} GPUs)"


def _status(result: PlanResult) -> str:
    if result.status == "optimal":
        return "Optimal" if result.gap == 0 else f"Optimal within {percent(result.gap)}"
    if result.status == "feasible":
        return f"Feasible, at most {percent(result.gap)} from the best" + (" (time limit)" if result.search.timed_out else "")
    return {"evaluated": "As given", "infeasible": "Infeasible"}[result.status]


def _outcome(metrics: Metrics, money: str) -> str:
    return (
        f"{significant(metrics.cost_usd_per_h, 4)} {money}/h, goodput {significant(metrics.goodput_rps, 4)} req/s "
        f"({percent(metrics.p_good)} of requests good), BCR {significant(metrics.bcr, 4)} req/s per {money}/h"
    )


def _gbps(bytes_per_s: float) -> str:
    return significant(bytes_per_s / GBPS_BYTES_PER_S).removesuffix(".00").removesuffix(".0")


def _table(title: str, *columns: str, left: int = 1) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_edge=False, title=f"\n{title}", title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right", overflow="fold")
    return table


def _layout(result: PoolResult) -> str:
    configuration = result.pool.configuration
    if configuration.profile is not None:
        return f"profile {configuration.profile}"
    parallel = configuration.parallel
    sizes = {"TP": parallel.tp, "PP": parallel.pp, "DP": parallel.dp, "EP": parallel.moe_ep}
    return " ".join(f"{name}{size}" for name, size in sizes.items() if size > 1 or name == "TP")


def _pools(evaluation: Evaluation, money: str) -> Table:
    table = _table("Deploy", "site", "role", "chip", "layout", "engine", "instances", "GPUs", "load", f"{money}/h", left=5)
    for result in evaluation.pools:
        configuration = result.pool.configuration
        table.add_row(
            configuration.site,
            configuration.role,
            configuration.chip,
            _layout(result),
            configuration.engine,
            f"{result.pool.instances} x {configuration.gpus_per_instance}",
            f"{result.pool.gpus}",
            percent(result.utilisation),
            significant(result.cost_usd_per_h, 4),
        )
    return table


def _ways(evaluation: Evaluation) -> Iterator[str]:
    """How the traffic of a divided deployment goes over its pools."""
    pools = [result.pool.configuration for result in evaluation.pools]
    several = len({c.deployment for c in pools}) > 1
    for way in ways_of(evaluation):
        owner = f"{pools[way['pools'][0]].deployment}: " if several else ""
        names = ", ".join(f"{pools[i].role} at {pools[i].site} on {pools[i].chip}" for i in way["pools"])
        shares = set(way["share"].values())
        by_class = ", ".join(f"{percent(x)} of {name}" for name, x in way["share"].items() if x > 0)
        each = percent(shares.pop()) if len(shares) == 1 else by_class
        yield f"Traffic {owner}{each} over {names}"


def _lines(evaluation: Evaluation, money: str) -> Iterator[str]:
    for result in evaluation.links:
        link = result.link
        yield (
            f"line {link.name}: {link.circuits} x {_gbps(link.circuit_bytes_per_s)} Gbps, load {percent(result.utilisation)} "
            f"(mean {_gbps(result.bytes_per_s_mean)} Gbps, needed {_gbps(result.bytes_per_s_needed)}), "
            f"{significant(result.cost_usd_per_h)} {money}/h"
        )


def _terms(evaluation: Evaluation, money: str) -> Iterator[str]:
    for bought in evaluation.purchases:
        mix = bought.mix
        gpus = {"reserved": mix.reserved, "on demand": mix.on_demand, "spot": mix.spot}
        parts = [f"{significant(count)} {term}" for term, count in gpus.items() if count]
        yield (
            f"{bought.chip} at {bought.site}, paid by term: {', '.join(parts)} (mean over the day; {min(bought.used):g} to "
            f"{max(bought.used):g} in use), {significant(mix.per_hour, 4)} {money}/h"
        )


def _latency(evaluation: Evaluation) -> Table:
    metrics = evaluation.metrics
    table = _table("Serves", "latency", "mean", "P50", "P90", "P99")
    table.add_row("TTFT", "", *(duration(v) for v in (metrics.ttft_p50_s, metrics.ttft_p90_s, metrics.ttft_p99_s)))
    for pipeline in evaluation.pipelines:
        if len(evaluation.pipelines) > 1:
            values = (pipeline.ttft_p50_s, pipeline.ttft_p90_s, pipeline.ttft_p99_s)
            table.add_row(f"  {pipeline.name} ({percent(pipeline.share)})", "", *(duration(v) for v in values))
    table.add_row("TPOT", duration(metrics.tpot_mean_s), "", "", duration(metrics.tpot_p99_s))
    table.add_row("longest stall", "", "", "", duration(metrics.stall_p99_s))
    table.add_row("end to end", "", duration(metrics.e2e_p50_s), "", duration(metrics.e2e_p99_s))
    if metrics.task_p50_s is not None and metrics.task_p99_s is not None:
        table.add_row("agent task", "", duration(metrics.task_p50_s), "", duration(metrics.task_p99_s))
    if metrics.rld_token_share:
        table.caption = f"RLD emits {percent(metrics.rld_token_share)} of output tokens"
        table.caption_justify = "left"
    return table


def _bindings(bindings: Sequence[Binding]) -> Iterator[str]:
    if bindings:
        yield "\nWhat binds"
    for binding in bindings:
        worth = ""
        if binding.worth is not None and binding.step:
            share = f" ({_change(binding.worth_share)})" if binding.worth_share is not None else ""
            worth = (
                f"; {binding.step} more is worth {significant(binding.worth)}{share}"
                if binding.worth
                else f"; {binding.step} more gains nothing"
            )
        note = f"; {binding.note}" if binding.note else ""
        yield f"  {binding.constraint}: {significant(binding.value)} of {significant(binding.limit)} {binding.unit}{worth}{note}"


def _change(share: float) -> str:
    return f"{100 * share:+.1f} %".replace("-0.0", "0.0").replace("+0.0", "0.0")


def _rejections(rejections: Sequence[Rejection]) -> Iterator[str]:
    if rejections:
        yield "\nWhat lost, and why"
    for rejection in rejections[:REJECTED_SHOWN]:
        yield f"  {rejection.candidate}: {rejection.note or _missed(rejection)}"
    if len(rejections) > REJECTED_SHOWN:
        yield f"  ... and {len(rejections) - REJECTED_SHOWN} more (in the JSON)"


def _missed(rejection: Rejection) -> str:
    if rejection.value is None or rejection.limit is None:
        return rejection.reason
    return f"{rejection.reason} ({significant(rejection.value)} against {significant(rejection.limit)} {rejection.unit})".replace(" )", ")")


def _baselines(result: PlanResult, money: str) -> Table:
    table = _table("Against", "", "GPUs", f"{money}/h", "goodput", "BCR", "plan's BCR", "TTFT P99")
    mine = result.evaluation.metrics
    table.add_row("this plan", *_baseline_cells(mine), "", duration(mine.ttft_p99_s))
    for baseline in result.baselines:
        label = baseline.name.replace("_", " ")
        if baseline.evaluation is None:
            table.add_row(label, "no plan", baseline.reason)
            continue
        metrics = baseline.evaluation.metrics
        gain = _change(mine.bcr / metrics.bcr - 1) if metrics.bcr > 0 else ""
        table.add_row(label, *_baseline_cells(metrics), gain, duration(metrics.ttft_p99_s))
    return table


def _baseline_cells(metrics: Metrics) -> tuple[str, str, str, str]:
    return f"{metrics.gpus}", significant(metrics.cost_usd_per_h, 4), significant(metrics.goodput_rps), significant(metrics.bcr, 4)
