"""Does a chat template only append from turn to turn?

What a template renders after turn k must begin with what it rendered after turn k-1, followed by the agent's words as
they were sampled. Templates that rewrite earlier turns (that strip reasoning, for example) would make a policy read, in
use, other tokens than those it was trained on. Each kind of thing an agent may say is probed over several turns, with
each kind of reply.
"""

from collections.abc import Sequence
from itertools import takewhile

from springtide.core.errors import UsageError
from springtide.core.message import Role
from springtide.rollout.template import ChatTemplate

_TURNS = 3
_SAID = {
    "plain text": "probe {turn}",
    "text with reasoning": "<think>\nreason {turn}\n</think>\n\nprobe {turn}",
    "a tool call": '<tool_call>\n{{"name": "probe", "arguments": {{"n": {turn}}}}}\n</tool_call>',
}


def check_append_only(template: ChatTemplate, *, system: bool, replies: Sequence[tuple[Role, ...]]) -> None:
    """UsageError with the template, the turn, and an excerpt of what changed."""
    opening: tuple[Role, ...] = ("system", "user") if system else ("user",)
    template.pieces(opening)
    _check_encoding(template)
    _check_closing(template)
    tools = any("tool" in reply for reply in replies)
    for reply in replies:
        for kind, said in _SAID.items():
            _check_conversation(template, opening=opening, reply=reply, kind=kind, said=said, tools=tools)


def _check_encoding(template: ChatTemplate) -> None:
    tokenizer = template.tokenizer
    for stop in tokenizer.stop_tokens:
        text = tokenizer.decode([stop])
        if set(tokenizer.encode(f"a {text} b", special=False)) & set(tokenizer.stop_tokens):
            raise UsageError(
                f"The tokenizer of '{tokenizer.name}' cannot encode '{text}' as ordinary text, so contents could end a "
                "turn; use a tokenizer that can."
            )


def _check_closing(template: ChatTemplate) -> None:
    tokenizer = template.tokenizer
    last = template.pieces(("user", "assistant"), generation_prompt=False)
    inner = template.pieces(("user", "assistant", "user"))
    for tokens, text in ((last.tokens[2], last.texts[2]), (inner.tokens[2], inner.texts[2])):
        if not tokens or tokens[0] not in tokenizer.stop_tokens:
            stops = ", ".join(repr(tokenizer.decode([stop])) for stop in tokenizer.stop_tokens)
            raise UsageError(
                f"The chat template of '{tokenizer.name}' ends an assistant turn with {text[:30]!r}, which does not "
                f"begin with a stop token (the model has {stops or 'none'}); set eos_token_id to it or use another "
                "template."
            )


def _check_conversation(
    template: ChatTemplate, *, opening: tuple[Role, ...], reply: tuple[Role, ...], kind: str, said: str, tools: bool
) -> None:
    messages = [{"role": role, "content": f"{role} 0"} for role in opening]
    pieces = template.pieces(("user", "assistant", *reply))
    expected = template.text(messages)
    for turn in range(1, _TURNS + 1):
        words = said.format(turn=turn)
        answers = [f"{role} {turn}.{index}" for index, role in enumerate(reply)]
        messages.append({"role": "assistant", "content": words})
        messages += [{"role": role, "content": answer} for role, answer in zip(reply, answers, strict=True)]
        actual = template.text(messages)
        expected += words + pieces.texts[2]
        expected += "".join(answer + after for answer, after in zip(answers, pieces.texts[3:], strict=True))
        if actual != expected:
            raise _changed(template, turn=turn, reply=reply, kind=kind, expected=expected, actual=actual, tools=tools)


def _changed(
    template: ChatTemplate, *, turn: int, reply: tuple[Role, ...], kind: str, expected: str, actual: str, tools: bool
) -> UsageError:
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(expected, actual, strict=False)))
    start = max(0, same - 12)
    was, became = expected[start : start + 60], actual[start : start + 60]
    remedy = "use a chat template that leaves earlier turns as they are"
    if "<think>" in was or "<think>" in became:
        remedy += " (without the part that adds or strips <think>)"
    if "tool" in reply:
        remedy += ", or style 'plain'"
    elif tools:
        remedy += ", or declare `tool_replies_only = True` in an environment that answers with tool messages alone"
    return UsageError(
        f"The chat template of '{template.tokenizer.name}' is not append-only: at turn {turn}, after {kind} and a "
        f"{reply[0]} reply, {was!r} became {became!r}; {remedy}."
    )
