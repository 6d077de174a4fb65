"""What training takes, measured on a trainer before a run: steps of known size, each three times, of which the fastest
counts, as in `engines/calibration.py`.
"""

import time
from collections.abc import Callable, Sequence

from springtide.core.group import Group
from springtide.ports.trainer import Trainer
from springtide.scheduling.fit import fitted
from springtide.training.books import sizes

REPEATS = 3

PASSES = {"forward_token": 1, "backward_token": 2}
"""Shares of the time per token: a backward pass multiplies twice as many matrices as a forward pass."""
REFERENCE = {"reference_token": 1}


class TrainingCalibration:
    """`now` is a clock in seconds. The trainer takes steps: it must be one that is not trained afterwards.

    `groups` are what is trained on, each alone and all together: at least two, of short and of long sequences. What
    their prompts share is computed once, so a token costs what it costs in groups of that kind. Members must differ in
    reward, or there is nothing to compute.
    """

    def __init__(
        self, trainer: Trainer, groups: Sequence[Group], *, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._trainer = trainer
        self._groups = tuple(groups)
        self._now = now

    def costs(self, *, reference: bool) -> dict[str, float]:
        """Coefficients of training by their names in `ServiceCosts`; `reference`: the trainer has one, and its pass is
        one more forward pass."""
        steps = [(group,) for group in self._groups] + [self._groups]
        seconds = [min(self.step(groups) for _ in range(REPEATS)) for groups in steps]
        step, token, attention = fitted([(1.0, *sizes(groups)) for groups in steps], seconds)
        shares = PASSES | (REFERENCE if reference else {})
        whole = sum(shares.values())
        found = {name: token * share / whole for name, share in shares.items()}
        return found | {"optimizer": step, "training_attention": attention / token if token > 0 else 0.0}

    def step(self, groups: Sequence[Group] = ()) -> float:
        """Seconds of a train step on `groups`, or on all of them."""
        number = self._trainer.version.number + 1
        started = self._now()
        self._trainer.step(step=number, groups=tuple(groups) or self._groups)
        return self._now() - started
