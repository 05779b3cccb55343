"""Models: config.json to layers; KV, weights, FLOPs and legality from them."""

from pddplan.model.catalog import load_model, model_names
from pddplan.model.config import parse_config, with_weights

__all__ = ["load_model", "model_names", "parse_config", "with_weights"]
