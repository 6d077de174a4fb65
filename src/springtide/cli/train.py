"""`springtide train`: a new run, or one that goes on."""

import contextlib
import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from springtide.cli.console import INTERRUPTED, complain, errors, output
from springtide.cli.extras import require_train
from springtide.cli.live import live_view
from springtide.cli.new_run import undone_by_mistakes
from springtide.cli.options import Json, Overrides, RunFolderPath, examples
from springtide.config import Recipe
from springtide.core.errors import UsageError
from springtide.evaluation.report import HEADER, duration, next_commands, success_rows
from springtide.evaluation.result import RunResult
from springtide.recipe import anchored, dump_recipe, load_recipe
from springtide.telemetry.run_folder import RunFolder
from springtide.training.checkpoint import CheckpointStore


def register(app: typer.Typer) -> None:
    app.command(
        "train",
        epilog=examples(
            "springtide train quickstart",
            "springtide train quickstart --set scheduling.mode=async --set seed=1",
            "springtide train --resume quickstart-20300501-120000",
            "springtide train --resume quickstart-20300501-120000 --from 50 --set training.learning_rate=5e-5",
        ),
    )(train)


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(metavar="RECIPE", help="A built-in name or a file; left out with --resume.", show_default=False),
    ] = None,
    overrides: Overrides = None,
    run_folder: RunFolderPath = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="RUN", help="Go on with this run, exactly where it stopped.")
    ] = None,
    from_step: Annotated[
        int | None,
        typer.Option("--from", metavar="STEP", help="With --resume: branch a new run from this checkpoint instead."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a model by reinforcement learning, warm start included.

    Everything that belongs to the run is in its folder. It can be stopped at any time and resumed.
    """
    require_train("springtide train")
    loaded, folder = _prepare(recipe, overrides or [], run_folder, resume, from_step)
    console = errors() if as_json else output()
    announce(console, folder)
    is_new = resume is None or from_step is not None
    with undone_by_mistakes(folder) if is_new else contextlib.nullcontext():
        result = _run(loaded, folder, console)
    print_result(console, folder, result)
    if as_json:
        typer.echo(result_line(result))


def _run(recipe: Recipe, folder: RunFolder, console: Console) -> RunResult:
    try:
        from springtide.launch.train import train as launch

        with live_view(console) as view:
            return launch(recipe=recipe, folder=folder, view=view)
    except KeyboardInterrupt:
        kept = "nothing is lost" if folder.checkpoint_steps() else "the warm start will begin again"
        complain(f"Interrupted; {kept}. Go on with: springtide train --resume {folder.path}")
        raise typer.Exit(INTERRUPTED) from None


def result_line(result: RunResult) -> str:
    """The result as one JSON object on one line."""
    return json.dumps(msgspec.to_builtins(result))


def announce(console: Console, folder: RunFolder) -> None:
    where = escape(str(folder.path))
    console.print(f"Run [bold cyan]{escape(folder.id)}[/] in {where}", soft_wrap=True, highlight=False)


def print_result(console: Console, folder: RunFolder, result: RunResult) -> None:
    """The table before / after, where the report is, and what to do next."""
    rows = success_rows(result)
    if rows:
        table = Table(*HEADER, title="held-out tasks", title_justify="left", box=None, pad_edge=False)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print(
        f"{duration(result.seconds)}, {result.goodput_tokens_per_s:,.0f} trained tokens per second. "
        f"Report: {escape(str(folder.report))}",
        soft_wrap=True,
        highlight=False,
    )
    for command, why in next_commands(str(folder.path)):
        console.print(f"  [cyan]{escape(command)}[/]  [dim]{why}[/]", soft_wrap=True, highlight=False)


def _prepare(
    recipe: str | None, overrides: list[str], path: Path | None, resume: str | None, from_step: int | None
) -> tuple[Recipe, RunFolder]:
    """The checked recipe and the folder of the run to train; nothing is made before all options are right."""
    if resume is None:
        if from_step is not None:
            raise UsageError(f"--from {from_step} needs --resume RUN: it names the step of that run to branch from.")
        if recipe is None:
            raise UsageError("Name a recipe, such as `springtide train quickstart`, or a run with --resume RUN.")
        loaded = anchored(load_recipe(recipe, overrides))
        return loaded, RunFolder.create(name=loaded.name, recipe_text=dump_recipe(loaded), path=path)
    if recipe is not None:
        raise UsageError(f"Leave out the recipe '{recipe}' with --resume: the run has its own.")
    source = RunFolder.open(resume)
    if from_step is None:
        if overrides or path is not None:
            option = "--set" if overrides else "--run-folder"
            raise UsageError(
                f"{option} does not go with a resumed run, which stays as it is: branch it with --from STEP."
            )
        return load_recipe(source.recipe), source
    branch = anchored(load_recipe(source.recipe, overrides))
    if from_step > branch.scheduling.steps:
        raise UsageError(
            f"--from {from_step} is beyond scheduling.steps = {branch.scheduling.steps}, the end of the run: raise it, "
            f"such as --set scheduling.steps={from_step + branch.scheduling.steps}, or branch from an earlier step."
        )
    if from_step in source.checkpoint_steps():
        CheckpointStore(source.checkpoints, branch.checkpoint).at(from_step)  # RunDamagedError before anything is made
    return branch, source.branch(from_step, name=branch.name, recipe_text=dump_recipe(branch), path=path)
