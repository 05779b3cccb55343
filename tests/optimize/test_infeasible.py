"""Scenarios without a plan, of every kind: the cause is named, and each change that is said to help is the least that does."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from chat import SMALLER as CHAT

from pddplan import api
from pddplan.errors import InfeasibleError, SolverError
from pddplan.optimize.infeasible import explain_infeasible
from pddplan.optimize.knobs import rounded_up
from pddplan.optimize.search import Effort, Search
from pddplan.pdd.context import PlanContext
from pddplan.pipeline import plan

ONE_ROOM = "sites:\n  A: {chips: [{chip: h100-sxm, stock: 32, price: 2.00 USD/h}]}\n"
LINE = "links: {A-B: {between: [A, B], circuit: 10 Gbps, max_circuits: 40, rtt: 10 ms, price: 100 USD/Gbps/month}}\n"
ROOMS = """sites:
  A: {chips: [{chip: h100-sxm, stock: 32, price: 2.00 USD/h, roles: [P]}]}
  B: {chips: [{chip: h200-sxm, stock: 32, price: 3.00 USD/h, roles: [MD]}]}
"""
APART, TWO = CHAT.replace(ONE_ROOM, ROOMS), CHAT.replace(ONE_ROOM, ROOMS + LINE)
BLOCK = """
    model: {name: Qwen/Qwen3-32B-FP8}
    engine: vllm
    workload:
      rate: 4 req/s
      rows: 100
      classes: {c: {input_tokens: 2k, output_tokens: 300, sla: {ttft: {limit: 3 s}, tpot: {limit: 60 ms}, attainment: 95 %}}}
"""
SHARED = f"""
name: two models
sites: {{A: {{chips: [{{chip: h100-sxm, stock: 3, price: 2 USD/h}}]}}}}
deployments:
  one:{BLOCK}  two:{BLOCK}
search: {{tp: [1, 2]}}
objective: min-cost
"""
RATED = """
name: two kinds of requests that one chip each serves
model: {name: meta-llama/Llama-3.1-8B}
sites:
  A:
    chips:
      - {chip: h100-sxm, price: 2 USD/h, roles: [AGG], profiles: [PROFILE]}
      - {chip: h200-sxm, price: 3 USD/h, roles: [AGG], profiles: [PROFILE]}
workload:
  rate: 9 req/s
  classes: {short: {share: 50 %, input_tokens: 100, output_tokens: 10}, long: {share: 50 %, input_tokens: 1000, output_tokens: 10}}
