"""What a configuration asks for, in canonical terms: each setting with its value, and what the framework calls it."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import Field

from springtide.core.errors import UsageError
from springtide.diagnosis.preflight.document import Document
from springtide.diagnosis.preflight.value import as_number, as_truth
from springtide.scheduling.config import StrictModel


class FieldName(StrictModel):
    """The first of `keys` that a configuration has counts. `default`: the framework's own; `scale`: from its unit to
    ours."""

    keys: tuple[str, ...]
    default: Any = None


class FieldTable(StrictModel):
    """`signature`: names of which a configuration of this framework has one; one that ends in a dot stands for all that
    begin with it."""

    framework: str
    title: str
    signature: tuple[str, ...]
    fields: dict[str, FieldName] = Field(description="By canonical name.")


@dataclass(frozen=True)
class Plan:
    """`given`: canonical names that the configuration sets itself; the others have the framework's default."""

    framework: str
    source: str
    values: Mapping[str, Any]
    keys: Mapping[str, str]
    given: frozenset[str]
    gpus: int = 1
    notes: tuple[str, ...] = field(default=())

    def number(self, name: str) -> float | None:
        return as_number(self.values.get(name))

    def whole(self, name: str) -> int | None:
        found = self.number(name)
        return None if found is None else int(found)

    def truth(self, name: str) -> bool:
        return bool(as_truth(self.values.get(name)))

    def text(self, name: str) -> str:
        value = self.values.get(name)
        return "" if value is None else str(value)

    def key(self, name: str) -> str:
        """What the framework calls it."""
        return self.keys.get(name, name)

    def change(self, name: str, value: Any) -> str:
        """The setting as this framework writes it."""
        joint = "=" if self.framework == "verl" else " = "
        return f"{self.key(name)}{joint}{value}"


@cache
def field_tables() -> tuple[FieldTable, ...]:
    folder = files("springtide.diagnosis") / "preflight" / "fields"
    found = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name)
    return tuple(FieldTable.model_validate(tomllib.loads(each.read_text())) for each in found)


def plan_of(document: Document, *, gpus: int | None = None, given: Iterable[str] | None = None) -> Plan:
    """`given`: names that the user set, where the document is complete with defaults.

    UsageError if it is the configuration of no framework that is known."""
    table = next((each for each in field_tables() if _is_of(document.values, each)), None)
    if table is None:
        raise UsageError(
            f"{document.source} has none of the settings of a recipe, of TRL or of verl: name such a configuration, or "
            "the script that starts the run."
        )
    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    set_by_user = set(document.values if given is None else given)
    own = set()
    for name, entry in table.fields.items():
        key = next((each for each in entry.keys if each in document.values), None)
        keys[name] = key or entry.keys[0]
        values[name] = document.values[key] if key is not None else entry.default
        if key in set_by_user:
            own.add(name)
    return Plan(
        framework=table.framework,
        source=document.source,
        values=values,
        keys=keys,
        given=frozenset(own),
        gpus=gpus or _gpus(values),
        notes=document.notes,
    )


def _is_of(values: Mapping[str, Any], table: FieldTable) -> bool:
    return any(
        name in values or (name.endswith(".") and any(key.startswith(name) for key in values))
        for name in table.signature
    )


def _gpus(values: Mapping[str, Any]) -> int:
    per_node = as_number(values.get("gpus_per_node")) or 1
    return max(1, int(per_node * (as_number(values.get("nodes")) or 1)))
