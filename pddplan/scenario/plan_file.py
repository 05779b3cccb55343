"""The plan JSON of an earlier run, read back as a scenario whose ``plan`` section holds the counts found then."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pddplan.data_files import data_root
from pddplan.errors import InputError, Problem
from pddplan.scenario.document import Document
from pddplan.scenario.schema import Scenario

SHIPPED = "shipped"

_POOL_KEYS = ("site", "role", "chip", "instances", "tp", "pp", "dp", "ep", "profile", "deployment")


def scenario_of_plan(document: Document, base: Path) -> tuple[Document, Path]:
    """The scenario inside a plan document, its counts fixed, and the folder its files are relative to; any other document as it is.

    Raises InputError.
    """
    data = document.value
    if "schema_version" not in data or not isinstance(data.get("scenario"), dict):
        return document, base
    inner = data["scenario"].get("document")
    if not isinstance(inner, dict) or not isinstance(data.get("pools"), list):
        raise InputError(
            Problem(
                document.file,
                "is a result without scenario.document and pools",
                "give the JSON that optimize or evaluate wrote with --json",
            )
        )
    value: dict[str, Any] = {**inner}
    try:
        value["plan"] = {
            "pools": [{key: pool[key] for key in _POOL_KEYS if pool.get(key) is not None} for pool in data["pools"]],
            "links": {link["name"]: link["circuits"] for link in data.get("links", [])},
            "ways": data.get("ways") or [],
        }
        value = _with_settings(value, data.get("settings") or {})
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(
            Problem(
                document.file, f"its pools, links or settings cannot be read ({error!r})", "give the JSON as optimize or evaluate wrote it"
            )
        ) from None
    written = data["scenario"].get("base")
    if isinstance(written, str):
        base = data_root() / "scenarios" if written == SHIPPED else Path(written)
    return Document(value, {}, document.file, document.problems), base


def base_of(scenario: Scenario) -> str | None:
    """What a plan document says of the folder of its scenario's files: nothing where the scenario names no file."""
    if not any(os.path.isfile(scenario.base / text) for text in _texts(scenario.document()) if "." in text):
        return None
    base = scenario.base.resolve()
    return SHIPPED if base == (data_root() / "scenarios").resolve() else base.as_posix()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _with_settings(value: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    fixed: dict[str, Any] = {}
    if settings.get("relay_threshold_s") is not None:
        fixed["relay_threshold"] = settings["relay_threshold_s"]
    elif "relay_threshold_s" in settings:
        fixed["relay_threshold"] = "never"
    for key, name in (("handoff", "handoff"), ("prefill_chunk", "prefill_chunk_tokens"), ("tail_packing", "tail_packing")):
        if settings.get(name) is not None:
            fixed[key] = settings[name]
    if settings.get("p_threshold_tokens") is not None:
        fixed["p_routing"] = {"threshold": settings["p_threshold_tokens"]}
    if settings.get("md_cache_bytes") is not None:
        fixed["md_cache"] = {"per_instance": f"{settings['md_cache_bytes']!r} B"}
    if "deployments" in value:
        deployments = {name: {**inner, "policy": _merged(inner.get("policy"), fixed)} for name, inner in value["deployments"].items()}
        return {**value, "deployments": deployments}
    return {**value, "policy": _merged(value.get("policy"), fixed)}


def _merged(policy: dict[str, Any] | None, fixed: dict[str, Any]) -> dict[str, Any]:
    merged = {**(policy or {}), **fixed}
    if "p_routing" in fixed:
        merged["p_routing"] = {**((policy or {}).get("p_routing") or {}), **fixed["p_routing"]}
    return merged
