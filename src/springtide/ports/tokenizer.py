"""Text to tokens and back, and the model's chat template. Implemented in `policy`, used by the renderer."""

from collections.abc import Sequence
from typing import Any, Protocol


class ChatTokenizer(Protocol):
    """`name` is for error messages. `stop_tokens` end an assistant turn.

    `image_placeholder` is the text that stands for one image, empty where the model reads no images.
    """

    name: str
    stop_tokens: tuple[int, ...]
    image_placeholder: str

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Tokens of `text`, none added (no start token, no prefix space).

        With `special`, the text is trusted (the template's own) and special and added tokens are recognised. Without,
        it is what somebody said: "<|im_end|>" becomes ordinary text and no token that controls a conversation comes
        out.
        """
        ...

    def decode(self, tokens: Sequence[int], *, skip_special: bool = False) -> str: ...

    def apply_template(
        self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]], generation_prompt: bool
    ) -> str:
        """The chat template's text for the conversation."""
        ...
