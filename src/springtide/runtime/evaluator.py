"""Held-out evaluation: plays numbered tasks with the served version and counts.

Tasks and random streams depend on the task number alone, so two versions meet the same tasks with the same luck. At
most `concurrent` episodes run at once, opened in order, so that lockstep batches are the same in every run.
"""

import asyncio
from collections import deque

from springtide.core.member import Member, Purpose
from springtide.core.trajectory import Trajectory
from springtide.ports.environment import EnvironmentSource
from springtide.rollout.episode import EpisodePlayer
from springtide.runtime.dispatch import Dispatch
from springtide.scheduling.events import EvaluationFinished


class Evaluator:
    def __init__(
        self,
        *,
        player: EpisodePlayer,
        source: EnvironmentSource,
        dispatch: Dispatch,
        temperature: float,
        success_reward: float,
        concurrent: int,
        max_attempts: int,
    ) -> None:
        self._player = player
        self._source = source
        self._dispatch = dispatch
        self._temperature = temperature
        self._success_reward = success_reward
        self._concurrent = concurrent
        self._max_attempts = max_attempts

    async def evaluate(self, tasks: int) -> list[Trajectory]:
        """Play tasks 0 to `tasks` - 1. Invalid episodes are tried again, then counted beside the result."""
        waiting = deque(Member(Purpose.EVALUATE, index, 0) for index in range(tasks))
        running: dict[asyncio.Task[Trajectory], Member] = {}
        trajectories: dict[int, Trajectory] = {}
        try:
            self._fill(waiting, running)
            while running:
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                closed = [running.pop(task) for task in sorted(done, key=lambda task: running[task])]
                for task in sorted(done, key=lambda task: task.result().member):
                    trajectory = task.result()
                    trajectories[trajectory.member.group] = trajectory
                    member = trajectory.member
                    if not trajectory.valid and member.attempt < self._max_attempts:
                        waiting.appendleft(Member(Purpose.EVALUATE, member.group, 0, member.attempt + 1))
                self._fill(waiting, running)
                for member in closed:
                    self._dispatch.close(member)
        except (Exception, asyncio.CancelledError):
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            raise
        return [trajectories[index] for index in range(tasks)]

    def summary(self, version: int, trajectories: list[Trajectory]) -> EvaluationFinished:
        """Counts of an evaluation."""
        rewards = [trajectory.reward for trajectory in trajectories if trajectory.reward is not None]
        return EvaluationFinished(
            version=version,
            successes=sum(reward >= self._success_reward for reward in rewards),
            valid=len(rewards),
            invalid=len(trajectories) - len(rewards),
        )

    def _fill(self, waiting: deque[Member], running: dict[asyncio.Task[Trajectory], Member]) -> None:
        while waiting and len(running) < self._concurrent:
            member = waiting.popleft()
            self._dispatch.open(member)
            running[asyncio.get_running_loop().create_task(self._play(member), name=f"episode {member}")] = member

    async def _play(self, member: Member) -> Trajectory:
        task = self._source.task(purpose=Purpose.EVALUATE, index=member.group)
        return await self._player.play(member, task, self._source.create(), temperature=self._temperature)
