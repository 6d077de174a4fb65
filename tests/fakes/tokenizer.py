"""A byte tokenizer with special tokens and a choice of chat templates, shaped like those of well-known models."""

import json
import re
from collections.abc import Sequence
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

_IM = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"

CHATML = (
    "{% for m in messages %}" + _IM + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

CHATML_TOOLS = (
    "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content }}\n{% endif %}"
    "Call tools in <tool_call> tags.{% for t in tools %}\n{{ t | tojson }}{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}"
    "{% if messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "\n<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% elif not (tools and loop.first and m.role == 'system') %}" + _IM + "{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

STRIPS_THINKING = (
    "{% for m in messages %}"
    "{% if m.role == 'assistant' and not loop.last and '</think>' in m.content %}"
    "<|im_start|>assistant\n{{ m.content.split('</think>')[-1].lstrip('\n') }}<|im_end|>\n"
    "{% else %}" + _IM + "{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

STRIPS_THINKING_AT_USER = (
    "{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
) + CHATML_TOOLS.replace(
    "{% elif not (tools",
    "{% elif m.role == 'assistant' and loop.index0 < ns.last and '</think>' in m.content %}"
    "<|im_start|>assistant\n{{ m.content.split('</think>')[-1].lstrip('\n') }}<|im_end|>\n"
    "{% elif not (tools",
)
"""Keeps reasoning from tool reply to tool reply and forgets it at the next user message, as Qwen3's does."""

LLAMA3 = (
    "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)

GEMMA = (
    "<bos>{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)

NUMBERS_TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ messages | length - loop.index0 }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

NO_END = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "

STOPS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>")
_SPECIAL = (
    *STOPS,
    *("<|im_start|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<bos>", "<start_of_turn>"),
    *("<tool_call>", "</tool_call>", "<image>"),
)
_PATTERN = re.compile("(" + "|".join(re.escape(text) for text in _SPECIAL) + ")")


def _raise(message: str) -> str:
    raise ValueError(message)


class FakeTokenizer:
    """Tokens 0-255 are bytes, then the special tokens."""

    def __init__(self, template: str = CHATML, *, name: str = "fake", images: bool = False) -> None:
        self.name = name
        self.stop_tokens = tuple(256 + _SPECIAL.index(text) for text in STOPS)
        self.image_placeholder = "<image>" if images else ""
        self.renderings = 0
        environment = ImmutableSandboxedEnvironment()
        environment.globals["raise_exception"] = _raise
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        self._template = environment.from_string(template)

    @property
    def size(self) -> int:
        return 256 + len(_SPECIAL)

    def encode(self, text: str, *, special: bool) -> list[int]:
        if not special:
            return list(text.encode())
        pieces = _PATTERN.split(text)
        return [
            token
            for piece in pieces
            for token in ([256 + _SPECIAL.index(piece)] if piece in _SPECIAL else piece.encode())
        ]

    def decode(self, tokens: Sequence[int], *, skip_special: bool = False) -> str:
        data = b"".join(
            bytes([token]) if token < 256 else b"" if skip_special else _SPECIAL[token - 256].encode()
            for token in tokens
        )
        return data.decode(errors="replace")

    def apply_template(
        self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]], generation_prompt: bool
    ) -> str:
        self.renderings += 1
        return self._template.render(
            messages=list(messages), tools=list(tools) or None, add_generation_prompt=generation_prompt
        )
