import json

import pytest

from springtide.core.group import End
from springtide.core.member import Member, Purpose
from springtide.core.message import ImagePart, Message, TextPart, ToolCall
from springtide.core.outcome import Ending, Invalid, InvalidCause, Valid
from springtide.core.segment import Segment
from springtide.core.trajectory import Trajectory
from springtide.evaluation.count import Count
from springtide.evaluation.report import write_report
from springtide.evaluation.result import RunResult
from springtide.ports.journal import EndRecord
from springtide.runtime.journal import SqliteJournal
from springtide.telemetry.jsonl import JsonlSink
from springtide.telemetry.record import MetricRecord
from springtide.telemetry.run_folder import RunFolder
from springtide.telemetry.status import StatusBoard, Wait

CHAT = (
    Message(role="system", content="You have a [bold] shell."),
    Message(role="user", content="Sum the numbers."),
    Message(role="assistant", content="", tool_calls=(ToolCall(name="run", arguments={"command": "cat a"}),)),
    Message(role="tool", name="run", content="1 2 3"),
    Message(role="assistant", content="6", parse_error="no closing tag"),
)


def sampled(length, parent, versions):
    tokens = tuple(range(length))
    return Segment(tokens=tokens, parent=parent, sampled=True, logprobs=(-0.1,) * length, versions=versions)


def episode(purpose, group, slot, attempt, outcome):
    return Trajectory(
        member=Member(purpose, group, slot, attempt),
        task_id=f"sum-{group}",
        segments=(
            Segment(tokens=(1, 2, 3)),
            sampled(4, 0, (7, 7, 7, 7)),
            Segment(tokens=(9,), parent=1),
            sampled(2, 2, (7, 8)),
        ),
        messages=CHAT,
        outcome=outcome,
        turns=2,
        seconds=1.25,
    )


@pytest.fixture
def folder():
    folder = RunFolder.create(name="demo", recipe_text="")
    journal = SqliteJournal(folder.journal)
    journal.append(
        entries=[],
        trajectories=[
            episode(
                Purpose.TRAIN, 0, 0, 1, Invalid(cause=InvalidCause.INFRASTRUCTURE, detail="The box did not start.")
            ),
            episode(Purpose.TRAIN, 0, 0, 2, Valid(reward=1.0, metrics={"commands": 1.0}, detail="right")),
            episode(Purpose.TRAIN, 0, 1, 1, Valid(reward=0.0, ending=Ending.TURN_LIMIT)),
            episode(Purpose.EVALUATE, 5, 0, 1, Valid(reward=1.0)),
        ],
        ends=[EndRecord(0, 0, End.TRAINED, 1, ""), EndRecord(0, 1, End.TRAINED, 1, "")],
    )
    journal.close()
    return folder


def test_show_lists_the_newest_episodes(springtide, folder):
    text = springtide("show", folder.id).stdout
    assert "4 episodes, 1 of them invalid; issued slots: 2 trained" in text
    lines = [line.split() for line in text.splitlines()]
    first, *_, last = [line for line in lines if line and line[0] in ("e5.0.1", "0.1.1", "0.0.2", "0.0.1")]
    assert first == ["e5.0.1", "1", "answered", "2", "6", "7"]
    assert last[:3] == ["0.0.1", "invalid", "invalid:"]


def test_show_reads_an_episode_turn_by_turn(springtide, folder):
    text = springtide("show", folder.id, "--trajectory", "0.0").stdout
    places = [
        text.index(part)
        for part in (
            "episode 0.0.2",
            "task sum-0",
            "You have a [bold] shell.",
            "Sum the numbers.",
            "assistant  4 tokens, policy version 7\n",
            'calls run {"command": "cat a"}',
            "tool run",
            "1 2 3",
            "assistant  2 tokens, policy version 7 to 8\n",
            "could not be read as a tool call: no closing tag",
            "reward 1  answered: right",
            "commands 1",
            "2 turns, 6 sampled tokens, 1.25 s",
        )
    ]
    assert places == sorted(places)


