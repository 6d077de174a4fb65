"""What trackers keep, read without them: TensorBoard's event files, MLflow, trackio, ART, and engines' metrics."""

import json
import sqlite3
import struct
from contextlib import closing
from math import inf, isnan, nan

import pytest

from diagnosis.samples.run import steps
from diagnosis.samples.stores import (
    SGLANG,
    START,
    art,
    event_file,
    mlflow_database,
    mlflow_run,
    trackio,
    vllm_scrape,
)
from springtide.diagnosis.gather import gather
from springtide.diagnosis.readers import art as art_reader
from springtide.diagnosis.readers import mlflow as mlflow_reader
from springtide.diagnosis.readers import prometheus, tensorboard
from springtide.diagnosis.readers import trackio as trackio_reader
from springtide.diagnosis.readers.event import masked_crc
from springtide.diagnosis.sniff import reader_of


def rows(count=20, first=0, start=START):
    return [
        (step, start + 10 * step, {"train/reward": m["reward"], "train/kl": m["kl"]})
        for step, m in enumerate(steps(count), start=first)
    ]


def series(log, key):
    return [(row.step, row.values[key]) for row in log.rows if key in row.values]


# -- TensorBoard


@pytest.mark.parametrize("tensors", [False, True])
def test_event_files_of_tensorboards_own_writer(tmp_path, tensors):
    path = event_file(tmp_path, rows(), tensors=tensors)
    assert tensorboard.sniff(path)
    (log,) = tensorboard.read(path)
    assert log.notes == ()
    assert [row.step for row in log.rows] == list(range(20))
    assert [row.time for row in log.rows] == [START + 10 * step for step in range(20)]
    expected = [m["reward"] for m in steps(20)]
    assert [value for _, value in series(log, "train/reward")] == pytest.approx(expected, rel=1e-6)


def test_what_is_no_scalar_is_stepped_over(tmp_path):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    writer = EventFileWriter(str(tmp_path))
    arguments = json.dumps({"learning_rate": 1e-6, "beta": 0.0, "report_to": ["tensorboard"]}).encode()
    for value in (
        {"tag": "hist", "histo": HistogramProto(min=0, max=1, bucket=[1.0] * 1000)},
        {"tag": "several", "tensor": make_tensor_proto([1.0, 2.0])},
        {"tag": "args/text_summary", "tensor": make_tensor_proto([arguments], dtype="string")},
        {"tag": "count", "tensor": make_tensor_proto(-7, dtype="int64")},
        {"tag": "loss", "simple_value": nan},
    ):
        writer.add_event(Event(wall_time=START, step=3, summary=Summary(value=[Summary.Value(**value)])))
    writer.close()
    (log,) = tensorboard.read(next(tmp_path.iterdir()))
    (row,) = log.rows
    assert row.values.keys() == {"count", "loss"}
    assert row.values["count"] == -7
    assert isnan(row.values["loss"])
    assert log.settings["learning_rate"] == 1e-6


def test_files_of_a_run_that_was_started_again_are_one_log(tmp_path):
    event_file(tmp_path, rows(20, first=10, start=START + 5000), suffix=".a-second")
    event_file(tmp_path, rows(20), suffix=".b-first")
    logs = gather([log for path in sorted(tmp_path.iterdir()) for log in tensorboard.read(path)])
    assert len(logs) == 1
    assert [row.step for row in logs[0].rows] == [*range(20), *range(10, 30)]
    assert logs[0].source == tmp_path


def test_a_torn_event_file_is_read_up_to_there(tmp_path):
    path = event_file(tmp_path, rows())
    path.write_bytes(path.read_bytes()[:-20])
    (log,) = tensorboard.read(path)
    assert [row.step for row in log.rows] == list(range(20))
    assert len(series(log, "train/kl")) == 19
    assert "ends in the middle" in log.notes[0].text


