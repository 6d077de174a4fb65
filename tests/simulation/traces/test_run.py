"""Runs of our own, read from their journals."""

import zlib

import msgspec
import pytest

from springtide.core.errors import UsageError
from springtide.core.group import End
from springtide.core.member import Member, Purpose
from springtide.core.outcome import Invalid, InvalidCause, Valid
from springtide.core.segment import Segment
from springtide.core.trajectory import EnvironmentTimes, Trajectory
from springtide.ports.journal import EndRecord
from springtide.runtime.journal import SqliteJournal
from springtide.simulation.script import Turn
from springtide.simulation.traces import run
from springtide.simulation.traces.recorded import recorded
from springtide.simulation.traces.run import turns_of
from springtide.telemetry.run_folder import RunFolder

TIMES = EnvironmentTimes(reset=2.0, steps=(0.5, 0.25), verify=0.75)


def read(tokens, parent=-1):
    return Segment(tokens=tuple(tokens), parent=parent)


def said(count, parent):
    return Segment(tokens=(9,) * count, parent=parent, sampled=True, logprobs=(-1.0,) * count, versions=(0,) * count)


def episode(group, slot, *, attempt=1, prompt=(1, 2, 3), reward=1.0, times=TIMES, purpose=Purpose.TRAIN):
    """A prompt, two tokens, a reply of four, five tokens."""
    failure = Invalid(cause=InvalidCause.INFRASTRUCTURE, detail="box died")
    return Trajectory(
        member=Member(purpose, group, slot, attempt),
        task_id="t",
        segments=(read(prompt), said(2, 0), read([4, 4, 4, 4], 1), said(5, 2)),
        outcome=failure if reward is None else Valid(reward=reward),
        turns=2,
        environment=times,
    )


def folder(tmp_path, *trajectories, ends=()):
    made = RunFolder.create(name="mine", recipe_text="", path=tmp_path / "mine")
    journal = SqliteJournal(made.journal)
    journal.append(entries=[], trajectories=trajectories, ends=ends)
    journal.close()
    return made


def test_groups_attempts_rewards_times_and_failures_are_the_run_s(tmp_path):
    trace = run.read(
        folder(
            tmp_path,
            episode(3, 0, prompt=(1, 2, 5), reward=0.5),
            episode(3, 1, prompt=(1, 2, 5), reward=None),
            episode(3, 1, prompt=(1, 2, 5), attempt=2),
            episode(2, 0),
            episode(0, 0, purpose=Purpose.EVALUATE),
            ends=[EndRecord(2, 0, End.TRAINED, 1, ""), EndRecord(3, 0, End.TRAINED, 2, "")],
        )
    )
    assert (trace.sizes, trace.groups_per_step, trace.shared) == ((1, 2), 1, 2)
    work, told = recorded(trace)
    assert (work.group_size, work.groups_per_step) == (2, 1)
    first = work.script(seed=0, task=1, slot=0, attempt=1)
    assert first.turns == (Turn(3, 0, 2, 0.5), Turn(9, 5, 5, 0.25))
    assert (first.reset, first.grade, first.reward, first.trained) == (2.0, 0.75, 0.5, (14,))
    assert (first.prefix, first.shared) == (3, 2)
    failing, again, third = (work.script(seed=0, task=1, slot=1, attempt=attempt) for attempt in (1, 2, 3))
    assert failing.failed
    assert failing.turns[-1].latency == 0.25 + 0.75
    assert not again.failed
    assert third == again
    assert any("1 of 2 groups have fewer than 2 episodes" in sentence for sentence in told)


def test_an_episode_that_was_journalled_twice_counts_once_as_it_was_last(tmp_path):
    trace = run.read(folder(tmp_path, episode(0, 0, reward=0.0), episode(0, 0, reward=0.25)))
    assert [found.reward for found in trace.episodes()] == [0.25]


def test_runs_of_earlier_versions_lack_times_and_say_so(tmp_path):
    made = folder(tmp_path, episode(0, 0))
    old = msgspec.to_builtins(episode(0, 1))
    del old["environment"]
    journal = SqliteJournal(made.journal)
    with journal._connection as connection:
        connection.execute(
            "INSERT INTO trajectories (purpose, grp, slot, attempt, version, reward, ending, turns, tokens, body)"
            " VALUES ('train', 0, 1, 1, 0, 1.0, 'answered', 2, 7, ?)",
            (zlib.compress(msgspec.msgpack.encode(old)),),
        )
    journal.close()
    trace = run.read(made)
    assert [turn.latency for episode in trace.episodes() for turn in episode.turns] == [0.5, 0.25, 0.0, 0.0]
    assert trace.assumptions[0].startswith("1 of 2 episodes were recorded by a version that did not keep")


def test_groups_that_never_succeeded_would_be_tried_for_ever_and_are_left_out(tmp_path):
    broken = Trajectory(
        member=Member(Purpose.TRAIN, 0, 0),
        task_id="t",
        segments=(),
        outcome=Invalid(cause=InvalidCause.INFRASTRUCTURE, detail="no box"),
    )
    trace = run.read(folder(tmp_path, broken, episode(1, 0, reward=None), episode(2, 0)))
    assert trace.sizes == (1,)
    assert "1 attempts that failed before their first turn are left out." in trace.assumptions
    assert "1 groups without any valid episode are left out." in trace.assumptions
    with pytest.raises(UsageError, match="no valid training episode yet"):
        run.read(folder(tmp_path / "other", episode(1, 0, reward=None)))


def test_a_run_that_has_not_begun_is_told_apart(tmp_path):
    made = RunFolder.create(name="mine", recipe_text="", path=tmp_path / "mine")
    with pytest.raises(UsageError, match="has no episodes yet"):
        run.read(made)
    SqliteJournal(made.journal).close()
    with pytest.raises(UsageError, match="no training episode that sampled anything"):
        run.read(made)


def test_what_a_fork_shares_with_the_turn_before_is_reused():
    forked = Trajectory(
        member=Member(Purpose.TRAIN, 0, 0),
        task_id="t",
        segments=(read([1, 2, 3]), said(2, 0), read([4], 0), said(3, 2)),
        outcome=Valid(reward=1.0),
    )
    assert turns_of(forked) == (Turn(3, 0, 2, 0.0), Turn(4, 3, 3, 0.0))
