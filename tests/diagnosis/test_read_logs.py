"""Real logs, where a folder with them is given: what is in them is what their index says."""

import os
from pathlib import Path

import numpy as np
import pytest

from springtide.diagnosis.read import read

FOLDER = os.environ.get("SPRINGTIDE_RUN_LOGS", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="SPRINGTIDE_RUN_LOGS names no folder with run logs")


def frames(*parts):
    return read(Path(FOLDER, *parts))


def thirds(series):
    """Means of the first and of the last fifth."""
    part = max(len(series) // 5, 1)
    return np.mean(series.values[:part]), np.mean(series.values[-part:])


@pytest.mark.parametrize(
    ("name", "metric", "first", "last"),
    [
        ("exp1a_rho0.10_seed43", "reward/mean", 0.68, 0.003),
        ("exp1a_rho0.30_seed42", "train/entropy", 3.05, 0.0),
        ("exp1a_rho0.50_seed43", "completion/length", 136, 202),
        ("exp1a_rho1.50_seed43", "train/grad_norm", 0.24, 0.93),
        ("exp1a_rho2.00_seed43", "reward/mean", 0.76, 0.95),
    ],
)
def test_consoles_of_trl(name, metric, first, last):
    (frame,) = frames("trl-gsm8k", f"{name}.log")
    assert (frame.framework, frame.error, frame.unknown) == ("trl", None, ())
    assert (len(frame.series[metric]), frame.series[metric].window, frame.last_step) == (40, 5, 200)
    assert thirds(frame.series[metric]) == pytest.approx((first, last), rel=0.02, abs=0.006)


def test_old_console_with_strings():
    (frame,) = frames("trl-gsm8k", "gates_gate2_rho1.00_seed42.log")
    assert frame.series["completion/length"].key == "completion_length"
    assert (len(frame.series["reward/mean"]), frame.last_step) == (200, 200)
    assert "train/entropy" in frame.unavailable


def test_trainer_state():
    (frame,) = frames("trl-trainer-state")
    assert (frame.series["reward/mean"].window, frame.last_step, frame.checkpoints) == (5, 200, (100, 200))


def test_verl():
    (frame,) = frames("verl")
    assert frame.framework == "verl"
    assert len(frame.series["reward/mean"]) == 106
    assert thirds(frame.series["reward/mean"])[1] == pytest.approx(0.682, abs=0.03)
    assert frame.settings["updates_per_batch"] == 4.0
    assert "completion/truncated" in frame.unavailable


def test_runs_that_were_appended_and_summaries_of_last_values():
    found = frames("tinker", "metrics.jsonl")
    steps = [frame.series["reward/mean"].steps.tolist() for frame in found]
    assert steps == [[0], [0], [0], [0, 1], [0]]
    assert all(frame.last_only for frame in frames("tinker", "wandb-summary_fud6xuec.json"))
