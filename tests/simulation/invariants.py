"""What holds in every modelled run, checked while it goes on: books beside the scheduler, the trainer and the episodes.

The books of the ranks are in `rank_books.py`. A check that fails raises `ViolationError`, whose text begins with the
name of what is broken:

I1 each issued (group, slot) ends once, and nothing is consumed twice     I6 batches do not depend on the pipelining
I2 a group is consumed whole, in one update                               I7 KV fits the device and host memory
I3 no token is staler than the bound when it is trained on                I8 every run ends, and every turn is served
I4 no token is lost; each has the version that sampled it                 I9 consumption is within the window
I5 KV dropped at an update is used no more                                I10 tokens do not depend on what becomes of KV
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence

from springtide.core.group import End, Group
from springtide.core.member import Member
from springtide.core.sampling import Sampled
from springtide.core.trajectory import Trajectory
from springtide.ports.journal import EndRecord, Entry
from springtide.scheduling.commands import Command, IssueGroup, MoveRanks, Prepare, StartMember, Train
from springtide.scheduling.config import SchedulingConfig
from springtide.scheduling.events import ConcurrencySet, Event, MemberFinished, StepFinished
from springtide.simulation.player import ModelledTrajectory
from springtide.simulation.script import Scripts
from springtide.simulation.turn import ModelledRequest

FOREVER = 1e8
"""Seconds; no run here takes as long, unless it waits for a deadline that stands for none."""

Counts = list[tuple[int, int]]
"""(version, tokens) in order."""


class ViolationError(AssertionError):
    """An invariant does not hold."""


def check(holds: bool, name: str, text: str) -> None:
    if not holds:
        raise ViolationError(f"{name}: {text}")


def merged(counts: Sequence[tuple[int, int]]) -> Counts:
    """Neighbours of one version as one."""
    result: Counts = []
    for version, tokens in counts:
        if result and result[-1][0] == version:
            tokens += result.pop()[1]
        result.append((version, tokens))
    return result


class Books:
    """Of one run. Implements the Journal port, for what is written there.

    `longest`: seconds within which a turn has to be served. `batches`: the groups of each step. `outputs`: tokens per
    turn of every episode that ended, by (task, slot, attempt).
    """

    def __init__(self, config: SchedulingConfig, scripts: Scripts, *, longest: float, now: Callable[[], float]) -> None:
        self.config = config
        self.bound = 0 if config.mode == "sync" else config.staleness
        window = 0 if config.mode == "sync" else config.groups_per_step
        self.window = window if config.window is None else config.window
        self.events = 0
        self.moves = 0
        self.batches: list[tuple[int, ...]] = []
        self.trained: list[tuple[int, ...]] = []
        self.trace: list[tuple[float, str, bytes]] = []
        """What the journal was told."""
        self.outputs: dict[tuple[str, int, int], tuple[int, ...]] = {}
        self._scripts = scripts
        self._longest = longest
        self._now = now
        self._issued: dict[int, IssueGroup] = {}
        self._live: dict[int, None] = {}
        self._ends: dict[tuple[int, int], EndRecord] = {}
        self._journalled: dict[tuple[int, int], EndRecord] = {}
        self._prepared: dict[int, set[int]] = {}
        self._flying: dict[tuple[int, int], int] = {}
        self._limit = config.max_concurrent
        self._applied = self._finished = 0
        self._epoch = 0
        self.broken = False
        """Whether the open step has lost a rank, and has to be done again."""
        self._turns: dict[Member, list[int]] = {}
        self._newest: dict[Member, int] = {}

    # -- the scheduler -----------------------------------------------------------------------------------------------

    def decided(self, event: Event, commands: Sequence[Command], ends: Sequence[EndRecord]) -> None:
        """One event, what was decided, and the ends that were recorded."""
        self.events += 1
        check(self._now() < FOREVER, "I8", f"{event} is what everybody waited for")
        match event:
            case MemberFinished() if event.epoch == 0:
                if self._flying.get((event.group, event.slot)) == event.attempt:
                    del self._flying[event.group, event.slot]
            case StepFinished():
                self._finished += 1
                check(event.step == self._finished, "I1", f"step {event.step} ends after {self._finished - 1} others")
                check(event.step == self._applied, "I2", f"step {event.step} ends, and {self._applied} is under way")
                check(not self.broken, "I2", f"step {event.step} counts, although a rank died in it")
            case ConcurrencySet(concurrent):
                self._limit = min(concurrent, self.config.max_concurrent)
        for record in ends:
            self._end(record)
        for command in commands:
            match command:
                case IssueGroup():
                    check(command.group not in self._issued, "I1", f"group {command.group} is issued twice")
                    self._issued[command.group] = command
                    self._live[command.group] = None
                case StartMember():
                    self._start(command)
                case Prepare():
                    self._prepared.setdefault(command.step, set()).add(command.group)
                case Train():
                    self._consume(command)
                case MoveRanks(membership):
                    self.moves += 1
                    check(membership.complete, "I8", f"a role has no rank: {membership}")
                    check(membership.epoch > self._epoch, "I8", f"epoch {membership.epoch} comes after {self._epoch}")
                    self._epoch = membership.epoch
        for record in ends:
            self._live.pop(record.group, None)

    def _start(self, command: StartMember) -> None:
        key = (command.group, command.slot)
        check(key not in self._flying, "I1", f"{key} is played twice at once")
        check(command.group in self._live, "I1", f"{key} is played although its group has ended")
        self._flying[key] = command.attempt
        check(len(self._flying) <= self._limit, "I8", f"{len(self._flying)} in flight, {self._limit} allowed")

    def _end(self, record: EndRecord) -> None:
        key = (record.group, record.slot)
        check(key not in self._ends, "I1", f"{key} ends twice")
        check(record.group in self._issued, "I1", f"{key} ends and was never issued")
        self._ends[key] = record

    def _consume(self, command: Train) -> None:
        batch = command.groups
        used = {group for earlier in self.batches for group in earlier}
        check(not used & set(batch), "I1", f"step {command.step} consumes {sorted(used & set(batch))} again")
        check(len(set(batch)) == self.config.groups_per_step, "I2", f"step {command.step} is of {batch}")
        check(command.step == len(self.batches) + 1, "I1", f"step {command.step} comes after {len(self.batches)}")
        for group in batch:
            age = command.step - 1 - self._issued[group].base_version
            check(age <= self.bound, "I3", f"group {group} is {age} versions old at step {command.step}")
        ended = {group for group, _ in self._ends}
        passed = [group for group in self._live if group < max(batch) and group not in ended]
        check(len(passed) <= self.window, "I9", f"{batch} overtook {passed}, the window is {self.window}")
        if self.config.mode == "async":
            prepared = self._prepared.get(command.step, set())
            check(prepared == set(batch), "I6", f"step {command.step} is of {batch}, told were {prepared}")
        self.batches.append(batch)

    # -- the trainer -------------------------------------------------------------------------------------------------

    def trains(self, step: int, groups: Sequence[Group]) -> None:
        """A train step begins."""
        again = step == self._applied and self.broken
        check(again or step == self._applied + 1, "I2", f"step {step} is applied after step {self._applied}")
        self._applied, self.broken = step, False
        self.trained = self.batches[:step]
        batch = tuple(group.id for group in groups)
        check(batch == self.batches[step - 1], "I2", f"step {step} trains on {batch}, not {self.batches[step - 1]}")
        for group in groups:
            slots = [(member.member.group, member.member.slot) for member in group.members]
            whole = [(group.id, slot) for slot in range(self.config.group_size)]
            check(slots == whole, "I2", f"group {group.id} is trained on as {slots}")
            for member in group.members:
                self._trained_member(step, member)

    def _trained_member(self, step: int, trajectory: Trajectory) -> None:
        who = trajectory.member
        end = self._ends.get((who.group, who.slot))
        expected = End.TRAINED if trajectory.valid else End.INVALID
        check(end is not None and end.end is expected, "I1", f"{who} is trained on as {expected}, and ended as {end}")
        oldest = trajectory.oldest_version
        if trajectory.valid and oldest is not None:
            check(step - 1 - oldest <= self.bound, "I3", f"{who} has tokens of version {oldest} at step {step}")

    # -- episodes ----------------------------------------------------------------------------------------------------

    async def sample(self, request: ModelledRequest, inner: Callable[[ModelledRequest], Awaitable[Sampled]]) -> Sampled:
        """A turn."""
        who, begun = request.member, self._now()
        sampled = await inner(request)
        counts: Counts = list(sampled.counts)  # type: ignore[attr-defined]
        waited = self._now() - begun
        check(waited <= self._longest, "I8", f"{who} waited {waited:.0f} s for turn {request.turn}")
        check(sampled.length == request.output, "I4", f"{who} got {sampled.length} of {request.output} tokens")
        check(all(tokens > 0 for _, tokens in counts), "I4", f"{who} has {counts}")
        versions = [self._newest.get(who, 0), *(version for version, _ in counts)]
        check(versions == sorted(versions), "I4", f"{who} goes back from version to version: {versions}")
        self._newest[who] = versions[-1]
        self._turns.setdefault(who, []).append(sampled.length)
        return sampled

    def _written(self, trajectory: Trajectory) -> None:
        assert isinstance(trajectory, ModelledTrajectory)
        who = trajectory.member
        script = self._scripts.script(task=int(trajectory.task_id), slot=who.slot, attempt=who.attempt)
        check(int(trajectory.task_id) == self._issued[who.group].task, "I1", f"{who} played {trajectory.task_id}")
        turns = self._turns[who]
        check(turns == [turn.output for turn in script.turns], "I4", f"{who} has turns of {turns}")
        versions = [version for version, _ in trajectory.counts]
        check(versions == sorted(set(versions)), "I4", f"{who} has versions {versions}")
        total = sum(tokens for _, tokens in trajectory.counts)
        check(total == script.sampled, "I4", f"{who} has {total} tokens of {script.sampled}")
        self.outputs[trajectory.task_id, who.slot, who.attempt] = tuple(turns)

    # -- the journal -------------------------------------------------------------------------------------------------

    def append(
        self, *, entries: Sequence[Entry], trajectories: Sequence[Trajectory] = (), ends: Sequence[EndRecord] = ()
    ) -> None:
        self.trace += [(entry.time, entry.kind, entry.body) for entry in entries]
        for trajectory in trajectories:
            self._written(trajectory)
        for record in ends:
            key = (record.group, record.slot)
            check(key not in self._journalled, "I1", f"{key} is journalled twice")
            self._journalled[key] = record

    def entries(self) -> Iterator[Entry]:
        return iter(())

    def trajectory(self, group: int, slot: int) -> Trajectory:
        raise KeyError((group, slot))

    def ends(self) -> Iterator[EndRecord]:
        return iter(self._journalled.values())

    def close(self) -> None:
        pass

    # -- the end of the run ------------------------------------------------------------------------------------------

    def finished(self) -> None:
        """All steps are trained."""
        steps = self.config.steps
        check(len(self.batches) == steps and self._applied == steps, "I8", f"{self._applied} of {steps} steps")
        issued = {(group, slot) for group, command in self._issued.items() for slot in range(command.size)}
        check(issued == set(self._ends), "I1", f"without an end: {sorted(issued ^ set(self._ends))}")
        check(self._journalled == self._ends, "I1", "the journal has other ends")
        trained = {record.group for record in self._ends.values() if record.end is End.TRAINED}
        used = {group for batch in self.batches for group in batch}
        check(trained == used, "I1", f"consumed {used}, ended as trained {trained}")
