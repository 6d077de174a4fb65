"""Workloads and clusters that a user writes: TOML, checked by the models, one sentence for each mistake."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from springtide import settings
from springtide.core.errors import UsageError

SIZE_MAX = 2**20
"""Bytes; nobody writes as much by hand."""

Model = TypeVar("Model", bound=BaseModel)


def load(model: type[Model], path: Path) -> Model:
    """UsageError, a line per mistake."""
    data = parse(path)
    try:
        # As JSON: that takes a list for a tuple, and still no text for a number.
        return model.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        sentences = dict.fromkeys(_sentence(details, model, data) for details in error.errors())
        raise UsageError("\n".join(f"{path}: {sentence}" for sentence in sentences)) from None


def parse(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. UsageError if it is none."""
    with path.open("rb") as file:
        content = file.read(SIZE_MAX + 1)
    if len(content) > SIZE_MAX:
        raise UsageError(f"{path}: this has more than {SIZE_MAX // 2**20} MiB, too much for a file of settings.")
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: this is not valid TOML: {error}.") from None


def _sentence(details: ErrorDetails, model: type[BaseModel], data: Mapping[str, Any]) -> str:
    path = _path(details["loc"], data)
    name = ".".join(path)
    if details["type"] == "value_error":
        return f"{f'{name}: ' if name else ''}{details['ctx']['error']}."
    if details["type"] == "extra_forbidden":
        near = settings.nearest(model, path, data)
        places = settings.section_models(field.field) if (field := settings.find(model, path[:-1], data)) else (model,)
        there = f"it takes {', '.join(dict.fromkeys(name for each in places for name in each.model_fields))}"
        where = ".".join(path[:-1]) or "the file"
        return f"There is no setting {name}; {f'did you mean {near}?' if near else f'in {where}, {there}.'}"
    value = _at(path, data)
    if details["type"] == "missing":
        found = settings.find(model, path, data)
        return f"{name} is missing{f': it takes {found.allowed}' if found is not None else ''}."
    found = settings.find(model, path, data)
    takes = f"it takes {found.allowed}" if found is not None else details["msg"][:1].lower() + details["msg"][1:]
    if isinstance(value, Mapping) and "type" in value and details["type"].startswith("union_tag"):
        name, value = f"{name}.type", value["type"]
        takes = takes.replace("a section whose type is ", "")
    near = settings.nearest_value(found.field, value) if found is not None else None
    hint = f"; the nearest is {settings.show_value(near)}" if near else ""
    return f"{name} = {settings.show_value(value)} is not allowed: {takes}{hint}."


def _path(location: tuple[int | str, ...], data: Any) -> tuple[str, ...]:
    """Where the mistake is in the file: pydantic also names the kind of a section, which the file does not."""
    path: list[str] = []
    for number, part in enumerate(location):
        last = number == len(location) - 1
        if isinstance(data, Mapping):
            inside = part in data
            if not inside and not last:
                continue
            if not inside and part == data.get("type"):
                continue
            path.append(str(part))
            data = data.get(str(part))
        elif isinstance(data, list) and isinstance(part, int):
            path.append(str(part))
            data = data[part]
    return tuple(path)


def _at(path: tuple[str, ...], data: Any) -> Any:
    for part in path:
        data = data[int(part)] if isinstance(data, list) else data.get(part)
    return data
