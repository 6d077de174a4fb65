import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.core.errors import UsageError
from springtide.core.message import Message, ToolCall, ToolSchema
from springtide.launch.chats import Chat, read_chats

QUESTION = {"role": "user", "content": "2 + 2?"}
ANSWER = {"role": "assistant", "content": "4"}


def write(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_plain_chats(tmp_path):
    (chat,) = read_chats(write(tmp_path / "chats.jsonl", {"messages": [QUESTION, ANSWER]}, ""))
    assert chat == Chat(messages=(Message(role="user", content="2 + 2?"), Message(role="assistant", content="4")))


def test_wrapped_tool_calls_are_read_like_flat_ones(tmp_path):
    wrapped = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    flat = {"id": "c1", "name": "add", "arguments": {"a": 2}}
    tool = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}}}
    for call in (wrapped, flat):
        line = {"messages": [QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}], "tools": [tool]}
        (chat,) = read_chats(write(tmp_path / "chats.jsonl", line))
        assert chat.messages[1].tool_calls == (ToolCall(name="add", arguments={"a": 2}, id="c1"),)
        assert chat.tools == (ToolSchema(name="add", description="adds", parameters={"type": "object"}),)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("not json", "line 2: this is not a chat"),
        ({"message": []}, "line 2: this is not a chat"),
        ({"messages": [ANSWER]}, "line 2: a chat starts with"),
        ({"messages": [QUESTION]}, "line 2: a chat starts with"),
        ({"messages": [QUESTION | {"role": "human"}, ANSWER]}, "line 2: this is not a chat"),
    ],
)
def test_the_line_that_is_not_a_chat_is_named(tmp_path, line, problem):
    path = write(tmp_path / "chats.jsonl", {"messages": [QUESTION, ANSWER]}, line)
    with pytest.raises(UsageError, match=problem):
        read_chats(path)


def test_a_missing_or_empty_file_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_chats(tmp_path / "nowhere.jsonl")
    with pytest.raises(UsageError, match="holds no chats"):
        read_chats(write(tmp_path / "empty.jsonl", ""))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["messages", "tools", "role", "content", "tool_calls", "function", "arguments", "name"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(values | st.binary(max_size=40))
def test_any_line_is_a_chat_or_a_usage_error(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("fuzz") / "chats.jsonl"
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    with contextlib.suppress(UsageError):
        assert read_chats(path)