def test_after_damage_the_next_record_is_found(tmp_path):
    path = event_file(tmp_path, rows())
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 30] = b"\xff" * 30
    path.write_bytes(bytes(data))
    (log,) = tensorboard.read(path)
    assert log.rows[-1].step == 19
    assert len(log.rows) >= 18
    assert "damaged records" in log.notes[0].text


def test_a_value_that_was_altered_does_not_count(tmp_path):
    path = event_file(tmp_path, rows())
    kept = struct.pack("<f", next(steps(20))["reward"])
    path.write_bytes(path.read_bytes().replace(kept, struct.pack("<f", 1e30)))
    (log,) = tensorboard.read(path)
    assert all(value < 10 for _, value in series(log, "train/reward"))
    assert len(series(log, "train/reward")) == 19


def test_the_checksum_is_that_of_castagnoli():
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    for data in (b"", b"123456789", bytes(range(256))):
        assert masked_crc(data) == masked_crc32c(data)


# -- MLflow


def test_mlflow_folder(tmp_path):
    written = [
        (step, time, {**values, "val-core/gsm8k/acc/mean@4": 0.5, "grad": inf if step == 3 else 1.0})
        for step, time, values in rows()
    ]
    store = mlflow_run(tmp_path, written, status=4)
    for path in (store, store / "1", store / "1" / "0a1b2c"):
        assert mlflow_reader.sniff(path)
    (log,) = mlflow_reader.read(store)
    assert [row.step for row in log.rows] == list(range(20))
    assert series(log, "train/reward") == [(step, values["train/reward"]) for step, _, values in written]
    assert series(log, "val-core/gsm8k/acc/mean@4")[0] == (0, 0.5)
    assert series(log, "grad")[3] == (3, inf)
    assert log.settings == {"actor.optim.lr": 1e-6, "adv_estimator": "grpo"}
    assert log.error == "MLflow has the run as failed"


def test_a_deleted_run_is_none(tmp_path):
    store = mlflow_run(tmp_path, rows())
    meta = store / "1" / "0a1b2c" / "meta.yaml"
    meta.write_text(meta.read_text().replace("active", "deleted"))
    assert not mlflow_reader.sniff(store)


def test_a_step_that_was_run_twice_comes_twice(tmp_path):
    store = mlflow_run(tmp_path, [*rows(20), *rows(20, first=10, start=START + 5000)])
    (log,) = mlflow_reader.read(store)
    assert [row.step for row in log.rows] == [*range(20), *range(10, 30)]


def test_old_lines_without_a_step_and_broken_ones(tmp_path):
    store = mlflow_run(tmp_path, [])
    (store / "1" / "0a1b2c" / "metrics" / "reward").write_text("1000 0.5\n1001 0.6\n\nhalf a li\n1002 x\n1003")
    (log,) = mlflow_reader.read(store)
    assert series(log, "reward") == [(0, 0.5), (1, 0.6)]
    assert log.notes[0].text == "metric reward: 3 lines are not values and were left out"


def test_mlflow_database(tmp_path):
    written = [(0, START, {"reward": 0.5, "kl": nan}), (1, START + 10, {"reward": inf})]
    path = mlflow_database(tmp_path / "mlflow.db", written)
    assert reader_of(path) is mlflow_reader
    (log,) = mlflow_reader.read(path)
    assert series(log, "reward") == [(0, 0.5), (1, inf)]
    assert isnan(log.rows[0].values["kl"])
    assert log.settings["lr"] == 1e-6


# -- trackio


def test_trackio(tmp_path):
    path = trackio(
        tmp_path / "project.db",
        {
            "one": [
                (step, {"reward": step / 10, "kl": "NaN" if step == 2 else 0.1, "note": "text"}) for step in range(5)
            ],
            "two": [(0, {"reward": 1.0})],
        },
    )
    before = sorted(each.name for each in tmp_path.iterdir())
    assert reader_of(path) is trackio_reader
    one, two = trackio_reader.read(path)
    assert series(one, "reward") == [(step, step / 10) for step in range(5)]
    assert isnan(one.rows[2].values["kl"])
    assert "note" not in one.rows[0].values
    assert one.settings["run_name"] == "one"
    assert one.settings["algo.lr"] == 1e-6
    assert one.rows[1].time - one.rows[0].time == 1
    assert len(two.rows) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == before


