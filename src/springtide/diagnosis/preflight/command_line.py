"""Settings on a command line, or in the shell script that holds one: `--name value`, `--name=value`, and Hydra's
`a.b.c=value`.

Variables that the script sets itself to plain values are filled in; all others are named in a note and left out.
"""

import ast
import re
import shlex
from typing import Any

from springtide.diagnosis.preflight.value import plain_value

_ASSIGNMENT = re.compile(r"^\s*(?:export\s+|local\s+|readonly\s+)?([A-Za-z_]\w*)=(.*)$")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^{}]*))?\}|(\w+))")
_OVERRIDE = re.compile(r"^[+~]{0,2}([A-Za-z_][\w@/]*(?:\.[\w@/]+)*)=(.*)$", re.DOTALL)
_FLAG = re.compile(r"^--?([A-Za-z][\w.-]*)(?:=(.*))?$", re.DOTALL)


def parse_command_line(text: str) -> tuple[dict[str, Any], list[str]]:
    """(values by name, notes). The last value of a name counts."""
    joined = re.sub(r"\\\r?\n", " ", text)
    known: dict[str, str] = {}
    unknown: set[str] = set()
    values: dict[str, Any] = {}
    torn = 0
    for line in joined.splitlines():
        words = _words(line)
        if words is None:
            torn += 1
            continue
        assigned = _ASSIGNMENT.match(line)
        computed = assigned is not None and assigned[2].startswith("$((")
        if assigned and (len(words) <= 2 or computed):
            filled = _filled(assigned[2].partition("))")[0] + "))" if computed else _unquoted(assigned[2]), known)
            if filled is not None:
                known[assigned[1]] = filled
            continue
        values |= _settings(words, known, unknown)
    notes = [f"${name} is not set in the script: what it stands for was not read." for name in sorted(unknown)]
    if torn:
        notes.append(f"{torn} lines have a quotation without its end and were passed over.")
    return values, notes


def _words(line: str) -> list[str] | None:
    try:
        return shlex.split(line, comments=True, posix=True)
    except ValueError:
        return None


def _unquoted(text: str) -> str:
    words = _words(text)
    return words[0] if words else ""


def _settings(words: list[str], known: dict[str, str], unknown: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    waiting: str | None = None
    for word in words:
        flag = None if _is_negative(word) else _FLAG.match(word)
        override = None if flag else _OVERRIDE.match(word)
        name, raw = (flag[1], flag[2]) if flag else (override[1], override[2]) if override else (None, word)
        if name is None and waiting is None:
            continue
        if name is not None:
            found |= {waiting: True} if waiting is not None else {}
            waiting = name if raw is None else None
        if raw is None:
            continue
        target = name if name is not None else waiting
        filled = _filled(raw, known)
        if target is None:
            continue
        if filled is None:
            unknown |= {first or last for first, _, last in _VARIABLE.findall(raw)}
        else:
            found[_python_name(target)] = plain_value(filled)
        waiting = None
    if waiting is not None:
        found[_python_name(waiting)] = True
    return {_python_name(name): value for name, value in found.items()}


def _python_name(name: str) -> str:
    """Flags may be written with dashes."""
    return name.replace("-", "_")


def _is_negative(word: str) -> bool:
    return re.fullmatch(r"-\.?\d.*", word) is not None


def _filled(text: str, known: dict[str, str]) -> str | None:
    """With variables replaced; None if one is not known."""
    missing = False

    def value(found: re.Match[str]) -> str:
        nonlocal missing
        name = found[1] or found[3]
        if name in known:
            return known[name]
        if found[2] is not None:
            return found[2]
        missing = True
        return ""

    if "$(" in text or "`" in text:
        return _computed(text, known)
    filled = _VARIABLE.sub(value, text)
    return None if missing or "$" in filled else filled


def _computed(text: str, known: dict[str, str]) -> str | None:
    """`$((A * B))` with known numbers; no command is ever run."""
    inner = re.fullmatch(r"\$\(\((.*)\)\)", text.strip())
    if inner is None:
        return None
    names = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", lambda found: known.get(found[1], "?"), inner[1])
    if re.fullmatch(r"[\d\s+*/()-]{1,100}", names) is None or "**" in names:
        return None
    try:
        return str(_number(ast.parse(names.replace("//", "/"), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _number(node: ast.expr) -> int:
    """Arithmetic of whole numbers, as a shell does it."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.BinOp(left=left, op=operator, right=right):
            one, other = _number(left), _number(right)
            match operator:
                case ast.Add():
                    return one + other
                case ast.Sub():
                    return one - other
                case ast.Mult():
                    return one * other
                case ast.Div():
                    return one // other
    raise ValueError("not a number")
