"""What a recipe may say: every setting's dotted path, what is allowed there, and the nearest valid name.

All of it is read off the pydantic models, so that an error message can never disagree with the validation.
"""

import difflib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

Path = tuple[str, ...]

NONE = "none"
"""How a recipe writes the absence of a value: TOML has no null."""

SIMILAR = 0.6
"""Similarity (difflib's ratio) from which a name is worth proposing."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One name that a recipe may use; a section's `section` lists the models that it may hold."""

    path: Path
    field: FieldInfo
    sections: tuple[type[BaseModel], ...] = ()

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def default(self) -> Any:
        """The class default; `PydanticUndefined` where the recipe must say."""
        return self.field.get_default(call_default_factory=True)

    @property
    def required(self) -> bool:
        return self.default is PydanticUndefined

    @property
    def allowed(self) -> str:
        """What the setting takes, as the object of "it takes ..."."""
        return allowed(self.field)


def section_models(field: FieldInfo) -> tuple[type[BaseModel], ...]:
    """The models that a section may hold (several where `type` decides); empty for a plain setting."""
    options = get_args(field.annotation) if _is_union(field.annotation) else (field.annotation,)
    return tuple(option for option in options if isinstance(option, type) and issubclass(option, BaseModel))


def tag_of(model: type[BaseModel]) -> str | None:
    """The value of `type` that selects `model`."""
    field = model.model_fields.get("type")
    return str(get_args(field.annotation)[0]) if field is not None else None


def chosen_model(field: FieldInfo, data: Any) -> type[BaseModel] | None:
    """The model that section `data` selects by its `type`; None if it does not say."""
    models = section_models(field)
    if len(models) == 1:
        return models[0]
    tag = data.get("type") if isinstance(data, Mapping) else None
    return next((model for model in models if tag_of(model) == tag), None)


def walk(model: type[BaseModel], data: Mapping[str, Any] | None = None, prefix: Path = ()) -> Iterator[Setting]:
    """All settings under `model`, sections included. Where `data` selects a section's type, only that type's."""
    for name, field in model.model_fields.items():
        path = (*prefix, name)
        inner = data.get(name) if isinstance(data, Mapping) else None
        models = section_models(field)
        yield Setting(path=path, field=field, sections=models)
        chosen = chosen_model(field, inner)
        for option in (chosen,) if chosen is not None else models:
            yield from walk(option, inner if isinstance(inner, Mapping) else None, path)


def find(model: type[BaseModel], path: Path, data: Mapping[str, Any] | None = None) -> Setting | None:
    return next((setting for setting in walk(model, data) if setting.path == path), None)


def nearest(model: type[BaseModel], path: Path, data: Mapping[str, Any] | None = None) -> str | None:
    """The valid dotted name that most resembles `path`: first by its last part, then as a whole."""
    wanted = ".".join(path)
    best: tuple[float, str] | None = None
    for setting in walk(model, data):
        likeness = _likeness(path[-1], setting.path[-1])
        if likeness < SIMILAR:
            continue
        score = likeness + _likeness(wanted, setting.name)
        if best is None or score > best[0]:
            best = (score, setting.name)
    return best[1] if best is not None else None


def nearest_value(field: FieldInfo, value: Any) -> str | None:
    """The allowed word that most resembles `value`."""
    words = [tag for model in section_models(field) if (tag := tag_of(model)) is not None]
    words += [str(word) for word in _literals(field.annotation)]
    matches = difflib.get_close_matches(str(value), words, n=1, cutoff=SIMILAR)
    return matches[0] if matches else None


def allowed(field: FieldInfo) -> str:
    """What `field` takes, as the object of "it takes ..."."""
    models = section_models(field)
    if models:
        tags = [tag for model in models if (tag := tag_of(model)) is not None]
        return f"a section whose type is {_one_of(tags)}" if tags else "a section"
    return _describe(field.annotation) + _bounds(field)


def is_plain(annotation: Any, value: Any) -> bool:
    """Whether `value` is what `annotation` means and not something that pydantic would take for it: text, or a truth
    value, in place of a number, a number or a word in place of a truth value, a number that is not finite.

    Bounds, lengths, words and sections are left to pydantic.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is bool:
        return isinstance(value, bool)
    if annotation in (int, float):
        return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)
    if origin is Annotated:
        return is_plain(arguments[0], value)
    if _is_union(annotation):
        return any(is_plain(option, value) for option in arguments)
    if origin is tuple and isinstance(value, list | tuple):
        return all(is_plain(arguments[0], item) for item in value)
    if origin is Literal:
        return not isinstance(value, bool) or any(isinstance(word, bool) for word in arguments)
    return annotation is not NoneType or value is None


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond the largest float
        return False


def show_value(value: Any, *, limit: int = 60) -> str:
    """`value` as TOML would write it, on one line, shortened to `limit` characters."""
    text = _toml(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _toml(value: Any) -> str:
    if value is None:
        return json.dumps(NONE)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return str(value)


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType)


def _literals(annotation: Any) -> list[Any]:
    """All words that some Literal inside `annotation` allows."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [word for part in get_args(annotation) for word in _literals(part)]


def _one_of(words: list[Any]) -> str:
    shown = [show_value(word) for word in words]
    return shown[0] if len(shown) == 1 else f"one of {', '.join(shown)}"


def _describe(annotation: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    if annotation in names:
        return names[annotation]
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        inner = FieldInfo.from_annotation(annotation)
        return _describe(inner.annotation) + _bounds(inner)
    if get_origin(annotation) is Literal:
        return _one_of(list(arguments))
    if _is_union(annotation):
        parts = ["'none'" if part is NoneType else _describe(part) for part in arguments]
        return " or ".join(parts)
    if get_origin(annotation) is tuple:
        if arguments[-1] is Ellipsis:
            return f"a list, each {_describe(arguments[0])}"
        return f"a list of {len(arguments)}, each {_describe(arguments[0])}"
    return "a table"


def _bounds(field: FieldInfo) -> str:
    """Limits from the field's metadata, as a suffix."""
    words = {
        "ge": "of at least {}",
        "gt": "above {}",
        "le": "of at most {}",
        "lt": "below {}",
        "min_length": "with at least {} of them",
        "pattern": "matching {}",
    }
    parts = []
    for metadata in field.metadata:
        for attribute, wording in words.items():
            bound = getattr(metadata, attribute, None)
            if bound is not None:
                parts.append(wording.format(bound))
    return " " + " and ".join(parts) if parts else ""


def _likeness(left: str, right: str) -> float:
    return difflib.SequenceMatcher(None, left, right).ratio()
