"""What may be imitated: a conversation that an episode could be."""

import pytest

from fakes.tokenizer import CHATML_TOOLS, FakeTokenizer
from springtide.core.demonstration import Demonstration
from springtide.core.errors import UsageError
from springtide.core.message import Message
from springtide.core.task import Split, Task
from springtide.launch.warm_start import collect
from springtide.rollout.renderer import Renderer

TASK = Task(id="t", split=Split.TRAIN, index=0, seed=0)


def shown(*roles):
    return Demonstration(task=TASK, messages=tuple(Message(role=role, content="x") for role in roles), success=True)


def imitation(*roles, **options):
    renderer = Renderer(FakeTokenizer(CHATML_TOOLS), "json_tools")
    made = [shown("user", "assistant"), shown(*roles)]
    return collect(lambda index: made[index], renderer, number=2, max_context=1000, **options)


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        ((), "has no assistant message"),
        (("system", "user"), "has no assistant message"),
        (("assistant", "user"), "begins with an assistant message"),
    ],
)
def test_a_demonstration_that_no_episode_could_be_is_one_sentence_that_names_it(roles, said):
    with pytest.raises(UsageError, match=f"environment: demonstration 1 {said}.*; mend what makes it") as caught:
        imitation(*roles)
    assert str(caught.value).count("\n") == 0


def test_an_environment_of_tools_alone_has_demonstrations_of_the_same_kind():
    replies = ("user", "assistant", "tool", "tool", "assistant")
    assert imitation(*replies, tool_replies_only=True).success.k == 2
    assert imitation("user", "assistant", "user", "assistant").success.k == 2
    with pytest.raises(UsageError, match=r"demonstration 1 answers with a user message, .*tool_replies_only"):
        imitation("user", "assistant", "user", "assistant", tool_replies_only=True)
