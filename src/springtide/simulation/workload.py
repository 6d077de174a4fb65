"""A workload: what episodes of a kind of task look like, as distributions. Presets are in `presets/`.

Sources and assumptions stand in the preset files, one by one; nothing else is claimed of the benchmarks they are named
after.
"""

import random
import tomllib
from collections.abc import Iterator
from importlib import resources
from statistics import NormalDist

from pydantic import Field, model_validator

from springtide.core.errors import UsageError
from springtide.simulation.distribution import Bounded, Constant, Distribution
from springtide.simulation.script import Script, Turn, Work

PRESETS = "presets"

_NORMAL = NormalDist()


class Workload(Work):
    """Tokens and seconds. Where a share is given, so much of the (normal) variance is common to a group."""

    system: int = Field(ge=0, description="Leading prompt tokens that all tasks share.")
    task: Distribution = Field(description="Prompt tokens of the task, shared by its group.")
    turns: Distribution = Field(description="Turns until the agent is done; a full context ends an episode sooner.")
    turns_shared: float = Field(0.6, ge=0, le=1)
    append: Distribution = Field(description="Tokens that a reply of the environment adds.")
    output: Distribution = Field(description="Tokens sampled per turn.")
    output_shared: float = Field(0.2, ge=0, le=1)
    latency: Distribution = Field(description="Seconds that the environment takes per turn.")
    latency_shared: float = Field(0.25, ge=0, le=1)
    reset: Distribution = Field(description="Seconds until an environment is up.")
    grade: Distribution = Constant(type="constant", value=0.0)
    context: int = Field(ge=1, description="Most tokens of context and output.")
    window: int | None = Field(None, ge=1, description="Replies that stay in the context; None: all of them.")
    failure: float = Field(0.0, ge=0, le=1, description="Share of attempts that the infrastructure fails.")
    failure_seconds: Distribution = Constant(type="constant", value=0.0)
    change_at: int | None = Field(None, ge=0, description="The first task of which the following are different.")
    change_latency: float = Field(1.0, gt=0, description="By what factor latencies are.")
    change_output: float = Field(1.0, gt=0, description="By what factor outputs are, within the context.")

    @model_validator(mode="after")
    def _has_room(self) -> "Workload":
        if self.system >= self._prompt_max:
            raise ValueError(
                f"context = {self.context} has no room: system = {self.system} is the beginning of the prompt"
                f"{'' if self.window is None else ', append of the first reply,'} and a token of the task and one of "
                f"output have to follow; raise it{'' if self.window is None else ', or give append a lower `high`'}"
            )
        return self

    @property
    def _prompt_max(self) -> int:
        """Longer prompts are cut, so that there is a turn."""
        return self.context - 1 - (0 if self.window is None else _whole(self.append, 1.0))

    @property
    def longest(self) -> int:
        return self.context

    def within(self, limit: int) -> "Workload":
        """Its contexts end at `limit`, if not before. UsageError where that leaves no room for the prompt."""
        shorter = self.model_copy(update={"context": min(limit, self.context)})
        if self.system >= shorter._prompt_max:
            raise UsageError(f"'{self.name}' begins with {self.system} tokens; give a larger --context than {limit}.")
        return shorter

    def script(self, *, seed: int, task: int, slot: int, attempt: int) -> Script:
        common = random.Random(f"{self.name} {seed} task {task}")
        effect = {name: common.gauss() for name in ("turns", "latency", "output")}
        task_tokens = _whole(self.task, common.random())
        solvable = common.random()
        own = random.Random(f"{self.name} {seed} task {task} slot {slot} attempt {attempt}")
        wanted = _whole(self.turns, _mixed(effect["turns"], own.gauss(), self.turns_shared))
        prefix = min(self.system + task_tokens, self._prompt_max)
        reset = self.reset.quantile(own.random())
        changed = self.change_at is not None and task >= self.change_at
        longer = self.change_output if changed else 1.0
        turns = list(self._turns(prefix, wanted, own, effect, longer))
        factor = self.latency_factor * (self.change_latency if changed else 1.0)
        if factor != 1.0:
            turns = [turn._replace(latency=factor * turn.latency) for turn in turns]
        failed = own.random() < self.failure
        if failed:
            place = own.randrange(len(turns))
            turns = turns[: place + 1]
            turns[-1] = turns[-1]._replace(latency=self.failure_seconds.quantile(own.random()))
        return Script(
            shared=self.system,
            prefix=prefix,
            reset=reset,
            turns=tuple(turns),
            grade=self.grade.quantile(own.random()),
            reward=float(own.random() < solvable),
            failed=failed,
            trained=tuple(_trained(turns, windowed=self.window is not None)),
        )

    def _turns(
        self, prefix: int, wanted: int, own: random.Random, effect: dict[str, float], longer: float
    ) -> Iterator[Turn]:
        """Up to `wanted` turns, of `longer` times the output; fewer if the context is full before."""
        outputs: list[int] = []
        seen: list[int] = [_whole(self.append, own.random())] if self.window is not None else []
        context = prefix + sum(seen)
        reusable = 0
        for _ in range(max(1, wanted)):
            drawn = _whole(self.output, _mixed(effect["output"], own.gauss(), self.output_shared))
            output = max(1, round(longer * drawn))
            output = min(output, self.context - context)
            if output <= 0:
                return
            latency = self.latency.quantile(_mixed(effect["latency"], own.gauss(), self.latency_shared))
            yield Turn(context, reusable, output, latency)
            outputs.append(output)
            seen.append(_whole(self.append, own.random()))
            reusable = context + output
            context = reusable + seen[-1]
            if self.window is not None and len(seen) > self.window:
                # The oldest image goes, and with it every token's place behind it.
                reusable = prefix + sum(outputs[: len(seen) - self.window - 1])
                context = prefix + sum(outputs) + sum(seen[-self.window :])


def _trained(turns: list[Turn], *, windowed: bool) -> Iterator[int]:
    for turn in turns if windowed else turns[-1:]:
        yield turn.context + turn.output


def _whole(distribution: Bounded, u: float) -> int:
    return round(distribution.quantile(u))


def _mixed(shared: float, own: float, share: float) -> float:
    """A uniform number of which `share` of the normal variance is the group's."""
    return _NORMAL.cdf(share**0.5 * shared + (1 - share) ** 0.5 * own)


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
