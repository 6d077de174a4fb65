"""`springtide doctor completions`: what the rollouts themselves show, with rows to read."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from springtide.cli.console import errors, output
from springtide.cli.options import Json, examples
from springtide.core.visible import visible

if TYPE_CHECKING:
    from springtide.diagnosis.completions.analysis import CompletionReport
    from springtide.diagnosis.verdict import Symptom

STYLES = {"SICK": "bold red", "WATCH": "yellow", "OK": "green"}

Dumps = Annotated[
    Path, typer.Argument(metavar="PATH", help="A folder with dumped rollouts, a file of them, or one of our runs.")
]
Rows = Annotated[int, typer.Option("--rows", metavar="N", min=0, help="Completions to show of each symptom.")]


def register(app: typer.Typer) -> None:
    app.command(
        "completions",
        epilog=examples(
            "springtide doctor completions outputs/completions",
            "springtide doctor completions rollouts --rows 5 --json",
        ),
    )(completions)


def completions(path: Dumps, rows: Rows = 2, as_json: Json = False) -> None:
    """Say what the completions themselves show: length that pays, tricks on the grader, the same reply to every prompt,
    right answers that are not paid, loops, changes of language.

    Reads dumps of verl, TRL, tinker-cookbook and prime-rl, JSON lines of your own, and our runs' journals. Nothing in
    them is ever executed.
    """
    from springtide.diagnosis.completions.analysis import diagnose_completions

    report = diagnose_completions(path)
    print_report(errors() if as_json else output(), report, rows=rows)
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(report).decode())
    from springtide.cli.doctor import exit_code

    raise typer.Exit(exit_code([report.verdict.value]))


def print_report(console: Console, report: "CompletionReport", *, rows: int) -> None:
    verdict = report.verdict.value
    counted = f"{report.samples:,} of {report.rows:,} completions, {report.steps} steps ({report.framework})"
    console.print(
        Text.assemble((f"{verdict}  ", STYLES.get(verdict, "dim")), (visible(report.source), "bold"), f"  {counted}")
    )
    for symptom in report.symptoms:
        _print_symptom(console, symptom, rows=rows)
    for note in report.notes:
        console.print(Text(f"note: {visible(note)}", "dim"), soft_wrap=True)


def _print_symptom(console: Console, symptom: "Symptom", *, rows: int) -> None:
    verdict = symptom.verdict.value
    since = "" if symptom.onset_step is None else f" since step {symptom.onset_step}"
    console.print()
    console.print(
        Text.assemble((f"{verdict:<12}", STYLES.get(verdict, "dim")), (symptom.title, "bold"), f"{since}  {symptom.id}")
    )
    for evidence in symptom.evidence:
        console.print(Text(f"  {visible(evidence.text)}"), soft_wrap=True)
    if symptom.causes:
        cause = symptom.causes[0]
        console.print(Text(f"  likeliest: {cause.title}"), soft_wrap=True)
        console.print(Text(f"  check: {cause.check}", "dim"), soft_wrap=True)
        console.print(Text(f"  change: {cause.remedy}", "cyan"), soft_wrap=True)
    for row in symptom.rows[:rows]:
        paid = "" if row.reward is None else f", reward {row.reward:g}"
        console.print(
            Text(f"  {visible(row.place)}, step {row.step}{paid}: {visible(row.why)}", "magenta"), soft_wrap=True
        )
        for line in visible(row.text).splitlines()[:12]:
            console.print(Text(f"    {line}"), soft_wrap=True)
