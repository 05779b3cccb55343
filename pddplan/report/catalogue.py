"""Every label of the report in English and Chinese; the one place where report text lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pddplan.errors import InputError, Problem
from pddplan.report.catalogue_text import TEXT

Lang = Literal["en", "zh"]
LANGUAGES: Mapping[str, int] = {"en": 0, "zh": 1}


def translator(lang: str) -> Callable[..., str]:
    """Function (key, **values) -> text of ``lang``.

    Raises InputError for a language there is no catalogue of, KeyError for a key it lacks (a bug).
    """
    if lang not in LANGUAGES:
        raise InputError(Problem("--lang", f"'{lang}' has no catalogue", f"one of {', '.join(LANGUAGES)}", "zh"))
    index = LANGUAGES[lang]

    def translate(key: str, **values: object) -> str:
        return TEXT[key][index].format(**values)

    return translate
