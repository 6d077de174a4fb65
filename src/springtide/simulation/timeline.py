"""What every rank did when, as spans and as a picture."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from springtide.simulation.executor import LOST

COLOURS = {
    "decode": "#4c78a8",
    "prefill": "#72b7b2",
    "recompute": "#e45756",
    "reload": "#f58518",
    "refresh": "#ff9da6",
    "load_weights": "#b279a2",
    "reference": "#eeca3b",
    "actor": "#54a24b",
    "optimizer": "#2e6b2e",
    "swap": "#9d755d",
    "role_switch": "#bab0ac",
    "lost": "#222222",
    "dead": "#d9d9d9",
}
"""Of the kinds of work; waiting is white."""


class Span(NamedTuple):
    """`lane` did `kind` from `start` for `seconds`."""

    lane: str
    kind: str
    start: float
    seconds: float


class Timeline:
    """Collects spans of a modelled run. Neighbours of one kind on one lane are one span."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._last: dict[str, int] = {}

    def watch(self, now: Callable[[], float]) -> "Watching":
        """For the executor."""
        return Watching(self, now)

    def add(self, span: Span) -> None:
        place = self._last.get(span.lane)
        if place is not None:
            last = self.spans[place]
            if last.kind == span.kind and span.start - (last.start + last.seconds) < 1e-9:
                self.spans[place] = last._replace(seconds=span.start + span.seconds - last.start)
                return
        self._last[span.lane] = len(self.spans)
        self.spans.append(span)

    def write_off(self, lane: str, start: float, end: float) -> None:
        """What the lane did from `start` on was broken off at `end`, and for nothing."""
        kept = [span for span in self.spans if span.lane != lane or span.start < start]
        cut = [
            span._replace(seconds=min(span.seconds, start - span.start)) if span.lane == lane else span for span in kept
        ]
        self.spans = cut
        self._last = {span.lane: place for place, span in enumerate(cut)}
        if end > start:
            self.add(Span(lane, LOST, start, end - start))


class Watching:
    """Implements Watch: it is told of each piece of work when that begins."""

    def __init__(self, timeline: Timeline, now: Callable[[], float]) -> None:
        self._timeline = timeline
        self._now = now
        self._begun: dict[str, float] = {}

    def begun(self, lane: str, name: str, cost: float | Mapping[str, float]) -> None:
        kinds = cost if isinstance(cost, Mapping) else {name: cost}
        self._begun[lane] = self._now()
        # What is negative was booked as waiting while this work was done: it began so much sooner.
        start = self._now() + sum(seconds for seconds in kinds.values() if seconds < 0)
        for kind, seconds in kinds.items():
            if seconds > 0:
                self._timeline.add(Span(lane, kind, start, seconds))
                start += seconds

    def broken_off(self, lane: str) -> None:
        self._timeline.write_off(lane, self._begun[lane], self._now())


def draw(timeline: Timeline, path: Path, *, title: str, steps: tuple[float, ...], lanes: int = 32) -> None:
    """A picture of at most `lanes` lanes that worked, the trainer first. Vertical lines are the ends of train steps."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    names = sorted({span.lane for span in timeline.spans if span.kind != "load_weights"}, key=_order)[:lanes]
    figure = Figure(figsize=(11, 1.6 + 0.28 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    for row, lane in enumerate(names):
        for kind, colour in COLOURS.items():
            spans = [(span.start, span.seconds) for span in timeline.spans if (span.lane, span.kind) == (lane, kind)]
            axes.broken_barh(spans, (row - 0.4, 0.8), color=colour, linewidth=0)
    for end in steps:
        axes.axvline(end, color="black", linewidth=0.6, alpha=0.5)
    axes.set(title=title, xlabel="seconds (modelled)", yticks=range(len(names)), yticklabels=names)
    axes.invert_yaxis()
    kinds = [kind for kind in COLOURS if any(span.kind == kind for span in timeline.spans)]
    patches = [Patch(color=COLOURS[kind], label=kind) for kind in kinds]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False)
    figure.savefig(path, dpi=130)


def _order(lane: str) -> tuple[bool, int, str]:
    _, _, number = lane.partition("-")
    return lane != "trainer", int(number) if number.isdecimal() else 0, lane
