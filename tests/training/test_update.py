import copy
import dataclasses
import math

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from springtide.core.group import Group
from springtide.core.outcome import Valid
from springtide.core.segment import Segment
from springtide.policy.device import CPU
from springtide.training.batch import batch_from_groups
from springtide.training.logprob import Transform, token_logprobs
from springtide.training.packing import pack
from training.builders import INFRASTRUCTURE, chat, make_trainer, random_groups, tiny_model, training_config

slow_ok = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def gradients(config, groups, **options):
    """The summed gradient that reaches the optimizer, and the report."""
    trainer = make_trainer(config, **options)
    captured = {}

    def capture(step):
        def wrapped():
            for name, parameter in trainer.model.named_parameters():
                if parameter.grad is not None:
                    captured[name] = parameter.grad.clone()
            return step()

        return wrapped

    trainer.stages = trainer.stages.wrap("step", capture)
    report = trainer.step(step=1, groups=groups)
    return captured, report


def by_hand_loss(model, groups, *, temperature=1.0):
    """On-policy GRPO with std, over one full forward pass per trajectory: -sum(w A) / tokens, w capped at 2."""
    total, count = torch.zeros(()), 0
    for group in groups:
        rewards = torch.tensor([member.reward for member in group.members])
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        for member, advantage in zip(group.members, advantages, strict=True):
            (sample,) = member.samples()
            tokens = torch.tensor([sample.tokens])
            logprobs = (model(input_ids=tokens).logits[0, :-1] / temperature).log_softmax(-1)
            chosen = logprobs.gather(1, tokens[0, 1:, None])[:, 0]
            mask = torch.tensor(sample.mask[1:])
            weight = (chosen.detach() - torch.tensor(sample.logprobs[1:])).exp().clamp_max(2.0)
            ratio = (chosen - chosen.detach()).exp()
            total = total - (weight * ratio * advantage)[mask].sum()
            count += int(mask.sum())
    return total / count


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_loss_and_gradient_equal_a_full_computation(temperature):
    groups = random_groups(1)
    model = tiny_model()
    loss = by_hand_loss(model, groups, temperature=temperature)
    loss.backward()
    captured, report = gradients(training_config(), groups, transform=Transform(temperature=temperature))
    assert report.metrics["train/loss"] == pytest.approx(loss.item(), abs=1e-6)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(captured[name], parameter.grad, atol=1e-6, rtol=1e-4)


@slow_ok
@given(st.integers(0, 10**6), st.sampled_from([64, 80, 128, 200, 512]), st.floats(0.0, 0.1))
def test_neither_loss_nor_gradient_depends_on_the_micro_batch_split(seed, budget, kl):
    groups = random_groups(seed)
    whole, whole_report = gradients(training_config(budget=4096, kl_coefficient=kl), groups)
    split, split_report = gradients(training_config(budget=budget, kl_coefficient=kl), groups)
    assert split_report.metrics["train/loss"] == pytest.approx(whole_report.metrics["train/loss"], abs=1e-6)
    for name in whole:
        torch.testing.assert_close(split[name], whole[name], atol=1e-6, rtol=1e-4)


