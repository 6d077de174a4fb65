"""What a run is doing now: one small record, updated in memory, written to `status.json` for other processes.

Writing is atomic and at most once per interval. The board derives rate and ETA from the steps it is told of. A view
subscribes to the board; neither a full disk nor a failing view stops the run.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from math import isnan
from pathlib import Path
from time import time
from typing import Any

import msgspec

from springtide.telemetry.jsonl import series
from springtide.telemetry.record import MetricRecord

LOGGER = logging.getLogger("springtide.telemetry")

RATE_STEPS = 20
"""Newest steps over which the rate is taken."""


class Wait(msgspec.Struct, frozen=True):
    """Something waits: for what, on whose account, for how many seconds."""

    name: str
    owner: str
    age: float


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """None where a number is not known yet. Times are Unix seconds, `rate` is train steps per second, `alarm` says what
    a person should look into, empty if nothing."""

    run: str = ""
    pid: int = 0
    phase: str = "starting"
    detail: str = ""
    step: int = 0
    steps: int = 0
    started: float = 0.0
    updated: float = 0.0
    reward: float | None = None
    success: float | None = None
    success_step: int | None = None
    entropy: float | None = None
    goodput: float | None = None
    staleness: int | None = None
    staleness_bound: int | None = None
    invalid_rate: float | None = None
    alarm: str = ""
    rate: float | None = None
    eta: float | None = None
    waits: tuple[Wait, ...] = ()

    @property
    def finished(self) -> bool:
        return self.phase in FINAL_PHASES


FINAL_PHASES = ("finished", "interrupted", "failed")
"""Phases after which no process works on the run."""

View = Callable[[Status], None]


class StatusBoard:
    """Thread-safe. `update` is cheap: it changes memory, calls the views, and writes when the interval has passed."""

    def __init__(
        self, path: Path, *, run: str, steps: int = 0, now: Callable[[], float] = time, interval: float = 1.0
    ) -> None:
        self._path: Path | None = path
        self._now = now
        self._interval = interval
        self._lock = threading.RLock()
        self._views: list[View] = []
        self._written = float("-inf")
        self._marks: deque[tuple[float, int]] = deque(maxlen=RATE_STEPS + 1)
        moment = now()
        self._status = Status(run=run, pid=os.getpid(), steps=steps, started=moment, updated=moment)

    @property
    def status(self) -> Status:
        with self._lock:
            return self._status

    def subscribe(self, view: View) -> None:
        """Call `view` now and at every update. A view that raises is dropped with one warning."""
        with self._lock:
            self._views.append(view)
            self._show()

    def update(self, **fields: Any) -> None:
        """Change the named fields of `Status`. A change of phase is written at once."""
        with self._lock:
            moment = self._now()
            phase_changed = fields.get("phase", self._status.phase) != self._status.phase
            if "step" in fields and (not self._marks or fields["step"] != self._marks[-1][1]):
                self._marks.append((moment, fields["step"]))
            status = msgspec.structs.replace(self._status, updated=moment, **fields)
            rate = self._rate()
            left = max(0, status.steps - status.step)
            self._status = msgspec.structs.replace(status, rate=rate, eta=left / rate if rate else None)
            self._show()
            if phase_changed or moment - self._written >= self._interval:
                self._write()

    def close(self, *, phase: str = "finished", detail: str = "") -> None:
        """Write the last status, with nothing waiting any more."""
        self.update(phase=phase, detail=detail, waits=())
        with self._lock:
            self._write()

    def _rate(self) -> float | None:
        if len(self._marks) < 2:
            return None
        (start, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / (end - start) if end > start and last > first else None

    def _show(self) -> None:
        for view in list(self._views):
            try:
                view(self._status)
            except Exception as error:
                self._views.remove(view)
                LOGGER.warning("The live view is switched off: %s.", error or type(error).__name__)

    def _write(self) -> None:
        if self._path is None:
            return
        temporary = self._path.with_suffix(".tmp")
        try:
            temporary.write_bytes(msgspec.json.encode(self._status))
            os.replace(temporary, self._path)
            self._written = self._now()
        except OSError as error:
            LOGGER.warning("The status is no longer written to %s: %s.", self._path, error)
            self._path = None


FROM_METRICS = {
    "reward": "reward/mean",
    "success": "eval/success",
    "entropy": "train/entropy",
    "goodput": "rollout/goodput_tokens_per_s",
}
"""Numbers that a process which just took over a run does not know yet, but its predecessors reported."""


def completed(status: Status, records: Iterable[MetricRecord]) -> Status:
    """`status` with what it does not know filled in from the run's metrics."""
    records = list(records)
    known: dict[str, Any] = {}
    for field, name in FROM_METRICS.items():
        points = [(step, value) for step, value in series(records, name) if not isnan(value)]
        if points and getattr(status, field) is None:
            known[field] = points[-1][1]
            if field == "success":
                known["success_step"] = points[-1][0]
    return msgspec.structs.replace(status, **known)


def read_status(path: Path) -> Status | None:
    """The last status written; None if there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
