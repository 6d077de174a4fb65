"""How an episode ended: with a verified reward, or without one.

`Valid` carries a reward, failures of the agent included. `Invalid` is for causes outside the agent's reach and never
carries a number, so that an infrastructure failure can never be read as a reward. Pending is the absence of both.
"""

from enum import StrEnum

import msgspec


class Ending(StrEnum):
    """Why the agent's part of an episode stopped. All of these are valid."""

    ANSWERED = "answered"
    """The agent or the environment declared the task finished."""
    TURN_LIMIT = "turn_limit"
    CONTEXT_LIMIT = "context_limit"
    """The next turn would not fit in the context that the task allows."""
    TIME_LIMIT = "time_limit"
    """The agent's own actions exceeded the time that the task declares."""
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    DISK_LIMIT = "disk_limit"
    MALFORMED = "malformed"
    """The agent's message could not be read as an action and the task ends on that."""


class InvalidCause(StrEnum):
    """Who failed, when it was not the agent."""

    INFRASTRUCTURE = "infrastructure"
    """Sandbox, network, host: a retry may help."""
    VERIFIER = "verifier"
    """Grading did not run to its end."""
    HARNESS = "harness"
    """The environment's or our own code raised or returned something it must not."""


class Valid(msgspec.Struct, frozen=True, kw_only=True, tag="valid"):
    """A graded episode. `reward` is finite; `metrics` are the environment's own numbers."""

    reward: float
    ending: Ending = Ending.ANSWERED
    metrics: dict[str, float] = {}
    detail: str = ""


class Invalid(msgspec.Struct, frozen=True, kw_only=True, tag="invalid"):
    """An episode that says nothing about the policy. `detail` is one clear sentence."""

    cause: InvalidCause
    detail: str


Outcome = Valid | Invalid
