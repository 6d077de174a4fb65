"""Each format, by small files with values that are worked out by hand."""

import pytest

from simulation.traces import samples
from springtide.core.errors import UsageError
from springtide.simulation.script import Turn
from springtide.simulation.traces import formats, lines, sessions
from springtide.simulation.traces.thunderagent import read_stages
from springtide.simulation.workload import preset


def read(tmp_path, text, name="trace"):
    path = tmp_path / name
    path.write_text(text)
    return formats.read(path)


def episodes(trace):
    return [episode for (episode,) in trace.slots]


def test_tracelab_rounds_become_turns_by_session(tmp_path):
    trace = read(tmp_path, samples.TRACELAB)
    a, b = episodes(trace)
    assert trace.format == "TraceLab"
    assert a.turns == (Turn(600, 0, 64, 1.5), Turn(792, 664, 32, 0.2505), Turn(160, 100, 16, 0.0))
    assert a.trained == (792 + 32, 160 + 16), "the context that became shorter begins another sequence"
    assert b.turns == (Turn(520, 0, 48, 0.08), Turn(668, 568, 48, 0.0))
    assert trace.shared == 120, "what was cached before the second session's first round"


def test_tracelab_is_known_by_both_headers_and_sorted_by_round(tmp_path):
    (only,) = episodes(read(tmp_path, samples.TRACELAB_EXPORTED))
    assert only.turns == (Turn(500, 0, 64, 1.5), Turn(692, 564, 32, 0.0))
    header, *rounds = samples.TRACELAB.splitlines()
    backwards = "\n".join([header, *reversed(rounds)])
    assert {e.turns for e in episodes(read(tmp_path, backwards))} == {
        e.turns for e in episodes(read(tmp_path, samples.TRACELAB))
    }


def test_step_profiles_have_waits_before_their_steps_and_tokens_of_a_workload(tmp_path):
    trace = read(tmp_path, samples.STEP_PROFILES)
    waits = [[turn.latency for turn in episode.turns] for episode in episodes(trace)]
    assert waits == [[1.25, 0.5, 0.0], [0.0], [0.0]], "a program that begins again is another episode"
    drawn = episodes(trace)[0].turns
    assert drawn[0].context > preset("swe").system
    assert drawn[1].reusable == drawn[0].context + drawn[0].output
    assert any("'swe'" in sentence for sentence in trace.assumptions)


def test_stage_timings_count_what_lies_between_two_calls_of_the_model(tmp_path):
    first, second = episodes(read(tmp_path, samples.STAGE_TIMINGS))
    assert [turn.latency for turn in first.turns] == [3.0, 0.5]
    assert first.reset == 10.0
    assert (len(second.turns), second.reset) == (1, 3.0), "the step that did not end is no turn"


def test_stage_timings_of_several_tasks_are_one_trace(tmp_path):
    paths = []
    for task in ("b", "a"):
        (tmp_path / task).mkdir()
        paths.append(tmp_path / task / "stage_timings.jsonl")
        paths[-1].write_text(samples.STAGE_TIMINGS)
    trace = read_stages(*paths)
    assert (trace.name, len(trace.slots)) == (tmp_path.name, 4)


def test_mooncake_requests_that_begin_with_an_earlier_one_go_on_with_it(tmp_path):
    trace = read(tmp_path, samples.MOONCAKE)
    talk, other, last = episodes(trace)
    assert talk.turns == (Turn(1600, 0, 100, 4.0), Turn(2000, 1700, 50, 0.0))
    assert other.turns == (Turn(1100, 0, 10, 0.0),)
    assert last.turns == (Turn(900, 0, 20, 0.0),)
    assert trace.shared == 512, "one block is common to all"


def test_a_block_that_all_requests_have_does_not_make_them_one_session(tmp_path):
    request = '{{"timestamp": {0}, "input_length": {1}, "output_length": 5, "hash_ids": [0, {0}]}}\n'
    long = '{"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
    text = long + "".join(request.format(n, 600 + n) for n in range(3, 6))
    assert [len(episode.turns) for episode in episodes(read(tmp_path, text))] == [1, 1, 1, 1]


def test_burstgpt_conversations_are_episodes_and_think_between_answers(tmp_path):
    trace = read(tmp_path, samples.BURSTGPT)
    talk, single = episodes(trace)
    assert talk.turns == (Turn(906, 0, 446, 25.0), Turn(1400, 1352, 50, 17.0), Turn(1420, 1400, 5, 0.0))
    assert single.turns == (Turn(36, 0, 29, 0.0),)
    assert any("1 turns without output" in sentence for sentence in trace.assumptions)


