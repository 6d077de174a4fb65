"""`springtide doctor PATH --follow`: a run is diagnosed as it grows, and what becomes worse is told."""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from time import localtime, strftime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand

from springtide.cli.console import complain, output
from springtide.cli.options import examples
from springtide.core.errors import UsageError
from springtide.core.visible import visible
from springtide.telemetry.run_folder import RunFolder
from springtide.telemetry.status import read_status

if TYPE_CHECKING:
    from springtide.diagnosis.follow.alert import Alert, Channel
    from springtide.diagnosis.follow.watch import Stopper
    from springtide.diagnosis.verdict import Diagnosis

FOLLOW = "follow"

STYLES = {"SICK": "bold red", "WATCH": "yellow", "": "green"}

Followed = Annotated[
    Path, typer.Argument(metavar="PATH", help="A log that grows, or the folder that holds it; it may not be there yet.")
]
Flag = Annotated[bool, typer.Option("--follow", help="Look again whenever something is appended.", show_default=False)]
Interval = Annotated[
    float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Time between two glances at the files.")
]
WebhookAddress = Annotated[
    str | None, typer.Option("--webhook", metavar="URL", help="Post alerts there as JSON with a text that chats show.")
]
Prometheus = Annotated[
    str | None,
    typer.Option("--prometheus", metavar="FILE|HOST:PORT", help="Keep verdicts in a text file, or serve them."),
]
StopRun = Annotated[
    bool,
    typer.Option("--stop-run", help="Ask the run's process to end (SIGTERM) if a symptom stays SICK over two looks."),
]
Pid = Annotated[
    int | None,
    typer.Option("--pid", metavar="PID", help="The process that --stop-run stops; our own runs name theirs."),
]
Idle = Annotated[
    float | None, typer.Option("--idle", metavar="SECONDS", min=1, help="End after so long without anything new.")
]


def register(app: typer.Typer, cls: type[TyperCommand]) -> None:
    app.command(
        FOLLOW,
        cls=cls,
        hidden=True,
        epilog=examples(
            "springtide doctor runs/quickstart-20300501-120000 --follow --stop-run",
            "springtide doctor train.log --follow --webhook https://hooks.example/T0 --prometheus 127.0.0.1:9187",
        ),
    )(follow)


def follow(
    path: Followed,
    flag: Flag = True,
    interval: Interval = 15.0,
    webhook: WebhookAddress = None,
    prometheus: Prometheus = None,
    stop_run: StopRun = False,
    pid: Pid = None,
    idle: Idle = None,
) -> None:
    """Diagnose a run as it grows, and tell what becomes worse.

    Alerts go to the terminal, and to a webhook and to Prometheus if asked for; none of them ends the watch if it fails.
    It ends with a run of ours, by --idle, or by Ctrl-C. The run is never touched, unless --stop-run is given.
    """
    from springtide.diagnosis.follow.growth import mark_of
    from springtide.diagnosis.follow.watch import Watch

    if pid is not None and not stop_run:
        raise UsageError(f"--pid {pid} names the process for --stop-run: add that, or leave --pid out.")
    stopper = _stopper(path, pid) if stop_run else None
    console = output()
    with _prometheus(prometheus) as endpoint:
        channels: list[Channel] = [TerminalChannel(console), *_channels(webhook, prometheus, endpoint)]
        watch = Watch(
            look=lambda: look(path),
            mark=lambda: mark_of(path),
            channels=channels,
            warn=complain,
            interval=interval,
            ended=lambda: run_ended(path),
            idle=idle,
            stopper=stopper,
        )
        console.print(Text(f"Following {path}; Ctrl-C ends it.", "dim"), soft_wrap=True)
        verdicts = watch.run()
    from springtide.cli.doctor import exit_code

    raise typer.Exit(exit_code((verdict.value for verdict in verdicts.values()), unusable=not verdicts))


class TerminalChannel:
    """Implements Channel: a line for each alert, and one when the verdict of a run changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._verdicts: dict[str, str] = {}

    def send(self, alert: "Alert") -> None:
        at = strftime("%H:%M:%S", localtime(alert.time))
        line = Text.assemble((f"{at} ", "dim"), (f"step {alert.step} ", "dim"))
        line.append(visible(alert.text), STYLES.get(alert.verdict, "yellow"))
        self._console.print(line, soft_wrap=True)
        for name, text in (("check", alert.next_check), ("change", alert.remedy)):
            if text:
                self._console.print(Text(f"         {name}: {visible(text)}", "dim"), soft_wrap=True)

    def looked(self, diagnoses: tuple["Diagnosis", ...], now: float) -> None:
        for each in diagnoses:
            verdict = each.verdict.value
            if self._verdicts.get(each.source) != verdict:
                at = strftime("%H:%M:%S", localtime(now))
                named = visible(each.source)
                line = Text.assemble(
                    (f"{at} step {each.steps} ", "dim"), (verdict, STYLES.get(verdict, "dim")), f" {named}"
                )
                self._console.print(line, soft_wrap=True)
            self._verdicts[each.source] = verdict


def look(path: Path) -> Sequence["Diagnosis"]:
    from springtide.diagnosis.examine import examine

    return [run.diagnosis for run in examine(path)]


def run_ended(path: Path) -> bool:
    """Whether it is one of our runs, and over; of others nothing says so."""
    if not (path / "run.json").is_file():
        return False
    folder = RunFolder.open(path)
    status = read_status(folder.status)
    return status is not None and status.finished and not folder.locked()


def _stopper(path: Path, pid: int | None) -> "Stopper":
    from springtide.diagnosis.follow.process import process_of

    return process_of(path, pid)


def _prometheus(wanted: str | None) -> Any:
    """An endpoint for the time of the watch, where an address is given."""
    host, colon, port = (wanted or "").rpartition(":")
    if not colon or not port.isdecimal():
        return nullcontext()
    from springtide.diagnosis.follow.prometheus import PrometheusEndpoint

    return closing(PrometheusEndpoint(host or "127.0.0.1", int(port)))


def _channels(webhook: str | None, prometheus: str | None, endpoint: "Channel | None") -> list["Channel"]:
    from springtide.diagnosis.follow.prometheus import PrometheusFile
    from springtide.diagnosis.follow.webhook import Webhook

    found: list[Channel] = [] if endpoint is None else [endpoint]
    if prometheus is not None and endpoint is None:
        found.append(PrometheusFile(Path(prometheus), warn=complain))
    if webhook is not None:
        found.append(Webhook(webhook, warn=complain))
    return found
