"""Results as JSON documents: the machine-readable side of optimize and evaluate. Keys are only ever added within a schema version."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from pddplan.errors import InfeasibleError
from pddplan.optimize.result import PlanResult
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Evaluation, LinkResult, Metrics, PoolResult
from pddplan.pdd.timeline import timelines
from pddplan.report.money import money_document
from pddplan.scenario.plan_file import base_of
from pddplan.scenario.schema import Scenario
from pddplan.units import GBPS_BYTES_PER_S

SCHEMA_VERSION = 1


def json_text(document: Mapping[str, Any]) -> str:
    """Document as JSON text: UTF-8, keys in the order given, infinity and NaN (no value) as null."""
    return json.dumps(_finite(document), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        return float(value) if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return _finite(value.tolist())


def plan_document(result: PlanResult, scenario: Scenario) -> dict[str, Any]:
    """A planning result with the scenario it came from; ``load_scenario`` reads it back with the counts fixed."""
    evaluation, context = result.evaluation, PlanContext.from_scenario(scenario)
    feedback = evaluation.feedback
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": {"name": scenario.name, "digest": scenario.digest, "base": base_of(scenario), "document": scenario.document()},
        "currency": scenario.currency,
        "status": result.status,
        "gap": result.gap,
        "objective": result.objective.kind,
        "objective_value": result.objective.value,
        "objective_bound": result.objective.bound,
        "objective_unit": result.objective.unit,
        **evaluation_document(evaluation),
        "baselines": [
            {
                "name": baseline.name,
                "status": baseline.status,
                "reason": baseline.reason,
                **(evaluation_document(baseline.evaluation) if baseline.evaluation else {"pools": [], "links": [], "metrics": None}),
            }
            for baseline in result.baselines
        ],
        "binding": [asdict(binding) for binding in result.binding],
        "rejected": [asdict(rejection) for rejection in result.rejected],
        "warnings": list(dict.fromkeys((*result.warnings, *evaluation.warnings))),
        "timeline": [asdict(timeline) for timeline in timelines(context, evaluation)],
        "stability": {"bounded": feedback.bounded, **asdict(feedback)} if feedback else None,
        "pd_ratio": asdict(result.pd_ratio) if result.pd_ratio else None,
        "purchase": dict(result.purchase),
        "money": money_document(result.money) if result.money else None,
        "search": asdict(result.search),
    }


def evaluation_document(evaluation: Evaluation) -> dict[str, Any]:
    """Pools, links, metrics, pipelines and settings of an evaluated plan."""
    settings = evaluation.decision.settings
    return {
        "pools": [_pool(pool) for pool in evaluation.pools],
        "links": [_link(link) for link in evaluation.links],
        "ways": list(ways_of(evaluation)),
        "metrics": asdict(evaluation.metrics),
        "pipelines": [
            {
                "name": pipeline.name,
                "share": pipeline.share,
                "ttft_p50_s": pipeline.ttft_p50_s,
                "ttft_p90_s": pipeline.ttft_p90_s,
                "ttft_p99_s": pipeline.ttft_p99_s,
            }
            for pipeline in evaluation.pipelines
        ],
        "settings": asdict(settings),
        "purchases": [
            {
                "site": bought.site,
                "chip": bought.chip,
                "reserved_gpus": bought.mix.reserved,
                "on_demand_gpus": bought.mix.on_demand,
                "spot_gpus": bought.mix.spot,
                "cost_usd_per_h": bought.mix.per_hour,
                "gpus_in_use": bought.used,
                "time_share": bought.time_share,
            }
            for bought in evaluation.purchases
        ],
        "stable": evaluation.stable,
        "violations": [asdict(violation) for violation in evaluation.violations],
        "classes": {
            name: {f"{law}_{label}_s": values.quantile(q) for law, values in laws.items() for label, q in _PERCENTILES}
            for name, laws in evaluation.class_laws.items()
        },
    }


_PERCENTILES = (("p50", 0.50), ("p90", 0.90), ("p99", 0.99))


def ways_of(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """How a divided deployment's traffic goes: pools, counted from 0, with the share of every class that they serve."""
    for way in evaluation.decision.ways:
        prefix = f"{evaluation.decision.pools[way.pools[0]].configuration.deployment}."
        own = [name.removeprefix(prefix) for name in evaluation.class_laws if name.startswith(prefix)]
        names = own if len(own) == len(way.class_shares) else list(evaluation.class_laws)
        yield {"pools": list(way.pools), "share": dict(zip(names, way.class_shares, strict=True))}


def _pool(result: PoolResult) -> dict[str, Any]:
    configuration = result.pool.configuration
    parallel = configuration.parallel
    return {
        "deployment": configuration.deployment,
        "model": configuration.model,
        "site": configuration.site,
        "role": configuration.role,
        "chip": configuration.chip,
        "engine": configuration.engine,
        "tp": parallel.tp,
        "pp": parallel.pp,
        "ep": parallel.moe_ep,
        "dp": parallel.dp,
        "profile": configuration.profile,
        "gpus_per_instance": configuration.gpus_per_instance,
        "instances": result.pool.instances,
        "gpus": result.pool.gpus,
        "utilisation": result.utilisation,
        "cost_usd_per_h": result.cost_usd_per_h,
        "binding_resource": result.binding_resource,
        "batch_mean": result.batch_mean,
        "batch_max": result.batch_max,
    }


def _link(result: LinkResult) -> dict[str, Any]:
    link = result.link
    return {
        "name": link.name,
        "from": link.from_site,
        "to": link.to_site,
        "circuits": link.circuits,
        "circuit_gbps": link.circuit_bytes_per_s / GBPS_BYTES_PER_S,
        "gbps": link.circuits * link.circuit_bytes_per_s / GBPS_BYTES_PER_S,
        "utilisation": result.utilisation,
        "cost_usd_per_h": result.cost_usd_per_h,
        "gbps_mean": result.bytes_per_s_mean / GBPS_BYTES_PER_S,
        "gbps_needed": result.bytes_per_s_needed / GBPS_BYTES_PER_S,
        "gbps_mean_without_md_cache": result.bytes_per_s_mean_without_md_cache / GBPS_BYTES_PER_S,
    }


def relative(metrics: Metrics, base: Metrics) -> dict[str, float]:
    """Each metric relative to the base's, minus 1 (0.278 is 27.8 % more); metrics without a base value are left out."""
    mine, theirs = asdict(metrics), asdict(base)
    changes = {name: mine[name] / theirs[name] - 1 for name in mine if mine[name] is not None and theirs[name]}
    return {name: change for name, change in changes.items() if math.isfinite(change)}


def infeasible_document(error: InfeasibleError, scenario: Scenario) -> dict[str, Any]:
    """The answer that no plan exists: which constraint, by how much, and what would help."""
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": {"name": scenario.name, "digest": scenario.digest, "document": scenario.document()},
        "status": "infeasible",
        "constraint": error.constraint,
        "detail": error.detail,
        "relaxations": list(error.relaxations),
        "relaxation_settings": [dict(settings) for settings in error.settings],
        "conflict": list(error.conflict),
    }
