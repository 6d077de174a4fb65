"""From a framework's key to the metrics it stands for, by an alias table.

A key may have a logger's prefix. An exact alias goes before one with `*`, and of several with `*` the one with the most
letters of its own; so a key that is ignored by more letters than any alias has is ignored.
"""

import re
from functools import cached_property
from typing import NamedTuple

from springtide.diagnosis.alias import AliasTable


class Meaning(NamedTuple):
    """`metric`: the canonical name, with the star's part filled in; `alias`: its entry in the table; `rank`: place of
    the key in that entry, 0 for the one that counts most."""

    metric: str
    alias: str
    rank: int


class Pattern(NamedTuple):
    expression: re.Pattern[str]
    weight: int
    alias: str
    rank: int


class KeyMap:
    def __init__(self, table: AliasTable) -> None:
        self._table = table
        self._known: dict[str, tuple[Meaning, ...]] = {}

    def find(self, key: str) -> tuple[Meaning, ...]:
        """All metrics that the key stands for; none if no alias covers it."""
        if key not in self._known:
            self._known[key] = self._find(key)
        return self._known[key]

    def bare(self, key: str) -> str:
        """The key without its logger's prefix and suffix, where the table has any."""
        prefix = max((each for each in self._table.prefixes if key.startswith(each)), key=len, default="")
        suffix = max((each for each in self._table.suffixes if key.endswith(each)), key=len, default="")
        return key[len(prefix) : len(key) - len(suffix)]

    def ignored(self, key: str) -> bool:
        return any(expression.fullmatch(name) for name in (key, self.bare(key)) for expression, _ in self._ignored)

    def _find(self, key: str) -> tuple[Meaning, ...]:
        for name in (key, self.bare(key)):
            if name in self._exact:
                return self._exact[name]
        found = [(each, match) for each in self._patterns for match in self._matches(each, key)]
        most = max((each.weight for each, _ in found), default=0)
        if any(weight > most for expression, weight in self._ignored if expression.fullmatch(key)):
            return ()
        return tuple(
            Meaning(each.alias.replace("*", match[1]), each.alias, each.rank)
            for each, match in found
            if each.weight == most
        )

    def _matches(self, pattern: Pattern, key: str) -> list[re.Match[str]]:
        found = (pattern.expression.fullmatch(name) for name in dict.fromkeys((self.bare(key), key)))
        return [match for match in found if match is not None][:1]

    @cached_property
    def _exact(self) -> dict[str, tuple[Meaning, ...]]:
        found: dict[str, tuple[Meaning, ...]] = {}
        for name, alias in self._table.metrics.items():
            for rank, key in enumerate(alias.keys):
                if "*" not in key:
                    found[key] = (*found.get(key, ()), Meaning(name, name, rank))
        return found

    @cached_property
    def _patterns(self) -> tuple[Pattern, ...]:
        return tuple(
            Pattern(_expression(key), len(key.replace("*", "")), name, rank)
            for name, alias in self._table.metrics.items()
            for rank, key in enumerate(alias.keys)
            if "*" in key
        )

    @cached_property
    def _ignored(self) -> tuple[tuple[re.Pattern[str], int], ...]:
        return tuple((_expression(key, "(.*)"), len(key.replace("*", ""))) for key in self._table.ignored)


def _expression(key: str, star: str = "(.+)") -> re.Pattern[str]:
    return re.compile(star.join(re.escape(part) for part in key.split("*")), re.DOTALL)
