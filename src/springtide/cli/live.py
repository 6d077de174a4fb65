"""What a person sees of a running process: a panel that stays in place, or a plain line every few seconds.

Both are views of the status board: they are called with each update and only draw.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text

from springtide.evaluation.report import duration
from springtide.telemetry.status import Status, View

PLAIN_INTERVAL = 5.0
"""Seconds between plain lines."""

SHOWN_WAITS = 3
"""Oldest waits in the panel."""

BARS = "▁▂▃▄▅▆▇█"

BAR_WIDTH = 60
"""Characters of the progress bar."""

SPARK_WIDTH = 40
"""Newest steps in a sparkline."""


@contextmanager
def live_view(console: Console) -> Iterator[View]:
    """A view for the duration of a command: a panel on a terminal, plain lines elsewhere."""
    if not console.is_terminal:
        yield PlainView(console)
        return
    panel = Panel()
    with Live(panel, console=console, refresh_per_second=4, transient=True):
        yield panel.show


class PlainView:
    """Prints a line when the phase changes, and at most every few seconds otherwise."""

    def __init__(self, console: Console, *, interval: float = PLAIN_INTERVAL) -> None:
        self._console = console
        self._interval = interval
        self._printed = float("-inf")
        self._phase = ""

    def __call__(self, status: Status) -> None:
        now = monotonic()
        if status.phase == self._phase and now - self._printed < self._interval:
            return
        self._printed, self._phase = now, status.phase
        self._console.print(plain_line(status), soft_wrap=True, highlight=False, markup=False)


class Panel:
    """A renderable that always draws the newest status."""

    def __init__(self) -> None:
        self._status = Status()
        self._rewards: dict[int, float] = {}

    def show(self, status: Status) -> None:
        self._status = status
        if status.reward is not None:
            self._rewards[status.step] = status.reward

    def __rich__(self) -> RenderableType:
        return panel(self._status, rewards=[self._rewards[step] for step in sorted(self._rewards)])


class Flow:
    """Cells in reading order, as many on a line as fit; none is ever broken."""

    def __init__(self, cells: Sequence[Text], *, gap: int = 3) -> None:
        self._cells = cells
        self._gap = " " * gap

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text()
        for cell in self._cells:
            if line and line.cell_len + len(self._gap) + cell.cell_len > options.max_width:
                yield line
                line = Text()
            line += Text(self._gap) + cell if line else cell
        yield line


def panel(status: Status, *, rewards: list[float]) -> RenderableType:
    """The status of a run in a few lines."""
    cells = [Text.assemble((f"{name} ", "dim"), (value, "bold")) for name, value in numbers(status)]
    lines: list[RenderableType] = [_headline(status), Flow(cells)]
    if status.steps:
        lines.insert(1, _bar(status.step / status.steps))
    if len(rewards) > 1:
        lines.append(Text.assemble(("reward ", "dim"), sparkline(rewards)))
    if status.alarm:
        lines.append(Text.assemble(("alarm ", "bold red"), status.alarm))
    for wait in status.waits[:SHOWN_WAITS]:
        lines.append(Text.assemble(("waiting ", "dim"), f"{wait.name} ", (f"{wait.owner} {wait.age:.1f} s", "yellow")))
    return Group(*lines)


def numbers(status: Status) -> list[tuple[str, str]]:
    """What is known, as (name, value) in reading order."""
    found = [("reward", _number(status.reward))]
    held_out = _number(status.success)
    if held_out and status.success_step is not None:
        held_out += f" @ step {status.success_step}"
    found.append(("held-out success", held_out))
    found.append(("entropy", _number(status.entropy)))
    found.append(("goodput", "" if status.goodput is None else f"{status.goodput:,.0f} tok/s"))
    bound = "" if status.staleness_bound is None else f" of at most {status.staleness_bound}"
    found.append(("staleness", "" if status.staleness is None else f"{status.staleness}{bound}"))
    found.append(("invalid", "" if status.invalid_rate is None else f"{status.invalid_rate:.1%}"))
    found.append(("rate", "" if not status.rate else _pace(status.rate)))
    found.append(("ETA", "" if status.eta is None or status.finished else duration(status.eta)))
    return [(name, value) for name, value in found if value]


def plain_line(status: Status) -> str:
    """The same on one line, for logs."""
    parts = [f"{status.phase} {status.detail}".strip()]
    if status.steps:
        parts[0] += f", train step {status.step} of {status.steps}"
    parts += [f"{name} {value}" for name, value in numbers(status)]
    if status.alarm:
        parts.append(f"alarm: {status.alarm}")
    if status.waits:
        oldest = status.waits[0]
        parts.append(f"oldest wait {oldest.name} ({oldest.owner}) {oldest.age:.1f} s")
    return " | ".join(parts)


def sparkline(values: list[float], *, width: int = SPARK_WIDTH) -> str:
    """The newest values as bars between their least and their greatest."""
    shown = values[-width:]
    low, high = min(shown), max(shown)
    span = high - low or 1.0
    bars = "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in shown)
    return f"{bars} {low:.2f} to {high:.2f}"


def _bar(share: float) -> Text:
    done = round(share * BAR_WIDTH)
    return Text.assemble(("━" * done, "green"), ("─" * (BAR_WIDTH - done), "dim"))


def _headline(status: Status) -> Text:
    text = Text.assemble((status.run, "bold cyan"), "  ", status.phase, " ", (status.detail, "dim"))
    if status.steps:
        text.append(f"  train step {status.step} of {status.steps}", "bold")
    return text


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _pace(rate: float) -> str:
    return f"{rate:.1f} steps/s" if rate >= 1 else f"{1 / rate:.1f} s/step"
