"""Real runs, small ones: the reward is a coin that the agent's text tosses, so that any policy gets a signal."""

import torch

from springtide.recipe import dump_recipe, load_recipe
from springtide.telemetry.run_folder import RunFolder
from springtide.training import state

COIN = """
from springtide.environments.text import Reply, TextEnvironment

class Coin(TextEnvironment):
    def start(self, rng):
        self.turns = rng.randint(1, 3)
        return "toss"

    def reply(self, text):
        self.turns -= 1
        return Reply("again", reward=float(len(text) % 2), done=self.turns == 0)

    def demonstrate(self, rng):
        return iter(["heads", "tails", "heads"])
"""

SMALL = [
    "model.layers=1",
    "model.hidden=32",
    "warm_start.steps=3",
    "warm_start.demonstrations=32",
    "scheduling.steps=3",
    "scheduling.groups_per_step=2",
    "scheduling.group_size=2",
    "evaluation.tasks=4",
    "checkpoint.every=2",
    "engine.threads=1",
    "training.threads=1",
]


def new_run(root, *overrides, **made):
    game = root / "coin.py"
    game.write_text(COIN)
    custom = ["environment.type=custom", f"environment.path={game}:Coin"]
    small = [setting for setting in SMALL if "model.type=pretrained" not in overrides or "model." not in setting]
    recipe = load_recipe("word-game", [*small, *custom, *overrides])
    return recipe, RunFolder.create(name=recipe.name, recipe_text=dump_recipe(recipe), root=root, **made)


def weights(folder, step):
    return state.read_tensors(folder.checkpoint(step) / state.MODEL)


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
