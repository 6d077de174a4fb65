"""Small models, trajectories and groups for the tests of this room."""

import numpy as np

from springtide.core.group import Group
from springtide.core.member import Member, Purpose
from springtide.core.outcome import Invalid, InvalidCause, Valid
from springtide.core.segment import Segment
from springtide.core.trajectory import Trajectory
from springtide.policy.config import TinyModelConfig
from springtide.policy.model import build_tiny
from springtide.training.config import AlgorithmConfig, OptimizerConfig, TrainingConfig
from springtide.training.trainer import TorchTrainer

VOCABULARY = 40
INFRASTRUCTURE = Invalid(cause=InvalidCause.INFRASTRUCTURE, detail="the box died")


def tiny_model(seed=0):
    config = TinyModelConfig(layers=2, hidden=32, heads=2, kv_heads=1, intermediate=48, max_context=128)
    return build_tiny(config, vocabulary_size=VOCABULARY, seed=seed)


def tokens(generator, count):
    return tuple(int(token) for token in generator.integers(0, VOCABULARY, count))


def chat(generator, *, group=0, slot=0, reward=1.0, turns=2, version=0):
    """A trajectory of random tokens; `reward` None makes it invalid."""
    segments = []
    for turn in range(turns):
        segments.append(Segment(tokens=tokens(generator, int(generator.integers(2, 9))), parent=len(segments) - 1))
        size = int(generator.integers(1, 7))
        segments.append(
            Segment(
                tokens=tokens(generator, size),
                parent=len(segments) - 1,
                sampled=True,
                logprobs=tuple(float(p) for p in np.log(generator.uniform(0.01, 0.2, size))),
                versions=(version,) * size,
                turn=turn,
            )
        )
    segments.append(Segment(tokens=tokens(generator, 3), parent=len(segments) - 1))
    outcome = INFRASTRUCTURE if reward is None else Valid(reward=reward)
    return Trajectory(
        member=Member(Purpose.TRAIN, group, slot), task_id="t", segments=tuple(segments), outcome=outcome, turns=turns
    )


def random_groups(seed, *, groups=3, size=4, rewards=None, version=0):
    """Groups of random chats. `rewards[g][m]`, or random 0 / 1 with both in each group."""
    generator = np.random.default_rng(seed)
    built = []
    for g in range(groups):
        row = rewards[g] if rewards else [1.0, 0.0, *generator.integers(0, 2, size - 2).astype(float)]
        members = tuple(
            chat(generator, group=g, slot=s, reward=reward, version=version) for s, reward in enumerate(row)
        )
        built.append(Group(id=g, base_version=version, members=members))
    return tuple(built)


def training_config(*, learning_rate=1e-2, budget=256, optimizer=None, **algorithm):
    return TrainingConfig(
        optimizer=OptimizerConfig(learning_rate=learning_rate, **(optimizer or {})),
        algorithm=AlgorithmConfig(**algorithm),
        tokens_per_micro_batch=budget,
    )


def make_trainer(config=None, *, seed=0, total_steps=10, **options):
    return TorchTrainer(tiny_model(seed), config=config or training_config(), total_steps=total_steps, **options)
