"""`springtide sandbox`: which isolation this machine offers, found out by trying."""

import json

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from springtide.cli.console import output
from springtide.cli.options import Json, examples
from springtide.core.errors import UnsafeSandboxError


def register(app: typer.Typer) -> None:
    app.command("sandbox", epilog=examples("springtide sandbox", "springtide sandbox --json"))(sandbox)


def sandbox(as_json: Json = False) -> None:
    """Try every level of isolation, strongest first, and say which one a run would use.

    Exits with 4 where no level works that is safe for model output.
    """
    from springtide.sandbox import probe

    reports = probe()
    chosen = next((report.level for report in reports if report.usable and report.safe), None)
    if as_json:
        typer.echo(json.dumps({"level": chosen, "levels": msgspec.to_builtins(reports)}))
    else:
        table = Table("level", "works", "safe for model output", "why not", box=None, pad_edge=False)
        for report in reports:
            works = "[green]yes[/]" if report.usable else "[red]no[/]"
            safe = "yes" if report.safe else "no, opt in by name"
            table.add_row(report.level.value, works, safe, Text(report.reason))
        output().print(table)
    if chosen is None:
        raise UnsafeSandboxError(
            "This machine offers no isolation that is safe for model output: run as root, allow unprivileged user "
            "namespaces, or install bubblewrap."
        )
    if not as_json:
        output().print(f"A run uses [bold]{chosen.value}[/].", highlight=False)
