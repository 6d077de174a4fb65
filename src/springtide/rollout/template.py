"""A chat template as token pieces around contents.

The template is rendered with a placeholder for each content and cut at the placeholders. The pieces are the template's
own text, encoded with special tokens recognised; contents are encoded without, so that nothing anybody says can
become a control token. Pieces depend on the roles only, so each role pattern is rendered once.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from springtide.core.errors import UsageError
from springtide.core.message import Role
from springtide.ports.tokenizer import ChatTokenizer

_PAD = "\t \t"
"""Surrounds each placeholder: where it is gone, the template trims contents, and so does the renderer."""


class Gap(msgspec.Struct, frozen=True):
    """Where a content goes: whether the template trims it."""

    trim: bool


class Pieces(msgspec.Struct, frozen=True):
    """`texts` has one entry more than `gaps`: the template's text before, between and after the contents."""

    texts: tuple[str, ...]
    tokens: tuple[tuple[int, ...], ...]
    gaps: tuple[Gap, ...]


class ChatTemplate:
    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer = tokenizer
        self._cache: dict[tuple[tuple[Role, ...], str, bool], Pieces] = {}

    def pieces(
        self, roles: tuple[Role, ...], *, tools: Sequence[dict[str, Any]] = (), generation_prompt: bool = True
    ) -> Pieces:
        """The template around contents of these roles. UsageError when it refuses them or loses a content."""
        key = (roles, repr(tools) if tools else "", generation_prompt)
        if key not in self._cache:
            self._cache[key] = self._render(roles, tools, generation_prompt)
        return self._cache[key]

    def text(self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]] = ()) -> str:
        """The template's own rendering, generation prompt included."""
        try:
            return self.tokenizer.apply_template(messages, tools=tools, generation_prompt=True)
        except Exception as error:  # a template may raise anything
            raise self._refused([message["role"] for message in messages], error) from error

    def _render(self, roles: tuple[Role, ...], tools: Sequence[dict[str, Any]], generation_prompt: bool) -> Pieces:
        marks = [f"Qz{index:04d}placeholder{index:04d}zQ" for index in range(len(roles))]
        messages = [{"role": role, "content": f"{_PAD}{mark}{_PAD}"} for role, mark in zip(roles, marks, strict=True)]
        try:
            rest = self.tokenizer.apply_template(messages, tools=tools, generation_prompt=generation_prompt)
        except Exception as error:  # a template may raise anything
            raise self._refused(roles, error) from error
        texts: list[str] = []
        gaps: list[Gap] = []
        for role, mark in zip(roles, marks, strict=True):
            before, found, after = rest.partition(mark)
            if not found or mark in after:
                raise UsageError(
                    f"The chat template of '{self.tokenizer.name}' does not render the content of a {role} message "
                    f"exactly once in {' / '.join(roles)}; use a template that does."
                )
            kept = before.endswith(_PAD) and after.startswith(_PAD)
            texts.append(before.removesuffix(_PAD))
            rest = after.removeprefix(_PAD)
            gaps.append(Gap(trim=not kept))
        texts.append(rest)
        tokens = tuple(tuple(self.tokenizer.encode(text, special=True)) if text else () for text in texts)
        return Pieces(texts=tuple(texts), tokens=tokens, gaps=tuple(gaps))

    def _refused(self, roles: Sequence[str], error: Exception) -> UsageError:
        name, shown = self.tokenizer.name, " / ".join(roles)
        remedy = "use a model or a chat template that takes them"
        if "system" in roles and self._takes([role for role in roles if role != "system"]):
            return UsageError(
                f"The chat template of '{name}' takes no system message ({error}); put its text into the first user "
                f"message, or {remedy}."
            )
        return UsageError(f"The chat template of '{name}' refuses messages {shown} ({error}); {remedy}.")

    def _takes(self, roles: Sequence[str]) -> bool:
        messages = [{"role": role, "content": "x"} for role in roles]
        try:
            self.tokenizer.apply_template(messages, tools=(), generation_prompt=True)
        except Exception:  # a template may raise anything
            return False
        return True
