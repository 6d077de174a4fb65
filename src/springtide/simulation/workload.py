"""A workload: what episodes of a kind of task look like, as distributions. Presets are in `presets/`.

Sources and assumptions stand in the preset files, one by one; nothing else is claimed of the benchmarks they are named
after.
"""

import tomllib
from importlib import resources

from pydantic import Field

from springtide.core.errors import UsageError
from springtide.scheduling.config import StrictModel
from springtide.simulation.distribution import Constant, Distribution

PRESETS = "presets"


class Workload(StrictModel):
    """Tokens and seconds. Where a share is given, so much of the (normal) variance is common to a group."""

    name: str
    about: str
    system: int = Field(ge=0, description="Leading prompt tokens that all tasks share.")
    task: Distribution = Field(description="Prompt tokens of the task, shared by its group.")
    turns: Distribution = Field(description="Turns until the agent is done; a full context ends an episode sooner.")
    turns_shared: float = Field(0.6, ge=0, le=1)
    append: Distribution = Field(description="Tokens that a reply of the environment adds.")
    output: Distribution = Field(description="Tokens sampled per turn.")
    output_shared: float = Field(0.2, ge=0, le=1)
    latency: Distribution = Field(description="Seconds that the environment takes per turn.")
    latency_shared: float = Field(0.25, ge=0, le=1)
    latency_factor: float = Field(1.0, gt=0, description="By which all latencies are longer than drawn.")
    reset: Distribution = Field(description="Seconds until an environment is up.")
    grade: Distribution = Constant(type="constant", value=0.0)
    context: int = Field(ge=1, description="Most tokens of context and output.")
    window: int | None = Field(None, ge=1, description="Replies that stay in the context; None: all of them.")
    failure: float = Field(0.0, ge=0, le=1, description="Share of attempts that the infrastructure fails.")
    failure_seconds: Distribution = Constant(type="constant", value=0.0)
    change_at: int | None = Field(None, ge=0, description="The first task of which the following are different.")
    change_latency: float = Field(1.0, gt=0, description="By what factor latencies are.")
    change_output: float = Field(1.0, gt=0, description="By what factor outputs are, within the context.")
    group_size: int = Field(8, ge=1)
    groups_per_step: int = Field(64, ge=1)
    updates_per_step: int = Field(
        1, ge=1, description="Optimizer updates that a step's groups are divided into (mini-batches)."
    )


def names() -> list[str]:
    """The presets that come with the package."""
    folder = resources.files("springtide.simulation") / PRESETS
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def preset(name: str, groups_per_step: int | None = None) -> Workload:
    """With batches of its own size, or of so many groups. UsageError if there is none of that name."""
    if name not in names():
        raise UsageError(f"There is no workload '{name}'; there are: {', '.join(names())}.")
    file = resources.files("springtide.simulation") / PRESETS / f"{name}.toml"
    found = Workload.model_validate(tomllib.loads(file.read_text()))
    return found if groups_per_step is None else found.model_copy(update={"groups_per_step": groups_per_step})
