"""Bad scenarios: the place, what was found, what is accepted, all of it at once, exit 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pddplan import load_scenario
from pddplan.errors import InputError, Problem

Write = Callable[..., Path]


def problems_of(path: Path, overrides: tuple[str, ...] = ()) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        load_scenario(path, overrides)
    assert caught.value.exit_code == 2
    return caught.value.problems


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "found", "accepted"),
    [
        ("limit: 2 s", "limit: 200", 20, "workload.classes.chat.sla.ttft.limit", "200 has no unit", "200 ms"),
        ("engine: vllm", "enginee: vllm", 3, "enginee", "unknown key 'enginee'", "did you mean 'engine'?"),
        ("rate: 10 req/s", "rate: -10 req/s", 14, "workload.rate", "-10 req/s", "at least 0"),
        ("chip: h100-sxm", "chip: h100-smx", 7, "sites.A.chips[0].chip", "'h100-smx' is not a shipped chip", "h100-sxm"),
        ("hit_rate: {buckets: {0-90: 50 %, 90-100: 50 %}}", "hit_rate: 56.3", 19, "workload.classes.chat.hit_rate", "56.3", "at most 1"),
        ("90-100: 50 %", "90-100: 40 %", 19, "workload.classes.chat.hit_rate", "90 %", "100 %"),
        ("name: Qwen/Qwen3-32B", "name: Qwen/Qwen4-32B", 2, "model.name", "Qwen/Qwen4-32B", "Qwen"),
        ("stock: 16, price: 2.00", "stock: 0, price: 2.00", 7, "sites.A.chips[0].stock", "0", "over 0"),
        ("stock: 16, price: 2.00", "stock: -1, price: 2.00", 7, "sites.A.chips[0].stock", "-1", "over 0"),
        ("circuit: 100 Gbps", "circuit: 0 Gbps", 12, "links.A-B.circuit", "0 Gbps", "over 0"),
        ("circuit: 100 Gbps", "circuit: .inf", 12, "links.A-B.circuit", "inf is not a finite", "Gbps"),
        ("rate: 10 req/s", "rate: .nan", 14, "workload.rate", "nan is not a finite", "req/s"),
        ("price: 2.00 USD/h", "price: .nan", 7, "sites.A.chips[0].price", "nan is not a finite", "USD/h"),
        ("price: 2.00 USD/h", "price: 2.00", 7, "sites.A.chips[0].price", "2 has no unit", "USD/h"),
        ("input_tokens: 2k", "input_tokens: 0", 17, "workload.classes.chat.input_tokens", "0", ""),
        ("input_tokens: 2k", "input_tokens: -5", 17, "workload.classes.chat.input_tokens", "-5", ""),
        ("between: [A, B]", "between: [A, C]", 12, "links.A-B.between[1]", "no site 'C'", "A, B"),
        ("roles: [MD]", "roles: [MB]", 10, "sites.B.chips[0].roles[0]", "'MB'", "'MD'"),
        ("name: small", "name: true", 1, "name", "true", "text"),
        ("engine: vllm", "engine: vllm\nsearch: {tp: [0]}", 4, "search.tp[0]", "0", "over 0"),
        ("engine: vllm", "engine: vllm\nsearch: {tp: [-2]}", 4, "search.tp[0]", "-2", "over 0"),
        ("engine: vllm", "engine: vllm\nengine_options: {page_tokens: 0}", 4, "engine_options.page_tokens", "0", "over 0"),
        ("engine: vllm", "engine: vllm\nobjective: max-profit", 4, "objective", "'max-profit'", "'max-bcr'"),
        ("engine: vllm", "engine: vllm\nprefil_gpus: 4", 4, "prefil_gpus", "unknown key 'prefil_gpus'", "known here"),
        (
            "engine: vllm",
            "engine: vllm\npolicy: {prefil_chunk: 4}",
            4,
            "policy.prefil_chunk",
            "unknown key",
            "did you mean 'prefill_chunk'?",
        ),
        ("engine: vllm", "engine: vlm", 3, "engine", "'vlm'", "vllm"),
        ("engine: vllm", "engine: vllm\npolicy: 3", 4, "policy", "3", "a mapping"),
    ],
)
def test_a_fault_is_told_with_place_and_remedy(
    small: str, scenario_file: Write, old: str, new: str, line: int, path: str, found: str, accepted: str
) -> None:
    assert old in small
    file = scenario_file(small.replace(old, new, 1))
    problems = problems_of(file)
    assert [p.place for p in problems] == [f"{file}:{line} {path}"]
    assert found in problems[0].found
    assert accepted in problems[0].accepted


def test_a_duplicate_key_is_an_error_with_both_lines(small: str, scenario_file: Write) -> None:
    file = scenario_file(small + "engine: sglang\n")
    (problem,) = problems_of(file)
    assert problem.place == f"{file}:21"
    assert "'engine' stands twice (first on line 3)" in problem.found


@pytest.mark.parametrize("content", ["", "   \n", "# only a comment\n", "---\n"])
def test_an_empty_file_says_so(scenario_file: Write, content: str) -> None:
    (problem,) = problems_of(scenario_file(content))
    assert "empty" in problem.found
    assert "init" in problem.accepted


def test_all_problems_are_told_at_once(small: str, scenario_file: Write) -> None:
    bad = small.replace("10 req/s", "-1 req/s").replace("100 Gbps", "100").replace("h100-sxm", "h1000").replace("engine", "engin")
    places = {p.place.rsplit(" ", 1)[-1] for p in problems_of(scenario_file(bad))}
    assert places == {"workload.rate", "links.A-B.circuit", "sites.A.chips[0].chip", "engin"}


def test_yaml_1e3_is_a_number_and_still_needs_its_unit(small: str, scenario_file: Write) -> None:
    (problem,) = problems_of(scenario_file(small.replace("rate: 10 req/s", "rate: 1e3")))
    assert problem.found == "1000 has no unit"
    assert load_scenario(scenario_file(small.replace("input_tokens: 2k", "input_tokens: 1e3"))).digest == (
        load_scenario(scenario_file(small.replace("input_tokens: 2k", "input_tokens: 1000"))).digest
    )


@pytest.mark.parametrize("word", ["NO", "no", "on", "Off", "yes", "2026-11-30", "1:30", "0x1f"])
def test_words_that_yaml_1_1_turns_into_something_else_stay_text(small: str, scenario_file: Write, word: str) -> None:
    assert load_scenario(scenario_file(small.replace("name: small", f"name: {word}"))).name == word


def test_a_site_may_be_called_no(small: str, scenario_file: Write) -> None:
    text = small.replace("  A:\n", "  NO:\n").replace("[A, B]", "[NO, B]")
    assert list(load_scenario(scenario_file(text)).sites) == ["NO", "B"]


def test_on_switches_a_truth_value_on(small: str, scenario_file: Write) -> None:
    assert load_scenario(scenario_file(small + "policy: {tail_packing: off}\n")).policy.tail_packing is False


def test_missing_keys_are_named(scenario_file: Write) -> None:
    problems = problems_of(scenario_file("name: x\nsites: {A: {chips: [{stock: 3}]}}\n"))
    assert any("sites.A.chips[0].chip" in p.place and "missing" in p.found for p in problems)


def test_speculation_without_acceptance_length_is_an_error(small: str, scenario_file: Write) -> None:
    """SLA-11: never implied by the config."""
    file = scenario_file(small.replace("{name: Qwen/Qwen3-32B}", "{name: Qwen/Qwen3-32B, speculation: {draft_tokens: 1}}"))
    (problem,) = problems_of(file)
    assert problem.place == f"{file}:2 model.speculation"
    assert "acceptance" in problem.accepted or "accepted" in problem.accepted


def test_an_unknown_scenario_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'pdd-reference'"):
        load_scenario("pdd-refrence")


def test_text_outside_ascii_is_read_as_utf8_whatever_the_locale(small: str, scenario_file: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-07: nothing reads the file through the locale's encoding."""
    import locale

    monkeypatch.setattr(locale, "getpreferredencoding", lambda *_: "cp1252")
    for bom in ("", "\ufeff"):
        assert load_scenario(scenario_file(bom + small.replace("name: small", "name: 推理集群 é"))).name == "推理集群 é"


