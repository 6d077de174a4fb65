"""What a recipe says reaches the parts that act on it."""

import pytest
import torch

from springtide.launch.assembly import make_trainer
from springtide.recipe import load_recipe
from training.builders import random_groups, tiny_model


@pytest.mark.parametrize(("kv", "passes"), [("recompute", 0), ("keep", 1)])
def test_the_trainer_knows_whether_stored_log_probs_are_of_one_version(kv, passes):
    recipe = load_recipe("word-game", [f"engine.kv_at_update={kv}", "training.algorithm.mini_batches=2"])
    trainer = make_trainer(recipe, tiny_model())
    without_gradient = []

    def watch(stage):
        def wrapped(model, micro):
            if not torch.is_grad_enabled():
                without_gradient.append(micro)
            return stage(model, micro)

        return wrapped

    trainer.stages = trainer.stages.wrap("logprob", watch)
    trainer.step(step=1, groups=random_groups(6, groups=4))
    assert len(without_gradient) == passes


def test_a_host_with_an_accelerator_can_be_told_to_use_its_cpu(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **options: True)
    pretrained = ["model.type=pretrained", "model.path=anywhere"]
    for device, dtype in (("cpu", torch.float32), ("auto", torch.bfloat16)):
        recipe = load_recipe("word-game", [*pretrained, f"model.device={device}"])
        published = make_trainer(recipe, tiny_model()).publish()
        assert {tensor.dtype for tensor in published.values()} == {dtype}
