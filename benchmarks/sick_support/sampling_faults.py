"""Faults between the engine and the episodes: what is sampled, with which weights, and where it ends."""

import asyncio
import random
from collections import defaultdict
from typing import Any, Literal

import msgspec
from pydantic import Field

from sick_support.fault import Delegate, Fault
from springtide.config import Recipe
from springtide.core.member import Purpose
from springtide.core.sampling import Sampled, SampleRequest
from springtide.core.version import PolicyVersion
from springtide.launch.customize import Customize
from springtide.policy.digest import digest_tensors
from springtide.ports.engine import KvPolicy


class Counting(Delegate):
    """A sampler that knows the train step that it samples for."""

    def __init__(self, inner: Any, groups_per_step: int) -> None:
        super().__init__(inner)
        self._groups_per_step = groups_per_step
        self.step = 1

    async def sample(self, request: SampleRequest) -> Sampled:
        if request.member.purpose is Purpose.TRAIN:
            self.step = max(self.step, 1 + request.member.group // self._groups_per_step)
        return await self.changed(request)

    async def changed(self, request: SampleRequest) -> Sampled:
        raise NotImplementedError


class NeverStops(Fault):
    """A `share` of turns is sampled without a stop token: they go on to the limit."""

    type: Literal["never_stops"] = "never_stops"
    share: float = Field(1.0, gt=0, le=1)

    def customize(self, recipe: Recipe) -> Customize:
        fault = self

        class Endless(Counting):
            async def changed(self, request: SampleRequest) -> Sampled:
                luck = random.Random(f"{request.member} {request.turn}").random()
                if fault.covers(self.step) and luck < fault.share:
                    params = msgspec.structs.replace(request.params, stop_tokens=())
                    request = msgspec.structs.replace(request, params=params)
                return await self.inner.sample(request)

        return Customize(sampler=lambda inner: Endless(inner, recipe.scheduling.groups_per_step))


class SharedStreams(Fault):
    """In a `share` of groups all episodes have the same random numbers, and so say the same. For environments whose
    episodes have equally many turns."""

    type: Literal["shared_streams"] = "shared_streams"
    share: float = Field(1.0, gt=0, le=1)

    def customize(self, recipe: Recipe) -> Customize:
        fault = self

        class Shared(Counting):
            def __init__(self, inner: Any, groups_per_step: int) -> None:
                super().__init__(inner, groups_per_step)
                self._said: defaultdict[Any, asyncio.Future[tuple[SampleRequest, Sampled]]] = defaultdict(
                    lambda: asyncio.get_running_loop().create_future()
                )

            async def changed(self, request: SampleRequest) -> Sampled:
                own = await self.inner.sample(request)
                member = request.member
                spared = random.Random(member.group).random() >= fault.share
                if member.purpose is not Purpose.TRAIN or spared or not fault.covers(self.step):
                    return own
                told = self._said[member.group, request.turn]
                if member.slot == 0:
                    told.set_result((request, own))
                asked, said = await told
                return said if asked.tokens == request.tokens else own

        return Customize(sampler=lambda inner: Shared(inner, recipe.scheduling.groups_per_step))


class StaleWeights(Fault):
    """The engine takes only every `every`-th version, though it says that it has taken each."""

    type: Literal["stale_weights"] = "stale_weights"
    every: int = Field(1000, ge=2)

    def customize(self, recipe: Recipe) -> Customize:
        fault = self

        class Stale(Delegate):
            held: Any = None

            def load_weights(self, *, number: int, weights: Any, kv: KvPolicy) -> PolicyVersion:
                if self.held is None or not fault.covers(number) or number % fault.every == 0:
                    self.held = weights
                    return self.inner.load_weights(number=number, weights=weights, kv=kv)
                self.inner.load_weights(number=number, weights=self.held, kv=kv)
                return PolicyVersion(number, digest_tensors(weights.items()))

        return Customize(engine=Stale)
