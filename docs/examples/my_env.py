"""The environment has a number in mind, the agent finds it by halving: four guesses from 0 to 7."""

import random
from collections.abc import Iterator

from springtide.environments.text import Reply, TextEnvironment


class MyEnv(TextEnvironment):
    system = "find my number from 0 to 7"
    max_turns = 4

    def start(self, rng: random.Random) -> str:
        self.secret = rng.randrange(8)
        return "guess"

    def reply(self, text: str) -> Reply:
        if text == str(self.secret):
            return Reply("yes", reward=1.0, done=True)
        return Reply("too low" if text.isdecimal() and int(text) < self.secret else "too high")

    def demonstrate(self, rng: random.Random) -> Iterator[str]:
        low, high = 0, 7
        while low <= high:
            guess = rng.randint(low, high)  # not always the middle: some demonstrations run out of guesses
            yield str(guess)
            low, high = (guess + 1, high) if guess < self.secret else (low, guess - 1)
