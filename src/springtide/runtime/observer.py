"""Who watches a run: telemetry hangs on here and can never change or kill it."""

import logging
from collections.abc import Sequence
from typing import Protocol

from springtide.core.group import Group
from springtide.core.trajectory import Trajectory
from springtide.ports.trainer import StepReport
from springtide.scheduling.commands import Command
from springtide.scheduling.events import Event

log = logging.getLogger(__name__)


class Observer(Protocol):
    def decided(self, event: Event, commands: Sequence[Command]) -> None:
        """An event was applied and journalled."""
        ...

    def trained(self, report: StepReport, groups: Sequence[Group]) -> None: ...

    def recovered(self, report: StepReport, groups: Sequence[Group]) -> None:
        """The step that the previous process died in was trained to its end."""
        ...

    def evaluated(self, version: int, trajectories: Sequence[Trajectory]) -> None: ...


class Observers:
    """Passes on to each; one that raises is taken off with one warning."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._observers = list(observers)

    def _tell(self, method: str, *arguments: object) -> None:
        for observer in list(self._observers):
            try:
                getattr(observer, method)(*arguments)
            except Exception:
                self._observers.remove(observer)
                log.warning("%s failed and is switched off for this run.", type(observer).__name__, exc_info=True)

    def decided(self, event: Event, commands: Sequence[Command]) -> None:
        self._tell("decided", event, commands)

    def trained(self, report: StepReport, groups: Sequence[Group]) -> None:
        self._tell("trained", report, groups)

    def recovered(self, report: StepReport, groups: Sequence[Group]) -> None:
        self._tell("recovered", report, groups)

    def evaluated(self, version: int, trajectories: Sequence[Trajectory]) -> None:
        self._tell("evaluated", version, trajectories)
