"""The agent takes letters away in alphabetical order, one per turn, and sees those that are left."""

import random
from collections.abc import Iterator

from springtide.environments.text import Reply, TextEnvironment


class MyEnv(TextEnvironment):
    system = "say the first letter of the alphabet that is left"

    def start(self, rng: random.Random) -> str:
        self.letters = rng.sample("abcdef", 3)
        return " ".join(self.letters)

    def reply(self, text: str) -> Reply:
        if text != min(self.letters):
            return Reply("wrong", done=True)
        self.letters.remove(text)
        return Reply(" ".join(self.letters)) if self.letters else Reply("right", reward=1.0, done=True)

    def demonstrate(self, rng: random.Random) -> Iterator[str]:
        while True:
            careless = rng.random() < 0.3  # so that some demonstrations fail, and RL has something to improve on
            yield rng.choice(self.letters) if careless else min(self.letters)
