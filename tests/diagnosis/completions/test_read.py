"""Dumps as frameworks write them, whole, torn and absurd."""

import builtins
import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnosis.completions.runs import healthy, run, write_verl
from springtide.core.errors import UsageError
from springtide.core.group import End
from springtide.core.member import Member, Purpose
from springtide.core.message import Message, ToolCall
from springtide.core.outcome import Ending, Valid
from springtide.core.segment import Segment
from springtide.core.trajectory import Trajectory
from springtide.diagnosis.completions.analysis import diagnose_completions, with_completions
from springtide.diagnosis.completions.read import read_files, read_samples
from springtide.diagnosis.frame import Frame
from springtide.diagnosis.verdict import Diagnosis, Verdict
from springtide.ports.journal import EndRecord
from springtide.runtime.journal import SqliteJournal


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_verl(tmp_path):
    samples = run(healthy, steps=3)
    found = read_samples(write_verl(tmp_path / "rollouts", samples))
    assert found.framework == "verl"
    assert found.steps == (0, 1, 2)
    assert len(found.samples) == len(samples)
    first = found.samples[0]
    assert (first.text, first.reward, first.truth) == (samples[0].text, samples[0].reward, "7")
    assert len({sample.group for sample in found.samples if sample.step == 0}) == 8
    assert first.place == "0.jsonl:1"


def test_what_verls_grader_could_not_read(tmp_path):
    row = {"input": "q", "output": "a", "score": 0.0, "step": 1}
    found = read_samples(lines(tmp_path / "1.jsonl", [row | {"pred": "[INVALID]"}, row | {"pred": "12"}, row]))
    assert [sample.parsed for sample in found.samples] == [False, True, None]


def test_trls_completions_as_json_lines(tmp_path):
    chat = [{"role": "user", "content": "What is 2 + 2?"}]
    row = {
        "step": 5,
        "prompt": chat,
        "completion": [{"role": "assistant", "content": "4"}],
        "accuracy_reward": 1.0,
        "format_reward": 0.5,
        "advantage": 0.3,
    }
    found = read_samples(lines(tmp_path / "completions" / "completions_00005.jsonl", [row]))
    (sample,) = found.samples
    assert (found.framework, sample.step, sample.prompt, sample.text) == ("trl", 5, "What is 2 + 2?", "4")
    assert sample.reward == 1.5
    assert sample.components == {"accuracy_reward": 1.0, "format_reward": 0.5}


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    plain = builtins.__import__

    def without(name, *arguments, **more):
        if name.startswith("pyarrow"):
            raise ModuleNotFoundError("No module named 'pyarrow'")
        return plain(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    (tmp_path / "completions_00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match="pip install pyarrow"):
        read_samples(tmp_path)


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"step": [1, 1], "prompt": ["q", "q"], "completion": ["a", "b"], "advantage": [0.0, 1.0]})
    parquet.write_table(table, tmp_path / "completions_00001.parquet")
    assert [sample.text for sample in read_samples(tmp_path).samples] == ["a", "b"]


def summary(group, member, reward, *, tokens=(45, 60), stop="stop"):
    steps = [
        {
            "step_idx": index,
            "ob_len": 9,
            "ac_len": count,
            "reward": reward,
            "stop_reason": stop,
            "metrics": {"format": 1},
        }
        for index, count in enumerate(tokens)
    ]
    return {
        "schema_version": 1,
        "split": "train",
        "iteration": 12,
        "group_idx": group,
        "traj_idx": member,
        "total_reward": reward,
        "final_reward": 0.0,
        "trajectory_metrics": {},
        "steps": steps,
    }


def conversation(asked, said):
    messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
    return {"tag": "div", "children": [], "data": {"type": "conversation", "messages": messages}}


def test_tinker_cookbook(tmp_path):
    folder = tmp_path / "iteration_000012"
    rows = [summary(group, member, group + member / 10) for group in range(2) for member in range(2)]
    lines(folder / "train_rollout_summaries.jsonl", rows)
    tree = {"root": {"children": [conversation("one?", "first"), {"children": [conversation("one?", "second")]}]}}
    (folder / "train_logtree.json").write_text(json.dumps(tree))
    found = read_samples(tmp_path)
    assert found.framework == "tinker"
    assert [(each.text, each.reward, each.tokens) for each in found.samples] == [
        ("first", 0.0, 105),
        ("second", 0.1, 105),
        ("", 1.0, 105),
        ("", 1.1, 105),
    ]
    assert {each.step for each in found.samples} == {12}


def test_conversations_that_do_not_fit_the_summaries_are_not_matched(tmp_path):
    folder = tmp_path / "iteration_000001"
    lines(folder / "train_rollout_summaries.jsonl", [summary(0, member, 0.0) for member in range(4)])
    (folder / "train_logtree.json").write_text(json.dumps([conversation("?", "only one of four")]))
    assert [each.text for each in read_samples(tmp_path).samples] == [""] * 4