def test_zero_advantage_rows_are_not_computed_but_count_in_the_mean():
    groups = random_groups(2, groups=2, rewards=[[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    flat_tokens = sum(member.trained_tokens for member in groups[1].members)
    signal_tokens = sum(member.trained_tokens for member in groups[0].members)
    report = make_trainer().step(step=1, groups=groups)
    alone = make_trainer().step(step=1, groups=groups[:1])
    assert report.trained_tokens == flat_tokens + signal_tokens
    assert report.zero_advantage_tokens == flat_tokens
    assert report.metrics["train/computed_tokens"] == signal_tokens
    share = signal_tokens / (signal_tokens + flat_tokens)
    assert report.metrics["train/loss"] == pytest.approx(alone.metrics["train/loss"] * share, rel=1e-5)


def test_a_member_at_the_mean_of_its_group_is_not_a_group_without_signal():
    groups = random_groups(2, groups=2, rewards=[[0.0, 0.5, 1.0], [1.0, 1.0, 1.0]])
    report = make_trainer().step(step=1, groups=groups)
    assert report.zero_advantage_tokens == sum(member.trained_tokens for member in groups[1].members)


def test_tokens_of_an_update_that_was_skipped_entered_no_step():
    trainer = make_trainer(training_config(mini_batches=2))
    groups = random_groups(5, groups=2)
    calls = []

    def break_first(stage):
        def wrapped(inputs):
            terms = stage(inputs)
            calls.append(inputs)
            return dataclasses.replace(terms, total=terms.total * float("nan")) if len(calls) == 1 else terms

        return wrapped

    trainer.stages = trainer.stages.wrap("loss", break_first)
    report = trainer.step(step=1, groups=groups)
    assert report.metrics["train/skipped_updates"] == 1.0
    assert report.trained_tokens == sum(member.trained_tokens for member in groups[1].members)


def test_a_step_without_signal_leaves_the_weights_and_still_counts():
    trainer = make_trainer()
    before = trainer.version
    report = trainer.step(step=1, groups=random_groups(3, groups=1, rewards=[[1.0, 1.0, None]]))
    assert (report.version.number, report.version.digest) == (1, before.digest)
    assert report.metrics["train/updates"] == 0.0


def test_a_good_episode_becomes_likelier():
    trainer = make_trainer(training_config(learning_rate=3e-3))
    groups = random_groups(4)
    model_before = copy.deepcopy(trainer.model)
    trainer.step(step=1, groups=groups)

    def likelihood(model, member):
        (sample,) = member.samples()
        tokens = torch.tensor([sample.tokens])
        chosen = model(input_ids=tokens).logits[0, :-1].log_softmax(-1).gather(1, tokens[0, 1:, None])[:, 0]
        return chosen[torch.tensor(sample.mask[1:])].sum().item()

    gains = {1.0: 0.0, 0.0: 0.0}
    for group in groups:
        for member in group.members:
            gains[member.reward] += likelihood(trainer.model, member) - likelihood(model_before, member)
    assert gains[1.0] > 0.0 > gains[0.0]


def corrupted(member, generator):
    return msgspec.structs.replace(chat(generator, reward=None, turns=3), member=member.member)


@slow_ok
@given(st.integers(0, 10**6))
def test_invalid_members_have_no_influence_on_the_gradient(seed):
    generator = np.random.default_rng(seed)
    clean = random_groups(seed, groups=2, size=3)
    dirty = []
    for group in clean:
        members = list(group.members)
        for _ in range(int(generator.integers(1, 4))):
            members.insert(int(generator.integers(0, len(members) + 1)), corrupted(members[0], generator))
        dirty.append(msgspec.structs.replace(group, members=tuple(members)))
    assert any(member.outcome == INFRASTRUCTURE for group in dirty for member in group.members)
    one, two = make_trainer(), make_trainer()
    one.step(step=1, groups=clean)
    two.step(step=1, groups=tuple(dirty))
    assert one.version == two.version


def test_a_gradient_that_is_not_finite_is_skipped_and_reported():
    trainer = make_trainer()
    before = trainer.version
    groups = random_groups(0)

    def poison(stage):
        def wrapped(inputs):
            terms = stage(inputs)
            return dataclasses.replace(terms, total=terms.total * math.nan)

        return wrapped

    healthy = trainer.stages
    trainer.stages = healthy.wrap("loss", poison)
    report = trainer.step(step=1, groups=groups)
    assert report.version.digest == before.digest
    assert report.metrics["train/skipped_updates"] == 1.0
    assert "train/grad_norm" not in report.metrics
    trainer.stages = healthy
    assert trainer.step(step=2, groups=groups).metrics["train/updates"] == 1.0


def test_mini_batches_take_whole_groups_in_order():
    trainer = make_trainer(training_config(mini_batches=2, budget=4096))
    groups = random_groups(5, groups=4)
    seen = []

    def watch(stage):
        def wrapped(model, micro):
            if torch.is_grad_enabled():
                seen.append(sorted(int(token) for token in micro.targets))
            return stage(model, micro)

        return wrapped

    trainer.stages = trainer.stages.wrap("logprob", watch)
    trainer.step(step=1, groups=groups)
    expected = [
        sorted(
            token
            for group in part
            for member in group.members
            for segment in member.segments
            if segment.sampled
            for token in segment.tokens
        )
        for part in (groups[:2], groups[2:])
    ]
    assert seen == expected


def forward_passes_without_gradient(config, *, version, **options):
    trainer = make_trainer(config, **options)
    counts = [0]

    def count(stage):
        def wrapped(model, micro):
            counts[0] += not torch.is_grad_enabled()
            return stage(model, micro)

        return wrapped

    trainer.stages = trainer.stages.wrap("logprob", count)
    trainer.step(step=1, groups=random_groups(6, groups=4, version=version))
    return counts[0]


def test_the_proximal_policy_costs_a_forward_pass_only_where_it_must():
    assert forward_passes_without_gradient(training_config(budget=4096), version=1) == 0
    assert forward_passes_without_gradient(training_config(budget=4096, mini_batches=2), version=0) == 0
    assert forward_passes_without_gradient(training_config(budget=4096, mini_batches=2), version=1) == 1


def test_what_was_sampled_over_kept_keys_and_values_is_no_versions_own_log_prob():
    config = training_config(budget=4096, mini_batches=2)
    assert forward_passes_without_gradient(config, version=0, kept_kv=True) == 1


def test_what_a_coarser_engine_stored_is_no_substitute_for_the_trainers_own_log_probs():
    config = training_config(budget=4096, mini_batches=2).model_copy(update={"compute": "float32"})
    assert forward_passes_without_gradient(config, version=0, dtype=torch.bfloat16) == 1


def test_stale_tokens_of_later_mini_batches_are_measured_at_the_start_of_the_step():
    trainer = make_trainer(training_config(budget=4096, mini_batches=2))
    trainer.step(step=1, groups=random_groups(7))
    start = copy.deepcopy(trainer.model)
    groups = random_groups(8, groups=2)
    seen = []

    def watch(stage):
        def wrapped(inputs):
            seen.append(inputs)
            return stage(inputs)

        return wrapped

    trainer.stages = trainer.stages.wrap("loss", watch)
    trainer.step(step=2, groups=groups)
    (micro,) = pack(batch_from_groups(groups[1:]).rows, budget=4096, device=CPU)
    with torch.no_grad():
        expected = token_logprobs(start, micro, transform=Transform(), dtype=torch.float32).values
    torch.testing.assert_close(seen[1].proximal, expected)
    assert not torch.allclose(seen[1].current, expected, atol=1e-4)


def test_without_importance_weight_the_ratio_is_to_the_behaviour_policy():
    trainer = make_trainer(training_config(importance_cap=None, budget=4096))
    groups = random_groups(9)
    report = trainer.step(step=1, groups=groups)
    assert report.metrics["train/importance_max"] == 1.0
    assert report.metrics["train/ratio_mean"] != pytest.approx(1.0, abs=1e-3)


def test_truncated_sampling_stays_finite_where_the_present_policy_excludes_a_token():
    trainer = make_trainer(transform=Transform(temperature=0.8, top_k=5, top_p=0.9))
    report = trainer.step(step=1, groups=random_groups(10))
    assert 0.0 < report.metrics["train/outside_support"] < 1.0
    assert all(math.isfinite(value) for value in report.metrics.values())


def test_an_unknown_stage_is_named():
    stages = make_trainer().stages
    with pytest.raises(ValueError, match="tokens, mask, advantage, logprob, loss, step"):
        stages.wrap("reward", lambda stage: stage)


def test_a_shared_turn_is_trained_once_with_its_members_advantage():
    def sampled(tokens, parent):
        return Segment(tokens=tokens, parent=parent, sampled=True, logprobs=(-1.0,) * len(tokens), versions=(0,) * 2)

    group = random_groups(11, groups=1, size=2)[0]
    fork = msgspec.structs.replace(
        group.members[0],
        outcome=Valid(reward=3.0),
        segments=(
            Segment(tokens=(1, 2)),
            sampled((3, 4), 0),
            Segment(tokens=(5,), parent=1),
            sampled((6, 7), 2),
            sampled((8, 9), 1),
        ),
    )
    trainer = make_trainer()
    report = trainer.step(step=1, groups=(Group(id=0, base_version=0, members=(fork, group.members[1])),))
    assert report.trained_tokens == 6 + group.members[1].trained_tokens


def test_the_mismatch_is_that_of_the_stored_log_probs_before_anything_is_updated():
    groups = random_groups(11, groups=4)
    model = tiny_model()
    (micro,) = pack(batch_from_groups(groups[:2]).rows, budget=4096, device=CPU)
    with torch.no_grad():
        own = token_logprobs(model, micro, transform=Transform(), dtype=torch.float32).values
    apart = (own - micro.behaviour).abs()
    expected = {
        "mismatch/logp_difference": apart.mean(),
        "mismatch/logp_difference_max": apart.max(),
        "mismatch/probability_difference": (own.exp() - micro.behaviour.exp()).abs().mean(),
        "mismatch/error_factor": apart.exp().mean(),
    }
    report = make_trainer(training_config(mini_batches=2, budget=64)).step(step=1, groups=groups)
    for name, value in expected.items():
        assert report.metrics[name] == pytest.approx(value.item(), rel=1e-5), name


def test_without_a_row_that_moves_the_weights_no_mismatch_is_claimed():
    report = make_trainer().step(step=1, groups=random_groups(3, groups=1, rewards=[[1.0, 1.0]]))
    assert [name for name in report.metrics if name.startswith("mismatch/")] == []
    assert report.metrics["train/weights_changed"] == 0.0


def test_advantages_are_averaged_over_tokens():
    groups = random_groups(4, groups=1, rewards=[[1.0, 0.0, 0.0, 0.0]])
    report = make_trainer(training_config(normalize_std=False)).step(step=1, groups=groups)
    tokens = [member.trained_tokens for member in groups[0].members]
    by_hand = (0.75 * tokens[0] - 0.25 * sum(tokens[1:])) / sum(tokens)
    assert report.metrics["advantage/mean"] == pytest.approx(by_hand)
    assert (report.metrics["advantage/min"], report.metrics["advantage/max"]) == (-0.25, 0.75)
    assert report.metrics["train/weights_changed"] == 1.0