def test_a_file_that_is_not_utf8_names_the_line(small: str, scenario_file: Write) -> None:
    file = scenario_file(small.encode().replace(b"name: small", b"name: caf\xe9"))
    (problem,) = problems_of(file)
    assert problem.place == f"{file}:1"
    assert "0xe9 is not UTF-8" in problem.found


def test_paths_with_spaces_and_cjk_characters_work(small: str, tmp_path: Path) -> None:
    """IN-09."""
    folder = tmp_path / "计划 一"
    folder.mkdir()
    file = folder / "方案 1.yaml"
    file.write_text(small, encoding="utf-8")
    assert load_scenario(file).base == folder


@pytest.mark.parametrize(
    ("extra", "path", "found"),
    [
        ("plan: {pools: [{site: C, role: P, chip: h100-sxm, instances: 1}]}", "plan.pools[0].site", "no site 'C'"),
        ("plan: {pools: [{site: A, role: P, chip: h20-96, instances: 1}]}", "plan.pools[0].chip", "h20-96"),
        ("plan: {pools: [{site: A, role: P, chip: h100-sxm, instances: -1}]}", "plan.pools[0].instances", "-1"),
        ("plan: {pools: [{site: A, role: P, chip: h100-sxm, instances: 1, profile: 0}]}", "plan.pools[0].profile", "profile 0"),
        ("plan: {pools: [{site: A, role: P, chip: h100-sxm, instances: 1}], links: {A-C: 1}}", "plan.links.A-C", "no link 'A-C'"),
        ("plan: {pools: [{site: A, role: P, chip: h100-sxm, instances: 1}], links: {A-B: 9}}", "plan.links.A-B", "9 circuits"),
    ],
)
def test_counts_must_fit_the_sites_and_links(small: str, scenario_file: Write, extra: str, path: str, found: str) -> None:
    (problem,) = problems_of(scenario_file(small + extra + "\n"))
    assert problem.place.endswith(path)
    assert found in problem.found


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_truth_value_is_no_number(small: str, scenario_file: Write, value: str) -> None:
    file = scenario_file(small + f"search: {{configurations_per_role: {value}}}\n")
    assert any("must be a whole number" in problem.accepted for problem in problems_of(file))


def test_a_tab_is_told_as_a_tab(small: str, scenario_file: Write) -> None:
    (problem,) = problems_of(scenario_file(small.replace("sites:", "sites:\n\tA:", 1)))
    assert "a tab: YAML is indented with spaces" in problem.found


@pytest.mark.parametrize(
    ("extra", "path"),
    [
        ("search: {tp: [true]}", "search.tp[0]"),
        ("search: {tp: [1, false]}", "search.tp[1]"),
        ("search: {redundancy: {P: true}}", "search.redundancy.P"),
        ("plan: {pools: [{site: A, role: P, chip: h100-sxm, instances: 1}], links: {A-B: true}}", "plan.links.A-B"),
    ],
)
def test_a_truth_value_in_a_list_or_map_of_numbers_is_no_number(small: str, scenario_file: Write, extra: str, path: str) -> None:
    assert any(problem.place.endswith(path) for problem in problems_of(scenario_file(small + extra + "\n")))
