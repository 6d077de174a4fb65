"""The frozen policy that the KL term is taken to. It needs neither rewards nor the rest of a batch: what it says of a
group can be worked out before the group's step, while the trainer would wait for other groups."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from springtide.core.group import Group
from springtide.training.batch import Row
from springtide.training.books import StepBooks
from springtide.training.logprob import Logprobs
from springtide.training.packing import MicroBatch, pack
from springtide.training.stages import Stages


class Place(NamedTuple):
    """Of a row: its group's number, and where it is in the group."""

    group: int
    member: int
    sample: int


@dataclass
class ReferencePolicy:
    """Its log-probs are computed group by group, ahead or not, so that they are the same to the last bit either way.

    `known`: of trained tokens, by row. `waiting`: groups for which they may still be computed ahead.
    """

    model: Any
    budget: int
    share: bool
    books: StepBooks
    known: dict[Place, Logprobs] = field(default_factory=dict)
    waiting: dict[int, Group] = field(default_factory=dict)

    def expect(self, group: Group) -> None:
        """It is complete, and will be trained on."""
        self.waiting[group.id] = group

    def catch_up(self, stages: Stages) -> None:
        """With all groups that are expected."""
        self.compute(list(self.waiting.values()), stages)

    def compute(self, groups: Sequence[Group], stages: Stages) -> None:
        """For those of `groups` for which it has not been done."""
        done = {place.group for place in self.known}
        for group in groups:
            self.waiting.pop(group.id, None)
        missing = [group for group in groups if group.id not in done]
        if missing:
            with self.books.scores(missing):
                for group in missing:
                    self._compute_group(group, stages)

    def logprobs(self, micro: MicroBatch, rows: Sequence[Row], groups: Sequence[Group], stages: Stages) -> Logprobs:
        """Of the trained tokens of `micro`, which was packed out of `rows` of `groups`."""
        parts = [part for index in micro.rows if (part := self.known.get(_place(rows[index], groups))) is not None]
        if sum(len(part.values) for part in parts) != len(micro.targets):
            # A stage that was wrapped makes other rows of a group alone than of the whole batch.
            return self._compute(micro, stages)
        return Logprobs(
            values=torch.cat([part.values for part in parts]),
            entropy=torch.cat([part.entropy for part in parts]),
            inside=torch.cat([part.inside for part in parts]),
        )

    def forget(self, groups: Sequence[Group]) -> None:
        """They have been trained on."""
        gone = {group.id for group in groups}
        self.known = {place: found for place, found in self.known.items() if place.group not in gone}

    def forget_all(self) -> None:
        """Its weights are others from now on."""
        self.known.clear()
        self.waiting.clear()

    def _compute_group(self, group: Group, stages: Stages) -> None:
        rows = stages.mask(stages.tokens((group,))).rows
        for micro in pack(rows, budget=self.budget, device=self._device, share=self.share):
            found = self._compute(micro, stages)
            counts = [rows[index].trained_tokens for index in micro.rows]
            for index, part in zip(micro.rows, _divided(found, counts), strict=True):
                self.known[_place(rows[index], (group,))] = part

    def _compute(self, micro: MicroBatch, stages: Stages) -> Logprobs:
        with torch.no_grad():
            return stages.logprob(self.model, micro)

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device


def _place(row: Row, groups: Sequence[Group]) -> Place:
    return Place(groups[row.group].id, row.member, row.sample)


def _divided(found: Logprobs, counts: Sequence[int]) -> list[Logprobs]:
    parts = zip(*(torch.split(each, list(counts)) for each in (found.values, found.entropy, found.inside)), strict=True)
    return [Logprobs(values=values, entropy=entropy, inside=inside) for values, entropy, inside in parts]
