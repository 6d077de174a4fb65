"""Running episodes: starts what was commanded, cancels what expired, posts what ended."""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from springtide.core.group import Group
from springtide.core.member import Member, Purpose
from springtide.core.trajectory import Trajectory
from springtide.ports.clock import Clock
from springtide.ports.environment import EnvironmentSource
from springtide.rollout.episode import EpisodePlayer
from springtide.runtime.dispatch import Dispatch
from springtide.scheduling.commands import StartMember
from springtide.scheduling.events import CANCELLED, MemberFinished
from springtide.telemetry.status import Wait

Post = Callable[[MemberFinished, Trajectory | None], None]


class Episodes:
    """Training episodes in flight. Every started one is posted exactly once, also when it was cancelled or crashed."""

    def __init__(
        self,
        *,
        player: EpisodePlayer,
        source: EnvironmentSource,
        dispatch: Dispatch,
        clock: Clock,
        temperature: float,
        post: Post,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._player = player
        self._source = source
        self._dispatch = dispatch
        self._clock = clock
        self._temperature = temperature
        self._post = post
        self._fail = fail
        self._tasks: dict[Member, tuple[asyncio.Task[Trajectory], float]] = {}

    def start(self, command: StartMember) -> None:
        member = Member(Purpose.TRAIN, command.group, command.slot, command.attempt)
        self._dispatch.open(member)
        task = asyncio.get_running_loop().create_task(self._play(command, member), name=f"episode {member}")
        self._tasks[member] = (task, self._clock.now())
        task.add_done_callback(partial(self._ended, command, member))

    def cancel(self, group: int) -> None:
        for member, (task, _) in self._tasks.items():
            if member.group == group:
                task.cancel()

    async def score(self, group: Group) -> tuple[Trajectory, ...]:
        """The members with the outcomes that the environment gives them as a group."""
        outcomes = await self._source.score_group(group.members)
        return tuple(
            msgspec.structs.replace(member, outcome=outcome)
            for member, outcome in zip(group.members, outcomes, strict=True)
        )

    def waits(self) -> list[Wait]:
        """Who plays, oldest first."""
        now = self._clock.now()
        return [Wait("episode", str(member), now - since) for member, (_, since) in self._tasks.items()]

    async def close(self) -> None:
        """Cancel everything and wait until environments are closed."""
        tasks = [task for task, _ in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _play(self, command: StartMember, member: Member) -> Trajectory:
        if command.delay > 0:
            await self._clock.sleep(command.delay)
        task = self._source.task(purpose=Purpose.TRAIN, index=command.task)
        return await self._player.play(member, task, self._source.create(), temperature=self._temperature)

    def _ended(self, command: StartMember, member: Member, task: asyncio.Task[Trajectory]) -> None:
        """A callback and not the coroutine's own end: a task that is cancelled before it begins never gets there."""
        del self._tasks[member]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)
            return
        trajectory = None if task.cancelled() else task.result()
        self._post(_finished(command, trajectory), trajectory)


def _finished(command: StartMember, trajectory: Trajectory | None) -> MemberFinished:
    reward = None if trajectory is None else trajectory.reward
    if trajectory is None:
        reason = CANCELLED
    elif reward is None:
        reason = trajectory.outcome.detail
    else:
        reason = ""
    return MemberFinished(
        group=command.group,
        slot=command.slot,
        attempt=command.attempt,
        epoch=command.epoch,
        reward=reward,
        reason=reason,
    )
