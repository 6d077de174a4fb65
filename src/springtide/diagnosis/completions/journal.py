"""Episodes of our own runs, out of the run's journal, also while it is at work: those that a step was trained on."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from springtide.core.member import Purpose
from springtide.core.outcome import Ending, Valid
from springtide.core.trajectory import Trajectory
from springtide.diagnosis.completions.content import text_of
from springtide.diagnosis.completions.sample import KEPT_OF_PROMPT, Sample, shortened
from springtide.diagnosis.completions.sieve import GROUPS, STEPS
from springtide.runtime.journal import open_journal_reader, read_trajectory, reading

JOURNAL = "journal.sqlite"


def read_journal(path: Path, *, steps: int = STEPS, per_step: int = GROUPS) -> Iterator[Sample]:
    """RunDamagedError if it is not readable, UsageError if it may not be read."""
    connection = open_journal_reader(path)
    try:
        with reading(path):
            for step, group, slot in _chosen(connection, steps, per_step):
                try:
                    trajectory = read_trajectory(connection, Purpose.TRAIN, group, slot)
                except KeyError:
                    continue
                yield sample_of(trajectory, step)
    finally:
        connection.close()


def sample_of(trajectory: Trajectory, step: int) -> Sample:
    outcome = trajectory.outcome
    spoken = [message for message in trajectory.messages if message.role == "assistant"]
    first = next((index for index, each in enumerate(trajectory.messages) if each.role == "assistant"), None)
    ending = outcome.ending if isinstance(outcome, Valid) else None
    said = [
        text_of({"content": m.text, "tool_calls": [_call(call.name, call.arguments) for call in m.tool_calls]})
        for m in spoken
    ]
    return Sample(
        step=step,
        group=str(trajectory.member.group),
        text=shortened("\n".join(said)),
        prompt=shortened("\n".join(message.text for message in trajectory.messages[:first]), KEPT_OF_PROMPT),
        reward=trajectory.reward,
        tokens=trajectory.trained_tokens,
        truncated=ending is Ending.CONTEXT_LIMIT,
        parsed=ending is not Ending.MALFORMED and not any(message.parse_error for message in spoken),
        components=outcome.metrics if isinstance(outcome, Valid) else {},
        place=str(trajectory.member),
    )


def _call(name: str, arguments: dict[str, object]) -> dict[str, object]:
    return {"name": name, "arguments": arguments}


def _chosen(connection: sqlite3.Connection, steps: int, per_step: int) -> Iterator[tuple[int, int, int]]:
    """(step, group, slot) of whole groups of some steps, the first and the last among them."""
    known = [row[0] for row in connection.execute("SELECT DISTINCT step FROM ends WHERE end = 'trained' ORDER BY step")]
    for step in spread(known, steps):
        slots = connection.execute(
            "SELECT grp, slot FROM ends WHERE step = ? AND end = 'trained' ORDER BY grp, slot", (step,)
        )
        groups: set[int] = set()
        for group, slot in slots.fetchall():
            groups.add(group)
            if len(groups) <= per_step:
                yield step, group, slot


def spread(values: list[int], most: int) -> list[int]:
    """At most `most` of `values`, evenly, the first and the last among them."""
    if len(values) <= most:
        return values
    return [values[round(index * (len(values) - 1) / (most - 1))] for index in range(most)]
