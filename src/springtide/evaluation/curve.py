"""The picture of a run: reward and held-out success with intervals over train steps, and where each lane's time went.

Drawn with matplotlib's Agg canvas directly, without pyplot: no display and no global state.
"""

from pathlib import Path
from typing import Any

from springtide.evaluation.result import History
from springtide.evaluation.statistics import rate_interval
from springtide.telemetry.ledger import UNATTRIBUTED

Z95 = 1.96
"""Standard errors on each side of a mean that hold 95 % of a normal distribution."""

BLACK, GREY = "#222222", "#dddddd"
"""Colours of unattributed time, which should catch the eye, and of what is too little to name."""

PALETTE = ("#8ecae6", "#ffb703", "#90be6d", "#f8961e", "#b8a9d9", "#f4a6b8", "#a3b18a", "#e9c46a", "#7fc8a9", "#cdb4db")
"""Light enough to write on."""

OTHER = "other"
SMALL, NAMED = 0.01, 0.06
"""Shares of a lane's lifetime below which a bin is drawn with others, and from which it has room for its name."""


def draw_curve(path: Path, *, title: str, past: History) -> None:
    """Write a PNG to `path`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lanes = len(past.ledger)
    figure = Figure(figsize=(8, 4.2 + 0.45 * lanes), layout="constrained")
    FigureCanvasAgg(figure)
    if lanes:
        top, bottom = figure.subplots(2, 1, height_ratios=(4.0, 0.45 * lanes))
        _draw_ledger(bottom, past)
    else:
        top = figure.subplots()
    _draw_learning(top, past)
    top.set_title(title)
    figure.savefig(path, dpi=120, format="png")


def _draw_learning(axes: Any, past: History) -> None:
    if past.rewards:
        steps = [point.step for point in past.rewards]
        means = [point.mean for point in past.rewards]
        errors = [Z95 * (point.standard_error or 0.0) for point in past.rewards]
        axes.plot(steps, means, color="tab:blue", linewidth=1.2, label="reward in training (mean, 95 %)")
        low = [mean - error for mean, error in zip(means, errors, strict=True)]
        high = [mean + error for mean, error in zip(means, errors, strict=True)]
        axes.fill_between(steps, low, high, color="tab:blue", alpha=0.15, linewidth=0)
    points = [(point.step, interval) for point in past.evaluations if (interval := rate_interval(point.count))]
    if points:
        axes.errorbar(
            [step for step, _ in points],
            [interval.estimate for _, interval in points],
            yerr=[
                [interval.estimate - interval.low for _, interval in points],
                [interval.high - interval.estimate for _, interval in points],
            ],
            color="tab:orange",
            marker="o",
            capsize=3,
            linewidth=1.6,
            label="held-out success (Wilson 95 %)",
        )
    axes.set_xlabel("train step")
    axes.grid(alpha=0.25)
    axes.legend(loc="best", frameon=False)


def _draw_ledger(axes: Any, past: History) -> None:
    """One bar per lane; bins below `SMALL` are drawn as one, the others carry their names."""
    lanes = {lane: _shares(bins) for lane, bins in past.ledger.items()}
    names = sorted({name for shares in lanes.values() for name in shares} - {OTHER, UNATTRIBUTED})
    colours = {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(names)}
    colours |= {OTHER: GREY, UNATTRIBUTED: BLACK}
    for row, shares in enumerate(lanes.values()):
        left = 0.0
        for name, share in shares.items():
            axes.barh(row, share, left=left, color=colours[name], edgecolor="white", linewidth=0.8)
            if share >= NAMED:
                axes.text(left + share / 2, row, name.replace("_", " "), ha="center", va="center", fontsize="x-small")
            left += share
    axes.set_yticks(range(len(lanes)), list(lanes))
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the lane's lifetime")


def _shares(bins: dict[str, float]) -> dict[str, float]:
    """Shares of a lane's lifetime, largest first; small ones together, unattributed last."""
    total = sum(bins.values()) or 1.0
    shares = {name: seconds / total for name, seconds in bins.items() if name != UNATTRIBUTED}
    large = {name: share for name, share in sorted(shares.items(), key=lambda item: -item[1]) if share >= SMALL}
    rest = sum(shares.values()) - sum(large.values())
    return large | {OTHER: rest, UNATTRIBUTED: bins.get(UNATTRIBUTED, 0.0) / total}