def test_a_database_that_is_being_written_is_read_and_left_alone(tmp_path):
    path = trackio(tmp_path / "project.db", {"one": [(0, {"reward": 0.5})]})
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        record = ("2026-08-21T10:00:01", "one", 1, '{"reward": 0.75}')
        writer.execute("INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", record)
        writer.commit()
        kept = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
        (log,) = trackio_reader.read(path)
        assert series(log, "reward") == [(0, 0.5), (1, 0.75)]
        assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == kept


def test_a_torn_database_says_so(tmp_path):
    path = trackio(
        tmp_path / "project.db", {"one": [(step, {"reward": 0.5, "text": "x" * 500}) for step in range(200)]}
    )
    path.write_bytes(path.read_bytes()[:40_000])
    logs = trackio_reader.read(path)
    assert all("damaged" in log.notes[0].text for log in logs)


# -- ART


def test_art_history(tmp_path):
    path = art(tmp_path / "history.jsonl")
    assert reader_of(path) is art_reader
    (log,) = art_reader.read(path)
    trained = [row for row in log.rows if row.kind == "train"]
    assert [row.step for row in trained] == list(range(30))
    assert {"train/reward", "loss/entropy", "data/step_num_groups_trainable"} <= trained[0].values.keys()
    assert [row.step for row in log.rows if row.kind == "eval"] == [0, 10, 20]


# -- Prometheus


def test_scrapes_of_an_engine(tmp_path):
    path = tmp_path / "metrics.prom"
    path.write_text("".join(vllm_scrape(index, preemptions=3 * index) for index in range(6)))
    assert reader_of(path) is prometheus
    (log,) = prometheus.read(path)
    assert log.framework == "vllm"
    assert len(log.rows) == 6
    last = log.rows[-1]
    assert last.values["vllm:kv_cache_usage_perc"] == 0.5
    assert last.values["vllm:num_requests_running"] == 8
    assert last.values["vllm:num_requests_waiting"] == 10
    assert last.values["vllm:num_preemptions_total"] == 30
    assert last.values["vllm:hit_rate_between"] == 0.6
    assert last.values["vllm:generation_tokens_per_s"] == 200
    assert last.values["vllm:time_to_first_token_seconds/mean"] == 0.5
    assert "vllm:hit_rate_between" not in log.rows[0].values
    assert last.time - log.rows[0].time == 50


def test_an_engine_that_was_started_anew_does_not_count_backwards(tmp_path):
    path = tmp_path / "metrics.prom"
    scrapes = [
        vllm_scrape(0, preemptions=5),
        vllm_scrape(1, preemptions=9),
        vllm_scrape(2, preemptions=1, restarted=True),
    ]
    path.write_text("".join(scrapes))
    (log,) = prometheus.read(path)
    assert [row.values["vllm:num_preemptions_total"] for row in log.rows] == [10, 18, 20]
    assert log.rows[-1].values["vllm:hit_rate_between"] == 0.6


def test_a_folder_of_scrapes_is_one_log(tmp_path):
    for index in range(3):
        (tmp_path / f"scrape-{index}.txt").write_text(vllm_scrape(index, preemptions=index))
    assert reader_of(tmp_path) is prometheus
    (log,) = prometheus.read(tmp_path)
    assert [row.values["vllm:num_preemptions_total"] for row in log.rows] == [0, 2, 4]
    assert not log.last_only


def test_one_scrape_has_no_rates(tmp_path):
    path = tmp_path / "metrics.txt"
    path.write_text(SGLANG)
    (log,) = prometheus.read(path)
    assert log.framework == "sglang"
    assert log.last_only
    assert log.rows[0].values["sglang:token_usage"] == pytest.approx(0.3)