objective: min-cost
"""
GRID = "{role: AGG, gpus: 1, rate: {input: [100, 1000], output: [10], req_per_s: [[%s], [%s]]}}"
SPLIT = RATED.replace("PROFILE", GRID % (1, 0), 1).replace("PROFILE", GRID % (0, 1), 1)
STOCK, TTFT, TPOT = "sites.A.chips[0].stock", "workload.classes.chat.sla.ttft", "workload.classes.chat.sla.tpot"
STANDING = {"site": "A", "role": "AGG", "chip": "h100-sxm", "tp": 1, "instances": 2}
BIG = {"model.name": "deepseek-ai/DeepSeek-V3", "sites.A.chips[0].chip": "h200-sxm", STOCK: 2, "search.tp": "auto"}

Kind = tuple[str, dict[str, Any], str, set[str]]
FAST: dict[str, Kind] = {
    "too little stock": (CHAT, {STOCK: 3}, "stock", {"stock", "demand"}),
    "TPOT under the time to read the weights": (CHAT, {TPOT: "2 ms"}, "sla.tpot", {"sla.tpot"}),
    "no role that prefills": (CHAT, {"sites.A.chips[0].forbidden_roles": ["AGG", "P"]}, "roles", {"roles"}),
    "stock shared by two models": (SHARED, {}, "stock", {"stock", "demand"}),
    "a mix that one configuration a role cannot serve": (SPLIT, {}, "roles", {"roles", "configurations_per_role"}),
    "floors beyond the stock": (
        CHAT, {"sites.A.chips[0].instances_min": {"AGG": 12, "P": 12, "MD": 12}, STOCK: 8}, "stock", {"stock", "instances_min"},
    ),
    "power": (CHAT, {"sites.A.power": "2 kW"}, "power", {"power", "demand"}),
    "no line": (APART, {}, "links", {"links", "roles"}),
    "change against what stands": (
        CHAT, {"fleet": {"pools": [STANDING], "keep": False, "change_max": 2}}, "change_max", {"change_max", "demand"},
    ),
}  # fmt: skip
SLOW: dict[str, Kind] = {
    "too little stock at one of two sites": (TWO, {"sites.B.chips[0].stock": 1}, "stock", {"stock", "roles", "demand"}),
    "no role that prefills in two rooms": (TWO, {"sites.A.chips[0].roles": ["MD"]}, "roles", {"roles"}),
    "budget": (CHAT, {"budget": "6 USD/h"}, "budget", {"budget", "demand"}),
    "budget under BCR": (CHAT, {"budget": "6 USD/h", "objective": "max-bcr"}, "budget", {"budget", "demand"}),
    "budget under goodput": (CHAT, {"budget": "1 USD/h", "objective": "max-goodput"}, "budget", {"budget"}),
    "GPUs of a site": (CHAT, {"sites.A.gpus_max": 3}, "gpus_max", {"gpus_max", "demand"}),
    "circuits": (TWO, {"links.A-B.max_circuits": 1}, "circuits", {"circuits", "circuit", "roles"}),
    "a slow line": (TWO, {"links.A-B.circuit": "100 Mbps"}, "circuit", {"circuit", "roles"}),
    "a slow transfer": (TWO, {"links.A-B.per_flow": "100 Mbps"}, "per_flow", {"per_flow", "roles"}),
    "a long round trip": (TWO, {"links.A-B.rtt": "3 s", "search.tp": [2]}, "rtt", {"rtt", "roles", "sla.ttft"}),
    "TTFT under an idle prefill": (CHAT, {TTFT: "30 ms"}, "sla.ttft", {"sla.ttft"}),
    "TTFT and TPOT": (CHAT, {TTFT: "30 ms", TPOT: "2 ms"}, "sla.ttft", {"sla.ttft", "sla.tpot"}),
    "attainment": (CHAT, {TTFT: "0.6 s", "workload.classes.chat.sla.attainment": 0.99}, "sla.ttft", {"sla.ttft", "attainment", "sizes"}),
    "end to end": (CHAT, {"workload.classes.chat.sla.e2e": {"p99": "4 s"}}, "sla.e2e", {"sla.e2e", "sizes"}),
    "N+k beyond the stock": (CHAT, {"search.redundancy": 4, STOCK: 7}, "stock", {"stock", "redundancy", "demand"}),
    "memory": (CHAT, {**BIG, TTFT: "600 ms", TPOT: "30 ms"}, "memory", {"stock"}),
    "served share": (
        CHAT, {STOCK: 3, "served_share_min": 0.9, "objective": "max-bcr"}, "stock", {"stock", "served_share_min", "demand"},
    ),
    "replicas": (CHAT, {"search.replicas_max": 2, "search.tp": [1]}, "replicas_max", {"replicas_max", "sizes", "demand"}),
    "reservations": (
        CHAT.replace("price: 2.00 USD/h", "prices: {reserved: 1 USD/h, reserved_max: 3}"), {}, "reserved_max", {"reserved_max", "demand"},
    ),
    "instances of a role": (
        CHAT, {"sites.A.chips[0].instances_max": {"AGG": 2}, "sites.A.chips[0].roles": ["AGG"], "search.tp": [1]},
        "instances_max", {"instances_max", "roles", "sizes", "demand"},
    ),
}  # fmt: skip
UNDECIDED = ("a long round trip",)
"""Kinds of which the search gives up a little beyond the least change, without a proof that there is no plan."""
FALLING = (".rtt", "redundancy", "instances_min", "attainment", "served_share_min", "rate")


@pytest.fixture
def load(load):
    return lambda text=CHAT, changes=None: load(text, changes)


def feasible(scenario, settings, refusals=(InfeasibleError,)):
    try:
        return plan(api.load_scenario(scenario, settings), explain=False).evaluation.feasible
    except refusals:
        return False


def _tighter(path: str, value: Any, has: Any) -> Any:
    """A value a unit or a hundredth nearer to what the scenario has; None for a choice that is made or not."""
    sign = 1 if any(word in path for word in FALLING) else -1
    if isinstance(value, dict) and "max_circuits" in value:
        return {**value, "max_circuits": value["max_circuits"] - 1}
    if isinstance(value, dict):
        return {name: _limit(text, has) for name, text in value.items()}
    if isinstance(value, bool | list) or value == "auto":
        return None
    if isinstance(value, int):
        return value + sign
    number, _, unit = str(value).partition(" ")
    return f"{float(number) * (1 + 0.01 * sign):.10g} {unit}".strip()


def _limit(text: str, has: dict[str, float]) -> str:
    seconds = float(text.split()[0])
    return text if any(math.isclose(seconds, x, rel_tol=1e-6) for x in has.values()) else f"{0.99 * seconds:.10g} s"


def limits_of(scenario, path):
    """Limits of a latency as the scenario has them, seconds."""
    if ".sla." not in path:
        return {}
    sla = scenario.workload.classes["chat"].sla
    return {name: x for name, x in getattr(sla, path.rsplit(".", 1)[1]) if x is not None} if not path.endswith("attainment") else {}


def check(load, kind: Kind, refusals=(InfeasibleError,)) -> InfeasibleError:
    """``refusals``: what a plan that asks for a little more may end with."""
    text, changes, constraint, helping = kind
    scenario = load(text, changes)
    with pytest.raises(InfeasibleError) as caught:
        plan(scenario)
    error = caught.value
    assert error.exit_code == 3
    assert error.constraint == constraint
    assert set(error.conflict) == helping
    assert error.settings
    for said, settings in zip(error.relaxations, error.settings, strict=False):
        assert settings, said
        assert feasible(scenario, settings), said
        less = {path: _tighter(path, value, limits_of(scenario, path)) for path, value in settings.items()}
        numbers = {path: value for path, value in less.items() if value is not None}
        together = all(path.endswith(".rate") for path in numbers)
        for nearer in [numbers] if together and numbers else [{path: value} for path, value in numbers.items()]:
            assert not feasible(scenario, {**settings, **nearer}, refusals), f"{said}; {nearer} does too"
    return error


@pytest.mark.parametrize("name", FAST)
def test_the_cause_is_named_and_the_least_change_helps_where_less_does_not(load, name):
    check(load, FAST[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_the_cause_is_named_and_the_least_change_helps_where_less_does_not_for_all_kinds(load, name):
    error = check(load, SLOW[name], (InfeasibleError, SolverError) if name in UNDECIDED else (InfeasibleError,))
    if name == "TTFT and TPOT":
        assert "no one of them loosened helps alone" in error.detail
    if name == "memory":
        assert any(text.startswith("of memory alone: 8 x h200-sxm") for text in error.relaxations)


def test_the_message_says_what_to_set(load):
    with pytest.raises(InfeasibleError) as caught:
        plan(load(CHAT, {STOCK: 3}))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("no plan is feasible: stock: no plan serves 8 req/s")
    assert lines[1] == "  in conflict: stock, demand"
    assert lines[2] == "  would help: stock of 5 h100-sxm at A (has 3)  (--set 'sites.A.chips[0].stock=5')"


def test_instances_hold_the_longest_request_asked_for_even_where_the_traffic_has_none(load):
    assert feasible(load(CHAT, {"model.context_max": 1}), {})
    with pytest.raises(InfeasibleError) as caught:
        plan(load(CHAT, {"model.context_max": 10**8}), explain=False)
    assert caught.value.constraint == "memory"


def test_a_class_without_requests_asks_for_nothing(load):
    classes = {"workload.classes.none": {"share": 0, "input_tokens": "100k", "output_tokens": 3000, "sla": {"ttft": {"p99": "1 ms"}}}}
    assert feasible(load(CHAT, {**classes, "workload.classes.chat.share": 1}), {})


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("tpot", ["18.41 ms", "50 ms", "128 ms"])
def test_a_looser_limit_never_loses_a_plan_for_instances_that_need_many_more_than_their_mean_load(load, tpot, kinds):
    limits = {TTFT: {"limit": "0.507 s", "p99": "4 s"}, TPOT: tpot, "search.configurations_per_role": kinds}
    assert feasible(load(CHAT, limits), {})


@pytest.mark.parametrize("budget", ["0 USD/h", "1e-9 USD/h"])
def test_next_to_no_budget_tells_the_least_that_helps(load, budget):
    with pytest.raises(InfeasibleError) as caught:
        plan(load(CHAT, {"budget": budget}))
    error = caught.value
    assert error.constraint == "budget"
    (settings,) = (each for each in error.settings if "budget" in each)
    assert feasible(load(), settings)


@pytest.mark.parametrize(("path", "value"), [("circuit", "1 kbps"), ("per_flow", "1 bps")])
def test_a_line_that_is_too_slow_is_the_cause(load, path, value):
    """Two seconds say what helps, though not the least of it."""
    with pytest.raises(InfeasibleError) as caught:
        plan(load(TWO, {f"links.A-B.{path}": value, "links.A-B.connections": 256, "search.tp": [1], "search.time_limit": "2 s"}))
    assert caught.value.constraint == path
    assert any(f"links.A-B.{path}" in settings for settings in caught.value.settings)


@pytest.mark.parametrize("rate", ["1e-9 req/s", "1e-6 req/s"])
def test_next_to_no_demand_has_the_plan_of_a_trickle(load, rate):
    changes = {"search.tp": [1]}
    trickle = plan(load(TWO, {**changes, "workload.rate": "1e-3 req/s"}), explain=False)
    less = plan(load(TWO, {**changes, "workload.rate": rate}), explain=False)
    assert less.evaluation.decision.pools == trickle.evaluation.decision.pools


def test_flow_values_read_back(load):
    error = InfeasibleError("links", "none", ["a link"], [{"links.A-B": {"between": ["A", "B"], "circuit": "10 Gbps", "rtt": "20 ms"}}])
    (line,) = [line for line in str(error).splitlines() if "would help" in line]
    change = line.split("--set '")[1].removesuffix("')")
    assert api.load_scenario(load(APART), [change]).links["A-B"].between == ("A", "B")


def test_time_ends_the_search_for_what_helps_and_the_message_says_so(load):
    """A second is too short for every limit of two rooms; the search for the plan itself ends sooner."""
    changes = {"workload.rate": "500 req/s", "search.time_limit": "1 s"}
    context = PlanContext.from_scenario(load(TWO, changes))
    search = Search.of(context, Effort(seconds=None))
    assert search.run().best is None
    started = time.monotonic()
    error = explain_infeasible(search)
    assert time.monotonic() - started < 20
    assert "search.time_limit 1 s" in error.detail or any("time ended" in text for text in error.relaxations)


def test_without_explanations_the_cause_comes_at_once(load):
    with pytest.raises(InfeasibleError) as caught:
        plan(load(CHAT, {TTFT: "30 ms"}), explain=False)
    assert caught.value.constraint == "sla.ttft"
    assert caught.value.relaxations == ()


@pytest.mark.parametrize(("value", "up"), [(0.31240001, 0.3125), (2.0, 2.0), (19999.0, 20000.0), (1e-3, 1e-3)])
def test_limits_are_rounded_up_to_four_digits(value, up):
    assert rounded_up(value) == up


def test_a_pair_is_told_where_no_single_change_helps(load):
    """Each chip takes one kind of request; one GPU of each is in stock, and the mix asks for more of both."""
    short = SPLIT.replace("{chip: h100-sxm,", "{chip: h100-sxm, stock: 1,").replace("{chip: h200-sxm,", "{chip: h200-sxm, stock: 1,")
    scenario = load(short, {"search.configurations_per_role": 2, "model.name": "deepseek-ai/DeepSeek-V3", "search.tp": [1]})
    with pytest.raises(InfeasibleError) as caught:
        plan(scenario)
    error = caught.value
    assert set(error.conflict) == {"stock", "demand"}
    assert error.relaxations[0] == "stock of 5 h100-sxm at A (has 1) and stock of 5 h200-sxm at A (has 1)"
    assert "no one of them loosened helps alone" in error.detail
    assert feasible(scenario, error.settings[0])
    for path, value in error.settings[0].items():
        assert not feasible(scenario, {**error.settings[0], path: value - 1})
