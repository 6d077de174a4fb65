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

BLACK = "#222222"
"""Colour of unattributed time: it should catch the eye."""


def draw_curve(path: Path, *, title: str, past: History) -> None:
    """Write a PNG to `path`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lanes = len(past.ledger)
    figure = Figure(figsize=(8, 4.2 + 0.5 * lanes), layout="constrained")
    FigureCanvasAgg(figure)
    if lanes:
        top, bottom = figure.subplots(2, 1, height_ratios=(4.0, 0.6 + 0.5 * lanes))
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
    names = sorted({name for bins in past.ledger.values() for name in bins if name != UNATTRIBUTED})
    colours = {name: f"C{index % 10}" for index, name in enumerate(names)} | {UNATTRIBUTED: BLACK}
    labelled: set[str] = set()
    for row, bins in enumerate(past.ledger.values()):
        total = sum(bins.values()) or 1.0
        left = 0.0
        for name in (*names, UNATTRIBUTED):
            share = bins.get(name, 0.0) / total
            if share > 0:
                label = None if name in labelled else name
                axes.barh(row, share, left=left, color=colours[name], label=label)
                labelled.add(name)
                left += share
    axes.set_yticks(range(len(past.ledger)), list(past.ledger))
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the lane's lifetime")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
