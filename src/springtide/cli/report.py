"""`springtide report`: the report of a run, made again from what it recorded."""

import typer

from springtide.cli.console import output
from springtide.cli.options import RunName, examples
from springtide.cli.train import print_result
from springtide.evaluation.report import load_result, render_report
from springtide.telemetry.run_folder import RunFolder


def register(app: typer.Typer) -> None:
    app.command("report", epilog=examples("springtide report quickstart-20300501-120000"))(report)


def report(run: RunName) -> None:
    """Write report.md and curve.png of a run, also of one that has not ended, and print the table."""
    folder = RunFolder.open(run)
    result, past = load_result(folder)
    render_report(folder, result, past)
    print_result(output(), folder, result)
