import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.core.message import Message, ToolCall
from springtide.policy.template import END, SPECIAL_TOKENS
from springtide.policy.tokenizer import fit_tokenizer
from springtide.rollout import tool_calls

TEXTS = ["cat notes.txt", "sum of 1234 and 5678 is 6912", "grep -c error log.txt"] * 10
TOKENIZER = fit_tokenizer(TEXTS, vocabulary=320)
CONTROL = {TOKENIZER.inner.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
hostile = st.lists(texts | st.sampled_from(SPECIAL_TOKENS), max_size=6).map("".join)


@given(hostile)
def test_untrusted_text_yields_no_control_token_and_nothing_is_lost(text):
    tokens = TOKENIZER.encode(text, special=False)
    assert not CONTROL & set(tokens)
    assert TOKENIZER.decode(tokens) == text


def test_trusted_text_yields_control_tokens():
    tokens = TOKENIZER.encode(f"<|user|>hi{END}", special=True)
    assert tokens[-1] == TOKENIZER.stop_tokens[0]
    assert len(CONTROL & set(tokens)) == 2
    assert TOKENIZER.decode(tokens) == f"<|user|>hi{END}"
    assert TOKENIZER.decode(tokens, skip_special=True) == "hi"


@given(st.integers(0, 10**12))
def test_numbers_have_one_token_per_digit(number):
    assert len(TOKENIZER.encode(str(number), special=False)) == len(str(number))


def test_text_it_was_fitted_to_is_compressed():
    text = "cat notes.txt"
    assert len(TOKENIZER.encode(text, special=False)) < len(text) / 2
    assert TOKENIZER.vocabulary_size <= 320


def test_fitting_is_deterministic_across_processes_and_threads():
    code = (
        "from springtide.policy.tokenizer import fit_tokenizer\n"
        f"print(fit_tokenizer({TEXTS!r}, vocabulary=320).inner.backend_tokenizer.to_str())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "12345", "RAYON_NUM_THREADS": "4"}
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert elsewhere.stdout.strip() == TOKENIZER.inner.backend_tokenizer.to_str()


def render(messages, tools=(), prompt=False):
    return TOKENIZER.apply_template(messages, tools=list(tools), generation_prompt=prompt)


SCHEMA = {"type": "function", "function": {"name": "run", "description": "Runs.", "parameters": {}}}
CONVERSATION = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "list"},
    {"role": "assistant", "content": "now", "tool_calls": [{"name": "run", "arguments": {"command": "ls"}}]},
    {"role": "tool", "content": "a.txt"},
    {"role": "assistant", "content": "a.txt"},
    {"role": "user", "content": [{"type": "text", "text": "thanks"}]},
]


def test_the_template_by_hand():
    assert render(CONVERSATION, prompt=True) == (
        "<|system|>be brief<|im_end|><|user|>list<|im_end|>"
        '<|assistant|>now\n<tool_call>\n{"name": "run", "arguments": {"command": "ls"}}\n</tool_call><|im_end|>'
        "<|tool|>a.txt<|im_end|><|assistant|>a.txt<|im_end|><|user|>thanks<|im_end|><|assistant|>"
    )


@pytest.mark.parametrize("tools", [(), (SCHEMA,)])
@pytest.mark.parametrize("first", [0, 1])
def test_the_template_only_appends(tools, first):
    conversation = CONVERSATION[first:]
    whole = render(conversation, tools)
    for turns in range(1, len(conversation)):
        assert whole.startswith(render(conversation[:turns], tools))
        if conversation[turns]["role"] == "assistant":
            assert whole.startswith(render(conversation[:turns], tools, prompt=True))


def test_tools_stand_in_the_system_message_also_without_one():
    with_system, without = render(CONVERSATION, [SCHEMA]), render(CONVERSATION[1:], [SCHEMA])
    assert with_system.count("<|system|>") == without.count("<|system|>") == 1
    for text in (with_system, without):
        assert '"name": "run"' in text.partition(END)[0]


def test_a_tool_call_is_written_as_the_renderer_writes_it():
    call = ToolCall(name="run", arguments={"command": "ls 'ä'"})
    message = Message(role="assistant", content="now", tool_calls=(call,))
    written = "".join(text for text, _ in tool_calls.write(message))
    as_dict = {"name": "run", "arguments": {"command": "ls 'ä'"}}
    rendered = render([{"role": "assistant", "content": "now", "tool_calls": [{"function": as_dict}]}])
    assert rendered == f"<|assistant|>{written}{END}"
