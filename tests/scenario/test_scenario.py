"""Scenarios that are well: what they mean, that they read back, and their digest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from pddplan import load_scenario
from pddplan.errors import InputError
from pddplan.scenario.keys import json_schema
from pddplan.scenario.load import override, shipped_scenarios
from pddplan.scenario.schema import Scenario
from pddplan.scenario.variants import variants

Write = Callable[..., Path]


@pytest.mark.parametrize("name", sorted(shipped_scenarios()))
def test_a_shipped_scenario_reads_validates_and_reads_back(name: str) -> None:
    scenario = load_scenario(name)
    again = Scenario.model_validate(scenario.document(), context={"currency": scenario.currency})
    assert again == scenario.model_copy() or again.document() == scenario.document()
    assert again.digest == scenario.digest
    list(variants(scenario))
    document = yaml.safe_load(shipped_scenarios()[name].read_text(encoding="utf-8"))
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(document)


def test_the_reference_scenario_means_what_it_says() -> None:
    scenario = load_scenario("pdd-reference")
    link = scenario.links["A-B"]
    assert (link.circuit, link.per_flow, link.rtt, link.price) == (12.5e9, 0.15e9 / 8, 0.02, 120.0)
    assert [stock.price for _, _, stock in scenario.chips()] == [2.0, 2.5]
    workload = scenario.each_deployment()["main"].workload
    assert workload.rate == 11.5
    assert workload.classes["agent"].sla.ttft.percentiles() == {0.99: 15.0}
    assert workload.classes["agent"].sla.attainment == 0.95


def test_a_digest_does_not_depend_on_spelling(small: str, scenario_file: Write) -> None:
    one = load_scenario(scenario_file(small, "one.yaml"))
    other = (
        small.replace("2k", "2000").replace("10 req/s", "600 req/min").replace("100 Gbps", "12.5 GB/s").replace("50 ms", "{limit: 0.05 s}")
    )
    assert load_scenario(scenario_file(other, "two.yaml")).digest == one.digest
    assert override(one, {"workload.rate": "11 req/s"}).digest != one.digest


def test_a_scenario_cannot_be_changed_in_place(small: str, scenario_file: Write) -> None:
    scenario = load_scenario(scenario_file(small))
    with pytest.raises(ValidationError):
        scenario.name = "other"  # type: ignore[misc]


def test_the_short_form_is_one_deployment_and_both_forms_together_are_an_error(small: str, scenario_file: Write) -> None:
    scenario = load_scenario(scenario_file(small))
    assert list(scenario.each_deployment()) == ["main"]
    document = scenario.document()
    shared = {key: document.pop(key) for key in ("model", "workload", "engine")}
    several = Scenario.model_validate({**document, "deployments": {"one": shared, "two": shared}})
    assert list(several.each_deployment()) == ["one", "two"]
    with pytest.raises(ValidationError, match="both deployments and a top-level"):
        Scenario.model_validate({**document, **shared, "deployments": {"one": shared}})


def test_objective_may_carry_its_budget(small: str, scenario_file: Write) -> None:
    inner = load_scenario(scenario_file(small + "objective: {goal: max-goodput, budget: 500 USD/h, served_share_min: 0.9}\n"))
    outer = load_scenario(scenario_file(small + "objective: max-goodput\nbudget: 500 USD/h\nserved_share_min: 90 %\n"))
    assert inner.digest == outer.digest
    file = scenario_file(small + "objective: {goal: max-goodput, budget: 500}\n")
    with pytest.raises(InputError, match=r"plan\.yaml:21 objective\.budget: 500 has no unit"):
        load_scenario(file)


def test_another_currency_is_a_label_for_all_prices(small: str, scenario_file: Write) -> None:
    text = small.replace("USD", "CNY") + "currency: CNY\n"
    scenario = load_scenario(scenario_file(text))
    assert scenario.sites["A"].chips[0].price == 2.0
    assert override(scenario, {"workload.rate": "5 req/s"}).currency == "CNY"
    with pytest.raises(InputError, match="is in CNY, the scenario in USD"):
        load_scenario(scenario_file(text.replace("currency: CNY\n", "")))


def test_a_profiled_instance_is_read_in_its_three_forms() -> None:
    from pddplan.scenario.instances import ProfiledInstance

    prefill = ProfiledInstance.model_validate(
        {
            "role": "P", "gpus": 8, "interpolation": "cubic",
            "prefill_s": {"uncached": ["1k", "8k", "32k", "128k"], "seconds": [0.44, 0.72, 1.84, 7.40]},
            "kv_bytes": {"uncached": ["1k", "8k"], "bytes": ["190.8 MiB", 3e8]},
        }
    )  # fmt: skip
    assert prefill.prefill_s is not None
    assert prefill.prefill_s.uncached == (1e3, 8e3, 32e3, 128e3)
    assert prefill.kv_bytes is not None
    assert prefill.kv_bytes.bytes == (190.8 * 2**20, 3e8)
    decode = ProfiledInstance.model_validate(
        {"role": "MD", "gpus": 8, "step_s": {"batch": [1, 20], "seconds": [0.02, 0.025]}, "batch_max": 20}
    )
    assert decode.batch_max == 20
    both = {"role": "AGG", "gpus": 1, "rate": {"input": ["1k", "2k"], "output": [100, 200], "req_per_s": [[2, 1], [5, 0]]}}
    assert ProfiledInstance.model_validate(both).rate is not None


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ({"role": "P", "gpus": 8}, "without prefill_s"),
        ({"role": "MD", "gpus": 8}, "without step_s"),
        ({"role": "AGG", "gpus": 8}, "without prefill_s and step_s"),
        ({"role": "P", "gpus": 8, "prefill_s": {"uncached": [1, 2], "seconds": [1]}}, "differ in length"),
        ({"role": "P", "gpus": 8, "prefill_s": {"uncached": [2, 1], "seconds": [1, 2]}}, "does not increase"),
        ({"role": "AGG", "gpus": 1, "rate": {"input": [1, 2], "output": [1], "req_per_s": [[1]]}}, "req_per_s is 1 rows"),
    ],
)
def test_an_incomplete_profile_is_refused(profile: dict[str, object], message: str) -> None:
    from pddplan.scenario.instances import ProfiledInstance

    with pytest.raises(ValidationError, match=message):
        ProfiledInstance.model_validate(profile)


def test_a_faulty_variant_is_named(small: str, scenario_file: Write) -> None:
    scenario = load_scenario(scenario_file(small + "variants:\n  more: {workload.rate: 20 req/s}\n  worse: {workload.rate: 20}\n"))
    with pytest.raises(InputError, match=r"plan\.yaml:23 variants\.worse: workload\.rate: 20 has no unit"):
        list(variants(scenario))


def test_a_plan_document_reads_back_as_its_scenario_with_counts(small: str, scenario_file: Write) -> None:
    import json

    scenario = load_scenario(scenario_file(small))
    plan = {
        "schema_version": 1,
        "scenario": {"name": scenario.name, "digest": scenario.digest, "document": scenario.document()},
        "pools": [{"deployment": "main", "site": "A", "role": "P", "chip": "h100-sxm", "instances": 3, "tp": 2, "pp": 1, "dp": 1, "ep": 1}],
        "links": [{"name": "A-B", "from": "A", "to": "B", "circuits": 1}],
        "settings": {
            "relay_threshold_s": None,
            "handoff": "auto",
            "prefill_chunk_tokens": 4096,
            "tail_packing": True,
            "p_threshold_tokens": None,
        },
    }
    read = load_scenario(scenario_file(json.dumps(plan), "plan.json"))
    assert read.plan is not None
    assert (read.plan.pools[0].instances, read.plan.pools[0].tp, read.plan.links) == (3, 2, {"A-B": 1})
    assert (read.policy.relay_threshold, read.policy.prefill_chunk) == ("never", 4096)
    assert read.sites == scenario.sites


def test_a_problem_found_while_planning_gets_its_line(small: str, scenario_file: Write) -> None:
    from pddplan.api import located
    from pddplan.errors import Problem

    file = scenario_file(small)
    with pytest.raises(InputError) as caught, located(load_scenario(file)):
        raise InputError([Problem("sites.A.chips[0].price", "is missing", ""), Problem("somewhere else", "x", "")])
    assert [p.place for p in caught.value.problems] == [f"{file}:7 sites.A.chips[0].price", "somewhere else"]


def test_a_plan_document_finds_the_files_of_its_scenario_from_any_folder(tmp_path: Path) -> None:
    import json

    from pddplan.scenario.plan_file import base_of

    own = tmp_path / "own"
    own.mkdir()
    (own / "model.json").write_text("{}", encoding="utf-8")
    shipped = load_scenario("agent-trace")
    mine = override(load_scenario("01-minimal"), {"model.name": "model.json"})
    mine._base = own
    for scenario, base in ((shipped, "shipped"), (mine, own.resolve().as_posix())):
        assert base_of(scenario) == base
        inner = {"name": "x", "digest": "0", "base": base, "document": scenario.document()}
        pools = [{"site": site, "role": "P", "chip": stock.chip, "instances": 1} for site, _, stock in scenario.chips()][:1]
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"schema_version": 1, "scenario": inner, "pools": pools}), encoding="utf-8")
        from pddplan.scenario import load

        assert load.load_scenario(plan).base.resolve() == scenario.base.resolve()
    assert base_of(load_scenario("01-minimal")) is None
