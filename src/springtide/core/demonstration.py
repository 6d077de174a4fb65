"""A conversation to imitate, with an honest label of what is wrong with it."""

import msgspec

from springtide.core.message import Message, ToolSchema
from springtide.core.task import Task


class Demonstration(msgspec.Struct, frozen=True, kw_only=True):
    """A whole conversation on a training task. `flaw` names the mistake it makes, empty if none; `success` is what
    the environment's verifier would say of it."""

    task: Task
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    success: bool
    flaw: str = ""
