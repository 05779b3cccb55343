"""A comparison as a JSON document."""

from __future__ import annotations

from typing import Any

from pddplan.scenario.schema import Scenario
from pddplan.simulate.compare import CONFIDENCE, MISS, Comparison

SCHEMA_VERSION = 1


def comparison_document(found: Comparison, scenario: Scenario) -> dict[str, Any]:
    """Keys by metric name; deviation is predicted / simulated - 1, null where one of the two has no value."""
    decision = found.evaluation.decision
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": {"name": scenario.name, "digest": scenario.digest},
        "requests": found.requests,
        "seed": found.seed,
        "seeds": found.seeds,
        "predicted": dict(found.predicted),
        "simulated": dict(found.simulated),
        "deviation": dict(found.deviation),
        "interval": {name: {"low": low, "high": high} for name, (low, high) in found.interval.items()},
        "confidence": CONFIDENCE,
        "miss": {name: name in found.misses for name in found.predicted},
        "miss_over": MISS,
        "misses": list(found.misses),
        "pipelines": [
            {
                "name": name,
                "simulated_share": share,
                "predicted_share": sum(p.share for p in found.evaluation.pipelines if p.name == name),
            }
            for name, share in found.pipelines.items()
        ],
        "pools": [
            {
                "site": pool.configuration.site,
                "role": pool.configuration.role,
                "chip": pool.configuration.chip,
                "instances": pool.instances,
                "simulated_load": found.pool_load.get(i),
                "predicted_load": found.evaluation.pools[i].utilisation,
            }
            for i, pool in enumerate(decision.pools)
        ],
        "links": [
            {
                "name": link.link.name,
                "simulated_load": found.line_load.get(link.link.name),
                "predicted_load": link.utilisation,
            }
            for link in found.evaluation.links
        ],
        "stable": found.evaluation.stable,
        "warnings": [*found.warnings, *found.evaluation.warnings],
    }
