"""`springtide recipe`: which recipes there are, what they say, whether one is right."""

import typer
from rich.syntax import Syntax
from rich.table import Table

from springtide.cli.console import output
from springtide.cli.options import Overrides, RecipeName, examples
from springtide.config import Recipe
from springtide.recipe import annotated_recipe, builtin_recipes, load_recipe

app = typer.Typer(
    help="List, show and check recipes.",
    no_args_is_help=True,
    epilog=examples("springtide recipe show quickstart > mine.toml", "springtide recipe check mine.toml"),
)


@app.command("list", epilog=examples("springtide recipe list"))
def list_recipes() -> None:
    """List the built-in recipes."""
    table = Table("recipe", "what it does", box=None, pad_edge=False)
    for name in builtin_recipes():
        table.add_row(name, load_recipe(name).description)
    output().print(table)


@app.command(
    "show",
    epilog=examples(
        "springtide recipe show quickstart",
        "springtide recipe show quickstart --set scheduling.mode=async > mine.toml",
    ),
)
def show(recipe: RecipeName, overrides: Overrides = None) -> None:
    """Print a recipe as TOML with every setting, what it means and what it takes."""
    text = annotated_recipe(load_recipe(recipe, overrides or ()))
    console = output()
    if console.is_terminal:
        console.print(Syntax(text, "toml", background_color="default", word_wrap=True))
    else:
        typer.echo(text, nl=False)


@app.command(
    "check",
    epilog=examples(
        "springtide recipe check mine.toml", "springtide recipe check quickstart --set scheduling.steps=100"
    ),
)
def check(recipe: RecipeName, overrides: Overrides = None) -> None:
    """Say whether a recipe is valid, and what it would do."""
    output().print(
        f"{recipe} is valid: {summary(load_recipe(recipe, overrides or ()))}", soft_wrap=True, highlight=False
    )


def summary(recipe: Recipe) -> str:
    """What a recipe does, in one line."""
    scheduling = recipe.scheduling
    warm_start = f"{recipe.warm_start.steps} supervised steps, then " if recipe.warm_start.steps else ""
    batch = f"{scheduling.groups_per_step} groups with {scheduling.group_size} episodes each"
    return (
        f"{warm_start}{scheduling.steps} train steps of {batch} ({scheduling.mode}), "
        f"model {recipe.model.type}, environment {recipe.environment.type}."
    )
