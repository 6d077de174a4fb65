"""One run under the rules: which conditions hold in it, together and since when.

Each condition is answered once, however many rules ask it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from springtide.diagnosis import derive
from springtide.diagnosis.condition import ALWAYS, SURE, Answer, Mask, ask
from springtide.diagnosis.frame import Frame
from springtide.diagnosis.rule import Condition, Detection, Sign

MOVES = frozenset(
    ("above", "below", "above_start", "below_start", "below_peak", "above_noise", "below_noise", "growing", "spike",
     "not_finite", "zero", "rising", "falling", "constant", "at_start_above", "at_start_below")
)  # fmt: skip
"""Tests after which a metric counts as one that moved."""
LEVELS = MOVES - {"not_finite", "spike", "growing", "constant", "at_start_above", "at_start_below"}
"""Those of them that compare with a level from which the metric can be followed back."""

LASTS = 3
"""Values at the end, or a tenth of all if that is more, in one of which a symptom has to hold to be there still."""


@dataclass(frozen=True, eq=False)
class Finding:
    """A detection that held. `onset`: from when on all its conditions did; `seen`: the first step at which that could
    be said; `lasts`: to the end of the run. `rows`: the answers, each with its index at `seen`."""

    detection: Detection
    onset: int
    seen: int
    lasts: bool
    last_held: int
    rows: tuple[tuple[Answer, int], ...]


class Departure(NamedTuple):
    metric: str
    step: int


class _Joint(NamedTuple):
    steps: NDArray[np.int64]
    answers: list[Answer]
    at: list[NDArray[np.int64]]
    held: Mask


class Examination:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.tracks = derive.tracks(frame)
        self.settings = derive.settings(frame)
        self._answers: dict[str, Answer | None] = {}

    def ask(self, condition: Condition) -> Answer | None:
        key = condition.model_dump_json(exclude={"onset", "context"})
        if key not in self._answers:
            self._answers[key] = ask(condition, self.tracks, self.settings)
        return self._answers[key]

    def find(self, detection: Detection) -> list[Finding]:
        """One for each choice of metrics that its patterns match and that holds."""
        found = []
        for conditions in self._bound(detection.when):
            finding = self._together(detection, conditions)
            if finding is not None:
                found.append(finding)
        return found

    def sign_holds(self, sign: Sign) -> bool:
        """Its conditions at some time, and none of those that never may."""
        for condition in sign.never:
            answer = self.ask(condition)
            if answer is None or answer.holds.any():
                return False
        return not sign.when or any(self._hold(conditions) for conditions in self._bound(sign.when))

    def matching(self, pattern: str) -> list[str]:
        if "*" not in pattern:
            return [pattern] if pattern in self.tracks else []
        return [name for name in sorted(self.tracks) if fnmatchcase(name, pattern)]

    def left_start(self, metric: str) -> int | None:
        """The first step from which on a metric stayed outside the noise of its beginning for three values."""
        found = [
            self.ask(Condition(metric=metric, test=test, value=4.0, run=3)) for test in ("above_noise", "below_noise")
        ]
        steps = [
            int(each.steps[each.since[int(np.argmax(each.holds))]])
            for each in found
            if each is not None and each.holds.any()
        ]
        return min(steps, default=None)

    def _hold(self, conditions: Sequence[Condition]) -> bool:
        together = self._joint(conditions)
        return together is not None and bool(together.held.all(axis=0).any())

    def _bound(self, conditions: Sequence[Condition]) -> Iterator[tuple[Condition, ...]]:
        """The conditions with each pattern replaced by each name that it matches, the same name wherever it stands."""
        pattern = next((each.metric for each in conditions if "*" in each.metric), None)
        if pattern is None:
            yield tuple(conditions)
            return
        for name in self.matching(pattern):
            named = [
                each.model_copy(update={"metric": name}) if each.metric == pattern else each for each in conditions
            ]
            yield from self._bound(named)

    def _together(self, detection: Detection, conditions: Sequence[Condition]) -> Finding | None:
        together = self._joint(conditions)
        if together is None:
            return None
        steps, answers, at, held = together
        joint = _all(held)
        if not joint.any():
            return None
        staying = [not each.onset for each in conditions]
        lasting = joint | _all(held[staying]) if any(staying) else joint
        tail = max(LASTS, len(steps) // 10)
        first = _last_episode(joint, lasting, tail)
        rows = tuple((answer, int(each[first])) for answer, each in zip(answers, at, strict=True))
        begins = [int(answer.steps[answer.since[index]]) for answer, index in rows if answer.steps[0] != ALWAYS]
        return Finding(
            detection=detection,
            onset=max(begins, default=int(steps[0])),
            seen=int(steps[first]),
            lasts=bool(lasting[-tail:].any()),
            last_held=int(steps[np.flatnonzero(lasting)[-1]]),
            rows=rows,
        )

    def _joint(self, conditions: Sequence[Condition]) -> _Joint | None:
        """On all steps of any of them: which of the conditions hold. None: one cannot be asked, or never holds."""
        answers = []
        for condition in conditions:
            answer = self.ask(condition)
            if answer is None or not answer.holds.any():
                return None
            answers.append(answer)
        logged = [each.steps for each in answers if each.steps[0] != ALWAYS]
        steps = np.unique(np.concatenate(logged)) if logged else np.zeros(1, dtype=np.int64)
        at = [np.searchsorted(each.steps, steps, side="right") - 1 for each in answers]
        held = [(each >= 0) & answer.holds[np.maximum(each, 0)] for answer, each in zip(answers, at, strict=True)]
        return _Joint(steps, answers, at, np.array(held))


def _all(held: Mask) -> Mask:
    together: Mask = np.logical_and.reduce(held, axis=0)
    return together


def _last_episode(joint: Mask, lasting: Mask, gap: int) -> int:
    """Where it began to hold for the last time, or after which it never stopped for more than `gap` values."""
    held = np.flatnonzero(lasting)
    breaks = np.flatnonzero(np.diff(held) > gap)
    begin = int(held[breaks[-1] + 1]) if len(breaks) else int(held[0])
    after = np.flatnonzero(joint[begin:])
    return begin + int(after[0]) if len(after) else int(np.flatnonzero(joint)[-1])


def departure(answer: Answer, index: int) -> Departure | None:
    """When the metric of a condition that holds at `index` left what it was before: from where the condition began,
    back for as long as it was outside of the noise already."""
    condition, track = answer.condition, answer.track
    if track is None or condition.context or condition.negate or condition.test not in MOVES:
        return None
    begin = int(answer.since[index])
    if condition.test not in LEVELS:
        return Departure(track.name, int(answer.steps[begin]))
    level = float((track.start(condition.start) if answer.reference is None else answer.reference)[index])
    limit = SURE * float(track.noise(1)[index])
    sign = -1 if condition.test in ("falling", "zero") or condition.test.startswith("below") else 1
    while begin > 0 and sign * (float(track.values[begin - 1]) - level) > limit:
        begin -= 1
    return Departure(track.name, int(answer.steps[begin]))
