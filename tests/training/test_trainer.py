import errno
import os

import msgspec
import pytest
import torch
from safetensors import SafetensorError

from springtide.core.errors import RunDamagedError, StorageFullError
from springtide.policy.config import TinyModelConfig
from springtide.policy.digest import digest_tensors, named_weights
from springtide.policy.model import build_tiny
from springtide.ports.trainer import StepWork
from springtide.training import manifest, state
from springtide.training.checkpoint import MANIFEST, CheckpointStore
from springtide.training.config import CheckpointConfig
from springtide.training.trainer import TorchTrainer
from training.builders import make_trainer, random_groups, tiny_model, training_config


def timeless(report):
    """Without what it took."""
    return msgspec.structs.replace(report, work=StepWork())


@pytest.mark.parametrize("kl", [0.0, 0.02])
@pytest.mark.parametrize("mini_batches", [1, 3])
def test_a_loaded_trainer_goes_on_bit_for_bit(tmp_path, kl, mini_batches):
    config = training_config(
        kl_coefficient=kl,
        mini_batches=mini_batches,
        optimizer={"schedule": "cosine", "warmup_steps": 2, "weight_decay": 0.1},
    )
    steps = [random_groups(seed) for seed in range(5)]
    uninterrupted = make_trainer(config)
    for i, groups in enumerate(steps[:3], start=1):
        uninterrupted.step(step=i, groups=groups)
    uninterrupted.save(tmp_path)
    resumed = make_trainer(config, seed=99)
    resumed.load(tmp_path)
    assert resumed.version == uninterrupted.version
    for i, groups in enumerate(steps[3:], start=4):
        expected = uninterrupted.step(step=i, groups=groups)
        assert timeless(resumed.step(step=i, groups=groups)) == timeless(expected)


@pytest.mark.parametrize("name", [state.MODEL, state.OPTIMIZER, state.RANDOM, state.INDEX])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_file_is_named(tmp_path, name, harm):
    trainer = make_trainer()
    trainer.step(step=1, groups=random_groups(0))
    store = CheckpointStore(tmp_path, CheckpointConfig())
    store.save(1, trainer.save, {})
    path = store.at(1).path / name
    content = bytearray(path.read_bytes())
    if harm == "remove":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    with pytest.raises(RunDamagedError, match=name):
        store.at(1)
    if harm != "flip":
        with pytest.raises(RunDamagedError, match=name):
            make_trainer().load(path.parent)


def test_every_file_is_hashed_once_when_it_is_saved_and_once_when_it_is_loaded(tmp_path, monkeypatch):
    hashed = []
    describe = manifest._describe

    def count(path):
        hashed.append(path.name)
        return describe(path)

    monkeypatch.setattr(manifest, "_describe", count)
    files = sorted([state.MODEL, state.OPTIMIZER, state.RANDOM, state.INDEX])
    store = CheckpointStore(tmp_path, CheckpointConfig())
    path = store.save(0, make_trainer().save, {})
    assert sorted(hashed) == files
    assert sorted(file.name for file in path.iterdir()) == sorted([*files, MANIFEST])
    hashed.clear()
    make_trainer().load(store.at(0).path)
    assert sorted(hashed) == files


def test_what_was_loaded_no_longer_needs_its_files(tmp_path):
    trainer = make_trainer()
    trainer.step(step=1, groups=random_groups(0))
    trainer.save(tmp_path)
    resumed = make_trainer(seed=99)
    resumed.load(tmp_path)
    for path in tmp_path.iterdir():
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
    one, other = (each.step(step=2, groups=random_groups(1)) for each in (resumed, trainer))
    assert timeless(one) == timeless(other)


def test_another_models_checkpoint_is_refused(tmp_path):
    make_trainer().save(tmp_path)
    other = build_tiny(TinyModelConfig(layers=1, hidden=32, heads=2, kv_heads=1), vocabulary_size=64, seed=0)
    with pytest.raises(RunDamagedError, match="another model"):
        TorchTrainer(other, config=training_config(), total_steps=1).load(tmp_path)


