"""W&B: the folder of a run in its several states of completeness, and exports."""

import json

import pytest

from diagnosis.samples.wandb_file import config, exit_code, history, wandb_file
from springtide.diagnosis.read import read


def rows(steps):
    return [
        {"train/reward": step / 100, "train/loss": 0.1, "train/rewards/f/mean": 0.5, "train/global_step": step * 10}
        for step in steps
    ]


def folder(tmp_path, *, records=None, summary=None, output=None, settings=None):
    path = tmp_path / "wandb" / "run-20300501_120000-abc"
    files = path / "files"
    files.mkdir(parents=True)
    if records is not None:
        (path / "run-abc.wandb").write_bytes(wandb_file(records))
    (files / "wandb-metadata.json").write_text("{}")
    if summary is not None:
        (files / "wandb-summary.json").write_text(json.dumps(summary))
    if output is not None:
        (files / "output.log").write_text(output)
    if settings is not None:
        (files / "config.yaml").write_text(settings)
    return path


@pytest.mark.parametrize("nested", [False, True])
def test_the_whole_history(tmp_path, nested):
    records = [config({"beta": 0.04, "_wandb": {"x": 1}})]
    records += [history(count, row, nested=nested) for count, row in enumerate(rows(range(1, 21)))]
    folder(tmp_path, records=records)
    (frame,) = read(tmp_path)
    assert frame.framework == "trl"
    assert list(frame.series["reward/mean"].steps) == [step * 10 for step in range(1, 21)]
    assert frame.series["reward/mean"].values[-1] == 0.2
    assert frame.series["reward/mean"].window == 10
    assert frame.settings == {"kl_coefficient": 0.04}
    assert not frame.last_only


def test_records_longer_than_a_block(tmp_path):
    table = {f"train/filler/{number}": number / 7 for number in range(2000)}
    folder(tmp_path, records=[history(step, row | table) for step, row in enumerate(rows(range(1, 6)))])
    (frame,) = read(tmp_path)
    assert len(frame.series["reward/mean"]) == 5


def test_a_damaged_block_costs_only_what_is_in_it(tmp_path):
    path = folder(tmp_path, records=[history(step, row) for step, row in enumerate(rows(range(1, 2001)))])
    file = path / "run-abc.wandb"
    data = bytearray(file.read_bytes())
    data[40_000:40_100] = b"\xff" * 100
    file.write_bytes(data)
    (frame,) = read(path)
    assert 1500 < len(frame.series["reward/mean"]) < 2000
    assert any("damaged" in note.text for note in frame.notes)


def test_a_torn_file(tmp_path):
    path = folder(tmp_path, records=[history(step, row) for step, row in enumerate(rows(range(1, 101)))])
    file = path / "run-abc.wandb"
    file.write_bytes(file.read_bytes()[:5000])
    (frame,) = read(file)
    assert 10 < len(frame.series["reward/mean"]) < 100


def test_values_that_are_not_numbers_of_json(tmp_path):
    records = [history(1, {"train/reward": "NaN", "train/loss": 1.0, "completions": {"_type": "table", "nrows": 3}})]
    (frame,) = read(folder(tmp_path, records=records))
    assert str(frame.series["reward/mean"].values[0]) == "nan"
    assert frame.unknown == ()


def test_the_console_where_there_is_no_history(tmp_path):
    rows = [{"reward": step / 10, "loss": 0.1, "rewards/f/mean": 0.1, "step": step} for step in (1, 2, 3)]
    shown = "".join(f"{row}\n" for row in rows)
    path = folder(tmp_path, records=[], summary={"train/reward": 0.3}, output=shown)
    (frame,) = read(path)
    assert len(frame.series["reward/mean"]) == 3
    assert not frame.last_only


def test_a_summary_alone_has_last_values_only(tmp_path):
    settings = "beta:\n    desc: null\n    value: 0.04\nwandb_version:\n    value: 1\n"
    summary = {
        "train/reward": 0.3,
        "train/rewards/f/mean": 0.1,
        "train/global_step": 70,
        "_step": 12,
        "_wandb": {"runtime": 9},
    }
    (frame,) = read(folder(tmp_path, summary=summary, settings=settings))
    assert frame.last_only
    assert list(frame.series["reward/mean"].steps) == [70]
    assert frame.settings["kl_coefficient"] == 0.04


def test_a_crash_is_seen_in_the_console_or_the_exit_code(tmp_path):
    records = [history(1, rows([1])[0]), exit_code(1)]
    trouble = "Traceback (most recent call last):\n  x\nValueError: nothing to train on\n"
    (frame,) = read(folder(tmp_path / "a", records=records, output=trouble))
    assert frame.error == "ValueError: nothing to train on"
    (frame,) = read(folder(tmp_path / "b", records=records))
    assert frame.error == "The process ended with exit code 1."


def test_the_history_beside_the_state_of_the_trainer_is_one_run(tmp_path):
    steps = range(1, 21)
    folder(tmp_path, records=[history(count, row) for count, row in enumerate(rows(steps))])
    state = [{"reward": step / 100, "rewards/f/mean": 0.5, "grad_norm": 1.0, "step": step * 10} for step in steps]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": state, "logging_steps": 10}))
    (frame,) = read(tmp_path)
    assert {"train/loss", "train/grad_norm"} <= frame.series.keys()


def test_exports_of_several_metrics_give_one_frame_per_run(tmp_path):
    for key in ("train/reward", "train/rewards/f/mean"):
        names = [f'"{run} - {key}{end}"' for run in ("one - a", "two") for end in ("", "__MIN", "__MAX")]
        lines = [",".join(['"Step"', *names])]
        lines += [f'"{step}","{step / 10}","","","{step / 20}","",""' for step in range(4)]
        lines += ['"9","0.9","0.9","0.9","","",""']
        (tmp_path / f"{key.replace('/', '_')}.csv").write_text("\n".join(lines))
    one, two = sorted(read(tmp_path), key=lambda frame: frame.source.name)
    assert [one.source.name.partition("#")[2], two.source.name.partition("#")[2]] == ["one - a", "two"]
    assert list(one.series["reward/mean"].steps) == [0, 1, 2, 3, 9]
    assert len(two.series["reward/component/f"]) == 4
    assert one.framework == "trl"