def test_old_burstgpt_files_have_no_conversations(tmp_path):
    turns = [episode.turns for episode in episodes(read(tmp_path, samples.BURSTGPT_OLD))]
    assert turns == [(Turn(472, 0, 18, 0.0),), (Turn(1087, 0, 230, 0.0),)]


def test_llmservingsim_sessions_and_single_requests_may_be_mixed(tmp_path):
    trace = read(tmp_path, samples.LLMSERVINGSIM)
    session, single = episodes(trace)
    assert session.turns == (Turn(1472, 0, 133, 0.5), Turn(1582, 1472, 125, 0.25), Turn(1000, 0, 77, 0.0))
    assert session.trained == (1707, 1077)
    assert single.turns == (Turn(100, 0, 50, 0.0),)


def test_llmservingsim_tokens_say_what_is_reused(tmp_path):
    trace = read(tmp_path, samples.LLMSERVINGSIM_TOKENS)
    session, single = episodes(trace)
    assert [turn.reusable for turn in session.turns] == [0, 5, 4]
    assert session.trained == (7, 6), "the last call rewrote what was sampled"
    assert single.common == 2
    assert not any("guess" in sentence for sentence in trace.assumptions)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (samples.TRACELAB.replace("500,64", "500,-64"), 2, 'output_len = "-64" is no number from 0'),
        (samples.TRACELAB.replace("568,100", "568,x"), 5, 'input_len = "x" is no number'),
        (samples.TRACELAB.replace("1500", "nan"), 2, 'tool_wait_after_ms = "nan" is no number'),
        (samples.TRACELAB.replace("568,100", "568,100.5"), 5, 'input_len = "100.5" is no whole number'),
        (samples.TRACELAB + "a,0\n", 7, "2 fields, and the first line has 7"),
        (samples.TRACELAB + '"a,0,0,0,1,1,1\n', 7, "this is not CSV"),
        (samples.MOONCAKE + "{\n", 5, "this is not a JSON object as expected"),
        (samples.MOONCAKE.replace("1100", "-1"), 2, "Expected `int` >= 1 - at `$.input_length`"),
        (samples.STAGE_TIMINGS.replace("115.0", '"x"'), 4, "Expected `float`, got `str`"),
        (samples.LLMSERVINGSIM + '{"input_toks": 5}\n', 4, "neither sub_requests nor input_toks and output_toks"),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, line, problem):
    with pytest.raises(UsageError) as error:
        read(tmp_path, text, "mine.txt")
    assert str(error.value).startswith(f"{tmp_path / 'mine.txt'}, line {line}: ")
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "\n\n", "a,b\n1,2\n", "[1, 2]\n", '{"a": 1}\n', "{\n", "name = 'x'\n"])
def test_what_is_no_trace_is_told_what_was_looked_for(tmp_path, text):
    with pytest.raises(UsageError, match=r"mine.txt is no trace .*TraceLab \(input_len.*Mooncake .*bring it into"):
        read(tmp_path, text, "mine.txt")


def test_binary_files_and_journals_are_not_read_as_text(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="line 1: this is not UTF-8 text"):
        formats.read(path)
    path.write_bytes(b"SQLite format 3\0...")
    with pytest.raises(UsageError, match="name the run's folder"):
        formats.read(path)


def test_a_header_alone_has_no_turns(tmp_path):
    with pytest.raises(UsageError, match="no turn of this TraceLab trace has any output"):
        read(tmp_path, samples.TRACELAB.splitlines()[0])


def test_memory_is_bounded_by_turns_and_by_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "TURNS_MAX", 3)
    trace = read(tmp_path, samples.TRACELAB)
    assert sum(len(episode.turns) for episode in episodes(trace)) == 3
    assert trace.assumptions[-1] == "Only the first 3 turns are read, those before line 5."
    monkeypatch.setattr(lines, "LINE_MAX", 90)
    with pytest.raises(UsageError, match="line 3: longer than"):
        read(tmp_path, samples.MOONCAKE.replace("[0,", "[0,  "))


def test_a_byte_order_mark_and_blank_lines_do_not_matter(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xef\xbb\xbf" + samples.TRACELAB.replace("\n", "\r\n\r\n").encode())
    assert episodes(formats.read(path)) == episodes(read(tmp_path, samples.TRACELAB))
