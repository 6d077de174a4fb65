"""docs/write-an-environment.md says what is true: its listing is the file, and its recipe trains."""

from pathlib import Path

import pytest

from springtide.launch.train import train
from springtide.recipe import dump_recipe, load_recipe
from springtide.telemetry.run_folder import RunFolder

DOCS = Path(__file__).parents[2] / "docs"

QUICK = [
    "warm_start.steps=4",
    "warm_start.demonstrations=64",
    "scheduling.steps=2",
    "scheduling.groups_per_step=2",
    "scheduling.group_size=4",
    "evaluation.tasks=4",
    "engine.threads=1",
    "training.threads=1",
]


def test_the_listing_is_the_example_file() -> None:
    listing = (DOCS / "write-an-environment.md").read_text().split("```python\n")[1].split("```")[0]
    assert listing == (DOCS / "examples/my_env.py").read_text()
    assert len(listing.splitlines()) < 30


def test_the_example_trains_as_the_tutorial_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DOCS / "examples")
    recipe = load_recipe("my_env.toml", QUICK)
    assert recipe.environment.path == "my_env.py:MyEnv"  # type: ignore[union-attr]
    folder = RunFolder.create(name=recipe.name, recipe_text=dump_recipe(recipe), root=tmp_path)
    result = train(recipe=recipe, folder=folder)
    assert result.after is not None
    assert (result.after.n, result.after.invalid) == (4, 0)
