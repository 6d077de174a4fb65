"""`springtide status`: what a run is doing, from its status file."""

import json
from time import time
from typing import Any

import msgspec
import typer
from rich.text import Text

from springtide.cli.console import output
from springtide.cli.live import panel
from springtide.cli.options import Json, RunName, examples
from springtide.core.errors import RunDamagedError, UsageError
from springtide.evaluation.report import duration
from springtide.evaluation.result import history
from springtide.telemetry.jsonl import read_metrics
from springtide.telemetry.run_folder import RunFolder
from springtide.telemetry.status import completed, read_status
from springtide.telemetry.verdicts import VerdictRecord, newest_verdict


def register(app: typer.Typer) -> None:
    app.command(
        "status",
        epilog=examples("springtide status quickstart-20300501-120000", "springtide status runs/mine --json"),
    )(status)


def status(run: RunName, as_json: Json = False) -> None:
    """Say what a run is doing: phase, step, reward, rate, and what waits for what, oldest first."""
    folder = RunFolder.open(run)
    found = read_status(folder.status)
    if found is None and folder.status.exists():
        raise RunDamagedError(f"{folder.status} cannot be read: delete it; resuming the run writes it again.")
    if found is None:
        raise UsageError(f"Run {folder.id} has no status yet: it has not started, or is starting right now.")
    records = list(read_metrics(folder.metrics))
    found = completed(found, records)
    running = folder.locked()
    age = max(0.0, time() - found.updated)
    diagnosed = newest_verdict(folder.diagnosis)
    if as_json:
        document: dict[str, Any] = msgspec.to_builtins(found)
        told = {"running": running, "age": age, "diagnosis": msgspec.to_builtins(diagnosed)}
        typer.echo(json.dumps(document | told))
        return
    console = output()
    rewards = [point.mean for point in history(records).rewards]
    console.print(panel(found, rewards=rewards))
    if diagnosed is not None:
        console.print(diagnosis_line(diagnosed), soft_wrap=True)
    if running:
        console.print(f"Running as process {found.pid}, updated {age:.0f} s ago.", highlight=False)
    elif found.finished:
        console.print(f"Not running: {found.phase} {duration(age)} ago.", highlight=False, markup=False)
    else:
        console.print(
            f"Not running: it stopped without a word {duration(age)} ago. Go on with: springtide train --resume {run}",
            soft_wrap=True,
            highlight=False,
            markup=False,
            emoji=False,
        )


def diagnosis_line(record: VerdictRecord) -> Text:
    """What the monitor said last."""
    style = {"SICK": "bold red", "WATCH": "yellow", "OK": "green"}.get(record.verdict, "dim")
    line = Text.assemble(("diagnosis ", "dim"), (record.verdict, style), (f" @ step {record.step}", "dim"))
    for symptom in record.symptoms:
        since = "" if symptom.onset_step is None else f" since step {symptom.onset_step}"
        line.append(f"  {symptom.id} {symptom.title}{since}")
    return line
