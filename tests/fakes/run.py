"""A whole run made of fakes, on the virtual clock."""

import asyncio

from fakes.checkpoints import FakeCheckpoints
from fakes.engine import FakeEngine
from fakes.game import FakeRenderer, FakeSource
from fakes.journal import Disk, FakeJournal
from fakes.trainer import FakeTrainer
from springtide.rollout.config import RolloutConfig
from springtide.rollout.episode import Player
from springtide.runtime.clock import LoopClock
from springtide.runtime.controller import Controller
from springtide.runtime.dispatch import Dispatch
from springtide.runtime.episodes import Episodes
from springtide.runtime.evaluator import Evaluator
from springtide.runtime.invalid_rate import InvalidRates
from springtide.runtime.mover import Mover
from springtide.runtime.observer import Observers
from springtide.runtime.publication import Publication
from springtide.runtime.recovery import Recovery
from springtide.runtime.stash import Stash
from springtide.scheduling.config import SchedulingConfig
from springtide.scheduling.events import Boundary, RankDied, RankJoined
from springtide.scheduling.membership import Membership
from springtide.scheduling.milestones import Milestones
from springtide.scheduling.refresh import Refresh
from springtide.scheduling.scheduler import Scheduler
from springtide.simulation.executor import InlineExecutor
from springtide.simulation.virtual_loop import run_virtual
from springtide.telemetry.ledger import Ledger

COSTS = {"generate": 0.5, "train": 2.0, "train_again": 2.0, "append": 0.01}


def new_disk():
    disk = Disk()
    folder: dict = {}
    FakeTrainer().save(folder)
    disk.checkpoints[0] = (folder, Boundary())
    return disk


class FakeRun:
    """One process of a run. `start` drives it to its end or to its death."""

    def __init__(
        self,
        disk,
        config,
        *,
        source=None,
        evaluation_tasks=2,
        checkpoint_every=2,
        observers=(),
        costs=None,
        kv="recompute",
        ranks=1,
        deaths=(),
        room=None,
    ):
        """`ranks` roll out and train; `deaths`: (seconds, rank, seconds) of one that dies and is back; `room` in the
        journal."""
        self.costs = COSTS | (costs or {})
        self.kv = kv
        self.disk = disk
        self.config = config
        self.source = source or FakeSource()
        self.milestones = Milestones(
            last=config.steps,
            evaluation_tasks=evaluation_tasks,
            evaluation_every=2 if evaluation_tasks else 0,
            evaluation_tasks_on_the_way=2,
            checkpoint_every=checkpoint_every,
        )
        self.journal = FakeJournal(disk, room=room)
        self.trainer = FakeTrainer()
        self.engines = [FakeEngine() for _ in range(ranks)]
        self.deaths = deaths
        self.groupings = []
        self.observers = observers

    @property
    def engine(self):
        return self.engines[0]

    @engine.setter
    def engine(self, engine):
        self.engines[0] = engine

    async def _main(self):
        clock = LoopClock()
        ledger = Ledger(clock.now)
        ledger.lane("journal").wait_for("idle")
        executor = InlineExecutor(lambda lane, name: self.costs.get(name, 0.05), ledger)
        self.ledger = ledger
        sync = self.config.mode == "sync"
        members = Membership.of(len(self.engines), len(self.engines))
        scheduler = Scheduler(self.config, self.milestones, score_groups=self.source.scores_groups, membership=members)
        stash = Stash()
        observers = Observers(self.observers)
        checkpoints = FakeCheckpoints(self.disk, lambda: self.journal.alive)
        dispatch = Dispatch(
            engines=self.engines,
            executor=executor,
            clock=clock,
            ledger=ledger,
            lockstep=sync,
            decode_steps=2,
            refresh=Refresh() if self.kv == "refresh" else None,
        )
        player = Player(
            sampler=dispatch,
            renderer=FakeRenderer(),
            config=RolloutConfig(max_turns=3, max_context=100, max_tokens_per_turn=8),
            clock=clock,
        )
        evaluator = Evaluator(
            player=player,
            source=self.source,
            dispatch=dispatch,
            temperature=1.0,
            success_reward=1.0,
            concurrent=self.config.max_concurrent,
            max_attempts=self.config.max_attempts,
        )
        self.controller = controller = Controller(
            scheduler=scheduler,
            journal=self.journal,
            executor=executor,
            clock=clock,
            ledger=ledger,
            trainer=self.trainer,
            dispatch=dispatch,
            publication=Publication(trainer=self.trainer, dispatch=dispatch, executor=executor, kv=self.kv),
            evaluator=evaluator,
            checkpoints=checkpoints,
            stash=stash,
            observers=observers,
        )
        controller.episodes = Episodes(
            player=player,
            source=self.source,
            dispatch=dispatch,
            clock=clock,
            temperature=1.0,
            post=controller.post_member,
            fail=controller.fail,
        )
        controller.mover = Mover(
            dispatch=dispatch,
            executor=executor,
            membership=members,
            steps=controller.steps,
            resize=lambda training, together, lost: self.groupings.append((training, lost)),
            restart=lambda rank: FakeEngine(),
            spawn=controller.spawn,
        )
        for at, rank, back in self.deaths:
            asyncio.get_running_loop().call_later(at, self._die, rank)
            asyncio.get_running_loop().call_later(back, controller.post, RankJoined(rank))
        recovery = Recovery(
            journal=self.journal,
            checkpoints=checkpoints,
            trainer=self.trainer,
            executor=executor,
            scheduler=scheduler,
            stash=stash,
            observers=observers,
            invalid_rates=InvalidRates(scores_groups=self.source.scores_groups),
        )
        await controller.run(await recovery.recover())
        self.ledger_shares = ledger.unattributed_share()
        self.ledger_seconds = ledger.seconds()
        return scheduler

    def _die(self, rank):
        self.controller.post(RankDied(rank, self.controller.scheduler.membership.since[rank]))

    def start(self, *, kill_after=None):
        try:
            return run_virtual(self._main, kill_after=kill_after)
        finally:
            self.journal.close()


def small_config(mode, **changes):
    defaults = {
        "mode": mode,
        "groups_per_step": 2,
        "group_size": 2,
        "steps": 3,
        "max_concurrent": 6,
        "min_valid": 1,
        "staleness": 1,
    }
    return SchedulingConfig(**(defaults | changes))
