from functools import partial

import pytest
import torch

from springtide.policy.device import CPU
from springtide.training import chunks
from springtide.training.batch import batch_from_groups
from springtide.training.chunks import in_chunks
from springtide.training.logprob import Transform, _of_targets, token_logprobs
from springtide.training.packing import pack
from training.builders import VOCABULARY, random_groups, tiny_model

ROW_BYTES = 4 * VOCABULARY
TRANSFORMS = [Transform(), Transform(temperature=0.7), Transform(temperature=0.8, top_k=5, top_p=0.9)]


def outcome(transform, *, dtype=torch.float32):
    """Log-probs, entropies, which are inside, and the gradient of a weighted sum of the log-probs."""
    model = tiny_model()
    (micro,) = pack(batch_from_groups(random_groups(0)).rows, budget=4096, device=CPU)
    found = token_logprobs(model, micro, transform=transform, dtype=dtype)
    (found.values * micro.behaviour).sum().backward()
    return [found.values, found.entropy, found.inside, *(parameter.grad for parameter in model.parameters())]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 7])
def test_neither_log_probs_nor_gradients_depend_on_the_chunks(monkeypatch, transform, dtype, rows):
    whole = outcome(transform, dtype=dtype)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", rows * ROW_BYTES)
    torch.testing.assert_close(outcome(transform, dtype=dtype), whole, rtol=1e-5, atol=1e-6)


def test_what_fits_in_one_chunk_is_done_as_it_is():
    calls = []
    logits, targets = torch.zeros(9, VOCABULARY), torch.zeros(9)
    in_chunks(lambda *given: calls.append(given) or (targets,), logits, targets)
    ((first, second),) = calls
    assert first is logits
    assert second is targets


@pytest.mark.parametrize("rows", [4, 64])
def test_no_float32_copy_of_all_logits_waits_for_the_gradient(monkeypatch, rows):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", rows * ROW_BYTES)
    saved = []

    def keep(tensor):
        if tensor.dtype is torch.float32:
            saved.append(tensor.numel())
        return tensor

    logits = torch.randn(64, VOCABULARY).bfloat16().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        pieces = in_chunks(partial(_of_targets, transform=Transform()), logits, torch.zeros(64, dtype=torch.long))
    values = torch.cat([piece[0] for piece in pieces])
    assert (sum(saved) >= 64 * VOCABULARY) == (rows == 64), "the hooks see what one whole piece saves"
    values.sum().backward()
    expected = torch.nn.functional.one_hot(torch.zeros(64, dtype=torch.long), VOCABULARY) - logits.float().softmax(-1)
    torch.testing.assert_close(logits.grad.float(), expected.detach(), atol=1e-2, rtol=1e-2)
