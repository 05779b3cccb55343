"""The golden table of shipped models; ``python tests/model/models_golden.py`` writes it anew (look at the difference before committing)."""

from __future__ import annotations

import csv
from pathlib import Path

from pddplan.model import load_model, model_names
from pddplan.model.kv_cache import kv_cache
from pddplan.model.weights import parameters, weight_bytes

TABLE = Path(__file__).parent.parent / "golden" / "models.csv"
COLUMNS = (
    "name", "params", "params_active", "weight_bytes", "kv_format", "kv_slope", "kv_constant", "kv_cap", "params_mtp", "params_vision",
)  # fmt: skip


def row(name: str) -> dict[str, str]:
    model = load_model(name)
    counted, cache = parameters(model), kv_cache(model)
    values = (
        name, counted.total, counted.active, round(weight_bytes(model)), cache.format, repr(cache.slope), repr(cache.constant),
        repr(cache.cap), model.mtp_params, model.vision_params,
    )
    return dict(zip(COLUMNS, map(str, values), strict=True))


def read_table() -> dict[str, dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {line["name"]: line for line in csv.DictReader(file)}


if __name__ == "__main__":
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row(name) for name in model_names())
