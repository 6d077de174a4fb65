"""What every fault is: data that says how much and from when on, and what it puts around the parts of a run.

A run has a fault only if its entry in the plan names one: nothing in the project itself knows of these.
"""

from typing import Any

from pydantic import Field

from springtide.config import Recipe
from springtide.launch.customize import Customize
from springtide.scheduling.config import StrictModel


class Fault(StrictModel):
    """In force from train step `first` to `last`, both included; without `last` to the end."""

    first: int = Field(1, ge=1)
    last: int | None = Field(None, ge=1)

    def covers(self, step: int) -> bool:
        return self.first <= step and (self.last is None or step <= self.last)

    def customize(self, recipe: Recipe) -> Customize:
        raise NotImplementedError


class Delegate:
    """Stands in for a part of a run and does what that does, but for what a subclass changes."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
