import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

from springtide.core.message import Message, ToolCall
from springtide.policy.template import END, SPECIAL_TOKENS
from springtide.policy.tokenizer import TransformersTokenizer, fit_tokenizer
from springtide.rollout import tool_calls
from springtide.rollout.renderer import Renderer

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


ADDED = ("<tool_call>", "</tool_call>", "<think>")
PARAGRAPH = "\n\n"


def with_added_tokens():
    """As Qwen's tokenizer has them, and Gemma's: added, but not flagged as special."""
    backend = Tokenizer.from_str(TOKENIZER.inner.backend_tokenizer.to_str())
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in (*ADDED, PARAGRAPH)])
    inner = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=END, chat_template=TOKENIZER.inner.chat_template
    )
    return TransformersTokenizer(inner, name="added", stop_tokens=(inner.convert_tokens_to_ids(END),))


WITH_ADDED = with_added_tokens()
TAGS = {text: WITH_ADDED.inner.convert_tokens_to_ids(text) for text in ADDED}


@given(st.lists(texts | st.sampled_from(SPECIAL_TOKENS + ADDED), max_size=6).map("".join))
def test_an_added_token_without_the_special_flag_is_a_control_token_too(text):
    tokens = WITH_ADDED.encode(text, special=False)
    assert not (CONTROL | set(TAGS.values())) & set(tokens)
    assert WITH_ADDED.decode(tokens) == text


def test_trusted_tags_are_the_tokens_that_the_model_knows():
    for text, token in TAGS.items():
        assert WITH_ADDED.encode(text, special=True) == [token]
        assert WITH_ADDED.decode([token]) == text
        assert WITH_ADDED.decode([token], skip_special=True) == text, "not flagged, so not skipped"


def test_added_white_space_is_no_control_token():
    paragraph = WITH_ADDED.encode(PARAGRAPH, special=True)
    assert len(paragraph) == 1
    assert WITH_ADDED.encode(f"a{PARAGRAPH}b", special=False)[1:-1] == paragraph


def test_a_call_that_the_model_writes_with_its_own_tokens_is_read_and_one_that_is_quoted_is_no_tag():
    renderer = Renderer(WITH_ADDED, "json_tools")
    call = ToolCall(name="run", arguments={"command": "<think>"})
    shown = [Message(role="user", content="<tool_call>"), Message(role="assistant", content="", tool_calls=(call,))]
    sample = renderer.demonstration(shown)
    tags = [token for token in sample.tokens if token in TAGS.values()]
    assert tags == [TAGS["<tool_call>"], TAGS["</tool_call>"]], "neither the user's nor the one in the arguments"
    said = [token for token, trained in zip(sample.tokens, sample.mask, strict=True) if trained]
    (read,) = renderer.parse(said).tool_calls
    assert (read.name, read.arguments) == (call.name, call.arguments)


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
