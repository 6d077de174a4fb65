import math

import hypothesis.strategies as st
import torch
from hypothesis import given

from springtide.policy.transform import transform_logits

LOGITS = st.lists(st.integers(-30, 30).map(lambda n: n / 4), min_size=2, max_size=12)
SETTINGS = st.tuples(st.sampled_from([0.0, 0.3, 1.0, 2.0]), st.integers(0, 14), st.sampled_from([0.2, 0.55, 0.93, 1.0]))


def naive(logits: list[float], temperature: float, top_k: int, top_p: float) -> list[float]:
    if temperature == 0:
        temperature, top_k, top_p = 1.0, 0, 1.0
    weights = [math.exp((value - max(logits)) / temperature) for value in logits]
    kept = sorted(range(len(logits)), key=lambda token: (-weights[token], token))
    if top_k:
        kept = kept[:top_k]
    total = sum(weights[token] for token in kept)
    mass, enough = 0.0, []
    for token in kept:
        if mass >= top_p * total - 1e-9 and top_p < 1:
            break
        enough.append(token)
        mass += weights[token]
    return [math.log(weights[token] / mass) if token in enough else -math.inf for token in range(len(logits))]


@given(rows=st.lists(st.tuples(LOGITS, SETTINGS), min_size=1, max_size=4))
def test_each_row_follows_its_own_settings(rows: list[tuple[list[float], tuple[float, int, float]]]) -> None:
    width = min(len(logits) for logits, _ in rows)
    logits = torch.tensor([values[:width] for values, _ in rows])
    temperature, top_k, top_p = (torch.tensor(column) for column in zip(*(s for _, s in rows), strict=True))
    together = transform_logits(logits, temperature, top_k, top_p)
    for row, (values, settings) in enumerate(rows):
        expected = torch.tensor(naive(values[:width], *settings))
        torch.testing.assert_close(together[row], expected, atol=2e-5, rtol=1e-5)
        torch.testing.assert_close(transform_logits(logits[row], *settings), expected, atol=2e-5, rtol=1e-5)


def test_probabilities_by_hand() -> None:
    logits = torch.tensor([1.0, 2.0, 4.0, 3.0]).log()
    assert torch.allclose(transform_logits(logits, 1.0, 2).exp(), torch.tensor([0, 0, 4 / 7, 3 / 7]))
    assert torch.allclose(transform_logits(logits, 1.0, 0, 0.7).exp(), torch.tensor([0, 0, 4 / 7, 3 / 7]))
    assert torch.allclose(transform_logits(logits, 1.0, 0, 0.71).exp(), torch.tensor([0, 2 / 9, 4 / 9, 3 / 9]))
    assert torch.allclose(transform_logits(logits, 0.5).exp(), torch.tensor([1, 4, 16, 9]) / 30)


def test_gradients_reach_kept_logits_only() -> None:
    logits = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    transform_logits(logits, 0.5, 2)[2].backward()
    assert logits.grad is not None
    probability = math.exp(6) / (math.exp(6) + math.exp(4))
    expected = torch.tensor([0.0, -2 * (1 - probability), 2 * (1 - probability)])
    assert torch.allclose(logits.grad, expected, atol=1e-6)
