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
from springtide.telemetry.run_folder import Parent, RunFolder
from springtide.telemetry.status import StatusBoard, Wait
from springtide.telemetry.verdicts import SymptomRecord, VerdictFile, VerdictRecord

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


def diagnosed(folder):
    symptom = SymptomRecord(
        id="S06",
        title="The [bold]reward[/bold] collapses",
        verdict="SICK",
        onset_step=12,
        causes=("rate",),
        next_check="KL",
    )
    file = VerdictFile(folder.diagnosis)
    file.append(VerdictRecord(time=1.0, step=10, verdict="OK"))
    last = VerdictRecord(
        time=2.0, step=20, verdict="SICK", symptoms=(symptom,), earliest_mover="train/entropy", rollback_step=10
    )
    file.append(last)


def test_status_and_report_show_what_the_monitor_said(springtide, folder):
    StatusBoard(folder.status, run=folder.id, steps=30).close()
    assert "diagnosis" not in springtide("status", folder.id).stdout
    diagnosed(folder)
    assert (
        "diagnosis SICK @ step 20  S06 The [bold]reward[/bold] collapses since step 12"
        in springtide("status", folder.id).stdout
    )
    told = json.loads(springtide("status", folder.id, "--json").stdout)["diagnosis"]
    assert (told["verdict"], told["rollback_step"], told["symptoms"][0]["id"]) == ("SICK", 10, "S06")
    springtide("report", folder.id)
    report = folder.report.read_text()
    assert "SICK at step 20 (at first OK, SICK from step 20)." in report
    assert "| SICK | S06 The [bold]reward[/bold] collapses | 12 | rate | KL |" in report
    assert "before the first mover (train/entropy): step 10." in report


def test_show_lists_the_newest_episodes(springtide, folder):
    text = springtide("show", folder.id).stdout
    assert "4 episodes, 1 of them invalid; issued slots: 2 trained" in text
    lines = [line.split() for line in text.splitlines()]
    first, *_, last = [line for line in lines if line and line[0] in ("e5.0.1", "0.1.1", "0.0.2", "0.0.1")]
    assert first == ["e5.0.1", "1", "answered", "2", "6", "7"]
    assert last[:3] == ["0.0.1", "invalid", "invalid:"]


def test_an_episode_that_is_graded_or_played_again_is_listed_once_with_its_last_word(springtide, folder):
    journal = SqliteJournal(folder.journal)
    failed = Invalid(cause=InvalidCause.VERIFIER, detail="The judge is away.")
    journal.append(entries=[], trajectories=[episode(Purpose.TRAIN, 0, 1, 1, failed)])
    journal.append(entries=[], trajectories=[episode(Purpose.EVALUATE, 5, 0, 1, Valid(reward=0.0))])
    journal.close()
    listed = json.loads(springtide("show", folder.id, "--json").stdout)
    assert (listed["episodes"], listed["invalid"]) == (5, 2)
    rows = [(row["id"], row["reward"]) for row in listed["newest"]]
    assert rows == [("e5.0.1", 0.0), ("0.1.1", None), ("e5.0.1", 1.0), ("0.0.2", 1.0), ("0.0.1", None)]


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


ORDERS = "\x1b]0;owned\x07\x1b[2J \r \x00 \x7f \x9b31m \u202e [bold]x[/bold] :smile:"
SPELLED = r"\x1b]0;owned\x07\x1b[2J \r \x00 \x7f \x9b31m \u202e [bold]x[/bold] :smile:"


def test_nothing_that_an_episode_says_gives_orders_to_the_terminal(springtide, folder):
    messages = (
        Message(role="user", content=f"line\n\tindented {ORDERS}", name=ORDERS),
        Message(
            role="assistant",
            content="",
            tool_calls=(ToolCall(name=ORDERS, arguments={"a": "\x9b"}),),
            parse_error=ORDERS,
        ),
        Message(role="user", content=(ImagePart(sha256="", media_type=ORDERS, width=1, height=1),)),
    )
    outcomes = [
        Valid(reward=1.0, detail=ORDERS, metrics={ORDERS: 1.0}),
        Invalid(cause=InvalidCause.HARNESS, detail=ORDERS),
    ]
    journal = SqliteJournal(folder.journal)
    for group, outcome in enumerate(outcomes, 7):
        shown = Trajectory(
            member=Member(Purpose.TRAIN, group, 0),
            task_id=ORDERS,
            segments=(Segment(tokens=(1,)),),
            messages=messages,
            outcome=outcome,
        )
        journal.append(entries=[], trajectories=[shown])
    journal.close()
    texts = [springtide("show", folder.id, "--trajectory", f"{group}.0").stdout for group in (7, 8)]
    texts.append(springtide("show", folder.id).stdout)
    for text in texts:
        assert not set(text) & set("\x1b\x07\r\x00\x7f\x9b\u202e"), text
    assert "line\n        indented " in texts[0].expandtabs(8)
    assert r"{\"a\": \"\x9b\"}".replace('\\"', '"') in texts[0]
    counts = [text.replace("\n", " ").count(SPELLED) for text in texts[:2]]
    assert counts == [8, 7], "task, name, text, call, error, image, detail; a valid one has a metric too"
    assert r"invalid: \x1b]0;owned\x07" in texts[2]


def test_paths_and_ids_are_no_markup(springtide, tmp_path, folder):
    strange = tmp_path / "[red]runs[/red]" / "a[b] :smile:"
    copied = RunFolder.create(name="x", recipe_text="", path=strange, parent=Parent("[i]older[/i]", 3))
    folder.journal.rename(copied.journal)
    text = springtide("show", str(strange)).stdout
    assert f"{copied.id}  made" in text
    assert "branched from [i]older[/i] at step 3" in text
    assert f"springtide show {strange} --trajectory" in text
    StatusBoard(copied.status, run=copied.id).update(phase="training")
    assert f"springtide train --resume {strange}" in springtide("status", str(strange)).stdout


def test_as_many_episodes_as_anyone_may_ask_for_are_listed(springtide, folder):
    assert "e5.0.1" in springtide("show", folder.id, "--last", str(2**70)).stdout


@pytest.mark.parametrize(
    ("trajectory", "said"),
    [
        ("4.4", "the newest is e5.0.1"),
        ("zero", "'zero' is not an episode"),
        ("0.0.9", "no such"),
        ("99999999999999999999.0", "no such"),
        ("e0.99999999999999999999", "no such"),
        ("0.0.99999999999999999999", "no such"),
    ],
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


def test_a_damaged_file_never_shows_a_traceback(springtide, folder):
    folder.status.write_bytes(b'{"phase": "\xff"}')
    damaged = springtide("status", folder.id)
    assert damaged.exit_code == 3
    assert "status.json cannot be read" in damaged.stderr
    assert springtide("report", folder.id).exit_code == 0
    StatusBoard(folder.status, run=folder.id).update(phase="training")
    folder.metrics.write_bytes(b'\xff\n{"time": 1.0, "step": 1, "metrics": {"reward/mean": 0.5}}\n')
    assert "reward 0.500" in springtide("status", folder.id).stdout
    folder.result.write_bytes(b'"\xff"')
    assert springtide("report", folder.id).exit_code == 3


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
