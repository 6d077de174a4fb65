import io

import msgspec
import pytest
from rich.console import Console

from springtide.cli.live import PlainView, live_view, numbers, panel, plain_line, sparkline
from springtide.telemetry.status import Status, Wait

FULL = Status(
    run="demo",
    phase="training",
    step=12,
    steps=60,
    reward=0.53125,
    success=0.62,
    success_step=10,
    entropy=0.514,
    goodput=3210.4,
    staleness=1,
    staleness_bound=1,
    invalid_rate=0.0125,
    rate=0.5,
    eta=96.0,
    waits=(Wait("command", "episode 12.3.1", 2.34), Wait("publication", "engine", 0.5)),
)


def text(renderable, width=160):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(renderable)
    return console.file.getvalue()


def test_the_panel_shows_everything_that_a_run_is_watched_for():
    shown = text(panel(FULL, rewards=[0.1, 0.5, 0.53]))
    for part in (
        "demo  training",
        "step 12 of 60",
        "reward 0.531",
        "held-out success 0.620 @ step 10",
        "entropy 0.514",
        "goodput 3,210 tok/s",
        "staleness 1 of at most 1",
        "invalid 1.2%",
        "rate 2.0 s/step",
        "ETA 1 min 36 s",
        "waiting command episode 12.3.1 2.3 s",
        "0.10 to 0.53",
    ):
        assert part in shown


def test_the_panel_keeps_a_number_beside_its_name_on_a_narrow_terminal():
    shown = text(panel(FULL, rewards=[]), width=60)
    for name, value in numbers(FULL):
        assert f"{name} {value}" in shown


def test_what_is_not_known_yet_is_not_shown():
    assert numbers(Status()) == []
    assert plain_line(Status(phase="preparing", detail="model")) == "preparing model"


def test_a_plain_line_has_the_same_numbers_and_the_oldest_wait():
    line = plain_line(FULL)
    assert line.startswith("training, train step 12 of 60 | reward 0.531 | held-out success 0.620 @ step 10")
    assert line.endswith("oldest wait command (episode 12.3.1) 2.3 s")


def test_an_alarm_is_shown_while_there_is_one():
    said = "the invalid rate rose from 1.0% to 9.0%"
    alarmed = msgspec.structs.replace(FULL, alarm=said)
    assert f"alarm {said}" in text(panel(alarmed, rewards=[]))
    assert f"alarm: {said}" in plain_line(alarmed)
    assert "alarm" not in text(panel(FULL, rewards=[])) + plain_line(FULL)


def test_a_finished_run_has_no_eta():
    assert "ETA" not in plain_line(Status(phase="finished", steps=3, step=3, eta=5.0))


@pytest.mark.parametrize(("interval", "lines"), [(1000.0, 2), (0.0, 4)])
def test_plain_lines_come_at_intervals_and_at_every_change_of_phase(interval, lines):
    console = Console(file=io.StringIO(), width=160)
    view = PlainView(console, interval=interval)
    for phase in ("warm start", "warm start", "training", "training"):
        view(Status(phase=phase))
    assert len(console.file.getvalue().splitlines()) == lines


def test_a_sparkline_spans_least_to_greatest():
    assert sparkline([0.0, 1.0]) == "▁█ 0.00 to 1.00"
    assert sparkline([0.5, 0.5]) == "▁▁ 0.50 to 0.50"
    assert sparkline([9.0, 0.0, 1.0], width=2) == "▁█ 0.00 to 1.00"


def test_on_a_terminal_the_panel_is_drawn_in_place():
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    with live_view(console) as view:
        view(FULL)
    drawn = console.file.getvalue()
    assert "step 12 of 60" in drawn
    assert "\x1b[?25l" in drawn, "the cursor is hidden while the panel is up"
    assert drawn.count("\x1b[?25h") == 1
