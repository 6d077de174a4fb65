import json
import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.telemetry.jsonl import JsonlSink, cut_torn_line, read_metrics, series
from springtide.telemetry.record import MetricRecord
from springtide.telemetry.sink import SinkGroup
from springtide.telemetry.tensorboard import TensorBoardSink, tensorboard_sink


def record(step, **metrics):
    return MetricRecord(time=1000.0 + step, step=step, metrics={k.replace("_", "/", 1): v for k, v in metrics.items()})


def test_records_are_on_disk_before_the_sink_is_closed(tmp_path):
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write(record(1, train_loss=0.5))
    assert json.loads(path.read_text()) == {"time": 1001.0, "step": 1, "metrics": {"train/loss": 0.5}}
    sink.close()


def test_a_torn_last_line_is_not_read_and_is_cut_off_on_resume(tmp_path):
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write(record(1, train_loss=0.5))
    sink.close()
    with path.open("ab") as file:
        file.write(b'{"time":1002.0,"step":2,"metr')
    assert [read.step for read in read_metrics(path)] == [1]
    resumed = JsonlSink(path)
    resumed.write(record(2, train_loss=0.25))
    resumed.close()
    assert [read.metrics for read in read_metrics(path)] == [{"train/loss": 0.5}, {"train/loss": 0.25}]


@given(st.lists(st.binary(max_size=6000).filter(lambda line: b"\n" not in line), max_size=4), st.binary(max_size=9000))
def test_cutting_keeps_every_whole_line(tmp_path_factory, lines, tail):
    path = tmp_path_factory.mktemp("lines") / "metrics.jsonl"
    whole = b"".join(line + b"\n" for line in lines)
    torn = tail.replace(b"\n", b"")
    path.write_bytes(whole + torn)
    cut_torn_line(path)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b'{"time":1.0,"step":2,"metrics":{"a\xff":1.0}}', b"[1]", b'{"time":"x"}']
)
def test_a_line_that_is_no_record_is_skipped(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write(record(1, a_b=1.0))
    sink.close()
    with path.open("ab") as file:
        file.write(line + b"\n")
    later = JsonlSink(path)
    later.write(record(3, a_b=3.0))
    later.close()
    assert [read.step for read in read_metrics(path)] == [1, 3]


def test_of_repeated_steps_the_last_value_counts():
    records = [record(1, a_b=1.0), record(2, a_b=2.0), record(3, a_b=3.0), record(2, a_b=20.0), record(2, a_c=0.0)]
    assert series(records, "a/b") == [(1, 1.0), (2, 20.0), (3, 3.0)]


def test_a_value_that_is_no_number_survives_as_nan(tmp_path):
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write(record(1, a_b=math.nan, a_c=math.inf, a_d=1.0))
    sink.close()
    json.loads(path.read_text(), parse_constant=pytest.fail)
    (read,) = read_metrics(path)
    assert math.isnan(read.metrics["a/b"])
    assert math.isnan(read.metrics["a/c"])
    assert read.metrics["a/d"] == 1.0


def test_no_file_has_no_records(tmp_path):
    assert list(read_metrics(tmp_path / "metrics.jsonl")) == []


class Collected:
    name = "a list"

    def __init__(self):
        self.records = []

    def write(self, record):
        self.records.append(record)

    def close(self):
        pass


class Failing(Collected):
    name = "a full disk"

    def write(self, record):
        super().write(record)
        raise OSError("no space left")


def test_a_failing_sink_is_switched_off_with_one_warning_and_the_others_go_on(caplog):
    failing, working = Failing(), Collected()
    group = SinkGroup([failing, working])
    with caplog.at_level(logging.WARNING, "springtide.telemetry"):
        for step in range(3):
            group.write(record(step, a_b=1.0))
        group.close()
    assert [read.step for read in working.records] == [0, 1, 2]
    assert len(failing.records) == 1
    assert [entry.getMessage() for entry in caplog.records] == [
        "Metrics are no longer written to a full disk: no space left."
    ]


def test_tensorboard_reads_back_what_was_written(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    sink = TensorBoardSink(tmp_path)
    sink.write(record(1, reward_mean=0.25))
    sink.write(record(2, reward_mean=0.5))
    sink.close()
    accumulator = event_accumulator.EventAccumulator(str(tmp_path))
    accumulator.Reload()
    assert [(event.step, event.value) for event in accumulator.Scalars("reward/mean")] == [(1, 0.25), (2, 0.5)]


def test_without_tensorboard_the_sink_is_left_out_and_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("springtide.telemetry.tensorboard.find_spec", lambda name: None)
    with caplog.at_level(logging.INFO, "springtide.telemetry"):
        assert tensorboard_sink(tmp_path) is None
    assert "TensorBoard is not installed" in caplog.text


@pytest.mark.parametrize("where", ["find_spec", "TensorBoardSink"])
def test_a_tensorboard_that_is_broken_is_left_out_with_one_warning(tmp_path, monkeypatch, caplog, where):
    def broken(*arguments):
        raise TypeError("Descriptors cannot be created directly")

    monkeypatch.setattr("springtide.telemetry.tensorboard.find_spec", lambda name: object())
    monkeypatch.setattr(f"springtide.telemetry.tensorboard.{where}", broken)
    with caplog.at_level(logging.WARNING, "springtide.telemetry"):
        assert tensorboard_sink(tmp_path) is None
    (said,) = [entry.getMessage() for entry in caplog.records]
    assert "metrics go to metrics.jsonl only: Descriptors cannot be created directly" in said


def test_writing_for_tensorboard_needs_no_torch(tmp_path, python_without_torch):
    pytest.importorskip("tensorboard")
    python_without_torch(
        "from pathlib import Path\n"
        "from springtide.telemetry.record import MetricRecord\n"
        "from springtide.telemetry.tensorboard import TensorBoardSink\n"
        f"sink = TensorBoardSink(Path({str(tmp_path)!r}))\n"
        "sink.write(MetricRecord(time=1.0, step=1, metrics={'a/b': 1.0}))\n"
        "sink.close()\n"
    )
    assert any(tmp_path.iterdir())
