"""What a train step's work is and takes, written down as it is done: for the service costs, and never to decide by."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from springtide.core.group import Group
from springtide.policy.device import synchronize
from springtide.ports.trainer import Passes, StepWork


class StepBooks:
    """Of one step at a time: from the end of the one before it, as the reference may score its groups ahead.

    Work on an accelerator counts when it is done, not when it is launched.
    """

    def __init__(self, device: torch.device, now: Callable[[], float] = time.perf_counter) -> None:
        self._device = device
        self._now = now
        self._scored = Passes()
        self._begun = 0.0
        self._aside = 0.0
        self._updates = 0
        self._updating = 0.0

    def begin(self) -> None:
        self._begun, self._aside = self._time(), 0.0
        self._updates, self._updating = 0, 0.0

    @contextmanager
    def scores(self, groups: Sequence[Group]) -> Iterator[None]:
        """The reference scores them."""
        started = self._time()
        yield
        seconds = self._time() - started
        tokens, attended = sizes(groups)
        before = self._scored
        self._aside += seconds
        self._scored = Passes(
            tokens=before.tokens + tokens, attended=before.attended + attended, seconds=before.seconds + seconds
        )

    @contextmanager
    def updates(self, number: int) -> Iterator[None]:
        """The optimizer updates the weights so often; or what comes of that, which is no update."""
        started = self._time()
        yield
        self._updates += number
        self._updating += self._time() - started

    def end(self, groups: Sequence[Group]) -> StepWork:
        """Of the step that has trained on `groups`: whatever is neither reference nor optimizer is the actor's."""
        tokens, attended = sizes(groups)
        seconds = self._time() - self._begun - self._aside - self._updating
        scored, self._scored = self._scored, Passes()
        return StepWork(
            actor=Passes(tokens=tokens, attended=attended, seconds=max(0.0, seconds)),
            reference=scored,
            updates=self._updates,
            update_seconds=self._updating,
        )

    def _time(self) -> float:
        synchronize(self._device)
        return self._now()


def sizes(groups: Sequence[Group]) -> tuple[float, float]:
    """Tokens of all training samples, and for each of them the tokens before it, summed."""
    lengths = [length for group in groups for member in group.valid_members for length in member.lengths]
    return float(sum(lengths)), sum(length * (length - 1) / 2 for length in lengths)
