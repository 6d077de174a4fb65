"""A fitted workload as TOML, with what is known of each number beside it."""

import textwrap
from typing import Any

import tomli_w
from pydantic import BaseModel

from springtide.simulation.traces.fit import Fit

WIDTH = 118


def text_of(fit: Fit) -> str:
    """What `toml_file.load` makes the same workload of."""
    lines = [_comment("Fitted to a recorded trace; change what you like, and play it with `springtide simulate FILE`.")]
    lines += [_comment(note) for note in fit.notes]
    for name in type(fit.workload).model_fields:
        value = getattr(fit.workload, name)
        if value is None or (name not in fit.comments and name not in ("name", "about", "latency_factor")):
            continue
        comment = fit.comments.get(name)
        lines.append(f"{name} = {_value(value)}" + (f"  # {comment}" if comment else ""))
    return "\n".join(lines) + "\n"


def _comment(note: str) -> str:
    return textwrap.fill(" ".join(note.split()), WIDTH, initial_indent="# ", subsequent_indent="#   ")


def _value(value: Any) -> str:
    if isinstance(value, BaseModel):
        settings = {"type": "", **value.model_dump(exclude_defaults=True)}
        shown = ", ".join(f"{name} = {_value(each)}" for name, each in settings.items())
        return f"{{ {shown} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(_value(each) for each in value)}]"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").strip()
