"""What the reference says of a group does not depend on when it is asked."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from training.builders import make_trainer, random_groups, training_config

slow_ok = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def with_kl(**options):
    return training_config(kl_coefficient=0.1, **options)


def prepare(trainer, groups, *, idle=True):
    for group in groups:
        trainer.prepare(step=trainer.version.number + 1, group=group, ready=0.0, idle=idle)


def count_reference_passes(trainer):
    """A list that grows by one with each pass of the reference."""
    passes = []

    def counting(stage):
        def logprob(model, micro):
            if model is not trainer.model:
                passes.append(micro)
            return stage(model, micro)

        return logprob

    trainer.stages = trainer.stages.wrap("logprob", counting)
    return passes


@slow_ok
@given(st.integers(0, 10**6), st.sampled_from([64, 200, 4096]), st.sampled_from([1, 2]), st.sets(st.integers(0, 2)))
def test_ahead_or_not_a_step_gives_the_same_weights_to_the_last_bit(seed, budget, mini_batches, ahead):
    config = with_kl(budget=budget, mini_batches=mini_batches)
    one, other = make_trainer(config), make_trainer(config)
    for step in (1, 2):
        groups = random_groups(seed + step, rewards=[[1.0, 0.0, None], [0.0, 1.0, 1.0], [1.0, 1.0, 0.5]])
        prepare(one, [groups[place] for place in sorted(ahead)])
        assert one.step(step=step, groups=groups).version == other.step(step=step, groups=groups).version


def test_what_was_done_ahead_is_not_done_again_and_then_forgotten():
    trainer, groups = make_trainer(with_kl()), random_groups(3)
    passes = count_reference_passes(trainer)
    prepare(trainer, groups)
    ahead = len(passes)
    assert ahead >= len(groups)
    prepare(trainer, groups)
    trainer.step(step=1, groups=groups)
    assert len(passes) == ahead
    trainer.step(step=2, groups=groups)
    assert len(passes) == 2 * ahead


def test_while_a_step_is_trained_nothing_is_done_ahead_until_the_next_chance():
    trainer, groups = make_trainer(with_kl()), random_groups(3)
    passes = count_reference_passes(trainer)
    prepare(trainer, groups[:2], idle=False)
    assert not passes
    prepare(trainer, groups[2:])
    ahead = len(passes)
    trainer.step(step=1, groups=groups)
    assert len(passes) == ahead > 0


def test_a_step_does_not_work_for_later_ones():
    trainer, groups = make_trainer(with_kl()), random_groups(3)
    passes = count_reference_passes(trainer)
    prepare(trainer, groups, idle=False)
    trainer.step(step=1, groups=groups[:1])
    first = len(passes)
    trainer.step(step=2, groups=groups[1:])
    assert len(passes) > first


def test_another_reference_says_other_things(tmp_path):
    groups = random_groups(5)
    make_trainer(with_kl(), seed=7).save(tmp_path)
    one, other = make_trainer(with_kl()), make_trainer(with_kl())
    prepare(one, groups)
    one.load(tmp_path)
    other.load(tmp_path)
    assert one.step(step=1, groups=groups).version == other.step(step=1, groups=groups).version


def test_without_a_kl_term_nothing_is_prepared():
    trainer = make_trainer()
    passes = count_reference_passes(trainer)
    prepare(trainer, random_groups(1))
    assert not passes


def test_a_stage_that_sees_the_whole_batch_is_asked_again():
    """A fault may go around any stage; what it makes of a group alone need not fit."""
    trainer, groups = make_trainer(with_kl()), random_groups(4)

    def only_later_groups(stage):
        def mask(batch):
            batch = stage(batch)
            for row in batch.rows:
                row.mask[:] &= row.group != 0 or len(batch.rewards) == 1
            return batch

        return mask

    trainer.stages = trainer.stages.wrap("mask", only_later_groups)
    prepare(trainer, groups)
    report = trainer.step(step=1, groups=groups)
    assert report.trained_tokens == pytest.approx(sum(m.trained_tokens for g in groups[1:] for m in g.members))