def test_published_weights_prove_themselves_and_do_not_change():
    trainer = make_trainer()
    published = trainer.publish()
    assert digest_tensors(published.items()) == trainer.version.digest
    assert digest_tensors(trainer.model.state_dict().items()) == trainer.version.digest
    before = trainer.version
    trainer.step(step=1, groups=random_groups(0))
    assert trainer.version.digest != before.digest
    assert digest_tensors(published.items()) == before.digest


def test_a_step_is_promised_bit_for_bit_on_the_cpu():
    assert make_trainer().exact


def test_random_generators_go_on_where_they_were(tmp_path):
    trainer = make_trainer()
    trainer.save(tmp_path)
    expected = torch.rand(3)
    trainer.load(tmp_path)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_reported_as_such(tmp_path, monkeypatch, code):
    def full(tensors, path):
        raise SafetensorError(f"Error while serializing: I/O error: {os.strerror(code)} (os error {code})")

    monkeypatch.setattr(state, "save_file", full)
    with pytest.raises(StorageFullError, match="disk is full"):
        CheckpointStore(tmp_path, CheckpointConfig()).save(0, make_trainer().save, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("said", "code"), [("(os error 13)", errno.EACCES), ("InvalidTensor", errno.EIO)])
def test_other_errors_of_writing_keep_their_number(tmp_path, monkeypatch, said, code):
    def fail(tensors, path):
        raise SafetensorError(f"Error while serializing: {said}")

    monkeypatch.setattr(state, "save_file", fail)
    with pytest.raises(OSError, match=os.strerror(code)) as caught:
        make_trainer().save(tmp_path)
    assert caught.value.errno == code


def test_only_the_weights_can_be_loaded(tmp_path):
    trainer = make_trainer()
    trainer.step(step=1, groups=random_groups(0))
    trainer.save(tmp_path)
    model = tiny_model(seed=5)
    assert state.load_policy(model, tmp_path) == 1
    assert digest_tensors(named_weights(model)) == trainer.version.digest


def test_a_branch_that_adds_a_kl_term_is_anchored_where_it_branches(tmp_path):
    parent = make_trainer()
    parent.step(step=1, groups=random_groups(0))
    parent.save(tmp_path)
    branch = make_trainer(training_config(kl_coefficient=0.1), seed=99)
    branch.load(tmp_path)
    report = branch.step(step=2, groups=random_groups(1))
    assert report.metrics["train/reference_kl"] == pytest.approx(0.0, abs=1e-6)


def test_what_is_served_may_be_smaller_than_what_is_trained():
    trainer = make_trainer(training_config(learning_rate=1e-6), dtype=torch.bfloat16)
    before = trainer.publish()
    assert {tensor.dtype for tensor in before.values()} == {torch.bfloat16}
    assert digest_tensors(before.items()) == trainer.version.digest
    masters = {name: tensor.clone() for name, tensor in named_weights(trainer.model)}
    trainer.step(step=1, groups=random_groups(0))
    moved = [not torch.equal(tensor, masters[name]) for name, tensor in named_weights(trainer.model)]
    assert all(moved), "an update too small for bfloat16 still reaches the float32 masters"


def test_computing_in_bfloat16_moves_the_gradient_little():
    groups = random_groups(0)
    single = make_trainer(training_config(optimizer={"max_grad_norm": 1e9})).step(step=1, groups=groups)
    config = training_config(optimizer={"max_grad_norm": 1e9}).model_copy(update={"compute": "bfloat16"})
    trainer = make_trainer(config)
    half = trainer.step(step=1, groups=groups)
    assert half.metrics["train/loss"] != single.metrics["train/loss"]
    assert half.metrics["train/loss"] == pytest.approx(single.metrics["train/loss"], rel=0.05, abs=1e-3)
    assert half.metrics["train/grad_norm"] == pytest.approx(single.metrics["train/grad_norm"], rel=0.05)
    assert {tensor.dtype for tensor in trainer.publish().values()} == {torch.float32}
