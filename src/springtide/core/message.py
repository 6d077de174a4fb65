"""What passes between the agent and its environment: chat messages with text, image references and tool calls."""

from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    text: str


class ImagePart(msgspec.Struct, frozen=True, kw_only=True, tag="image"):
    """A reference to an image; the bytes live in the run folder, addressed by their SHA-256."""

    sha256: str
    media_type: str
    width: int
    height: int


Part = TextPart | ImagePart


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call as the agent wrote it. `arguments` is the parsed JSON object."""

    name: str
    arguments: dict[str, Any] = {}
    id: str = ""


class ToolSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the agent may call; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any] = {}


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One chat message. `content` is plain text, or parts where images are involved.

    `parse_error` is set on an assistant message whose text looked like a tool call but could not be read as one: the
    environment decides what such a message earns.
    """

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    parse_error: str = ""

    @property
    def text(self) -> str:
        """The message's text, images left out."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))
