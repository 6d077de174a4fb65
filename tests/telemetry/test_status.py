import json
import logging

import pytest

from springtide.telemetry.record import MetricRecord
from springtide.telemetry.status import Status, StatusBoard, Wait, completed, read_status


class FakeClock:
    seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def board(tmp_path, clock):
    return StatusBoard(tmp_path / "status.json", run="r", steps=10, now=clock)


def test_updates_are_seen_at_once_and_written_at_most_once_per_interval(board, clock, tmp_path):
    path = tmp_path / "status.json"
    board.update(reward=0.1)
    board.update(reward=0.2)
    assert board.status.reward == 0.2
    assert read_status(path).reward == 0.1
    clock.seconds += 1.0
    board.update(entropy=1.5)
    assert (read_status(path).reward, read_status(path).entropy) == (0.2, 1.5)


def test_a_change_of_phase_is_written_at_once(board, tmp_path):
    board.update(phase="warm start")
    board.update(phase="training")
    assert read_status(tmp_path / "status.json").phase == "training"


def test_closing_writes_the_last_state_without_waits(board, tmp_path):
    board.update(waits=(Wait("command", "episode 1.0.1", 3.0),))
    board.update(step=4)
    board.close(phase="interrupted")
    status = read_status(tmp_path / "status.json")
    assert (status.step, status.waits, status.phase, status.finished) == (4, (), "interrupted", True)


def test_rate_and_eta_come_from_the_steps(board, clock):
    assert board.status.eta is None
    for step in range(3):
        board.update(step=step)
        clock.seconds += 4.0
    assert board.status.rate == pytest.approx(0.25)
    assert board.status.eta == pytest.approx(8 / 0.25)


def test_a_resumed_run_counts_its_rate_from_where_it_starts(board, clock):
    board.update(step=6)
    clock.seconds += 10.0
    board.update(step=8)
    assert board.status.rate == pytest.approx(0.2)
    assert board.status.eta == pytest.approx(10.0)


def test_a_view_sees_every_update_and_a_failing_one_is_dropped_once(board, caplog):
    seen = []

    def broken(status):
        raise RuntimeError("terminal gone")

    board.subscribe(seen.append)
    with caplog.at_level(logging.WARNING):
        board.subscribe(broken)
        board.update(step=1)
        board.update(step=2)
    assert [status.step for status in seen][-2:] == [1, 2]
    assert [entry.getMessage() for entry in caplog.records] == ["The live view is switched off: terminal gone."]


def test_a_status_that_cannot_be_written_does_not_stop_the_run(tmp_path, clock, caplog):
    board = StatusBoard(tmp_path / "gone" / "status.json", run="r", now=clock)
    with caplog.at_level(logging.WARNING):
        board.update(phase="training")
        board.update(phase="evaluation")
    assert board.status.phase == "evaluation"
    assert len(caplog.records) == 1


def test_a_status_is_plain_json(board, tmp_path):
    board.update(phase="training", waits=(Wait("publication", "engine", 2.5),))
    document = json.loads((tmp_path / "status.json").read_text())
    assert document["waits"] == [{"name": "publication", "owner": "engine", "age": 2.5}]


def test_no_or_damaged_status_is_none(tmp_path):
    assert read_status(tmp_path / "status.json") is None
    for content in (b'{"phase": "trai', b'{"phase": "\xff"}', b"\xff"):
        (tmp_path / "status.json").write_bytes(content)
        assert read_status(tmp_path / "status.json") is None


def test_what_a_new_process_does_not_know_comes_from_the_metrics():
    records = [
        MetricRecord(time=1.0, step=4, metrics={"reward/mean": 0.25, "train/entropy": 1.5}),
        MetricRecord(time=2.0, step=5, metrics={"reward/mean": 0.5}),
        MetricRecord(time=3.0, step=4, metrics={"eval/success": 0.75}),
    ]
    filled = completed(Status(step=5, entropy=0.125), records)
    assert (filled.reward, filled.success, filled.success_step) == (0.5, 0.75, 4)
    assert filled.entropy == 0.125, "what the status says goes first"
    assert filled.goodput is None
