"""Whatever a file has in it: episodes, or one sentence with file and line."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulation.traces import samples
from springtide.core.errors import UsageError
from springtide.simulation.sources import _file
from springtide.simulation.traces import formats
from springtide.simulation.traces.recorded import recorded

many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

VALID = list(samples.ALL.values())

NASTY = [
    b"",
    b"\0",
    b"\xff",
    b'"',
    b"9" * 400,
    b"-1",
    b"1e999",
    b"nan",
    b"null",
    b"[" * 3000,
    b"{" * 3000,
    b"\n",
    b",",
    b"1_0",
]


def outcome(path):
    """A trace, or what was said of the file."""
    try:
        return formats.read(path)
    except UsageError as error:
        return str(error)


def check(path):
    trace = outcome(path)
    if isinstance(trace, str):
        assert trace.startswith(str(path))
        assert "\n" not in trace
        return
    work, told = recorded(trace)
    assert all(sentence.endswith(".") for sentence in told)
    for task in range(3):
        script = work.script(seed=0, task=task, slot=1, attempt=1)
        first = script.turns[0]
        assert 0 <= script.shared <= script.prefix <= first.context
        assert first.reusable == 0
        for before, turn in zip(script.turns, script.turns[1:], strict=False):
            assert 0 <= turn.reusable <= min(before.context + before.output, turn.context)
        assert all(turn.output >= 1 and turn.context >= 1 for turn in script.turns)
        assert all(turn.latency >= 0 and math.isfinite(turn.latency) for turn in script.turns)
        assert script.trained[-1] == script.turns[-1].context + script.turns[-1].output


@many
@given(content=st.binary(max_size=300))
def test_random_bytes(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    check(path)


@many
@given(text=st.sampled_from(VALID), end=st.integers(0, 800))
def test_truncated_traces(tmp_path, text, end):
    path = tmp_path / "x"
    path.write_bytes(text.encode()[:end])
    check(path)


@many
@given(
    text=st.sampled_from(VALID),
    edits=st.lists(
        st.tuples(st.integers(0, 1500), st.integers(0, 20), st.one_of(st.sampled_from(NASTY), st.binary(max_size=4))),
        min_size=1,
        max_size=4,
    ),
)
def test_mutated_traces(tmp_path, text, edits):
    content = text.encode()
    for place, length, put in edits:
        place %= len(content) + 1
        content = content[:place] + put + content[place + length :]
    path = tmp_path / "x"
    path.write_bytes(content)
    check(path)


@many
@given(
    text=st.sampled_from(VALID),
    order=st.lists(st.integers(0, 40), max_size=30),
    number=st.sampled_from(["0", "-0", "1", "2147483648", "2147483649", "1e9", "1e300", "0.5"]),
    place=st.integers(0, 60),
)
def test_lines_in_any_order_and_numbers_of_any_size(tmp_path, text, order, number, place):
    first, *others = text.splitlines()
    shuffled = [others[index % len(others)] for index in order] if others else []
    words = "\n".join([first, *shuffled]).replace("{", "{ ").replace(",", " , ").split(" ")
    numbers = [index for index, word in enumerate(words) if word.replace(".", "").isdigit()]
    if numbers:
        words[numbers[place % len(numbers)]] = number
    path = tmp_path / "x"
    path.write_text(" ".join(words))
    check(path)


@many
@given(content=st.one_of(st.text(max_size=200), st.sampled_from(['a = "b"', "[x]\ny = 1", "turns = 3\nname = []"])))
@pytest.mark.parametrize("name", ["x", "x.toml"])
def test_files_of_the_user(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UsageError, match=r"^"):
        _file(path)
