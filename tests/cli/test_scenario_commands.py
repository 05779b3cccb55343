"""init, validate, schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from pddplan.cli import run
from pddplan.scenario.load import shipped_scenarios


def test_the_starter_is_valid_and_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my plan.yaml"
    assert run(["init", str(file)]) == 0
    assert run(["validate", str(file)]) == 0
    before = file.read_bytes()
    assert run(["init", str(file)]) == 2
    assert "--force" in capsys.readouterr().err
    assert run(["init", str(file), "--force"]) == 0
    assert file.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["my plan.yaml"]


def test_validate_tells_problems_as_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: x\nenginee: y\n")
    assert run(["validate", str(file), "--json", "-"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["valid"] is False
    assert {p["found"] for p in document["problems"]} >= {"unknown key 'enginee'"}


def test_validate_echoes_how_a_bandwidth_was_read(capsys: pytest.CaptureFixture[str]) -> None:
    """UNIT-03: the case of b decides, so the reading is shown."""
    assert run(["validate", "pdd-reference", "--set", "links.A-B.circuit=400Gbps"]) == 0
    assert "links.A-B.circuit: 400Gbps = 50 GB/s = 400 Gbit/s" in capsys.readouterr().out


def test_the_schema_accepts_shipped_scenarios_and_refuses_unknown_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for path in shipped_scenarios().values():
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert validator.is_valid(document), path
        assert not validator.is_valid({**document, "enginee": "vllm"})