def test_prime_rl_in_both_forms(tmp_path):
    old = {
        "example_id": 3,
        "prompt": [{"role": "user", "content": "q"}],
        "completion": [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "ok"}],
        "reward": 0.5,
        "is_truncated": True,
        "metrics": {"format": 1.0},
        "answer": "a",
    }
    new = {
        "task": {"data": {"idx": 4, "answer": "b"}},
        "nodes": [
            {"parent": None, "message": {"role": "user", "content": "q"}, "sampled": False},
            {"parent": 0, "message": {"role": "assistant", "content": "b"}, "sampled": True},
        ],
        "rewards": {"right": 1.0, "style": 0.25, "unscored": None},
        "stop_condition": "done",
    }
    lines(tmp_path / "rollouts" / "step_3" / "train_rollouts.jsonl", [old])
    lines(tmp_path / "rollouts" / "step_10" / "train_rollouts.jsonl", [new])
    found = read_samples(tmp_path)
    assert found.framework == "prime_rl"
    first, second = found.samples
    assert (first.step, first.group, first.reward, first.truncated, first.truth) == (3, "3", 0.5, True, "a")
    assert (second.step, second.group, second.text, second.reward, second.truth) == (10, "4", "b", 1.25, "b")


def test_our_own_journal(tmp_path):
    def episode(group, slot, reward, ending=Ending.ANSWERED, error=""):
        call = ToolCall(name="run", arguments={"command": f"cat {slot}.txt"})
        return Trajectory(
            member=Member(Purpose.TRAIN, group, slot),
            task_id="t",
            segments=(Segment(tokens=(1, 2), sampled=True, logprobs=(0.0, 0.0), versions=(0, 0)),),
            messages=(
                Message(role="user", content="Sum them."),
                Message(role="assistant", content="I look.", tool_calls=(call,), parse_error=error),
            ),
            outcome=Valid(reward=reward, ending=ending, metrics={"commands": 1.0}),
            turns=1,
        )

    journal = SqliteJournal(tmp_path / "journal.sqlite")
    episodes = [episode(0, 0, 1.0), episode(0, 1, 0.0, Ending.CONTEXT_LIMIT), episode(1, 0, 0.0, error="no tag")]
    ends = [
        EndRecord(0, 0, End.TRAINED, 1, ""),
        EndRecord(0, 1, End.TRAINED, 1, ""),
        EndRecord(1, 0, End.TRAINED, 2, ""),
    ]
    journal.append(entries=[], trajectories=episodes, ends=ends)
    journal.close()
    found = read_samples(tmp_path)
    assert found.framework == "springtide"
    assert [(each.step, each.reward, each.truncated, each.parsed) for each in found.samples] == [
        (1, 1.0, False, True),
        (1, 0.0, True, True),
        (2, 0.0, False, False),
    ]
    assert found.samples[0].text == "I look.\nrun cat 0.txt"
    assert found.samples[0].prompt == "Sum them."


def test_torn_and_foreign_lines_are_passed_over_and_counted(tmp_path):
    good = json.dumps({"input": "q", "output": "a", "score": float("nan"), "step": 1})
    (tmp_path / "1.jsonl").write_bytes(f"{good}\n[1, 2]\n\n{good[:20]}\n".encode() + b"\xff\xfe\n" + good.encode())
    (tmp_path / "notes.jsonl").write_text('{"anything": 1}\n')
    found = read_samples(tmp_path)
    assert [sample.reward for sample in found.samples] == [None, None]
    assert [note.text for note in found.notes] == ["1.jsonl: 3 lines could not be read and were passed over."]


def test_a_long_run_is_thinned_to_whole_groups_from_its_beginning_to_its_end(tmp_path):
    rows = [
        {"input": f"q{step}.{group}", "output": "a", "score": 1.0, "step": step}
        for step in range(500)
        for group in range(3)
        for _ in range(4)
    ]
    found = read_samples(lines(tmp_path / "all.jsonl", rows))
    assert found.rows == len(rows)
    assert 24 <= len(found.steps) <= 49
    assert (found.steps[0], found.steps[-1]) == (0, 499)
    sizes = {len([each for each in found.samples if each.step == step]) for step in found.steps[:-1]}
    assert sizes == {12}


def test_nothing_there_says_how_to_turn_it_on(tmp_path):
    with pytest.raises(UsageError, match="log_completions"):
        read_samples(tmp_path)


def test_a_diagnosis_takes_over_what_completions_show(tmp_path):
    def collapses(rng, share, group, member):
        return {"text": "no no no " * 300 if share > 0.5 else f"{rng.random()} fine", "reward": float(share < 0.5)}

    write_verl(tmp_path, run(collapses))
    files = tuple(sorted(tmp_path.glob("*.jsonl")))
    plain = Diagnosis(
        source="run", framework="verl", steps=10, verdict=Verdict.OK, not_checked={"S36": "no completions"}
    )
    found = with_completions(plain, Frame(source=tmp_path, framework="verl", series={}, samples=files))
    assert found.verdict is Verdict.SICK
    assert found.symptoms[0].id == "S36"
    assert found.not_checked == {}
    assert with_completions(plain, Frame(source=tmp_path, framework="verl", series={})) == plain


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["input", "output", "score", "prompt", "completion", "nodes", "message", "sampled", "rewards"]
            )
            | st.sampled_from(
                ["step", "task", "data", "steps", "logs", "metrics", "content", "tool_calls", "example_id"]
            )
            | st.text(max_size=5),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(json_values, max_size=6), cut=st.integers(0, 40), garbage=st.binary(max_size=20))
def test_no_dump_makes_a_reader_fail(tmp_path, rows, cut, garbage):
    text = "\n".join(json.dumps(row) for row in rows).encode()
    whole = text[: max(0, len(text) - cut)] + garbage
    for name in ("1.jsonl", "iteration_000001/train_rollout_summaries.jsonl", "iteration_000001/train_logtree.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(whole)
    read_files([tmp_path / "1.jsonl", tmp_path / "iteration_000001"], source=tmp_path)
    with contextlib.suppress(UsageError):
        diagnose_completions(tmp_path / "1.jsonl")
