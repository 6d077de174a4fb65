"""Text to tokens and back, and the model's chat template. Implemented in `policy`, used by the renderer."""

from collections.abc import Sequence
from typing import Any, Protocol


class ChatTokenizer(Protocol):
    """`name` is for error messages. `stop_tokens` end an assistant turn."""

    name: str
    stop_tokens: tuple[int, ...]

    def encode(self, text: str) -> list[int]:
        """Tokens of `text`, special tokens recognised, none added."""
        ...

    def decode(self, tokens: Sequence[int], *, skip_special: bool = False) -> str: ...

    def apply_template(
        self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]], generation_prompt: bool
    ) -> str:
        """The chat template's text for the conversation."""
        ...
