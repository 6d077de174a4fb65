"""TRL's logs: the trainer's state, and what it prints, in the old and the new manner."""

import json
from math import nan

import pytest

from springtide.core.errors import UsageError
from springtide.diagnosis.read import read

KEYS = ("loss", "grad_norm", "reward", "reward_std", "rewards/solved/mean", "rewards/solved/std")


def row(step, **more):
    values = dict.fromkeys(KEYS, step / 100)
    return values | {"completions/mean_length": 100.0, "learning_rate": 1e-6, "epoch": step / 1000} | more


def state(steps, *, logging_steps=5, **more):
    history = [row(step) | {"step": step} for step in steps]
    return {"log_history": history, "logging_steps": logging_steps, "global_step": max(steps), **more}


def write_state(path, steps, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(state(steps, **more), indent=2))
    return path


def test_trainer_state(tmp_path):
    path = write_state(tmp_path / "trainer_state.json", range(5, 105, 5), save_steps=50, max_steps=100)
    (frame,) = read(path)
    assert frame.framework == "trl"
    assert list(frame.series["reward/mean"].steps) == list(range(5, 105, 5))
    assert frame.series["reward/mean"].values[-1] == 1.0
    assert frame.series["reward/mean"].window == 5
    assert frame.series["train/grad_norm"].aggregate == "last"
    assert frame.series["reward/component/solved"].key == "rewards/solved/mean"
    assert frame.checkpoints == (50, 100)
    assert frame.unavailable["train/reference_kl"].turn_on == "beta > 0"
    assert frame.unknown == ()


def test_the_last_state_of_a_run_holds_the_others(tmp_path):
    for last in (20, 100):
        write_state(tmp_path / f"checkpoint-{last}" / "trainer_state.json", range(5, last + 5, 5))
    (frame,) = read(tmp_path)
    assert frame.last_step == 100
    assert frame.checkpoints == (20, 100)


def test_a_folder_of_runs_gives_one_frame_each(tmp_path):
    for name in ("run-2", "run-10"):
        write_state(tmp_path / name / "checkpoint-20" / "trainer_state.json", range(5, 25, 5))
    assert [frame.source.parts[-3] for frame in read(tmp_path)] == ["run-2", "run-10"]


