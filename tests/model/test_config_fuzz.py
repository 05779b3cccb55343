"""Damaged configs: whatever is wrong with a value, the answer is a list of problems or a model, never a crash."""

import copy
import json
import random

import pytest

from pddplan.errors import InputError
from pddplan.model import parse_config
from pddplan.model.catalog import profile_folder
from pddplan.model.describe import describe
from pddplan.model.kv_cache import kv_cache
from pddplan.model.spec import Parallel

VALUES = [None, -1, 0, 1, 3, "x", [], [1], {}, {"a": 1}, 1.5, True, 10**9, float("nan"), ["full_attention"], [None] * 200]
FILES = sorted(path for path in profile_folder().glob("*_config.json") if not path.name.endswith("hf_quant_config.json"))


def damaged(chance, config):
    section = config
    while True:
        key = chance.choice(sorted(section))
        inner = section[key]
        if isinstance(inner, dict) and inner and chance.random() < 0.8:
            section = inner
            continue
        break
    if chance.random() < 0.2:
        del section[key]
    else:
        section[key] = copy.deepcopy(chance.choice(VALUES))
    return config


def survives(seed, rounds):
    chance = random.Random(seed)
    refused = 0
    for _ in range(rounds):
        config = damaged(chance, json.loads(chance.choice(FILES).read_text(encoding="utf-8")))
        try:
            model = parse_config(config, "m")
            describe(model, kv_cache(model), Parallel(), context_tokens=1000.0)
        except InputError:
            refused += 1
    return refused


def test_a_damaged_config_is_a_problem_never_a_crash():
    assert survives(11, 60) > 5


@pytest.mark.slow
def test_many_damaged_configs_are_problems_never_crashes():
    assert survives(12, 1500) > 100
