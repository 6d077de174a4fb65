"""A game that a tiny model learns within a minute: say the right word of those shown.

Level 1 shows one word at a time. Level 2 shows two and wants the last, level 3 shows three and wants the middle one,
for one turn longer. The episode succeeds if every turn was right. A flawed demonstration makes one mistake, in a turn
chosen at random: it says "pass" (level 1) or the first word (levels 2 and 3).
"""

import random
from collections.abc import Iterator
from typing import ClassVar

from springtide.environments.text import Reply, TextEnvironment

WORDS = ("ash", "bay", "cod", "dew", "elm", "fog", "gum", "hay")


class WordGame(TextEnvironment):
    system: ClassVar[str] = "say the right word"

    def __init__(self, *, level: int = 1, flaw_rate: float = 0.5) -> None:
        self._level = level
        self._flaw_rate = flaw_rate
        self._mistakes = 0

    def start(self, rng: random.Random) -> str:
        turns = 4 if self._level == 3 else 3
        self._rounds = [rng.sample(WORDS, self._level) for _ in range(turns)]
        self._turn = 0
        return self._shown()

    def reply(self, text: str) -> Reply:
        self._mistakes += text != self._wanted()
        self._turn += 1
        if self._turn < len(self._rounds):
            return Reply(self._shown())
        return Reply(reward=float(self._mistakes == 0), done=True)

    def demonstrate(self, rng: random.Random) -> Iterator[str]:
        wrong = rng.randrange(len(self._rounds)) if rng.random() < self._flaw_rate else None
        if wrong is not None:
            self.flaw = "passes" if self._level == 1 else "says the first word"
        for turn, words in enumerate(self._rounds):
            mistake = "pass" if self._level == 1 else words[0]
            yield mistake if turn == wrong else self._wanted()

    def _shown(self) -> str:
        return " ".join(self._rounds[self._turn])

    def _wanted(self) -> str:
        return self._rounds[self._turn][1 if self._level > 1 else 0]
