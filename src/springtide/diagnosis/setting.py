"""Settings of a run under canonical names (settings.toml), from what its framework calls them.

A framework's name may be a product or quotient of several, written with ` * ` and ` / `.
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from springtide.diagnosis.alias import AliasTable
from springtide.diagnosis.readers.values import number

FACTORS = re.compile(r" ([*/]) ")


@cache
def setting_meanings() -> dict[str, str]:
    return tomllib.loads((files("springtide.diagnosis") / "settings.toml").read_text())


def canonical_settings(settings: Mapping[str, Any], table: AliasTable) -> dict[str, Any]:
    found = {}
    for name, theirs in table.settings.items():
        for each in (theirs,) if isinstance(theirs, str) else theirs:
            value = _value(each, settings)
            if value is not None:
                found[name] = value
                break
    return found


def _value(expression: str, settings: Mapping[str, Any]) -> Any:
    first, *rest = FACTORS.split(expression)
    if not rest:
        return settings.get(first)
    total = number(settings.get(first))
    for sign, name in zip(rest[::2], rest[1::2], strict=True):
        factor = number(settings.get(name))
        if total is None or not factor:
            return None
        total = total * factor if sign == "*" else total / factor
    return total
