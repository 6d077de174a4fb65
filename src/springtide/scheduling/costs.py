"""What work takes on one rank, as a few coefficients: the model that policies predict with and simulations run on."""

from collections.abc import Callable

from pydantic import Field

from springtide.scheduling.config import StrictModel


class ServiceCosts(StrictModel):
    """Seconds, per rank. A rank is one complete replica, such as a tensor-parallel group.

    The form of prefill and decode is that of roofline models of transformers: prefill is bound by compute, with a share
    for attention that grows with the context; a decode step reads all weights once, and the KV of every sequence.
    """

    prefill_base: float = Field(ge=0, description="Per pass.")
    prefill_token: float = Field(ge=0, description="Per new token.")
    prefill_attention: float = Field(ge=0, description="Per new token and token of context before it.")
    decode_base: float = Field(gt=0, description="Per step: reading the weights.")
    decode_sequence: float = Field(ge=0, description="Per step and sequence.")
    decode_context: float = Field(ge=0, description="Per step and token of KV that it reads.")
    visit: float = Field(0.0, ge=0, description="Per visit to the engine, however many steps it makes.")
    join: float = Field(0.0, ge=0, description="Per decode step that prefill joins, beyond the step and the turns.")
    turn: float = Field(0.0, ge=0, description="Per turn of which anything is prefilled, beyond its tokens.")
    reload_base: float = Field(ge=0, description="Per reload of KV from host memory.")
    reload_token: float = Field(ge=0, description="Per token of KV reloaded.")
    reference_token: float = Field(ge=0, description="Forward pass of the reference policy, per token.")
    forward_token: float = Field(ge=0, description="Forward pass of the trained policy, per token.")
    backward_token: float = Field(ge=0, description="Its backward pass, per token.")
    training_attention: float = Field(
        0.0, ge=0, description="By what share of itself training a token takes longer per token of context before it."
    )
    optimizer: float = Field(ge=0, description="Per train step, once all gradients are there.")
    swap: float = Field(ge=0, description="Moving one model's weights between host and device, one direction.")
    publish: float = Field(ge=0, description="Until all ranks serve new weights; they serve nothing meanwhile.")
    role_switch: float = Field(ge=0, description="Until a rank has changed between rollout and training.")

    def prefill(self, new: int, context: int) -> float:
        """`new` tokens after `context` tokens whose KV is there."""
        attended = new * (context + (new - 1) / 2)
        return self.prefill_base + self.prefill_token * new + self.prefill_attention * attended

    def recompute(self, context: int) -> float:
        """KV of `context` tokens from nothing."""
        return self.prefill(context, 0)

    def reload(self, context: int) -> float:
        """KV of `context` tokens from host memory."""
        return self.reload_base + self.reload_token * context

    def decode_step(self, sequences: int, context: int) -> float:
        """One token for each of `sequences`, whose contexts have `context` tokens in sum."""
        return self.decode_base + self.decode_sequence * sequences + self.decode_context * context

    def training_tokens(self, length: int) -> int:
        """Tokens without context that take as long to train on as a sequence of `length`."""
        return round(length * (1 + self.training_attention * (length - 1) / 2))

    def actor(self, tokens: int) -> float:
        """Forward and backward pass over `tokens`."""
        return (self.forward_token + self.backward_token) * tokens


CurrentCosts = Callable[[], ServiceCosts]
"""What work takes as far as is known now. Policies ask each time that they decide, and keep nothing of it."""


def given(costs: ServiceCosts) -> CurrentCosts:
    """Costs that stay."""
    return lambda: costs
