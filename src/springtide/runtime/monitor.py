"""What people and tools see of a run: canonical metrics to the sinks, the present state to the status board."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence

from springtide.core.group import Group
from springtide.core.trajectory import Trajectory
from springtide.ports.clock import Clock
from springtide.ports.engine import EngineStats
from springtide.ports.trainer import StepReport
from springtide.runtime.group_metrics import (
    completion_metrics,
    environment_metrics,
    mean,
    reward_metrics,
    signal_metrics,
    staleness,
)
from springtide.runtime.invalid_rate import InvalidRates
from springtide.scheduling.commands import Command, IssueGroup, StartMember, Train
from springtide.scheduling.costs import CurrentCosts
from springtide.scheduling.events import (
    CheckpointFailed,
    EvaluationFinished,
    Event,
    GroupScored,
    MemberFinished,
    ProcessStarted,
    Published,
    StepFinished,
)
from springtide.scheduling.scheduler import Scheduler
from springtide.telemetry.ledger import Ledger
from springtide.telemetry.names import cost_name
from springtide.telemetry.record import MetricRecord
from springtide.telemetry.sink import SinkGroup
from springtide.telemetry.status import StatusBoard, Wait

log = logging.getLogger(__name__)

HEARTBEAT = 0.5
"""Seconds between looks at the waits."""

OLDEST_WAITS = 5
"""How many waits the status shows."""


class Monitor:
    """Implements Observer. `goodput` counts from the first work on groups by this process to the last applied step."""

    def __init__(
        self,
        *,
        sinks: SinkGroup,
        board: StatusBoard,
        ledger: Ledger,
        clock: Clock,
        scheduler: Scheduler,
        engine_stats: Callable[[], EngineStats],
        invalid_rates: InvalidRates,
        success_reward: float,
        stop_tokens: Collection[int] = (),
        kv_trusted: Callable[[], bool] = lambda: True,
        costs: CurrentCosts | None = None,
    ) -> None:
        """`stop_tokens`: those that end a turn. `costs`: as they are fitted, where they are."""
        self._sinks = sinks
        self._board = board
        self._ledger = ledger
        self._clock = clock
        self._scheduler = scheduler
        self._engine_stats = engine_stats
        self._kv_trusted = kv_trusted
        self._costs = costs
        self._invalid_rates = invalid_rates
        self._success_reward = success_reward
        self._stop_tokens = stop_tokens
        self.evaluations: dict[int, EvaluationFinished] = {}
        self._begun: float | None = None
        self._last_step: float | None = None
        self._tokens = 0
        self._idle_tokens = 0
        self._ended = (0, 0)
        self._given_up = (0, 0)
        self._alarmed = False

    # -- Observer ----------------------------------------------------------------------------------------------------

    def decided(self, event: Event, commands: Sequence[Command]) -> None:
        if self._begun is None and any(isinstance(command, IssueGroup | StartMember | Train) for command in commands):
            self._begun = self._clock.now()
        served = self._invalid_rates.version
        self._invalid_rates.on(event, commands)
        match event:
            case ProcessStarted():
                self._start_counting()
            case MemberFinished() | GroupScored() if (rate := self._invalid_rate()) is not None:
                self._board.update(invalid_rate=rate)
            case Published(version) if version != served:
                self._close_version(served)
            case StepFinished():
                self._board.update(step=event.step, goodput=self.goodput)
            case CheckpointFailed(step, reason):
                log.warning("Checkpoint %d is missing and the run goes on without it: %s", step, reason)
            case EvaluationFinished():
                self.evaluations[event.version] = event
                success = event.successes / event.valid if event.valid else None
                self._board.update(success=success, success_step=event.version)
        if any(isinstance(command, Train) for command in commands):
            self._board.update(staleness_bound=self._scheduler.bound)
        self._board.update(phase=self._phase())

    def trained(self, report: StepReport, groups: Sequence[Group]) -> None:
        now = self._clock.now()
        since = next((time for time in (self._last_step, self._begun) if time is not None), now)
        self._last_step = now
        self._tokens += report.trained_tokens
        self._idle_tokens += report.zero_advantage_tokens
        self._tell_step(
            report,
            groups,
            {
                **self._rates(),
                "step/seconds": now - since,
                **self._since_last_step(),
                **self._engine_metrics(),
                **self._cost_metrics(),
                **self._ledger.metrics(),
            },
        )

    def recovered(self, report: StepReport, groups: Sequence[Group]) -> None:
        """The numbers of the step itself; rates and counts of what led to it died with the previous process."""
        self._tell_step(report, groups, {})

    def evaluated(self, version: int, trajectories: Sequence[Trajectory]) -> None:
        rewards = [trajectory.reward for trajectory in trajectories if trajectory.reward is not None]
        successes = sum(reward >= self._success_reward for reward in rewards)
        self._write(
            version,
            {
                "eval/success": successes / len(rewards) if rewards else float("nan"),
                "eval/successes": float(successes),
                "eval/valid": float(len(rewards)),
                "eval/invalid": float(len(trajectories) - len(rewards)),
            },
        )

    # -- the rest ----------------------------------------------------------------------------------------------------

    @property
    def goodput(self) -> float | None:
        """Trained tokens of valid members per wall second, start-up excluded; None before the first step."""
        return self._per_second(self._tokens)

    def _per_second(self, tokens: int) -> float | None:
        if self._begun is None or self._last_step is None or self._last_step <= self._begun:
            return None
        return tokens / (self._last_step - self._begun)

    def _rates(self) -> dict[str, float]:
        rates = {
            "rollout/goodput_tokens_per_s": self._per_second(self._tokens),
            "rollout/zero_advantage_tokens_per_s": self._per_second(self._idle_tokens),
        }
        return {name: rate for name, rate in rates.items() if rate is not None}

    def _tell_step(self, report: StepReport, groups: Sequence[Group], around: dict[str, float]) -> None:
        """What the step and its groups say about themselves, with what is known about the way there."""
        version = report.step - 1
        members = [member for group in groups for member in group.members]
        ages = [staleness(group, version) for group in groups]
        metrics = {
            **report.metrics,
            **reward_metrics(groups, self._success_reward),
            **signal_metrics(groups, self._success_reward),
            **completion_metrics(groups, self._stop_tokens),
            **environment_metrics(groups),
            "staleness/mean": mean(ages),
            "staleness/max": float(max(ages)),
            "rollout/turns": mean([member.turns for member in members]),
            "rollout/tokens": mean([member.trained_tokens for member in members]),
            "rollout/episode_seconds": mean([member.seconds for member in members]),
            **around,
        }
        self._write(report.step, metrics)
        self._board.update(
            reward=metrics["reward/mean"], entropy=report.metrics.get("train/entropy"), staleness=max(ages)
        )

    def _close_version(self, version: int) -> None:
        """Another version serves: say what share was invalid under `version`, and whether the share rises."""
        rate = self._invalid_rates.rate(version)
        if rate is not None:
            self._write(version, {"invalid/version_rate": rate})
        rise = self._invalid_rates.rise()
        self._board.update(alarm="" if rise is None else str(rise))
        if rise is not None and not self._alarmed:
            self._alarmed = True
            log.warning("The policy may be learning to break its environment: %s.", rise)

    def _start_counting(self) -> None:
        total = self._invalid_rates.total
        self._ended = (total.ended, total.invalid)
        self._given_up = (self._scheduler.filtered, self._scheduler.expired)

    def _invalid_rate(self) -> float | None:
        """Of the episodes that ended since the last step; None if none did."""
        total, (ended, invalid) = self._invalid_rates.total, self._ended
        return (total.invalid - invalid) / (total.ended - ended) if total.ended > ended else None

    def _since_last_step(self) -> dict[str, float]:
        """What ended since the last step; then the counts start afresh."""
        filtered, expired = self._given_up
        rate = self._invalid_rate()
        self._start_counting()
        counted = {
            "groups/filtered": float(self._given_up[0] - filtered),
            "groups/expired": float(self._given_up[1] - expired),
        }
        return counted if rate is None else counted | {"invalid/rate": rate}

    async def heartbeat(self, waits: Callable[[], list[Wait]]) -> None:
        """Show the oldest waits until cancelled."""
        while True:
            self._board.update(waits=tuple(waits()[:OLDEST_WAITS]))
            await asyncio.sleep(HEARTBEAT)

    def _phase(self) -> str:
        if self._scheduler.evaluating:
            return "evaluating"
        return "training" if not self._scheduler.finished else "reporting"

    def _write(self, step: int, metrics: dict[str, float]) -> None:
        self._sinks.write(MetricRecord(time=time.time(), step=step, metrics=metrics))

    def _engine_metrics(self) -> dict[str, float]:
        stats = self._engine_stats()
        presented = stats.reused + stats.reprefilled
        return {
            "engine/prefilled": float(stats.prefilled),
            "engine/reprefilled": float(stats.reprefilled),
            "engine/reused": float(stats.reused),
            "engine/refreshed": float(stats.refreshed),
            "engine/decoded": float(stats.decoded),
            "engine/hit_rate": stats.reused / presented if presented else 0.0,
            "engine/hot_tokens": float(stats.hot_tokens),
            "engine/warm_tokens": float(stats.warm_tokens),
            "engine/preemptions": float(stats.preemptions),
            **self._probe_metrics(stats),
        }

    def _cost_metrics(self) -> dict[str, float]:
        """Of what costs anything."""
        found = {} if self._costs is None else self._costs().model_dump()
        return {cost_name(name): seconds for name, seconds in found.items() if seconds > 0}

    def _probe_metrics(self, stats: EngineStats) -> dict[str, float]:
        """Nothing where nothing is probed."""
        if not stats.probed:
            return {}
        return {
            "engine/probed": float(stats.probed),
            "engine/probe_difference": stats.probe_difference / stats.probed,
            "engine/probe_kl": stats.probe_k3 / stats.probed,
            "engine/kv_trusted": float(self._kv_trusted()),
        }
