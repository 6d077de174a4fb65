"""A small made-up run, from which samples of frameworks' logs are written: it learns, and nothing is wrong with it."""

import math
import random
from collections.abc import Iterator


def steps(count: int = 30, seed: int = 0) -> Iterator[dict[str, float]]:
    """Per step: reward, std, entropy, kl, grad, lr, loss, clip, length, truncated, gap, seconds."""
    noise = random.Random(seed)
    for step in range(count):
        share = step / max(count - 1, 1)
        yield {
            "reward": 0.3 + 0.5 * share + noise.gauss(0, 0.02),
            "std": 0.4 - 0.1 * share,
            "entropy": 0.6 * math.exp(-share) + noise.gauss(0, 0.01),
            "kl": 0.02 * share,
            "grad": 0.4 + noise.random() * 0.1,
            "lr": 1e-6,
            "loss": noise.gauss(0, 0.01),
            "clip": 0.01 * noise.random(),
            "length": 300 + 20 * noise.gauss(0, 1),
            "truncated": 0.05 * noise.random(),
            "gap": 0.003 + 0.001 * noise.random(),
            "seconds": 12 + noise.random(),
        }
