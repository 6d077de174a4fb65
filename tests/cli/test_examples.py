"""What the documentation and the help tell people to type works on the run that they have by then."""

import re
import shlex
from pathlib import Path

import pytest

from springtide.cli.main import app
from springtide.recipe import load_recipe
from springtide.simulation.strategy import strategy_from
from springtide.training.checkpoint import CheckpointStore

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
HELP = [command.epilog or "" for command in app.registered_commands]
TEXTS = [page.read_text(encoding="utf-8") for page in PAGES] + HELP
STEPS = sorted({int(step) for text in TEXTS for step in re.findall(r"--(?:from|step) (\d+)", text)})
LINES = [line for text in HELP for line in text.splitlines()]


def settings(*, modelled: bool) -> list[str]:
    """Those in the examples of `simulate` and `plan`, or of all other commands."""
    lines = [line for line in LINES if bool(re.search(r"springtide (simulate|plan)", line)) == modelled]
    return sorted({word for line in lines for word in re.findall(r"--set (\S+=[^\s\[]+)", line)})


def test_there_are_examples():
    assert STEPS
    assert settings(modelled=False)
    assert settings(modelled=True)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_named_survives_the_retention_of_the_quickstart(tmp_path, step):
    recipe = load_recipe("quickstart")
    store = CheckpointStore(tmp_path, recipe.checkpoint)
    for saved in range(0, recipe.scheduling.steps + 1, recipe.checkpoint.every):
        store.save(saved, lambda folder: (folder / "weights").touch(), {})
    assert step in store.steps()


@pytest.mark.parametrize("setting", settings(modelled=False))
def test_a_setting_that_help_names_exists(setting):
    load_recipe("quickstart", shlex.split(setting))


@pytest.mark.parametrize("setting", settings(modelled=True))
def test_a_setting_of_a_modelled_cluster_that_help_names_exists(setting):
    strategy_from([setting])
