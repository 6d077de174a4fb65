"""How many torch threads each lane computes with: the one place that decides."""

import os

from springtide.config import Recipe
from springtide.policy.device import set_lane_threads


def lane_threads(recipe: Recipe) -> dict[str, int]:
    """In sync the engine and the trainer take turns and each may use every core; in async they share them."""
    cores = len(os.sched_getaffinity(0))
    share = cores if recipe.scheduling.mode == "sync" else max(1, cores // 2)
    return {"engine": recipe.engine.threads or share, "trainer": recipe.training.threads or share, "journal": 1}


def start_lane(threads: dict[str, int], lane: str) -> None:
    """To be called first in a lane's thread."""
    set_lane_threads(threads.get(lane, 1))
