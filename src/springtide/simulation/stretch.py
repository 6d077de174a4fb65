"""A stretch of decode steps of one batch in closed form: every step adds a token to each sequence, and reads all."""

from math import ceil, sqrt

from springtide.scheduling.costs import ServiceCosts

INSTANT = 1e-9
"""Seconds, or steps, that are rounding."""


def seconds_of(costs: ServiceCosts, steps: int, *, batch: int, context: int) -> float:
    """Of `steps` steps of `batch` sequences that have `context` tokens together when the first begins."""
    read = steps * context + batch * steps * (steps - 1) // 2
    return steps * (costs.decode_base + costs.decode_sequence * batch) + costs.decode_context * read


def steps_in(costs: ServiceCosts, seconds: float, *, batch: int, context: int) -> int:
    """Steps after which `seconds` are over, at least one: the root of their (quadratic) time, rounded up."""
    bend = costs.decode_context * batch / 2
    slope = costs.decode_step(batch, context) - bend
    root = 2 * seconds / (slope + sqrt(slope * slope + 4 * bend * seconds)) if seconds > 0 else 0.0
    return max(1, ceil(root - INSTANT))
