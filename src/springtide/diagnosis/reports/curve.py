"""One metric over a run as inline SVG, with the steps that matter marked.

The drawing is stretched to whatever width there is and its lines keep theirs; all writing is HTML around it, so that a
phone shows it as large as a wide screen does. Values that are not finite break the line and are ticks at the bottom.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from springtide.core.visible import one_line
from springtide.diagnosis.frame import Series
from springtide.diagnosis.reports.account import meaning, number

WIDTH, HEIGHT = 1000, 300
"""Of the drawing's own coordinates; no lengths on a screen."""

_MARGIN = 12
"""Above and below the line, so that its extremes are not cut."""

_POINTS = 400
"""Points of a line at the most, two for each piece of the run: the least and the largest value, so that spikes stay."""

_WIDE = 1e3
"""Positive values of which the largest is this many times the middle one are drawn on a logarithmic scale..."""

_DEPTH = 1e-6
"""...and none further below the largest."""


@dataclass(frozen=True)
class Mark:
    """A step with a line through every curve. `kind`: a class of style.css: onset, mover or rollback."""

    kind: str
    step: int
    text: str


@dataclass(frozen=True)
class Domain:
    """Steps that all curves of a run have in common, so that they can be read one below the other."""

    first: int
    last: int

    def share(self, step: float) -> float:
        return 0.5 if self.last == self.first else (step - self.first) / (self.last - self.first)


def figure(series: Series, domain: Domain, marks: Sequence[Mark], *, baseline: float | None = None) -> str:
    """A `<figure>`: name and meaning, the curve with its scale, and a list of the marks for who cannot see them."""
    scale = _Scale.of(series.values)
    shown = [mark for mark in marks if domain.first <= mark.step <= domain.last]
    name = escape(one_line(series.name))
    written = "" if series.key == series.name else f" <code>{escape(one_line(series.key))}</code>"
    drawing = [f'<path class="line" d="{_path(series, domain, scale)}"/>', _ticks(series, domain)]
    if baseline is not None and np.isfinite(baseline) and scale.low <= baseline <= scale.high:
        height = _round(scale.place(np.array([baseline]))[0])
        drawing.insert(0, f'<path class="baseline" d="M0 {height}H{WIDTH}"/>')
    drawing += [f'<path class="{mark.kind}" d="M{_x(domain, mark.step)} 0V{HEIGHT}"/>' for mark in shown]
    label = "; ".join(
        [f"{meaning(series.name)}, from {_end(series, 0)} to {_end(series, -1)}"] + [m.text for m in shown]
    )
    return (
        f'<figure class="curve"><figcaption><strong>{name}</strong>{written}'
        f"<span>{escape(one_line(meaning(series.name)))}{scale.note}</span></figcaption>"
        f'<div class="plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(one_line(label))}">{"".join(drawing)}</svg>'
        f'<span class="high">{number(scale.high)}</span><span class="low">{number(scale.low)}</span>'
        f"{_flags(shown, domain)}</div>"
        f'<div class="steps"><span>step {domain.first}</span><span>{domain.last}</span></div></figure>'
    )


def _flags(marks: Sequence[Mark], domain: Domain) -> str:
    """The steps written at their lines, on the side where there is room, each kind at a height of its own."""
    flags = []
    for mark in marks:
        share = domain.share(mark.step)
        side = f"right:{100 - 100 * share:.1f}%" if share > 0.5 else f"left:{100 * share:.1f}%"
        flags.append(f'<span class="flag {mark.kind}" style="{side}">{mark.step}</span>')
    return "".join(flags)


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> "_Scale":
        finite = values[np.isfinite(values)]
        if not len(finite):
            return cls(0.0, 1.0, False)
        low, high = float(finite.min()), float(finite.max())
        positive = finite[finite > 0]
        if low >= 0 and len(positive) and high / _WIDE > float(np.median(positive)):
            return cls(max(float(positive.min()), high * _DEPTH), high, True)
        return cls(low, high, False)

    @property
    def note(self) -> str:
        return ", logarithmic" if self.logarithmic else ""

    def place(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Heights in the drawing, from its top."""
        if self.logarithmic:
            low, high = np.log(self.low), np.log(self.high)
            share = (np.log(np.maximum(values, self.low)) - low) / (high - low)
        elif self.high == self.low:
            share = np.full(len(values), 0.5)
        else:
            share = (values / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return np.asarray(HEIGHT - _MARGIN - share * (HEIGHT - 2 * _MARGIN))


def _path(series: Series, domain: Domain, scale: _Scale) -> str:
    """Moves and lines; a value alone between two that are not finite is a dot."""
    kept = _thinned(series.values)
    finite = np.isfinite(series.values[kept])
    heights = scale.place(np.where(finite, series.values[kept], 0.0))
    parts: list[str] = []
    for place, index in enumerate(kept):
        if not finite[place]:
            continue
        point = f"{_x(domain, series.steps[index])} {_round(heights[place])}"
        if place and finite[place - 1]:
            parts.append(f"L{point}")
        else:
            alone = place + 1 == len(kept) or not finite[place + 1]
            parts.append(f"M{point}{'h0' if alone else ''}")
    return "".join(parts)


def _thinned(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which values are drawn: all, or of each piece the least and the largest, and what is not finite."""
    if len(values) <= _POINTS:
        return np.arange(len(values))
    kept: set[int] = {0, len(values) - 1}
    for piece in np.array_split(np.arange(len(values)), _POINTS // 2):
        finite = np.isfinite(values[piece])
        if finite.any():
            held = piece[finite]
            kept |= {int(held[values[held].argmin()]), int(held[values[held].argmax()])}
        if not finite.all():
            kept.add(int(piece[~finite][0]))
    return np.array(sorted(kept))


def _ticks(series: Series, domain: Domain) -> str:
    lost = series.steps[~np.isfinite(series.values)]
    if not len(lost):
        return ""
    places = sorted({_x(domain, step) for step in lost[:: max(1, len(lost) // _POINTS)]}, key=float)
    return f'<path class="lost" d="{"".join(f"M{place} {HEIGHT}v-30" for place in places)}"/>'


def _x(domain: Domain, step: float) -> str:
    return _round(WIDTH * domain.share(step))


def _round(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _end(series: Series, index: int) -> str:
    value = float(series.values[index])
    return number(value) if np.isfinite(value) else "not finite"
