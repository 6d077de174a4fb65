import torch

from springtide.core.sampling import SamplingParams
from springtide.engines.sampling import Draws
from springtide.policy.random import stream_key

CPU = torch.device("cpu")
ROWS = 5000


def _draws(params: SamplingParams, rows: int = ROWS) -> Draws:
    return Draws([params] * rows, [stream_key(0, "train", row, 0, 1) for row in range(rows)], device=CPU)


def test_frequencies_follow_the_distribution() -> None:
    logits = torch.linspace(-2, 2, 40)
    draws = _draws(SamplingParams(max_tokens=1, temperature=1.5))
    tokens, logprobs = draws.draw(logits.expand(ROWS, -1), draws.uniforms(torch.full((ROWS,), 9), 1)[0])
    expected = (logits / 1.5).softmax(-1)
    counts = torch.bincount(tokens, minlength=40)
    chi_square = ((counts - ROWS * expected) ** 2 / (ROWS * expected)).sum()
    # 39 degrees of freedom: mean 39, standard deviation 8.8.
    assert chi_square < 39 + 3 * 8.8
    assert torch.allclose(logprobs, expected.log()[tokens], atol=1e-5)


def test_excluded_tokens_are_never_drawn_not_even_at_the_ends() -> None:
    logits = torch.tensor([[0.0, 5.0, 4.0, 0.0]]).expand(3, -1)
    draws = _draws(SamplingParams(max_tokens=1, top_k=2), rows=3)
    tokens, logprobs = draws.draw(logits, torch.tensor([2.0**-53, 0.731, 1.0], dtype=torch.float64))
    assert tokens.tolist() == [1, 1, 2]
    assert torch.isfinite(logprobs).all()


def test_greedy_and_sampled_rows_mix() -> None:
    settings = [
        SamplingParams(max_tokens=1, temperature=0.0, top_k=1, stop_tokens=(2,)),
        SamplingParams(max_tokens=1, temperature=2.0, stop_tokens=(0, 1)),
    ]
    draws = Draws(settings, [1, 2], device=CPU)
    logits = torch.tensor([[1.0, 3.0, 2.0], [1.0, 3.0, 2.0]])
    tokens, logprobs = draws.draw(logits, torch.tensor([0.99, 0.99], dtype=torch.float64))
    assert tokens.tolist() == [1, 2]
    assert torch.allclose(logprobs[0], logits[0].log_softmax(-1)[1])
    assert torch.allclose(logprobs[1], (logits[1] / 2).log_softmax(-1)[2])
    assert not draws.stopped(tokens)
    assert draws.stopped(torch.tensor([2, 2]))
