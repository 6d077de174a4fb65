"""Whatever is in a file, reading it ends, raises nothing, and what comes out keeps the promises of a frame."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnosis.samples.wandb_file import config, history, wandb_file
from springtide.diagnosis.metric import metrics
from springtide.diagnosis.read import read

STEPS = range(1, 13)


def trl(step):
    return {"loss": 0.1 * step, "reward": step / 12, "rewards/f/mean": 0.5, "entropy": 0.3, "epoch": step / 100}


def state():
    history = [{**trl(step), "step": step * 5} for step in STEPS]
    return json.dumps({"log_history": history, "logging_steps": 5, "save_steps": 20, "global_step": 60}).encode()


def dicts():
    lines = [f" {step}%|#| {step}/12 [00:09<10:50, 3.3s/it]{trl(step)}\n" for step in STEPS]
    return "".join([*lines, "Traceback (most recent call last):\n  x\nValueError: no\n"]).encode()


def verl():
    row = "critic/score/mean:0.5 - actor/entropy:0.3 - actor/lr(1e-4):0.01 - val-core/a/acc/mean@1:0.2"
    return "".join(f"\x1b[36m(TaskRunner pid=1)\x1b[0m step:{step} - {row}\n" for step in STEPS).encode()


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def tinker():
    return lines([{"step": step, "env/all/reward/total": 0.5, "optim/entropy": 0.3} for step in STEPS])


def own():
    return lines([{"time": 1e9, "step": step, "metrics": {"reward/mean": 0.5, "train/loss": None}} for step in STEPS])


def table():
    return ("step,reward,entropy\n" + "".join(f"{step},0.5,0.3\n" for step in STEPS)).encode()


def export():
    header = '"Step","a - train/reward","a - train/reward__MIN","b - train/reward","b - train/reward__MAX"\n'
    return (header + "".join(f"{step},0.5,0.5,0.4,0.4\n" for step in STEPS)).encode()


def records():
    rows = [{f"train/{key}": value for key, value in trl(step).items()} for step in STEPS]
    return wandb_file([config({"beta": 0.1}), *(history(step, row) for step, row in enumerate(rows))])


def summary():
    return json.dumps({"train/reward": 0.5, "_step": 3, "nested": {"a": 1}}).encode()


SAMPLES = {
    "trainer_state.json": state(),
    "trl.log": dicts(),
    "verl.log": verl(),
    "metrics.jsonl": tinker(),
    "own.jsonl": own(),
    "history.json": json.dumps([{"step": step, "reward": 0.5} for step in STEPS]).encode(),
    "table.csv": table(),
    "export.csv": export(),
    "run-a.wandb": records(),
    "wandb-summary.json": summary(),
}

ODD = st.sampled_from(
    [
        b"nan",
        b"-inf",
        b"1e999",
        b"-1e308",
        b"9" * 400,
        b"null",
        b"'",
        b'"',
        b"{",
        b"}" * 50,
        b"[" * 2000,
        b"\0",
        b"\xff\xfe",
        b"\r",
        b"\n\n",
        b"step:999999999999999999999 - a:1",
        b"12/12 [",
        b"np.float64(",
        b"Traceback (most recent call last)\nKeyError: 1\n",
        b'{"step": -5, "reward": 1e400}\n',
        "é\u2028漢".encode(),
    ]
)


@st.composite
def damaged(draw, data):
    """The sample after some accidents: cut, with something put in, with lines or bytes in another order."""
    for _ in range(draw(st.integers(1, 3))):
        accident = draw(st.sampled_from(("cut", "odd", "random", "shuffle", "twice", "flip")))
        place = draw(st.integers(0, len(data)))
        if accident == "cut":
            data = data[:place]
        elif accident == "odd":
            data = data[:place] + draw(ODD) + data[place:]
        elif accident == "random":
            data = data[:place] + draw(st.binary(max_size=40)) + data[place + draw(st.integers(0, 40)) :]
        elif accident == "shuffle":
            data = b"\n".join(draw(st.permutations(data.split(b"\n")[:40])))
        elif accident == "twice":
            data = data + data[place:]
        elif data:
            at = min(place, len(data) - 1)
            data = data[:at] + bytes((data[at] ^ draw(st.integers(1, 255)),)) + data[at + 1 :]
    return data


def check(frames):
    for frame in frames:
        assert frame.series.keys() & frame.unavailable.keys() == set()
        for name, series in frame.series.items():
            assert len(series.steps) == len(series.values) > 0
            assert (np.diff(series.steps) > 0).all()
            kind = metrics().get(name)
            finite = series.values[np.isfinite(series.values)]
            if kind is not None and kind.low is not None:
                assert (finite >= kind.low).all()
            if kind is not None and kind.high is not None:
                assert (finite <= kind.high).all()


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_are_read(tmp_path, name):
    (tmp_path / name).write_bytes(SAMPLES[name])
    frames = read(tmp_path / name)
    assert frames
    assert all("reward/mean" in frame.series for frame in frames)
    check(frames)


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_survived(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data.draw(damaged(SAMPLES[name])))
    check(read(path))
    check(read(tmp_path))


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=2000))
def test_garbage_is_survived(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    check(read(path))


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{}", b"[]", b"null", b"0", b"{" * 200_000, b"," * 200_000, b"a" * 300_000]
)
def test_what_is_nothing_gives_no_series(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    assert all(not frame.series for frame in read(path))


def test_a_file_that_may_not_be_read_says_so(tmp_path, monkeypatch):
    from springtide.diagnosis.readers import trainer_state

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "trainer_state.json"
    path.write_bytes(SAMPLES[path.name])
    monkeypatch.setattr(trainer_state, "read", refuse)
    (frame,) = read(path)
    assert "Permission denied" in frame.notes[0].text


def test_links_that_lead_in_circles_are_not_followed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "again").symlink_to(tmp_path)
    (tmp_path / "run" / "trainer_state.json").write_bytes(SAMPLES["trainer_state.json"])
    assert len(read(tmp_path)) == 1


def test_thousands_of_restarts_are_no_runs(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(lines([{"step": number % 2, "reward": number / 7, "loss": 0.1} for number in range(5000)]))
    (frame,) = read(path)
    assert len(frame.series["reward/mean"]) == 5000
    assert any("say nothing" in note.text for note in frame.notes)
