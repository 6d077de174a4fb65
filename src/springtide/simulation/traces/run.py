"""A run of our own as a trace: its training episodes, from the journal, also while the run is at work.

Groups, attempts, tokens, rewards and failures are the run's. What its environments took is recorded with each episode;
runs of earlier versions lack that.
"""

import zlib
from collections import Counter
from sqlite3 import Connection

import msgspec

from springtide.core.errors import UsageError
from springtide.core.trajectory import EnvironmentTimes, Trajectory
from springtide.runtime.journal import open_journal_reader, reading
from springtide.simulation.script import Turn
from springtide.simulation.traces.sessions import in_common
from springtide.simulation.traces.trace import TURNS_MAX, Episode, Slot, Trace
from springtide.telemetry.run_folder import RunFolder

FORMAT = "Springtide run"

EPISODES = (
    "SELECT grp, slot, body FROM trajectories AS one WHERE purpose = 'train' AND NOT EXISTS (SELECT 1 FROM trajectories"
    " AS later WHERE later.purpose = one.purpose AND later.grp = one.grp AND later.slot = one.slot AND later.attempt ="
    " one.attempt AND later.id > one.id) ORDER BY grp, slot, attempt"
)
"""Each once, in issue order: an episode is journalled again when its group is graded, or its step was killed."""

UNTIMED = (
    "{count:,} of {total:,} episodes were recorded by a version that did not keep what environments took: their "
    "latencies, starts and grading take no time here."
)


def read(folder: RunFolder) -> Trace:
    """UsageError if the run has no training episodes, RunDamagedError if its journal cannot be read."""
    if not folder.journal.exists():
        raise UsageError(f"Run {folder.id} has no episodes yet: it has not begun to train.")
    connection = open_journal_reader(folder.journal)
    try:
        with reading(folder.journal):
            reader = Reader()
            reader.take(connection)
            per_step = _groups_per_step(connection)
    finally:
        connection.close()
    if not reader.groups:
        raise UsageError(
            f"Run {folder.id} has no training episode that sampled anything yet; wait for its first groups."
        )
    return reader.trace(folder.id, per_step)


class Reader:
    """Takes episodes in order."""

    def __init__(self) -> None:
        self.groups: dict[int, dict[int, list[Episode]]] = {}
        self._before: tuple[int, ...] = ()
        self._turns = 0
        self._counts: Counter[str] = Counter()

    def take(self, connection: Connection) -> None:
        decoder = msgspec.msgpack.Decoder(Trajectory)
        for group, slot, body in connection.execute(EPISODES):
            if self._turns >= TURNS_MAX:
                self._counts["cut"] = group
                return
            self._take(group, slot, decoder.decode(zlib.decompress(body)))

    def _take(self, group: int, slot: int, trajectory: Trajectory) -> None:
        self._counts["all"] += 1
        turns = turns_of(trajectory)
        if not turns:
            self._counts["silent"] += 1
            return
        self._turns += len(turns)
        self._counts["untimed"] += trajectory.environment is None
        times = trajectory.environment or EnvironmentTimes()
        prompt = trajectory.segments[0].tokens
        episode = Episode(
            turns=turns,
            trained=trajectory.lengths,
            common=in_common(self._before, prompt),
            reset=times.reset,
            grade=times.verify,
            reward=trajectory.reward or 0.0,
            failed=not trajectory.valid,
        )
        self._before = prompt
        self.groups.setdefault(group, {}).setdefault(slot, []).append(episode)

    def trace(self, name: str, groups_per_step: int | None) -> Trace:
        """Groups of which nothing was valid are left out: in a simulation they would be tried for ever."""
        kept = [slots for slots in self.groups.values() if any(not e.failed for slot in slots.values() for e in slot)]
        if not kept:
            raise UsageError(f"Run {name} has no valid training episode yet; wait for its first groups.")
        told = []
        if self._counts["untimed"]:
            told.append(UNTIMED.format(count=self._counts["untimed"], total=self._counts["all"]))
        if self._counts["silent"]:
            told.append(f"{self._counts['silent']:,} attempts that failed before their first turn are left out.")
        if len(kept) < len(self.groups):
            told.append(f"{len(self.groups) - len(kept):,} groups without any valid episode are left out.")
        if self._counts["cut"]:
            told.append(f"Only the first {self._turns:,} turns are read, those before group {self._counts['cut']}.")
        slots: list[Slot] = [tuple(attempts) for group in kept for attempts in group.values()]
        return Trace(
            name=name,
            format=FORMAT,
            slots=tuple(slots),
            sizes=tuple(len(group) for group in kept),
            assumptions=tuple(told),
            groups_per_step=groups_per_step,
        )


def turns_of(trajectory: Trajectory) -> tuple[Turn, ...]:
    """One per sampled segment; the latencies are those that were recorded, or 0.

    What a failed episode's verifier took comes after its last turn, as an environment that fails does.
    """
    times = trajectory.environment or EnvironmentTimes()
    sampled = [index for index, each in enumerate(trajectory.segments) if each.sampled]
    turns, before = [], frozenset[int]()
    for number, index in enumerate(sampled):
        if not trajectory.segments[index].tokens:
            continue
        path = _path(trajectory, index)
        context = sum(len(trajectory.segments[part].tokens) for part in path if part != index)
        kept = sum(len(trajectory.segments[part].tokens) for part in path if part in before)
        latency = times.steps[number] if number < len(times.steps) else 0.0
        turns.append(Turn(context, kept, len(trajectory.segments[index].tokens), latency))
        before = frozenset(path)
    if turns and not trajectory.valid:
        turns[-1] = turns[-1]._replace(latency=turns[-1].latency + times.verify)
    return tuple(turns)


def _path(trajectory: Trajectory, index: int) -> list[int]:
    path = []
    while index != -1:
        path.append(index)
        index = trajectory.segments[index].parent
    return path


def _groups_per_step(connection: Connection) -> int | None:
    """As most steps had; None before the first."""
    counts = connection.execute("SELECT count(DISTINCT grp) FROM ends WHERE end = 'trained' GROUP BY step").fetchall()
    return Counter(count for (count,) in counts).most_common(1)[0][0] if counts else None
