"""Lets ranks do what the membership says.

A rank that changes its role ends its work first: its running turns, or the train step. Then it and the ranks that train
get to know each other (`SWITCH`), and only then does it count in its new role. Changes go one after the other; a rank
that is called back while its turns end simply stays.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from springtide.ports.executor import Executor
from springtide.runtime.dispatch import Dispatch, together
from springtide.scheduling.membership import Membership

SWITCH = "role_switch"
"""The work of a rank that changes between rollout and training."""

RESIZE = "resize"
"""On the trainer's lane, and so behind the step that runs."""


class Mover:
    """`resize`: from the next step on so many ranks train, and roll out in turns or not. `spawn` runs work beside the
    controller, by name."""

    def __init__(
        self,
        *,
        dispatch: Dispatch,
        executor: Executor,
        membership: Membership,
        resize: Callable[[int, bool], None],
        spawn: Callable[[str, Callable[[], Awaitable[None]]], None],
    ) -> None:
        self._dispatch = dispatch
        self._executor = executor
        self._resize = resize
        self._spawn = spawn
        self._wanted = membership
        self._rollout = dict.fromkeys(membership.rollout)
        self._training = dict.fromkeys(membership.training)
        self._leaving: dict[int, None] = {}
        self._moving = False
        dispatch.roll_out_on(membership.rollout)

    def follow(self, membership: Membership) -> None:
        """From now on `membership` is what holds."""
        self._wanted = membership
        self._roll_out([*self._rollout, *(rank for rank in self._leaving if rank in membership.rollout)])
        if not self._moving:
            self._moving = True
            self._spawn("move ranks", self._move_all)

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
        await self._dispatch.drained(self._leaving)
        self._leaving = {}
        movers = [rank for rank in movers if rank not in leaving or rank not in self._rollout]
        training = [rank for rank in self._training if rank not in movers]
        training += [rank for rank in movers if rank in self._wanted.training]
        if set(training) != set(self._training):
            resize = partial(self._resize, len(training), self._wanted.together)
            await self._executor.run("trainer", resize, name=RESIZE)
            self._training = dict.fromkeys(training)
        await together([self._executor.run(self._dispatch.lane(rank), _nothing, name=SWITCH) for rank in movers])
        self._roll_out([*self._rollout, *(rank for rank in movers if rank in self._wanted.rollout)])

    def _roll_out(self, ranks: Iterable[int]) -> None:
        chosen = dict.fromkeys(sorted(ranks))
        if chosen != self._rollout:
            self._rollout = chosen
            self._dispatch.roll_out_on(chosen)


def _nothing() -> None:
    """The cost of a switch is all there is to it."""
