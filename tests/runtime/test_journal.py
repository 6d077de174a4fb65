import sqlite3

import pytest

from springtide.core.errors import RunDamagedError, SpringtideError, StorageFullError, UsageError
from springtide.core.group import End
from springtide.core.member import Member, Purpose
from springtide.core.message import ImagePart, Message, TextPart, ToolCall
from springtide.core.outcome import Invalid, InvalidCause, Valid
from springtide.core.segment import Segment
from springtide.core.trajectory import Trajectory
from springtide.ports.journal import EndRecord, Entry
from springtide.runtime.journal import SqliteJournal, open_journal_reader, read_trajectory
from springtide.scheduling.codec import EVENT, decode_event, encode
from springtide.scheduling.events import Published


def entry(version):
    return Entry(EVENT, encode(Published(version)), float(version))


def trajectory(*, attempt=1, outcome=None, group=4):
    image = ImagePart(sha256="ab", media_type="image/png", width=1, height=2)
    return Trajectory(
        member=Member(Purpose.TRAIN, group, 1, attempt),
        task_id="t",
        segments=(
            Segment(tokens=(1, 2)),
            Segment(tokens=(3,), parent=0, sampled=True, logprobs=(-0.1,), versions=(7,)),
        ),
        messages=(
            Message(role="user", content=(TextPart("look"), image)),
            Message(role="assistant", content="", tool_calls=(ToolCall(name="f", arguments={"a": [1, None]}),)),
        ),
        outcome=outcome or Valid(reward=0.5, metrics={"x": 1.0}),
        turns=1,
    )


def test_what_is_appended_is_read_back_by_a_second_program(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    journal.append(
        entries=[entry(0), entry(1)],
        trajectories=[trajectory()],
        ends=[EndRecord(4, 1, End.TRAINED, 8, "")],
    )
    reader = open_journal_reader(tmp_path / "journal.sqlite")
    assert read_trajectory(reader, Purpose.TRAIN, 4, 1) == trajectory()
    assert list(journal.entries()) == [entry(0), entry(1)]
    assert list(journal.ends()) == [EndRecord(4, 1, End.TRAINED, 8, "")]


def test_the_last_attempt_is_the_slots_trajectory(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    failed = trajectory(outcome=Invalid(cause=InvalidCause.INFRASTRUCTURE, detail="box died"))
    journal.append(entries=[], trajectories=[failed])
    journal.append(entries=[], trajectories=[trajectory(attempt=2)])
    assert journal.trajectory(4, 1).member.attempt == 2
    reader = open_journal_reader(tmp_path / "journal.sqlite")
    assert read_trajectory(reader, Purpose.TRAIN, 4, 1, attempt=1) == failed
    with pytest.raises(KeyError):
        journal.trajectory(4, 0)


def test_an_append_is_all_or_nothing(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    end = EndRecord(0, 0, End.TRAINED, 1, "")
    journal.append(entries=[entry(0)], ends=[end])
    with pytest.raises(AssertionError, match="ended twice"):
        journal.append(entries=[entry(1)], trajectories=[trajectory()], ends=[end])
    assert list(journal.entries()) == [entry(0)]
    with pytest.raises(KeyError):
        journal.trajectory(4, 1)


def test_a_full_disk_loses_nothing_and_says_so(tmp_path):
    path = tmp_path / "journal.sqlite"
    journal = SqliteJournal(path)
    journal.append(entries=[entry(0)])
    pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
    journal._connection.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StorageFullError, match="The disk is full") as caught:
        journal.append(entries=[entry(version) for version in range(1, 2000)])
    assert caught.value.exit_code == 5
    assert list(journal.entries()) == [entry(0)]
    journal._connection.execute("PRAGMA max_page_count=1000000")
    journal.append(entries=[entry(1)])
    assert list(journal.entries()) == [entry(0), entry(1)]


def test_what_is_not_a_journal_is_named(tmp_path):
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"not a database at all, just text" * 100)
    with pytest.raises(RunDamagedError, match=r"journal\.sqlite cannot be read"):
        SqliteJournal(path)


def test_a_reader_cannot_write(tmp_path):
    SqliteJournal(tmp_path / "journal.sqlite").append(entries=[entry(0)])
    reader = open_journal_reader(tmp_path / "journal.sqlite")
    with pytest.raises(sqlite3.OperationalError):
        reader.execute("DELETE FROM entries")


@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 0.9])
def test_a_damaged_journal_is_said_to_be_damaged_wherever_it_is(tmp_path, place):
    path = tmp_path / "journal.sqlite"
    journal = SqliteJournal(path)
    journal.append(entries=[entry(version) for version in range(2000)])
    journal.close()
    content = bytearray(path.read_bytes())
    start = int(place * len(content))
    content[start : start + 4096] = bytes(byte ^ 0xFF for byte in content[start : start + 4096])
    path.write_bytes(content)

    def read():
        return [decode_event(entry.body) for entry in SqliteJournal(path).entries()]

    with pytest.raises(RunDamagedError, match="restore it from a copy"):
        read()


@pytest.mark.parametrize(
    ("said", "kind", "remedy"),
    [
        ("database or disk is full", StorageFullError, "free some space and resume"),
        ("database is locked", SpringtideError, "another program: close that one and resume"),
        ("database table is locked: entries", SpringtideError, "another program: close that one and resume"),
        ("attempt to write a readonly database", UsageError, "give yourself the permission"),
        ("unable to open database file", UsageError, "give yourself the permission"),
        ("disk I/O error", SpringtideError, r"\(disk I/O error\): see what the disk reports"),
        ("no such table: entries", RunDamagedError, "restore it from a copy"),
    ],
)
def test_what_is_not_the_journals_fault_is_no_damage_and_has_its_own_remedy(tmp_path, monkeypatch, said, kind, remedy):
    def fail(*arguments, **options):
        raise sqlite3.OperationalError(said)

    monkeypatch.setattr(sqlite3, "connect", fail)
    with pytest.raises(kind, match=remedy) as caught:
        SqliteJournal(tmp_path / "journal.sqlite")
    assert type(caught.value) is kind


def test_a_program_that_holds_the_journal_is_blamed_for_it(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    journal._connection.execute("PRAGMA busy_timeout=0")
    other = sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(SpringtideError, match="held by another program"):
        journal.append(entries=[entry(0)])
    other.execute("ROLLBACK")
    journal.append(entries=[entry(0)])
    assert list(journal.entries()) == [entry(0)]


def test_a_journal_that_may_not_be_written_is_a_matter_of_permissions(tmp_path):
    path = tmp_path / "journal.sqlite"
    SqliteJournal(path).close()
    journal = SqliteJournal(path)
    journal._connection.execute("PRAGMA query_only=1")
    with pytest.raises(UsageError, match="permission"):
        journal.append(entries=[entry(0)])
