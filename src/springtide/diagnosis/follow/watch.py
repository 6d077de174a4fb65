"""Follows runs as they grow: looks when something was appended, tells what became worse, and may stop a run if asked.

A look reads the logs as they are now: a half-written line or a restart is the readers' matter, as in a post-mortem. The
watch takes at most a tenth of the time for itself: after a look that was slow the next one comes later. Nothing that a
look meets, and no channel, ends the watch.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from springtide.core.errors import UsageError
from springtide.diagnosis.follow.alert import SEVERITY, Alert, Channel, of_healing, of_symptom
from springtide.diagnosis.follow.growth import Mark
from springtide.diagnosis.verdict import Diagnosis, Verdict

INTERVAL = 15.0
"""Seconds between two glances at the files."""

OWN_SHARE = 10.0
"""A look comes no sooner than so many times what the last one took."""

STAYS = 2
"""Looks with new steps over which a symptom has to stay SICK before the run is stopped."""

SILENT = 3.0
LEAST_SILENCE = 300.0
"""A run is silent after so many times its longest wait between steps, and no sooner than after these seconds."""

FEWEST_WAITS = 3
"""Waits between steps that have to be known before silence means anything."""

Look = Callable[[], Sequence[Diagnosis]]
"""Reads and diagnoses; UsageError where there is nothing to read yet."""


class WatchClock(Protocol):
    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class WallClock:
    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Stopper(Protocol):
    def stop(self) -> bool:
        """Ask the process to end. Whether it was still there."""
        ...


class Watch:
    """`ended`: says that the run is over; the watch then looks once more and ends. `idle`: it also ends after so many
    seconds without anything new."""

    def __init__(
        self,
        *,
        look: Look,
        mark: Callable[[], Mark],
        channels: Sequence[Channel],
        warn: Callable[[str], None],
        clock: WatchClock | None = None,
        interval: float = INTERVAL,
        ended: Callable[[], bool] = lambda: False,
        idle: float | None = None,
        stopper: Stopper | None = None,
    ) -> None:
        self._look = look
        self._mark_of = mark
        self._channels = channels
        self._warn = warn
        self._clock = clock or WallClock()
        self._interval = interval
        self._ended = ended
        self._idle = idle
        self._stopper = stopper
        self._mark: Mark | None = None
        self._warned = ""
        self._steps: dict[str, int] = {}
        self._told: dict[tuple[str, str], Verdict] = {}
        self._sick: dict[tuple[str, str], int] = {}
        self._grew: float | None = None
        self._news: float | None = None
        self._waits: list[float] = []
        self._silence_told = False
        self.verdicts: dict[str, Verdict] = {}
        self.looks = 0

    def run(self) -> dict[str, Verdict]:
        """Until the runs are over. The last verdict of each."""
        self._grew = self._clock.now()
        while True:
            over = self._ended()
            took = self._glance()
            now = self._clock.now()
            if over or (self._idle is not None and now - self._grew >= self._idle):
                return self.verdicts
            self._clock.sleep(max(self._interval, OWN_SHARE * took))

    def _glance(self) -> float:
        """Look if anything changed. How long that took."""
        mark, start = self._mark_of(), self._clock.now()
        if mark == self._mark:
            self._listen(start)
            return 0.0
        self._mark, self._grew = mark, start
        try:
            diagnoses = tuple(self._look())
        except UsageError as error:
            self._say_once(str(error))
            return 0.0
        except Exception as error:  # a watch of days does not end because of one look
            self._say_once(f"The run could not be diagnosed ({type(error).__name__}: {error}); it is tried again.")
            return self._clock.now() - start
        self._warned = ""
        self.looks += 1
        self._tell(diagnoses, start)
        return self._clock.now() - start

    def _say_once(self, text: str) -> None:
        if text != self._warned:
            self._warn(text)
        self._warned = text

    # -- what is new ---------------------------------------------------------------------------------------------------

    def _tell(self, diagnoses: tuple[Diagnosis, ...], now: float) -> None:
        fresh = [each for each in diagnoses if self._steps.get(each.source) != each.steps]
        if fresh:
            self._note_news(now)
        for each in fresh:
            self._steps[each.source] = each.steps
            self._compare(each, now)
        self.verdicts = {each.source: each.verdict for each in diagnoses}
        for channel in self._channels:
            channel.looked(diagnoses, now)
        if self._stopper is not None and fresh and diagnoses[-1] in fresh:
            self._consider_stopping(diagnoses[-1], now)

    def _compare(self, diagnosis: Diagnosis, now: float) -> None:
        """Against what was told of the run before. A run without new steps is not compared."""
        found = {symptom.id: symptom for symptom in diagnosis.symptoms}
        for symptom in found.values():
            key = (diagnosis.source, symptom.id)
            before = self._told.get(key, Verdict.OK)
            if SEVERITY.get(symptom.verdict, 0) > SEVERITY[before]:
                self._told[key] = symptom.verdict
                self._send(of_symptom(diagnosis, symptom, now))
            self._sick[key] = self._sick.get(key, 0) + 1 if symptom.verdict is Verdict.SICK else 0
        for (run, name), before in list(self._told.items()):
            healed = name not in found or found[name].verdict is Verdict.OK
            if run == diagnosis.source and before is not Verdict.OK and healed:
                self._told[run, name] = Verdict.OK
                self._sick[run, name] = 0
                self._send(of_healing(diagnosis, name, now))

    def _consider_stopping(self, diagnosis: Diagnosis, now: float) -> None:
        lasting = [
            symptom.id
            for symptom in diagnosis.symptoms
            if diagnosis.verdict is Verdict.SICK and self._sick.get((diagnosis.source, symptom.id), 0) >= STAYS
        ]
        if not lasting or self._stopper is None:
            return
        named = ", ".join(lasting)
        stopped = self._stopper.stop()
        self._stopper = None
        text = (
            f"The run was asked to stop at step {diagnosis.steps}: {named} stayed SICK over {STAYS} looks."
            if stopped
            else f"{named} stayed SICK over {STAYS} looks, but the run's process is no longer there."
        )
        self._send(
            Alert(
                kind="stopped" if stopped else "not_stopped",
                run=diagnosis.source,
                text=text,
                time=now,
                step=diagnosis.steps,
                symptom=lasting[0],
                verdict=Verdict.SICK.value,
                rollback_step=diagnosis.rollback_step,
            )
        )

    # -- silence -------------------------------------------------------------------------------------------------------

    def _note_news(self, now: float) -> None:
        if self._news is not None:
            self._waits.append(now - self._news)
        self._news = now
        self._silence_told = False

    def _listen(self, now: float) -> None:
        """Nothing was appended: for how long already?"""
        if self._news is None or self._silence_told or len(self._waits) < FEWEST_WAITS:
            return
        limit = max(LEAST_SILENCE, SILENT * max(self._waits))
        if now - self._news < limit:
            return
        self._silence_told = True
        waited = now - self._news
        run, step = list(self._steps.items())[-1]
        text = (
            f"No step for {waited:,.0f} s; the longest wait before was {max(self._waits):,.0f} s. Does the run hang, "
            "or has it ended?"
        )
        self._send(Alert(kind="silent", run=run, text=text, time=now, step=step, symptom="S58"))

    def _send(self, alert: Alert) -> None:
        for channel in self._channels:
            channel.send(alert)
