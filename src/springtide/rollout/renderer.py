"""Messages to tokens and back, token in, token out.

Text is rendered once and appended to, never re-tokenised: an episode is `prompt`, then the sampled tokens as they are,
then a `continuation` per reply. `demonstration` goes the same way, so what is imitated is, token by token, what a
rollout reads and is asked to sample. `check` proves that the model's own template agrees with this.
"""

from collections.abc import Sequence
from typing import Any, Literal

from springtide.core.errors import UsageError
from springtide.core.message import ImagePart, Message, Role, TextPart, ToolSchema
from springtide.core.trajectory import Sample
from springtide.ports.tokenizer import ChatTokenizer
from springtide.rollout import tool_calls
from springtide.rollout.template import ChatTemplate
from springtide.rollout.template_check import check_append_only

Style = Literal["json_tools", "plain"]
Chunk = tuple[str, bool]
"""A text, and whether it is trusted: special tokens are recognised in it."""

_PROBE = {"type": "function", "function": {"name": "probe", "description": "probe", "parameters": {}}}


class Renderer:
    """`plain`: the agent's text is its action. `json_tools`: the text may hold tool calls as JSON in tags."""

    def __init__(self, tokenizer: ChatTokenizer, style: Style) -> None:
        self.tokenizer = tokenizer
        self.style = style
        self.stop_tokens = tokenizer.stop_tokens
        self._template = ChatTemplate(tokenizer)
        self._stops = frozenset(tokenizer.stop_tokens)
        self._native_tools = style == "json_tools" and self._template_has_tools()

    def check(self, *, system: bool = True, tool_replies_only: bool = False) -> None:
        """Verify that the template only appends from turn to turn. UsageError says where it does not.

        `system`: the environment opens with a system message. `tool_replies_only`: all its replies are tool messages.
        Some templates strip reasoning at the next user message only, and are then as good as any; where the template
        has no tools of its own, tool messages are user messages to it.
        """
        user: tuple[tuple[Role, ...], ...] = () if self._native_tools and tool_replies_only else (("user",),)
        tool: tuple[tuple[Role, ...], ...] = (("tool",), ("tool", "tool")) if self._native_tools else ()
        check_append_only(self._template, system=system, replies=(*user, *tool))

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> tuple[int, ...]:
        """The tokens of the opening messages, up to and including the generation prompt."""
        if tools and self.style == "plain":
            raise UsageError("The environment has tools, which style 'plain' cannot call; use style 'json_tools'.")
        schemas = [tool_calls.schema_object(tool) for tool in tools]
        contents = [self._content(message) for message in messages]
        if tools and not self._native_tools:
            contents[0] = [*contents[0], ("\n\n" if contents[0] else "", True), self._instructions(tools)]
            schemas = []
        elif tools:
            self._instructions(tools)  # refuses control tokens in schemas
        return self._fill([self._role(message) for message in messages], contents, schemas=schemas, skip=0)

    def continuation(self, messages: Sequence[Message], *, closed: bool = True) -> tuple[int, ...]:
        """What follows the agent's sampled tokens: the replies, up to and including the next generation prompt.

        `closed`: the sampled tokens end with a stop token. Otherwise the turn was cut and its end is supplied here.
        """
        roles: list[Role] = ["user", "assistant", *(self._role(message) for message in messages)]
        contents: list[list[Chunk]] = [[], [], *(self._content(message) for message in messages)]
        tokens = self._fill(roles, contents, schemas=[], skip=2)
        return tokens[1:] if closed and tokens[0] in self._stops else tokens

    def closing(self) -> int:
        """The stop token with which the template ends an assistant turn."""
        tokens = self._template.pieces(("user", "assistant"), generation_prompt=False).tokens[-1]
        assert tokens[0] in self._stops, "check() refuses other templates"
        return tokens[0]

    def parse(self, tokens: Sequence[int]) -> Message:
        """The assistant message that these sampled tokens say. Never raises: see `Message.parse_error`."""
        kept = tokens[:-1] if tokens and tokens[-1] in self._stops else tokens
        text = self.tokenizer.decode(kept)
        return tool_calls.read(text) if self.style == "json_tools" else Message(role="assistant", content=text)

    def demonstration(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> Sample:
        """A conversation to imitate; the mask is on the assistant's tokens, its stop tokens included.

        Messages after the last assistant turn are left out. ValueError if there is no assistant turn.
        """
        turns = [index for index, message in enumerate(messages) if message.role == "assistant"]
        if not turns or turns[0] == 0:
            raise ValueError("A demonstration needs a prompt and at least one assistant message.")
        tokens = list(self.prompt(messages[: turns[0]], tools))
        mask = [False] * len(tokens)
        for turn, following in zip(turns, [*turns[1:], None], strict=True):
            said = [*self._encode(self._content(messages[turn])), self.closing()]
            tokens += said
            mask += [True] * len(said)
            if following is not None:
                read = self.continuation(messages[turn + 1 : following])
                tokens += read
                mask += [False] * len(read)
        size = len(tokens)
        return Sample(tokens=tuple(tokens), mask=tuple(mask), logprobs=(0.0,) * size, versions=(-1,) * size)

    def _fill(
        self, roles: list[Role], contents: list[list[Chunk]], *, schemas: list[dict[str, Any]], skip: int
    ) -> tuple[int, ...]:
        """The pieces from number `skip` on, with the contents between them."""
        pieces = self._template.pieces(tuple(roles), tools=schemas)
        tokens = list(pieces.tokens[skip])
        for gap, chunks, after in zip(pieces.gaps[skip:], contents[skip:], pieces.tokens[skip + 1 :], strict=True):
            tokens += self._encode(_trimmed(chunks) if gap.trim else chunks)
            tokens += after
        return tuple(tokens)

    def _encode(self, chunks: list[Chunk]) -> list[int]:
        return [token for text, trusted in chunks if text for token in self.tokenizer.encode(text, special=trusted)]

    def _role(self, message: Message) -> Role:
        return "user" if message.role == "tool" and not self._native_tools else message.role

    def _content(self, message: Message) -> list[Chunk]:
        if message.role == "assistant":
            return tool_calls.write(message)
        parts = (TextPart(message.content),) if isinstance(message.content, str) else message.content
        chunks = [self._image(part) if isinstance(part, ImagePart) else (part.text, False) for part in parts]
        if message.role == "tool" and not self._native_tools and self.style == "json_tools":
            return [("<tool_response>\n", True), *chunks, ("\n</tool_response>", True)]
        return chunks

    def _image(self, part: ImagePart) -> Chunk:
        if not self.tokenizer.image_placeholder:
            raise UsageError(
                f"The environment sent an image ({part.media_type}, {part.width} x {part.height}), but "
                f"'{self.tokenizer.name}' reads text only; use a model with vision."
            )
        return self.tokenizer.image_placeholder, True

    def _instructions(self, tools: Sequence[ToolSchema]) -> Chunk:
        """The tools as text. Schemas may come from afar, so they must not hold control tokens."""
        for tool in tools:
            body = tool_calls.schema_line(tool)
            if self.tokenizer.encode(body, special=True) != self.tokenizer.encode(body, special=False):
                raise UsageError(f"The schema of tool '{tool.name}' holds text that is a control token; remove it.")
        return tool_calls.instructions(tools), True

    def _template_has_tools(self) -> bool:
        """Whether the template itself describes tools in the format that `parse` reads and takes tool replies."""
        try:
            opening = self._template.pieces(("user",), tools=[_PROBE])
            self._template.pieces(("user", "assistant", "tool", "tool"), tools=[_PROBE])
        except UsageError:
            return False
        return tool_calls.OPEN in opening.texts[0] and '"probe"' in opening.texts[0]


def _trimmed(chunks: list[Chunk]) -> list[Chunk]:
    if not chunks:
        return chunks
    (first, first_trusted), *rest = chunks
    chunks = [(first.lstrip(), first_trusted), *rest]
    last, last_trusted = chunks[-1]
    return [*chunks[:-1], (last.rstrip(), last_trusted)]
