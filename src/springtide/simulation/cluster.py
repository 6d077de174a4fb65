"""Modelled hardware: how many ranks, what each holds, what work takes there. Presets are in `clusters/`."""

import tomllib
from importlib import resources
from typing import Literal

from pydantic import Field

from springtide.core.errors import UsageError
from springtide.scheduling.config import StrictModel
from springtide.scheduling.costs import ServiceCosts
from springtide.simulation.contention import Contention

CLUSTERS = "clusters"


class Cluster(StrictModel):
    """`ranks` are complete replicas that can roll out or train."""

    name: str
    about: str
    ranks: int = Field(8, ge=2)
    kv_tokens: int = Field(ge=1, description="KV capacity of a rank in rollout.")
    host_tokens: int = Field(ge=0, description="KV that a rank may keep in host memory.")
    max_batch: int = Field(256, ge=1, description="Sequences that a rank decodes together at most.")
    environment_slots: int = Field(1024, ge=1, description="Environments at the same time, of the whole cluster.")
    micro_batch_tokens: int = Field(32768, ge=1, description="Tokens per micro-batch of a training rank.")
    shares_prompts: Literal["all", "group"] = Field(
        "all", description="Whether episodes of other groups have use of the KV of what all prompts begin with."
    )
    contention: Contention | None = Field(None, description="Where ranks in rollout and in training share cores.")
    costs: ServiceCosts


def names() -> list[str]:
    """The clusters that come with the package."""
    folder = resources.files("springtide.simulation") / CLUSTERS
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def cluster(name: str) -> Cluster:
    """UsageError if there is none of that name."""
    if name not in names():
        raise UsageError(f"There is no cluster '{name}'; there are: {', '.join(names())}.")
    file = resources.files("springtide.simulation") / CLUSTERS / f"{name}.toml"
    return Cluster.model_validate(tomllib.loads(file.read_text()))
