"""Finds a user's environment class by `FILE.py:CLASS` or `package.module:CLASS` and tells what kind it is."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any

from springtide.core.errors import UsageError
from springtide.environments.text import TextEnvironment

_FIELD = "environment.path"


class Kind(StrEnum):
    CONTRACT = "contract"
    """`async` reset, step, verify and close: the full Environment contract, TextEnvironment included."""
    GYM = "gym"
    """Gymnasium's reset and step over text."""


def load_class(path: str) -> tuple[type[Any], Kind]:
    """The class at `path`, and its kind. UsageError names what is missing and what would do."""
    target, colon, name = path.rpartition(":")
    if not colon or not target or not name:
        raise UsageError(f'{_FIELD} = "{path}" names no class; write FILE.py:CLASS or package.module:CLASS.')
    module = _file(path, target) if target.endswith(".py") else _module(path, target)
    found = getattr(module, name, None)
    if found is None:
        known = sorted(key for key, value in vars(module).items() if _defined_in(value, module))
        raise UsageError(
            f'{_FIELD} = "{path}": there is no {name} in {target} (it defines {", ".join(known) or "no class"}).'
        )
    if not isinstance(found, type):
        raise UsageError(f'{_FIELD} = "{path}": {name} is a {type(found).__name__}, not a class.')
    return found, _kind(path, found)


def check_options(path: str, found: type[Any], options: dict[str, Any]) -> None:
    """UsageError unless the constructor takes `options`."""
    try:
        inspect.signature(found).bind(**options)
    except TypeError as error:
        raise UsageError(f'environment.options do not fit the constructor of "{path}": {error}.') from error


def _file(path: str, target: str) -> ModuleType:
    file = Path(target).expanduser().resolve()
    if not file.is_file():
        raise UsageError(f'{_FIELD} = "{path}": there is no file {target} (looked in {Path.cwd()}).')
    name = f"springtide_user_{hashlib.blake2b(str(file).encode(), digest_size=6).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise _import_failed(path, error) from error
    return module


def _module(path: str, target: str) -> ModuleType:
    try:
        return importlib.import_module(target)
    except ModuleNotFoundError as error:
        if error.name is not None and (target == error.name or target.startswith(f"{error.name}.")):
            raise UsageError(
                f'{_FIELD} = "{path}": there is no module {error.name}; install it, or name a file: {target}.py:CLASS.'
            ) from error
        raise _import_failed(path, error) from error
    except BaseException as error:
        raise _import_failed(path, error) from error


def _import_failed(path: str, error: BaseException) -> BaseException:
    if isinstance(error, KeyboardInterrupt):
        return error
    return UsageError(f'{_FIELD} = "{path}" cannot be imported: {type(error).__name__}: {error}.')


def _defined_in(value: object, module: ModuleType) -> bool:
    return isinstance(value, type) and value.__module__ == module.__name__


def _kind(path: str, found: type[Any]) -> Kind:
    contract = ("reset", "step", "verify", "close")
    missing = [name for name in contract if not inspect.iscoroutinefunction(getattr(found, name, None))]
    if issubclass(found, TextEnvironment):
        missing = [name for name in ("start", "reply") if getattr(found, name) is getattr(TextEnvironment, name)]
        if missing:
            raise UsageError(f'{_FIELD} = "{path}" derives from TextEnvironment without {" and ".join(missing)}.')
    if not missing:
        return Kind.CONTRACT
    gym = [getattr(found, name, None) for name in ("reset", "step")]
    if all(callable(hook) and not inspect.iscoroutinefunction(hook) for hook in gym):
        return Kind.GYM
    raise UsageError(
        f'{_FIELD} = "{path}" is not an environment: async {", ".join(missing)} missing. Derive the class from '
        "springtide.environments.text.TextEnvironment, implement the Environment contract, or give it Gymnasium's "
        "reset and step."
    )
