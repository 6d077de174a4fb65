"""Two modelled ranks under a sampler, on the virtual clock."""

import asyncio

from springtide.core.member import Member, Purpose
from springtide.core.version import PolicyVersion
from springtide.runtime.clock import LoopClock
from springtide.runtime.dispatch import Dispatch
from springtide.scheduling.costs import ServiceCosts
from springtide.scheduling.membership import Membership
from springtide.scheduling.residency import Residency
from springtide.scheduling.retention import Recency
from springtide.simulation.cluster import Cluster
from springtide.simulation.engine import ModelledEngine
from springtide.simulation.executor import InlineExecutor
from springtide.simulation.stack import loop_time
from springtide.simulation.turn import ModelledRequest
from springtide.simulation.virtual_loop import run_virtual
from springtide.telemetry.ledger import Ledger

FREE = dict.fromkeys(ServiceCosts.model_fields, 0.0)
HARDWARE = Cluster(
    name="two",
    about="",
    ranks=2,
    kv_tokens=1000,
    host_tokens=1000,
    max_batch=1,
    environment_slots=8,
    micro_batch_tokens=1,
    costs=ServiceCosts(**(FREE | {"decode_base": 0.1, "prefill_token": 0.001, "reload_token": 0.0001})),
)


class Run:
    """Two modelled ranks of a batch of one each, and episodes in groups of their own: the first lives on rank 0."""

    def __init__(self, *, evicts="warm", host=1000, residency=True, deadline=None):
        self.clock = LoopClock()
        self.ledger = Ledger(self.clock.now)
        self.costs = {}
        self.members = Membership.of(2, 2)
        hardware = HARDWARE.model_copy(update={"host_tokens": host})
        self.make = lambda: ModelledEngine(hardware, now=loop_time, evicts=evicts)
        self.engines = [self.make() for _ in range(2)]
        kept = host if evicts == "warm" else 0

        def made(engine):
            return Residency(Recency(), capacity=1000, host=kept, max_batch=1, decode_steps=8) if residency else None

        self.dispatch = Dispatch(
            engines=self.engines,
            executor=InlineExecutor(self._cost, self.ledger),
            clock=self.clock,
            ledger=self.ledger,
            lockstep=False,
            decode_steps=8,
            residency=made,
            deadline=deadline,
        )

    def _cost(self, lane, name):
        return self.engines[int(lane[-1])].spent if name == "generate" else self.costs.get(name, 0.0)

    def restart(self, number):
        self.engines[number] = self.make()
        return self.engines[number]

    async def start(self, episodes):
        await self.dispatch.load(expected=PolicyVersion(0, "w"), weights="w", kv="keep")
        self.driver = asyncio.ensure_future(self.dispatch.run())
        for group in range(episodes):
            self.dispatch.open(member(group))

    def turn(self, group, number, *, context, reusable=0, output=50):
        request = ModelledRequest(
            member=member(group),
            turn=number,
            context=context,
            reusable=reusable,
            output=output,
            prefix=context if not number else 100,
            shared=0,
        )
        return asyncio.ensure_future(self.dispatch.sample(request))

    async def stop(self):
        self.driver.cancel()
        await asyncio.gather(self.driver, return_exceptions=True)


def member(group):
    return Member(Purpose.TRAIN, group, 0)


def played(main, **settings):
    async def whole():
        run = Run(**settings)
        result = await main(run)
        await run.stop()
        return result

    return run_virtual(whole)[0]
