"""A version proves itself before it serves."""

from springtide.core.errors import SpringtideError
from springtide.core.version import PolicyVersion
from springtide.ports.engine import KvPolicy
from springtide.ports.executor import Executor
from springtide.ports.trainer import Trainer
from springtide.runtime.dispatch import Dispatch
from springtide.runtime.rank import HANDOVERS
from springtide.scheduling.events import Published


class Publication:
    """Hands the trainer's weights to the engine and compares digests computed on both sides."""

    def __init__(self, *, trainer: Trainer, dispatch: Dispatch, executor: Executor, kv: KvPolicy) -> None:
        self._trainer = trainer
        self._dispatch = dispatch
        self._executor = executor
        self._kv = kv

    async def publish(self, version: int) -> Published:
        """SpringtideError if the engine does not hold what the trainer gave."""
        expected, weights = await self._executor.run("trainer", self._take, name="publish")
        assert expected.number == version, "the trainer's lane takes copies in the order of decisions"
        proof = await self._dispatch.load(expected=expected, weights=weights, kv=self._kv)
        if proof != expected:
            raise SpringtideError(
                f"The engine does not hold version {version} after {HANDOVERS} handovers (its digest: "
                f"{proof.digest[:12]}, the trainer's {expected.digest[:12]}); resume the run to load both sides from "
                "the last checkpoint."
            )
        return Published(version)

    def _take(self) -> tuple[PolicyVersion, object]:
        return self._trainer.version, self._trainer.publish()
