"""A configuration as people keep it, read to flat names and values: JSON, TOML, YAML where it is installed, Python
with a configuration in it, a command line or the script that holds one. Nothing is ever run or imported.
"""

import ast
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from springtide.core.errors import UsageError
from springtide.diagnosis.preflight.command_line import parse_command_line
from springtide.diagnosis.preflight.python_source import parse_python

LARGEST = 16 * 2**20
"""Bytes of a configuration that are read."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """`values`: by dotted name. `notes`: what could not be read of it."""

    source: str
    values: dict[str, Any]
    notes: tuple[str, ...] = ()


def read_document(path: Path) -> Document:
    """UsageError if the file is not there or nothing that is known."""
    try:
        raw = path.read_bytes()[:LARGEST]
        text = raw.decode("utf-8")
    except FileNotFoundError:
        raise UsageError(f"There is no file {path}: name a recipe, a TRL or verl configuration, or a script.") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder: name the configuration's file in it.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as text ({error}): name a configuration or a script.") from None
    values, notes = _reader(path, text)(text, path)
    return Document(source=str(path), values=values, notes=tuple(notes))


Parsed = tuple[dict[str, Any], list[str]]


def _reader(path: Path, text: str) -> Callable[[str, Path], Parsed]:
    known = {
        ".json": _json,
        ".toml": _toml,
        ".yaml": _yaml,
        ".yml": _yaml,
        ".py": _python,
        ".ipynb": _notebook,
        ".sh": _shell,
        ".bash": _shell,
        ".args": _shell,
    }
    if path.suffix in known:
        return known[path.suffix]
    return _json if text.lstrip().startswith("{") else _shell


def _json(text: str, path: Path) -> Parsed:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _literal(text, path)
    return flat(_mapping(value, path)), []


def _literal(text: str, path: Path) -> Parsed:
    """A dict as Python prints it."""
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise UsageError(f"{path} is neither JSON nor a Python dict: mend it, or give another form.") from None
    return flat(_mapping(value, path)), []


def _toml(text: str, path: Path) -> Parsed:
    try:
        return flat(tomllib.loads(text)), []
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from None


def _yaml(text: str, path: Path) -> Parsed:
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ModuleNotFoundError:
        raise UsageError(
            f"{path} is YAML, which takes PyYAML to read: run `pip install pyyaml`, or give the configuration as JSON, "
            "TOML or the command line."
        ) from None
    try:
        value = yaml.load(text, Loader=_scientific(yaml))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from None
    return flat(_mapping(value, path)), []


def _scientific(yaml: Any) -> Any:
    """A safe loader that takes 1e-6 for the number that everybody means by it."""
    loader = type("Loader", (yaml.SafeLoader,), {})
    pattern = re.compile(r"^[-+]?(?:\d[\d_]*)?\.?\d+[eE][-+]?\d+$")
    loader.add_implicit_resolver("tag:yaml.org,2002:float", pattern, list("-+0123456789."))  # type: ignore[attr-defined]
    return loader


def _python(text: str, path: Path) -> Parsed:
    try:
        return parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} is not valid Python: {error}.") from None


def _notebook(text: str, path: Path) -> Parsed:
    try:
        cells = json.loads(text).get("cells", [])
        sources = ["".join(cell.get("source", "")) for cell in cells if cell.get("cell_type") == "code"]
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise UsageError(f"{path} is not a notebook: name a configuration or a script.") from None
    code = "\n".join(line for source in sources for line in source.splitlines() if not re.match(r"\s*[%!]", line))
    return _python(code, path)


def _shell(text: str, path: Path) -> Parsed:
    return parse_command_line(text)


def _mapping(value: Any, path: Path) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise UsageError(f"{path} holds no table of settings: its top level has to be one.")


def flat(table: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables under dotted names; a value that wandb wraps, as {"value": x}, is unwrapped."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if set(value) <= {"value", "desc"} and "value" in value:
                value = value["value"]
            if isinstance(value, Mapping):
                found |= flat(value, f"{name}.")
                continue
        found[name] = value
    return found
