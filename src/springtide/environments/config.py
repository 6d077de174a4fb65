"""Which environment answers the agent."""

from typing import Annotated, Any, Literal

from pydantic import Field

from springtide.scheduling.config import StrictModel


class ShellConfig(StrictModel):
    """Generated tasks in a sandboxed shell."""

    type: Literal["shell"] = "shell"
    families: tuple[Literal["sum", "config", "log"], ...] = Field(("sum", "config", "log"), min_length=1)
    levels: tuple[Literal[1, 2, 3], ...] = Field((1, 2), min_length=1, description="Difficulty levels drawn from.")
    flaw_rate: float = Field(
        0.6,
        ge=0,
        le=1,
        description="Share of demonstrations with a stated flaw; the rest is the success rate of the demonstrations.",
    )
    command_seconds: float = Field(5.0, gt=0, description="Wall time that the task grants a command.")


class WordGameConfig(StrictModel):
    """A small in-process text game, for tests and for learning within a minute."""

    type: Literal["word_game"] = "word_game"
    level: int = Field(1, ge=1, le=3, description="1: say the word; 2: the last of two; 3: the middle of three.")
    flaw_rate: float = Field(0.5, ge=0, le=1, description="Share of demonstrations with a mistake.")


class CustomConfig(StrictModel):
    """Your own environment class: `path = "my_env.py:MyEnv"`; `options` go to its constructor."""

    type: Literal["custom"] = "custom"
    path: str = Field(description="FILE.py:CLASS, relative to where the command is started, or package.module:CLASS")
    options: dict[str, Any] = Field({}, description="Arguments of the class's constructor.")
    blocking: bool = Field(
        False, description="A Gym-style class waits or computes for long: run it on threads, off the event loop."
    )
    gym_reward: Literal["sum", "last"] = Field("sum", description="Which reward of a Gym-style class counts.")
    phase_seconds: float = Field(
        60.0, gt=0, description="Seconds after which a reset, step or verify counts as hung and the episode as invalid."
    )


EnvironmentConfig = Annotated[ShellConfig | WordGameConfig | CustomConfig, Field(discriminator="type")]
