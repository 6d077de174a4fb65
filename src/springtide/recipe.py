"""Recipes: from a name or a file to a checked `Recipe`, and back to TOML.

A recipe is data until it is complete: overrides are applied to the TOML tables, sections are completed from their own
defaults, and one validation decides. Every mistake becomes one sentence that names the setting, the value and what is
allowed, in a `UsageError`.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticUndefined

from springtide import settings
from springtide.config import Recipe
from springtide.core.errors import UsageError
from springtide.environments.config import CustomConfig
from springtide.policy.config import PretrainedModelConfig

ROOT = "recipe"
"""What messages call the top level."""


def builtin_recipes() -> dict[str, str]:
    """TOML text of the recipes that come with the package, by name."""
    folder = resources.files("springtide.recipes")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return {file.name.removesuffix(".toml"): file.read_text(encoding="utf-8") for file in files}


def load_recipe(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of that built-in name or file, with `path.to.setting=value` overrides applied.

    An override's value is read as TOML, or as text where it is not TOML. Its path may leave out inner sections as long
    as one setting only fits. Choosing another `type` starts that section afresh. UsageError, one sentence per mistake.
    """
    data = _parse(_read(str(name_or_path)), str(name_or_path))
    for override in sorted(overrides, key=_precedence):
        _override(data, override)
    return recipe_from(data, source=str(name_or_path))


def recipe_from(data: Mapping[str, Any], *, source: str = ROOT) -> Recipe:
    """Check plain tables. UsageError with one sentence per mistake."""
    problems: list[str] = []
    complete = _complete(Recipe, data, None, (), problems)
    try:
        recipe = Recipe.model_validate(complete)
    except ValidationError as error:
        problems += [sentence for sentence in _sentences(error, data, fitting=not problems) if sentence not in problems]
    if not problems:
        return recipe
    raise UsageError("\n".join(f"{source}: {problem}" for problem in problems))


def dump_recipe(recipe: Recipe) -> str:
    """The resolved recipe as TOML, every setting spelled out; `load_recipe` of it gives an equal recipe."""
    return tomli_w.dumps(_plain(recipe))


def anchored(recipe: Recipe) -> Recipe:
    """The recipe with absolute paths of the environment's file and the model's folder, so that its run can be resumed
    from anywhere."""
    changes: dict[str, Any] = {}
    if isinstance(recipe.environment, CustomConfig):
        file, colon, name = recipe.environment.path.rpartition(":")
        if colon and file.endswith(".py"):
            path = f"{Path(file).expanduser().absolute()}:{name}"
            changes["environment"] = recipe.environment.model_copy(update={"path": path})
    if isinstance(recipe.model, PretrainedModelConfig):
        path = str(Path(recipe.model.path).expanduser().absolute())
        changes["model"] = recipe.model.model_copy(update={"path": path})
    return recipe.model_copy(update=changes)


def annotated_recipe(recipe: Recipe) -> str:
    """`dump_recipe` with each setting's meaning and what it takes as a comment."""
    data = recipe.model_dump()
    by_name = {setting.name: setting for setting in settings.walk(Recipe, data)}
    lines, section = [], ""
    for line in dump_recipe(recipe).splitlines():
        if header := re.fullmatch(r"\[(.+)\]", line):
            section = header[1] + "."
        key = re.match(r"(\w+) = ", line)
        setting = by_name.get(section + key[1]) if key else None
        if setting is None:
            lines.append(line)
            continue
        description = f"{setting.field.description} " if setting.field.description else ""
        lines.append(f"{line}  # {description}({setting.allowed})")
    return "\n".join(lines) + "\n"


def _read(name: str) -> str:
    builtin = builtin_recipes()
    if name in builtin:
        return builtin[name]
    path = Path(name)
    if path.is_dir():
        path = path / "recipe.toml"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        close = difflib.get_close_matches(name, builtin, n=1)
        hint = f"; did you mean {close[0]}?" if close else "."
        raise UsageError(
            f"There is no recipe '{name}': it is neither a file nor one of {', '.join(builtin)}{hint}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The recipe '{name}' cannot be read: {error}.") from None


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: this is not valid TOML: {error}.") from None


def _precedence(override: str) -> tuple[bool, int]:
    """Types first, outer ones before inner ones: they decide which settings there are. The rest keeps its order."""
    key = override.partition("=")[0].strip()
    return (False, key.count(".")) if key.endswith(".type") else (True, 0)


def _override(data: dict[str, Any], text: str) -> None:
    key, equals, raw = text.partition("=")
    parts = tuple(part.strip() for part in key.split("."))
    if not equals or not all(parts):
        raise UsageError(
            f"--set {text}: write it as section.setting=value, such as training.optimizer.learning_rate=1e-5."
        )
    path = _full_path(parts, data)
    *sections, last = path
    table = data
    for section in sections:
        inner = table.get(section)
        if not isinstance(inner, dict):
            inner = table[section] = {}
        table = inner
    value = _value(raw.strip(), path, data)
    if last == "type" and table.get("type", value) != value and settings.find(Recipe, path) is not None:
        table.clear()
    table[last] = value


def _full_path(parts: settings.Path, data: Mapping[str, Any]) -> settings.Path:
    """`parts`, or the one setting that they abbreviate by leaving out inner sections."""
    paths = {setting.path for setting in settings.walk(Recipe, data)}
    if parts in paths or len(parts) < 2:
        return parts
    longer = [path for path in paths if path[0] == parts[0] and path[-1] == parts[-1] and _abbreviates(parts, path)]
    return longer[0] if len(longer) == 1 else parts


def _abbreviates(parts: Iterable[str], path: Iterable[str]) -> bool:
    remaining = iter(path)
    return all(part in remaining for part in parts)


