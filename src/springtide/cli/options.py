"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SETTING=VALUE",
        help="Change a setting, such as [cyan]training.optimizer.learning_rate=1e-5[/cyan]; may be repeated.",
    ),
]

ModelledOverrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SETTING=VALUE",
        help="Change how the cluster is run (see `springtide simulate --list`); may be repeated.",
    ),
]

Fail = Annotated[
    list[str] | None,
    typer.Option("--fail", metavar="RANK@SECONDS", help="A rank dies then; RANK@SECONDS-SECONDS: and is back then."),
]

RecipeName = Annotated[
    str,
    typer.Argument(metavar="RECIPE", help="A built-in name (see `springtide recipe list`), a file, or a run's folder."),
]

RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run's id (under ./runs) or its folder.")]

RunFolderPath = Annotated[
    Path | None,
    typer.Option("--run-folder", metavar="DIR", help="Where to put the run; default: a dated folder in ./runs."),
]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on the last line of standard output.")]


def examples(*lines: str) -> str:
    """An epilog with one example per line."""
    return "[b]Examples[/b]\n\n" + "\n\n".join(f"[cyan]{line}[/cyan]" for line in lines)
