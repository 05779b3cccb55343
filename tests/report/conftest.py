from __future__ import annotations

import pytest
from report_plan import HOSTILE_NAME, evaluated, result_of

from pddplan.optimize.result import PlanResult
from pddplan.pdd.context import PlanContext


@pytest.fixture(scope="session")
def planned() -> tuple[PlanContext, PlanResult]:
    context, evaluation = evaluated({"name": HOSTILE_NAME})
    return context, result_of(context, evaluation)
