import copy

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.policy.attention import PIECE, can_share_prefixes, prepare_for_training
from springtide.policy.device import CPU
from springtide.training.batch import Row
from springtide.training.logprob import Transform, token_logprobs
from springtide.training.packing import pack
from training.builders import VOCABULARY, tiny_model


def plain():
    return tiny_model()


def sharing():
    model = tiny_model()
    prepare_for_training(model)
    return model


@st.composite
def families(draw):
    """Rows of a few groups: a common beginning of any length, then anything, trained on anywhere behind the first."""
    rows = []
    for group in range(draw(st.integers(1, 3))):
        generator = np.random.default_rng(draw(st.integers(0, 10_000)))
        beginning = generator.integers(0, VOCABULARY, draw(st.integers(0, 20)))
        for member in range(draw(st.integers(1, 4))):
            rest = generator.integers(0, VOCABULARY, draw(st.sampled_from([2, 3, 9, PIECE + 7])))
            tokens = np.concatenate([beginning, rest]).astype(np.int64)
            mask = generator.random(len(tokens)) < draw(st.sampled_from([0.1, 0.9]))
            mask[0], mask[-1] = False, draw(st.booleans())
            rows.append(
                Row(
                    tokens=tokens,
                    mask=mask,
                    behaviour=generator.random(len(tokens)).astype(np.float32),
                    versions=np.zeros(len(tokens), dtype=np.int32),
                    group=group,
                    member=member,
                )
            )
    return rows


def summed_gradient(model, micros, weight):
    for micro in micros:
        found = token_logprobs(model, micro, transform=Transform(), dtype=torch.float32)
        (found.values * weight(micro)).sum().backward()
    return [parameter.grad for parameter in model.parameters()]


@given(families(), st.sampled_from([40, 150, 4096]))
@settings(max_examples=25, deadline=None)
def test_a_shared_beginning_changes_neither_log_probs_nor_gradients(rows, budget):
    by_token = {}
    for model, share in ((plain(), False), (sharing(), True)):
        found = []
        for micro in pack(rows, budget=budget, device=CPU, share=share):
            values = token_logprobs(model, micro, transform=Transform(), dtype=torch.float32).values.tolist()
            found += zip(micro.behaviour.tolist(), micro.targets.tolist(), values, strict=True)
        by_token[share] = sorted(found)
    assert len(by_token[True]) == sum(row.trained_tokens for row in rows)
    assert [entry[:2] for entry in by_token[True]] == [entry[:2] for entry in by_token[False]]
    np.testing.assert_allclose(
        [entry[2] for entry in by_token[True]], [entry[2] for entry in by_token[False]], rtol=1e-4, atol=1e-5
    )
    if any(row.trained_tokens for row in rows):
        gradients = [
            summed_gradient(model, pack(rows, budget=budget, device=CPU, share=share), lambda micro: micro.behaviour)
            for model, share in ((plain(), False), (sharing(), True))
        ]
        for shared, whole in zip(*gradients, strict=True):
            torch.testing.assert_close(shared, whole, rtol=1e-3, atol=1e-4)


def test_members_of_a_group_read_their_prompt_once():
    generator = np.random.default_rng(0)
    prompt = generator.integers(0, VOCABULARY, 30)
    rows = []
    for member in range(4):
        tokens = np.concatenate([prompt, generator.integers(0, VOCABULARY, 10)])
        mask = np.arange(40) >= 30
        zeros = np.zeros(40, dtype=np.float32)
        rows.append(
            Row(tokens=tokens, mask=mask, behaviour=zeros, versions=zeros.astype(np.int32), group=0, member=member)
        )
    (micro,) = pack(rows, budget=4096, device=CPU, share=True)
    # The prompt less the token that predicts the first sampled one, then that token and nine more of each member.
    assert micro.tokens.shape == (1, 29 + 4 * 10)
    (padded,) = pack(rows, budget=4096, device=CPU)
    assert padded.tokens.shape == (4, 48)


def test_a_model_shares_only_with_this_attention_in_every_layer():
    assert not can_share_prefixes(plain())
    model = sharing()
    assert can_share_prefixes(model)
    windowed = copy.deepcopy(model)
    windowed.config.layer_types = ["full_attention", "sliding_attention"]
    assert not can_share_prefixes(windowed)
    deaf = copy.deepcopy(model)
    forward = deaf.model.forward
    deaf.model.forward = lambda *args, position_ids=None, **options: forward(*args, **options)
    assert not can_share_prefixes(deaf)
