"""Public logs, where a folder with them is given: SPRINGTIDE_RUN_LOGS."""

import os
from pathlib import Path

import pytest

from springtide.diagnosis.diagnose import diagnose
from springtide.diagnosis.read import read
from springtide.diagnosis.verdict import Verdict

FOLDER = os.environ.get("SPRINGTIDE_RUN_LOGS")
pytestmark = pytest.mark.skipif(not FOLDER, reason="SPRINGTIDE_RUN_LOGS names no folder")


def diagnosed(name):
    (found,) = (diagnose(each) for each in read(Path(FOLDER) / name))
    return found


def there(found):
    return {each.id for each in found.symptoms if each.verdict in (Verdict.SICK, Verdict.WATCH)}


@pytest.mark.parametrize(
    ("name", "onset", "before"),
    [("exp1a_rho0.10_seed43", 110, 40), ("exp1a_rho0.30_seed42", 25, 25), ("exp1a_rho0.50_seed43", 45, 45),
     ("exp1a_rho1.00_seed42", 140, 140)],
)  # fmt: skip
def test_collapses_are_found_when_they_began(name, onset, before):
    """Steps: five per log point."""
    found = diagnosed(f"trl-gsm8k/{name}.log")
    assert found.verdict is Verdict.SICK
    collapse = next(each for each in found.symptoms if each.id == "S06")
    assert collapse.verdict is Verdict.SICK
    assert abs(collapse.onset_step - onset) <= 10
    assert found.earliest_mover.step <= before + 5


@pytest.mark.parametrize(
    "name", ["exp1a_rho1.00_seed44", "exp1a_rho1.50_seed44", "exp1a_rho0.70_seed42", "exp1a_rho2.00_seed43",
             "gates_gate2_rho1.00_seed42"],
)  # fmt: skip
def test_healthy_recovered_saturated_and_truncation_blind_runs_are_not_sick(name):
    assert diagnosed(f"trl-gsm8k/{name}.log").verdict in (Verdict.OK, Verdict.WATCH)


def test_a_slow_degradation_is_found():
    assert {"S07"} <= there(diagnosed("trl-gsm8k/exp1a_rho1.50_seed43.log"))


def test_a_flat_run_with_truncation_is_found():
    assert {"S02", "S35"} <= there(diagnosed("trl-trainer-state/trainer_state.json"))