def _value(raw: str, path: settings.Path, data: Mapping[str, Any]) -> Any:
    try:
        parsed = tomllib.loads(f"value = {raw}")
    except tomllib.TOMLDecodeError:
        return raw
    if set(parsed) != {"value"}:
        return raw
    setting = settings.find(Recipe, path, data)
    if setting is not None and setting.field.annotation is str and not isinstance(parsed["value"], str):
        return raw
    return parsed["value"]


def _complete(
    model: type[BaseModel], data: Mapping[str, Any], base: BaseModel | None, path: settings.Path, problems: list[str]
) -> dict[str, Any]:
    """`data` with "none" read as None, and under each section what that section's own default sets.

    `base` holds the defaults that apply here, None for the model's own. Adds to `problems` what pydantic would let
    through, such as text in place of a number.
    """
    result = dict(data)
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True) if base is None else getattr(base, name)
        value = result.get(name, PydanticUndefined)
        if value is PydanticUndefined:
            if base is not None:
                result[name] = default
        elif settings.section_models(field) and isinstance(value, Mapping):
            result[name] = _complete_section(name, field, value, default, path, problems)
        elif value == settings.NONE and type(None) in getattr(field.annotation, "__args__", ()):
            result[name] = None
        elif not settings.section_models(field) and not settings.is_plain(field.annotation, value):
            problems.append(_wrong_value((*path, name), field, value))
    return result


def _complete_section(
    name: str,
    field: Any,
    value: Mapping[str, Any],
    default: Any,
    path: settings.Path,
    problems: list[str],
) -> Mapping[str, Any]:
    if "type" not in value and isinstance(default, BaseModel) and settings.tag_of(type(default)):
        value = {"type": settings.tag_of(type(default)), **value}
    chosen = settings.chosen_model(field, value)
    if chosen is None:
        return value
    base = default if type(default) is chosen else None
    return _complete(chosen, value, base, (*path, name), problems)


def _sentences(error: ValidationError, data: Mapping[str, Any], *, fitting: bool) -> list[str]:
    """One for each mistake. `fitting`: also for settings that do not fit together, which only right ones are asked."""
    sentences: list[str] = []
    for details in error.errors():
        if not (details["loc"] or fitting):
            continue
        for sentence in _explain(details, data):
            if sentence not in sentences:
                sentences.append(sentence)
    return sentences


def _explain(details: ErrorDetails, data: Mapping[str, Any]) -> list[str]:
    if details["type"] == "value_error":
        where = f"{'.'.join(map(str, _location(details)[0]))}: " if details["loc"] else ""
        return [where + line for line in str(details["ctx"]["error"]).splitlines()]
    path, model, field = _location(details)
    if details["type"] == "extra_forbidden":
        return [_unknown(path, details["input"], model, data)]
    assert field is not None, f"pydantic reports {details['type']} outside of any setting"
    value = _lookup(data, path)
    if details["type"].startswith("union_tag"):
        path = (*path, "type")
        value = value.get("type", PydanticUndefined) if isinstance(value, Mapping) else value
    if value is PydanticUndefined:
        return [f"{'.'.join(path)} is missing: it takes {_allowed_at(path, field)}."]
    return [_wrong_value(path, field, value)]


def _location(details: ErrorDetails) -> tuple[settings.Path, type[BaseModel], Any]:
    """The dotted path of an error, the model it is in and the field, None where there is no such field."""
    model: type[BaseModel] = Recipe
    path: settings.Path = ()
    field = None
    for part in details["loc"]:
        models = settings.section_models(field) if field is not None else ()
        if len(models) > 1:
            model = next(option for option in models if settings.tag_of(option) == part)
            field = None
            continue
        if len(models) == 1:
            model = models[0]
        elif field is not None:
            break
        path = (*path, str(part))
        field = model.model_fields.get(str(part))
    return path, model, field


def _unknown(path: settings.Path, value: Any, model: type[BaseModel], data: Mapping[str, Any]) -> str:
    valid = ", ".join(model.model_fields)
    where = f"[{'.'.join(path[:-1])}]" if len(path) > 1 else "the top level"
    sections = difflib.get_close_matches(path[-1], model.model_fields, n=1)
    while isinstance(value, Mapping) and len(value) == 1:
        (key, value), *_ = value.items()
        path = (*path, key)
    near = settings.nearest(Recipe, path, data) or (sections[0] if sections else None)
    hint = f"; the nearest valid name is {near}" if near else ""
    if settings.find(Recipe, path) is not None:
        hint = f"; {'.'.join(path)} goes with another {'.'.join(path[:-1])}.type"
    return f"Unknown setting {'.'.join(path)} = {settings.show_value(value)}: {where} takes {valid}{hint}."


def _wrong_value(path: settings.Path, field: Any, value: Any) -> str:
    near = settings.nearest_value(field, value)
    hint = f"; the nearest is {settings.show_value(near)}" if near else ""
    return f"{'.'.join(path)} = {settings.show_value(value)} is not allowed: it takes {_allowed_at(path, field)}{hint}."


def _allowed_at(path: settings.Path, field: Any) -> str:
    text = settings.allowed(field)
    return text.removeprefix("a section whose type is ") if path[-1] == "type" else text


def _lookup(data: Any, path: settings.Path) -> Any:
    for part in path:
        if not isinstance(data, Mapping) or part not in data:
            return PydanticUndefined
        data = data[part]
    return data


def _plain(model: BaseModel) -> dict[str, Any]:
    """`model` as TOML tables; the absence of a value is written "none"."""
    result: dict[str, Any] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        result[name] = _plain(value) if isinstance(value, BaseModel) else settings.NONE if value is None else value
    return result
