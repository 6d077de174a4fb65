"""`springtide sft`: supervised training only."""

from pathlib import Path
from typing import Annotated

import typer

from springtide.cli.console import INTERRUPTED, complain, output
from springtide.cli.extras import require_train
from springtide.cli.live import live_view
from springtide.cli.new_run import undone_by_mistakes
from springtide.cli.options import Overrides, RecipeName, RunFolderPath, examples
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
    if data is not None:
        read_chats(data)
    folder = RunFolder.create(name=loaded.name, recipe_text=dump_recipe(loaded), path=run_folder)
    console = output()
    console.print(f"Run [bold cyan]{folder.id}[/] in {folder.path}", soft_wrap=True, highlight=False)
    try:
        from springtide.launch.train import sft as launch

        with undone_by_mistakes(folder), live_view(console) as view:
            launch(recipe=loaded, folder=folder, data=data, view=view)
    except KeyboardInterrupt:
        complain(f"Interrupted; start again with: springtide sft {recipe}")
        raise typer.Exit(INTERRUPTED) from None
    console.print(
        f"Done. Export it with [cyan]springtide export {folder.path} DIR[/], or go on with "
        f"[cyan]springtide train --resume {folder.path}[/].",
        soft_wrap=True,
        highlight=False,
    )
