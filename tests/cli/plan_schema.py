"""JSON Schema of what optimize and evaluate write: the contract of schema version 1. Keys may be added, never renamed."""

from __future__ import annotations

from typing import Any


def _object(required: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**required, **extra}, "required": list(required)}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 0}
SIZE = {"type": "integer", "minimum": 1}
AMOUNT = {"type": "number", "minimum": 0}
SHARE = {"type": "number", "minimum": 0, "maximum": 1}
LATENCY = {"type": ["number", "null"], "minimum": 0}
LOAD = {"type": ["number", "null"], "minimum": 0}
ANY_NUMBER = {"type": ["number", "null"]}

POOL = _object(
    {
        "model": TEXT, "site": TEXT, "role": {"enum": ["P", "RLD", "MD", "AGG"]}, "chip": TEXT, "engine": TEXT,
        "tp": SIZE, "pp": SIZE, "ep": SIZE, "dp": SIZE, "gpus_per_instance": SIZE, "instances": COUNT, "gpus": COUNT,
        "utilisation": LOAD, "cost_usd_per_h": AMOUNT,
    }
)  # fmt: skip
LINK = _object({"from": TEXT, "to": TEXT, "circuits": COUNT, "gbps": AMOUNT, "utilisation": LOAD, "cost_usd_per_h": AMOUNT})
METRICS = _object(
    {
        "goodput_rps": AMOUNT, "p_good": SHARE, "cost_usd_per_h": AMOUNT, "bcr": AMOUNT, "ttft_p50_s": LATENCY, "ttft_p90_s": LATENCY,
        "ttft_p99_s": LATENCY, "tpot_mean_s": LATENCY, "tpot_p99_s": LATENCY, "stall_p99_s": LATENCY, "e2e_p50_s": LATENCY,
        "e2e_p99_s": LATENCY, "rld_token_share": SHARE, "line_gbps_mean": AMOUNT, "line_gbps_needed": AMOUNT,
        "usd_per_million_output_tokens": ANY_NUMBER, "gpus": COUNT,
    }
)  # fmt: skip
PIPELINE = _object(
    {
        "name": {"enum": ["P-MD", "P-RLD-MD", "local", "P-RLD", "AGG"]},
        "share": SHARE, "ttft_p50_s": LATENCY, "ttft_p90_s": LATENCY, "ttft_p99_s": LATENCY,
    }
)  # fmt: skip
BASELINE = _object(
    {
        "name": {"enum": ["aggregated", "one_room_one_chip", "one_room_mixed", "two_rooms_no_hiding"]},
        "status": {"enum": ["optimal", "feasible", "infeasible", "evaluated"]},
        "pools": _list(POOL), "links": _list(LINK), "metrics": {"anyOf": [METRICS, {"type": "null"}]},
    }
)  # fmt: skip
PLAN = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_object(
        {
            "schema_version": {"const": 1},
            "scenario": _object({"name": TEXT, "digest": {"type": "string", "pattern": "^[0-9a-f]{16}$"}}),
            "status": {"enum": ["optimal", "feasible", "evaluated"]},
            "gap": AMOUNT,
            "objective": {"enum": ["max-bcr", "min-cost", "max-goodput"]},
            "pools": {**_list(POOL), "minItems": 1},
            "links": _list(LINK),
            "metrics": METRICS,
            "pipelines": _list(PIPELINE),
            "settings": _object({"relay_threshold_s": LATENCY, "p_threshold_tokens": ANY_NUMBER, "handoff": TEXT}),
            "baselines": _list(BASELINE),
            "binding": _list(_object({"constraint": TEXT})),
            "rejected": _list(_object({"candidate": TEXT, "reason": TEXT, "value": ANY_NUMBER, "limit": ANY_NUMBER})),
            "warnings": _list({"type": "string"}),
        }
    ),
}