def test_a_torn_state_is_read_as_far_as_it_goes(tmp_path):
    path = write_state(tmp_path / "trainer_state.json", range(5, 105, 5))
    path.write_text(path.read_text()[: len(path.read_text()) // 2])
    (frame,) = read(path)
    assert 3 < len(frame.series["reward/mean"]) < 20
    assert "torn" in frame.notes[0].text


def test_evaluations_and_the_summary_are_no_train_rows(tmp_path):
    history = [row(step) | {"step": step} for step in (1, 2)]
    history += [{"eval_reward": 0.5, "eval_runtime": 3.0, "epoch": 0.1, "step": 2}]
    history += [{"train_runtime": 10.0, "train_loss": 0.1, "epoch": 0.1, "step": 2}]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": history, "logging_steps": 1}))
    (frame,) = read(path)
    assert list(frame.series["eval/success"].values) == [0.5]
    assert list(frame.series["train/loss"].values) == [0.01, 0.02]


def bar(step, total=40):
    return f"\r{step * 100 // total}%|##   | {step}/{total} [00:17<12:05,  3.72s/it]"


def console(steps, *, text=repr):
    lines = ["Loading checkpoint shards: 100%|####| 4/4 [00:00<00:00, 177.89it/s]", "{'bos_token_id': None, 'n': 1}"]
    for step in steps:
        lines.append(bar(step) + bar(step) + "\n" + text(row(step)))
    return "\n".join(lines) + "\n"


def test_a_console_has_its_steps_from_the_progress_bar(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(console(range(5, 45, 5)))
    (frame,) = read(path)
    assert frame.framework == "trl"
    assert list(frame.series["reward/mean"].steps) == list(range(5, 45, 5))
    assert frame.series["reward/mean"].window == 5


def test_a_buffered_console_has_its_steps_counted(tmp_path):
    bars = "".join(bar(step) * (1 + (step % 5 == 0)) for step in range(41))
    path = tmp_path / "train.log"
    path.write_text(bars + "\n" + "\n".join(repr(row(step)) for step in range(5, 35, 5)))
    (frame,) = read(path)
    assert list(frame.series["reward/mean"].steps) == list(range(5, 35, 5))


def as_strings(values):
    return repr({name: f"{value:.4g}" for name, value in values.items()})


def as_numpy(values):
    return "{" + ", ".join(f"'{name}': np.float64({value!r})" for name, value in values.items()) + "}"


@pytest.mark.parametrize("text", [as_strings, as_numpy])
def test_numbers_in_any_notation(tmp_path, text):
    path = tmp_path / "train.log"
    path.write_text(console(range(5, 45, 5), text=text))
    (frame,) = read(path)
    assert frame.series["reward/mean"].values == pytest.approx([step / 100 for step in range(5, 45, 5)])


def test_not_a_number_is_a_value(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(console([5, 10]) + bar(15) + "\n" + repr(row(15, loss=nan, grad_norm=float("inf"))) + "\n")
    (frame,) = read(path)
    assert list(frame.series["train/loss"].steps) == [5, 10, 15]
    assert str(frame.series["train/loss"].values[-1]) == "nan"


def test_what_a_run_died_of_is_its_first_error(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(
        console([5, 10]) + "Traceback (most recent call last):\n"
        '  File "train.py", line 3, in <module>\n    run()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
        "Traceback (most recent call last):\nRuntimeError: worker is gone\n"
    )
    (frame,) = read(path)
    assert frame.error == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"


def test_an_error_that_the_run_survived_is_a_note(tmp_path):
    path = tmp_path / "train.log"
    trouble = "Traceback (most recent call last):\n  x\nTimeoutError: no answer\n"
    path.write_text(console([5, 10]) + trouble + console([15, 20]))
    (frame,) = read(path)
    assert frame.error is None
    assert any("TimeoutError: no answer" in note.text for note in frame.notes)


def test_a_console_without_a_row_says_why(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("loading\nTraceback (most recent call last):\n  x\nOSError: no such model\n")
    (frame,) = read(path)
    assert (frame.rows, frame.series, frame.error) == (0, {}, "OSError: no such model")


def test_old_names(tmp_path):
    path = tmp_path / "train.log"
    old = {"loss": 0.1, "reward": 0.2, "rewards/solved": 0.3, "completion_length": 256.0, "kl": 0.01}
    path.write_text("".join(f"{bar(step)}\n{old | {'reward': step / 10}}\n" for step in (1, 2, 3)))
    (frame,) = read(path)
    assert list(frame.series["reward/component/solved"].values) == [0.3] * 3
    assert frame.series["completion/length"].key == "completion_length"
    assert "train/entropy" in frame.unavailable


def test_console_and_state_of_one_run_are_one_frame(tmp_path):
    write_state(tmp_path / "trainer_state.json", range(5, 45, 5))
    (tmp_path / "train.log").write_text(
        console(range(5, 45, 5), text=as_strings) + "Traceback (most recent call last):\nKeyError: 3\n"
    )
    (frame,) = read(tmp_path)
    assert frame.error == "KeyError: 3"
    assert frame.last_step == 40


def test_nothing_there(tmp_path):
    with pytest.raises(UsageError, match="nothing at"):
        read(tmp_path / "missing")
    assert read(tmp_path) == []


def test_a_run_that_died_before_its_first_row_is_known_by_what_it_printed(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(
        "".join(bar(step, 100) for step in range(15)) + "\nTraceback (most recent call last):\n"
        '  File "/lib/python3.11/site-packages/trl/trainer/grpo_trainer.py", line 3, in step\n'
        "torch.OutOfMemoryError: CUDA out of memory\n"
    )
    (frame,) = read(path)
    assert frame.framework == "trl"
    assert "14 of 100" in frame.notes[-1].text


def test_the_step_that_a_row_says_itself(tmp_path):
    for name, more in (("a", {"step": 7}), ("b", {"global_step": 7}), ("c", {"global_step/max_steps": "7/9"})):
        path = tmp_path / f"{name}.log"
        path.write_text(f"{row(1) | more}\n")
        (frame,) = read(path)
        assert list(frame.series["reward/mean"].steps) == [7]
