"""Chats to imitate from a file: JSON lines with `messages` and, optionally, `tools`, as model hubs publish them.

Tool calls may be flat ({"name", "arguments"}) or wrapped ({"function": {"name", "arguments"}}), with arguments as an
object or as JSON text; tools likewise.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from springtide.core.errors import UsageError
from springtide.core.message import Message, ToolSchema


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """One line. Messages have `role`, `content` and, for an assistant that calls tools, `tool_calls`."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()


def read_chats(path: Path) -> list[Chat]:
    """All chats of the file. UsageError names the line that is not one."""
    chats = list(_chats(path))
    if not chats:
        raise UsageError(f"--data {path}: the file holds no chats; write one JSON object with 'messages' per line.")
    return chats


def _chats(path: Path) -> Iterator[Chat]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _chat(line, f"--data {path}, line {number}")
    except OSError as error:
        raise UsageError(f"--data {path}: the file cannot be read ({error.strerror}); name one that can.") from error


def _chat(line: bytes, where: str) -> Chat:
    try:
        chat = msgspec.convert(_flat(msgspec.json.decode(line)), Chat)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where}: this is not a chat: {error}.") from None
    roles = [message.role for message in chat.messages]
    if not roles or roles[0] == "assistant" or "assistant" not in roles:
        raise UsageError(f"{where}: a chat starts with a system or user message and has an assistant message.")
    return chat


def _flat(raw: Any) -> Any:
    """The published forms of tool calls and tools in the form of our records; anything else as it is."""
    if not isinstance(raw, dict):
        return raw
    flat = dict(raw)
    if isinstance(flat.get("tools"), list):
        flat["tools"] = [_unwrapped(tool) for tool in flat["tools"]]
    if flat.get("tools") is None:
        flat.pop("tools", None)
    if isinstance(flat.get("messages"), list):
        flat["messages"] = [_flat_message(message) for message in flat["messages"]]
    return flat


def _flat_message(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    message = {key: value for key, value in raw.items() if value is not None}
    if isinstance(message.get("tool_calls"), list):
        message["tool_calls"] = [_flat_call(call) for call in message["tool_calls"]]
    return message


def _flat_call(raw: Any) -> Any:
    call = _unwrapped(raw)
    if isinstance(call, dict) and isinstance(call.get("arguments"), str):
        try:
            call = call | {"arguments": msgspec.json.decode(call["arguments"])}
        except msgspec.DecodeError as error:
            raise msgspec.DecodeError(
                f"`arguments` of the call of {call.get('name')!r} is not JSON: {error}, in {call['arguments'][:80]!r}"
            ) from None
    return call


def _unwrapped(raw: Any) -> Any:
    if isinstance(raw, dict) and isinstance(raw.get("function"), dict):
        identity = {"id": raw["id"]} if isinstance(raw.get("id"), str) else {}
        return raw["function"] | identity
    return raw
