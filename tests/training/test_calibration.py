import pytest

from simulation.test_trainer import group
from springtide.core.version import PolicyVersion
from springtide.training.calibration import TrainingCalibration


class Clockwork:
    """A trainer whose steps take exactly 0.3 s, 2 ms per token and 1 us per token and token before it."""

    exact = True

    def __init__(self):
        self.time = 0.0
        self.version = PolicyVersion(0, "")

    def step(self, *, step, groups):
        assert step == self.version.number + 1
        self.version = PolicyVersion(step, "")
        lengths = [length for group in groups for member in group.valid_members for length in member.lengths]
        self.time += 0.3 + sum(0.002 * n + 1e-6 * n * (n - 1) / 2 for n in lengths)


def found(*, reference):
    trainer = Clockwork()
    groups = [group(0, 100, 120), group(1, 400, 300), group(2, 1000, 900)]
    return TrainingCalibration(trainer, groups, now=lambda: trainer.time).costs(reference=reference)


def test_the_costs_of_a_trainer_are_found_again():
    costs = found(reference=False)
    assert costs["optimizer"] == pytest.approx(0.3)
    assert costs["forward_token"] + costs["backward_token"] == pytest.approx(0.002)
    assert costs["training_attention"] == pytest.approx(1e-6 / 0.002)
    assert "reference_token" not in costs


def test_the_reference_has_its_share_of_the_same_time():
    costs = found(reference=True)
    assert costs["reference_token"] == costs["forward_token"] == pytest.approx(costs["backward_token"] / 2)
    assert sum(costs[f"{name}_token"] for name in ("reference", "forward", "backward")) == pytest.approx(0.002)
