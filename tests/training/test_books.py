"""What a trainer says of its work."""

import pytest
import torch

from springtide.training.books import StepBooks, sizes
from training.builders import make_trainer, random_groups, training_config


class Clock:
    time = 0.0

    def __call__(self):
        return self.time


def test_a_steps_seconds_are_the_references_the_optimizers_and_otherwise_the_actors():
    clock, groups = Clock(), random_groups(0, groups=2)
    books = StepBooks(torch.device("cpu"), clock)
    with books.scores(groups[:1]):
        clock.time += 5.0
    clock.time += 100.0  # between steps nothing is anybody's
    books.begin()
    with books.scores(groups[1:]):
        clock.time += 3.0
    clock.time += 20.0
    for number in (1, 1, 0):
        with books.updates(number):
            clock.time += 0.5
    work = books.end(groups)
    tokens, attended = sizes(groups)
    assert work.actor.seconds == pytest.approx(20.0)
    assert (work.actor.tokens, work.actor.attended) == (tokens, attended)
    assert (work.reference.tokens, work.reference.seconds) == (tokens, pytest.approx(8.0))
    assert (work.updates, work.update_seconds) == (2, pytest.approx(1.5))
    books.begin()
    assert books.end(groups).reference.tokens == 0, "that was the step before"


def test_sizes_are_of_valid_members_alone():
    (group,) = random_groups(1, groups=1, rewards=[[1.0, None, 0.0]])
    lengths = [sum(len(segment.tokens) for segment in group.members[slot].segments) for slot in (0, 2)]
    assert sizes([group]) == (sum(lengths), sum(n * (n - 1) / 2 for n in lengths))


def test_a_step_reports_what_it_did():
    trainer = make_trainer(training_config(kl_coefficient=0.1, mini_batches=2))
    groups = random_groups(3)
    trainer.prepare(step=1, group=groups[0], ready=0.0, idle=True)
    work = trainer.step(step=1, groups=groups).work
    assert (work.actor.tokens, work.actor.attended) == sizes(groups)
    assert (work.reference.tokens, work.reference.attended) == sizes(groups), "ahead or not, once"
    assert (work.updates, work.swaps) == (2, 0)
    assert min(work.actor.seconds, work.reference.seconds, work.update_seconds) > 0


def test_without_a_reference_nothing_is_scored():
    trainer = make_trainer()
    assert trainer.step(step=1, groups=random_groups(3)).work.reference.tokens == 0