def test_show_takes_an_attempt_and_says_why_it_is_invalid(springtide, folder):
    text = springtide("show", folder.id, "--trajectory", "0.0.1").stdout
    assert "invalid (infrastructure): The box did not start." in text
    assert "reward" not in text


def test_show_names_images(springtide, folder):
    image = ImagePart(sha256="ab", media_type="image/png", width=3, height=4)
    message = Message(role="user", content=(TextPart("look"), image))
    shown = Trajectory(
        member=Member(Purpose.TRAIN, 9, 0),
        task_id="t",
        segments=(Segment(tokens=(1,)),),
        messages=(message,),
        outcome=Valid(reward=0.0),
    )
    journal = SqliteJournal(folder.journal)
    journal.append(entries=[], trajectories=[shown])
    journal.close()
    assert "[image image/png 3 x 4]" in springtide("show", folder.id, "--trajectory", "9.0").stdout


def test_show_speaks_json(springtide, folder):
    listed = json.loads(springtide("show", folder.id, "--last", "1", "--json").stdout)
    assert listed["ends"] == {"trained": 2}
    assert [row["id"] for row in listed["newest"]] == ["e5.0.1"]
    one = json.loads(springtide("show", folder.id, "--trajectory", "e5.0", "--json").stdout)
    assert one["outcome"] == {"type": "valid", "reward": 1.0, "ending": "answered", "metrics": {}, "detail": ""}
    assert [message.get("tokens") for message in one["messages"]] == [None, None, 4, None, 2]


@pytest.mark.parametrize(
    ("trajectory", "said"),
    [("4.4", "the newest is e5.0.1"), ("zero", "'zero' is not an episode"), ("0.0.9", "no such")],
)
def test_an_unknown_episode_gets_a_hint(springtide, folder, trajectory, said):
    result = springtide("show", folder.id, "--trajectory", trajectory)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_run_without_episodes_says_so(springtide):
    folder = RunFolder.create(name="empty", recipe_text="")
    result = springtide("show", folder.id)
    assert result.exit_code == 2
    assert "has no episodes yet" in result.stderr


def test_a_journal_that_is_none_is_a_damaged_run(springtide, folder):
    folder.journal.write_bytes(b"not a database, whatever it looks like" * 100)
    assert springtide("show", folder.id).exit_code == 3


def test_status_says_whether_the_run_is_alive_and_what_waits(springtide, folder):
    board = StatusBoard(folder.status, run=folder.id, steps=10)
    board.update(phase="training", step=4, waits=(Wait("command", "episode 1.0.1", 3.5),))
    with folder.lock():
        alive = springtide("status", folder.id).stdout
    assert "waiting command episode 1.0.1 3.5 s" in alive
    assert "Running as process" in alive
    dead = springtide("status", folder.id).stdout
    assert "stopped without a word" in dead
    assert f"springtide train --resume {folder.id}" in dead
    board.close()
    assert "Not running: finished" in springtide("status", folder.id).stdout


def test_status_speaks_json(springtide, folder):
    StatusBoard(folder.status, run=folder.id, steps=10).update(phase="training", step=4)
    document = json.loads(springtide("status", folder.id, "--json").stdout)
    assert (document["phase"], document["step"], document["running"]) == ("training", 4, False)


def test_a_run_that_has_not_started_has_no_status(springtide, folder):
    result = springtide("status", folder.id)
    assert result.exit_code == 2
    assert "has no status yet" in result.stderr


def test_report_is_made_again_also_while_the_run_has_not_ended(springtide, folder):
    sink = JsonlSink(folder.metrics)
    sink.write(MetricRecord(time=1.0, step=0, metrics={"eval/successes": 2.0, "eval/valid": 8.0, "eval/invalid": 0.0}))
    sink.close()
    so_far = springtide("report", folder.id)
    assert so_far.exit_code == 0
    assert "2 of 8" in so_far.stdout
    assert not folder.result.exists(), "only the end of a run has a result"
    write_report(
        folder,
        RunResult(run="demo", seconds=5, before=Count(2, 8), after=Count(7, 8), goodput_tokens_per_s=10.0),
    )
    folder.report.unlink()
    assert "7 of 8" in springtide("report", folder.id).stdout
    assert "7 of 8" in folder.report.read_text()
