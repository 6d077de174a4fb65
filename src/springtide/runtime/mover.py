"""Lets ranks do what the membership says.

A rank that changes its role ends its work first: its running turns, or the train step. Then it and the ranks that train
get to know each other (`SWITCH`), and only then does it count in its new role. Changes go one after the other; a rank
that is called back while its turns end simply stays.

A rank that dies leaves at once. What it rolled out is asked for again elsewhere (`Dispatch.lose`); the train step that
it was in is done again by those that are left, when they know of it. One that comes back begins anew, with the newest
weights.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from springtide.ports.engine import Engine
from springtide.ports.executor import Executor
from springtide.runtime.crew import outlive
from springtide.runtime.dispatch import Dispatch
from springtide.runtime.together import together
from springtide.runtime.train_lane import LANE, TrainLane
from springtide.scheduling.membership import DEAD, Membership

SWITCH = "role_switch"
"""The work of a rank that changes between rollout and training."""

RESIZE = "resize"
"""On the trainer's lane, and so behind the step that runs."""


class Mover:
    """`resize`: from the next step on so many ranks train; whether they roll out in turns, and whether one has died,
    with all that it held. `restart`: the empty engine of a rank that came back. `spawn` runs work beside the
    controller, by name."""

    def __init__(
        self,
        *,
        dispatch: Dispatch,
        executor: Executor,
        membership: Membership,
        steps: TrainLane,
        resize: Callable[[int, bool, bool], None],
        restart: Callable[[int], Engine],
        spawn: Callable[[str, Callable[[], Awaitable[None]]], None],
    ) -> None:
        self._dispatch = dispatch
        self._executor = executor
        self._steps = steps
        self._resize = resize
        self._restart = restart
        self._spawn = spawn
        self._wanted = membership
        self._rollout = dict.fromkeys(membership.rollout)
        self._training = dict.fromkeys(membership.training)
        self._leaving: dict[int, None] = {}
        self._fresh: dict[int, None] = {}
        self._switches: dict[int, asyncio.Task[None]] = {}
        self._moving = False
        dispatch.roll_out_on(membership.rollout)

    def follow(self, membership: Membership) -> None:
        """From now on `membership` is what holds."""
        before, self._wanted = self._wanted, membership
        self._dispatch.follow(membership)
        for rank, (then, since) in enumerate(zip(before.since, membership.since, strict=True)):
            if since != then != DEAD:
                self._bury(rank)
            if then != since != DEAD:
                self._fresh[rank] = None
                self._dispatch.revive(rank, self._restart(rank))
        self._roll_out([*self._rollout, *(rank for rank in self._leaving if rank in membership.rollout)])
        if not self._moving:
            self._moving = True
            self._spawn("move ranks", self._move_all)

    @property
    def overlaps(self) -> bool:
        """Ranks that train roll out as well, or are about to."""
        return self._wanted.together or any(rank in self._training for rank in self._rollout)

    def _bury(self, rank: int) -> None:
        if rank in self._switches:
            self._switches[rank].cancel()
        for ranks in (self._rollout, self._leaving, self._fresh):
            ranks.pop(rank, None)
        self._dispatch.lose(rank)
        if rank in self._training:
            del self._training[rank]
            self._steps.hold()
            self._spawn("train without a dead rank", partial(self._regroup, lost=True))

    # -- on the way --------------------------------------------------------------------------------------------------

    async def _move_all(self) -> None:
        while movers := self._due():
            await self._move(movers)
        self._moving = False

    def _due(self) -> list[int]:
        """Ranks that are not yet what they should be, in order."""
        wanted = self._wanted
        living = [rank for rank in range(len(wanted.since)) if wanted.lives(rank)]
        here = [(rank in self._rollout, rank in self._training) for rank in living]
        there = [(rank in wanted.rollout, rank in wanted.training) for rank in living]
        return [rank for rank, now, then in zip(living, here, there, strict=True) if now != then]

    async def _move(self, movers: list[int]) -> None:
        """These, together. Whoever is called back before the switch stays where it was."""
        stays = self._wanted.rollout
        leaving = [rank for rank in movers if rank in self._rollout and rank not in stays]
        self._leaving = dict.fromkeys(leaving)
        self._roll_out(rank for rank in self._rollout if rank not in self._leaving)
        await self._dispatch.drained(list(self._leaving))
        self._leaving = {}
        movers = [rank for rank in movers if rank not in leaving or rank not in self._rollout]
        if any((rank in self._training) != (rank in self._wanted.training) for rank in movers):
            await self._regroup(movers)
        await together([self._switch(rank) for rank in movers if self._wanted.lives(rank)])
        self._roll_out([*self._rollout, *(rank for rank in movers if self._may_roll_out(rank))])

    def _may_roll_out(self, rank: int) -> bool:
        return rank in self._wanted.rollout and rank not in self._fresh

    async def _regroup(self, movers: Sequence[int] = (), *, lost: bool = False) -> None:
        """The ranks that train get to know of each other, behind the step that they are at: `movers` change then."""

        def resize() -> None:
            for rank in movers:
                self._training.pop(rank, None)
            self._training |= {rank: None for rank in movers if rank in self._wanted.training}
            self._resize(len(self._training), self._wanted.together, lost)

        await self._executor.run(LANE, resize, name=RESIZE)
        if self._training:
            self._steps.go_on()

    async def _switch(self, rank: int) -> None:
        work = self._executor.run(self._dispatch.lane(rank), _nothing, name=SWITCH)
        self._switches[rank] = switch = asyncio.get_running_loop().create_task(work)
        await outlive(switch)
        if self._switches.get(rank) is switch:
            del self._switches[rank]
        if rank in self._fresh and not switch.cancelled():
            await self._dispatch.bring_up(rank)
            self._fresh.pop(rank, None)

    def _roll_out(self, ranks: Iterable[int]) -> None:
        chosen = dict.fromkeys(sorted(ranks))
        if chosen != self._rollout:
            self._rollout = chosen
            self._dispatch.roll_out_on(chosen)


def _nothing() -> None:
    """The cost of a switch is all there is to it."""
