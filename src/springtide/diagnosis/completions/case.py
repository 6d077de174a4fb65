"""What every check is given: a run's completions, its beginning and end, and what was already found of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from springtide.diagnosis.completions.sample import Sample, Samples
from springtide.diagnosis.completions.share import Holds
from springtide.diagnosis.completions.window import Window, window
from springtide.diagnosis.verdict import Evidence
from springtide.evaluation.statistics import Interval

Found = Interval | float | None


@dataclass(frozen=True)
class Case:
    framework: str
    samples: Sequence[Sample]
    window: Window
    _known: dict[Callable[[Sample], bool | None], dict[int, bool | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Samples) -> "Case":
        return cls(found.framework, found.samples, window(found.samples))

    @property
    def written(self) -> bool:
        """Whether the dump holds what was said."""
        return any(sample.text for sample in self.samples)

    def remembered(self, holds: Holds) -> Holds:
        """`holds`, asked once for each completion."""
        known = self._known.setdefault(holds, {})

        def answer(sample: Sample) -> bool | None:
            key = id(sample)
            if key not in known:
                known[key] = holds(sample)
            return known[key]

        return answer

    def evidence(self, metric: str, text: str, value: Found = None, *, baseline: Found = None) -> Evidence:
        now, before = _estimate(value), _estimate(baseline)
        values = () if now is None else (now,)
        return Evidence(metric=metric, text=text, steps=self.window.last_steps, values=values, baseline=before)


def _estimate(found: Found) -> float | None:
    return found.estimate if isinstance(found, Interval) else found


def percent(found: Interval | None) -> str:
    """A share with its interval, for people."""
    return "unknown" if found is None else f"{found.estimate:.0%} ({found.low:.0%} to {found.high:.0%})"
