"""At which versions a run is evaluated and saved."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Milestones:
    """`first` and `last` are the versions that a run starts from and ends at."""

    last: int
    first: int = 0
    evaluation_tasks: int = 0
    evaluation_every: int = 0
    evaluation_tasks_on_the_way: int = 64
    checkpoint_every: int = 10

    def starting_at(self, step: int) -> "Milestones":
        return replace(self, first=step)

    def evaluation(self, version: int) -> int:
        """Held-out tasks to play at `version`, 0 for none."""
        if version in (self.first, self.last):
            return self.evaluation_tasks
        on_the_way = self.evaluation_every > 0 and version > 0 and version % self.evaluation_every == 0
        return self.evaluation_tasks_on_the_way if on_the_way else 0

    def checkpoint(self, version: int) -> bool:
        return version == self.last or (version > 0 and version % self.checkpoint_every == 0)
