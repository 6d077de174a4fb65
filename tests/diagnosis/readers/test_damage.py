"""Whatever a file holds, a reader gives what it can, and raises nothing."""

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.samples import printed as sample
from diagnosis.samples.stores import SGLANG, art, event_file, mlflow_database, mlflow_run, trackio, vllm_scrape
from springtide.diagnosis.gather import gather
from springtide.diagnosis.readers import art as art_reader
from springtide.diagnosis.readers import mlflow, printed, prometheus, tensorboard
from springtide.diagnosis.readers import trackio as trackio_reader
from springtide.diagnosis.readers.event import Damage, decode, payloads

VALUES = [(step, 1e9 + step, {"train/reward": step / 7, "train/kl": 0.1}) for step in range(12)]


def _trackio(path: Path) -> Path:
    return trackio(path, {"one": [(step, {"reward": step, "kl": "Infinity"}) for step in range(12)]})


def _prometheus(path: Path) -> Path:
    path.write_text("".join(vllm_scrape(each, preemptions=each) for each in range(4)) + SGLANG)
    return path


WHOLE = {
    "events.out.tfevents.1": (tensorboard, lambda path: event_file(path.parent / "own", VALUES)),
    "project.db": (trackio_reader, _trackio),
    "mlflow.db": (mlflow, lambda path: mlflow_database(path, VALUES)),
    "metrics.prom": (prometheus, _prometheus),
    "history.jsonl": (art_reader, lambda path: art(path, 6)),
    "openrlhf.log": (printed, lambda path: sample.openrlhf(path, 8)),
    "openrlhf_bars.log": (printed, lambda path: sample.openrlhf_bars(path, 8)),
    "slime.log": (printed, lambda path: sample.slime(path, 8)),
    "roll.log": (printed, lambda path: sample.roll(path, 8)),
    "skyrl.log": (printed, lambda path: sample.skyrl(path, 8)),
    "nemo_rl.log": (printed, lambda path: sample.nemo_rl(path, 8)),
    "areal.log": (printed, lambda path: sample.areal(path, 8)),
    "prime_rl.log": (printed, lambda path: sample.prime_rl(path.parent, 8)[0]),
}


@cache
def whole(name: str) -> bytes:
    with TemporaryDirectory() as folder:
        (Path(folder) / "own").mkdir()
        return WHOLE[name][1](Path(folder) / name).read_bytes()


def broken(data: bytes, seed: int) -> bytes:
    """Cut, shuffled, repeated, overwritten: what disks, crashes and people do."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        if not data:
            break
        start = chance.randrange(len(data))
        end = min(start + chance.choice((1, 3, 30, 500, 5000)), len(data))
        piece = data[start:end]
        data = chance.choice(
            (
                lambda d, s, e, p: d[:s],
                lambda d, s, e, p: d[e:],
                lambda d, s, e, p: d[:s] + d[e:],
                lambda d, s, e, p: d[:s] + p + p + d[s:],
                lambda d, s, e, p: d[e:] + p + d[:s],
                lambda d, s, e, p: d[:s] + chance.randbytes(e - s) + d[e:],
                lambda d, s, e, p: d[:s] + b"nan" + d[e:],
                lambda d, s, e, p: d[:s] + b"9" * 400 + d[e:],
                lambda d, s, e, p: d.replace(b"\n", b"\r", 50),
                lambda d, s, e, p: d[:s] + b'"{[' * 300 + d[e:],
            )
        )(data, start, end, piece)
    return data


@pytest.mark.parametrize("name", WHOLE)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_damaged_files(name, tmp_path_factory, seed):
    path = tmp_path_factory.mktemp("damaged") / name
    path.write_bytes(broken(whole(name), seed))
    reader = WHOLE[name][0]
    reader.sniff(path)
    for log in gather(reader.read(path)):
        assert all(isinstance(value, float) for row in log.rows for value in row.values.values())
        assert all(row.step is None or abs(row.step) < 2**63 for row in log.rows)


@pytest.mark.parametrize("name", WHOLE)
@given(data=st.binary(max_size=400))
@settings(max_examples=40)
def test_garbage(name, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("garbage") / name
    path.write_bytes(data)
    WHOLE[name][0].sniff(path)
    WHOLE[name][0].read(path)


@given(data=st.binary(max_size=300))
def test_any_payload_is_an_event(data):
    decode(data)
    list(payloads(data, Damage()))


@given(text=st.text(max_size=200), key=st.sampled_from(["reward", "a/b/c", "kl"]))
@settings(max_examples=60)
def test_mlflow_metrics_of_any_text(text, key, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    store = mlflow_run(folder, VALUES)
    file = store / "1" / "0a1b2c" / "metrics" / key
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    (store / "1" / "0a1b2c" / "params" / "lr").write_text(text)
    (log,) = mlflow.read(store)
    assert len([row for row in log.rows if "train/reward" in row.values]) == len(VALUES)
