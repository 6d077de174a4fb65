"""Tool calls as text: a JSON object with `name` and `arguments` between <tool_call> tags, any number of them.

Reading never raises: what cannot be read becomes a `parse_error` on the message, and the environment decides what that
earns. A message is read as a whole or not at all, so that a half-understood turn never acts.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from springtide.core.message import Message, ToolCall, ToolSchema

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_TAG = re.compile(r"(</?tool_call>)")
_THOUGHT = re.compile(r"(</?think>)")


def schema_object(tool: ToolSchema) -> dict[str, Any]:
    """A tool schema in the form that chat templates expect."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def schema_line(tool: ToolSchema) -> str:
    return json.dumps(schema_object(tool)["function"], ensure_ascii=False)


def instructions(tools: Sequence[ToolSchema]) -> str:
    """What a model is told where its chat template has no tools of this format."""
    example = '{"name": "NAME", "arguments": {}}'
    lines = ["Tools, one JSON object per line:", *(schema_line(tool) for tool in tools)]
    return "\n".join([*lines, f"Call a tool by {OPEN}{example}{CLOSE}"])


def write(message: Message) -> list[tuple[str, bool]]:
    """The text of an assistant message in pieces; True marks the tags, where added tokens may be recognised: as the
    model samples them, a demonstration has to show them."""
    parts = _THOUGHT.split(message.text)
    pieces = [(part, place % 2 == 1) for place, part in enumerate(parts) if part]
    for call in message.tool_calls:
        body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
        pieces += [(f"\n{OPEN}\n" if pieces else f"{OPEN}\n", True), (body, False), (f"\n{CLOSE}", True)]
    return pieces


def read(text: str) -> Message:
    """The inverse of `write`, for any text at all."""
    pieces = _TAG.split(text)
    expected = OPEN
    for tag in pieces[1::2]:
        if tag != expected:
            return _unreadable(text, f"{tag} out of place")
        expected = CLOSE if tag == OPEN else OPEN
    if expected == CLOSE:
        return _unreadable(text, f"{CLOSE} is missing")
    calls: list[ToolCall] = []
    for body in pieces[2::4]:
        call = _call(body, id=f"call_{len(calls)}")
        if isinstance(call, str):
            return _unreadable(text, call)
        calls.append(call)
    if not calls:
        return Message(role="assistant", content=text)
    return Message(role="assistant", content="".join(pieces[0::4]).strip(), tool_calls=tuple(calls))


def _unreadable(text: str, error: str) -> Message:
    return Message(role="assistant", content=text, parse_error=error)


def _call(body: str, *, id: str) -> ToolCall | str:  # noqa: A002
    """The call, or what is wrong with it. Only what the journal can store is accepted (no integer over 64 bits)."""
    try:
        value = msgspec.json.decode(body)
        msgspec.msgpack.encode(value)
    except (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError) as error:
        return f"not JSON: {error}"
    if not isinstance(value, dict):
        return "not a JSON object"
    unknown = sorted(value.keys() - {"name", "arguments"})
    if unknown:
        return f"unknown key '{unknown[0]}'"
    name, arguments = value.get("name"), value.get("arguments", {})
    if not isinstance(name, str) or not name:
        return "'name' must be a non-empty string"
    if not isinstance(arguments, dict):
        return "'arguments' must be an object"
    return ToolCall(name=name, arguments=arguments, id=id)
