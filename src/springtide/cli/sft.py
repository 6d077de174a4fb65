"""`springtide sft`: supervised training only."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from springtide.cli.console import INTERRUPTED, complain, output
from springtide.cli.extras import require_train
from springtide.cli.live import live_view
from springtide.cli.new_run import undone_by_mistakes
from springtide.cli.options import Overrides, RecipeName, RunFolderPath, examples
from springtide.cli.train import announce
from springtide.core.errors import UsageError
from springtide.launch.chats import read_chats
from springtide.recipe import anchored, dump_recipe, load_recipe
from springtide.telemetry.run_folder import RunFolder


def register(app: typer.Typer) -> None:
    app.command(
        "sft",
        epilog=examples(
            "springtide sft quickstart",
            "springtide sft quickstart --set warm_start.steps=500",
            "springtide sft hf-gpu --data chats.jsonl --set warm_start.steps=200",
        ),
    )(sft)


def sft(
    recipe: RecipeName,
    overrides: Overrides = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Chats to imitate instead of the environment's demonstrations: JSON lines with [cyan]messages[/] and, "
            "optionally, [cyan]tools[/].",
        ),
    ] = None,
    run_folder: RunFolderPath = None,
) -> None:
    """Train on demonstrations, or on chats of your own, and stop there.

    What it leaves is a run at step 0: export it, or resume it to go on with reinforcement learning.
    """
    require_train("springtide sft")
    loaded = anchored(load_recipe(recipe, overrides or []))
    if loaded.warm_start.steps == 0:
        raise UsageError("warm_start.steps = 0 leaves nothing to train: set it to the number of supervised steps.")
    chats = None if data is None else read_chats(data)
    folder = RunFolder.create(name=loaded.name, recipe_text=dump_recipe(loaded), path=run_folder, chats=data)
    console = output()
    announce(console, folder)
    try:
        from springtide.launch.train import sft as launch

        with undone_by_mistakes(folder), live_view(console) as view:
            launch(recipe=loaded, folder=folder, chats=chats, view=view)
    except KeyboardInterrupt:
        complain(f"Interrupted; start again with: {_again(recipe, overrides or [], data)}")
        raise typer.Exit(INTERRUPTED) from None
    path = escape(str(folder.path))
    console.print(
        f"Done. Export it with [cyan]springtide export {path} DIR[/], or go on with "
        f"[cyan]springtide train --resume {path}[/].",
        soft_wrap=True,
        highlight=False,
    )


def _again(recipe: str, overrides: list[str], data: Path | None) -> str:
    """The same command; its run folder is taken by now, so that is left to the default."""
    words = ["springtide", "sft", recipe]
    for override in overrides:
        words += ["--set", override]
    if data is not None:
        words += ["--data", str(data)]
    return shlex.join(words)
