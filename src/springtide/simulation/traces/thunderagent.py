"""ThunderAgent: how long steps of a coding agent took (https://github.com/ThunderAgent-org/ThunderAgent).

Two formats: `step_profiles.csv` of its router, and `stage_timings.jsonl` of its agent, one file per task. Neither has
any tokens: turns and times are the trace's, tokens are drawn from a workload of the same kind.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from springtide.core.errors import UsageError
from springtide.simulation.distribution import Constant
from springtide.simulation.traces.lines import NAME_MAX, SECONDS_MAX, TOKENS_MAX, records, rows
from springtide.simulation.traces.trace import TURNS_MAX, Episode, Trace
from springtide.simulation.workload import Workload, preset

PROFILES = "ThunderAgent step profiles"
STAGES = "ThunderAgent stage timings"
COLUMNS = frozenset({"program_id", "step_id", "decode_s", "tool_call_s"})
KEYS = frozenset({"timestamp", "instance_id", "stage", "phase", "step"})
STAGES_FILE = "stage_timings.jsonl"

TOKENS_OF = "swe"

DRAWN = f"There are no tokens in the trace: those of the workload '{TOKENS_OF}' are drawn."
REWARDED = "Every episode is rewarded with 1."
NO_START = "Starting an environment and grading take no time."
NOT_PAUSED = (
    "Time that the recorded scheduler held a step back (pause_s) is left out; no latency follows the last step."
)
NO_GRADE = "Grading takes no time."


class Pace:
    """The times of one episode: `waits` has one for each turn, after it."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.reset = 0.0


def read_profiles(path: Path) -> Trace:
    """`tool_call_s` of a step is the time before it. A program whose steps begin again is another episode."""
    paces: list[Pace] = []
    current: dict[str, tuple[Pace, int]] = {}
    for read, row in enumerate(rows(path)):
        if read == TURNS_MAX:
            break
        name, step = row.text("program_id"), row.whole("step_id")
        pace, before = current.get(name, (None, 0))
        if pace is None or step <= before:
            pace = Pace()
            paces.append(pace)
        pace.waits[-1:] = [row.number_at("tool_call_s")] if pace.waits else []
        pace.waits.append(0.0)
        current[name] = pace, step
    return _trace(path, PROFILES, paces, (NOT_PAUSED, NO_START))


class Stage(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    instance_id: Annotated[str, msgspec.Meta(max_length=NAME_MAX)]
    stage: Annotated[str, msgspec.Meta(max_length=NAME_MAX)]
    phase: str
    step: Annotated[int, msgspec.Meta(ge=0, le=TOKENS_MAX)]
    attempt: Annotated[int, msgspec.Meta(ge=0, le=TOKENS_MAX)] = 1


class Watch:
    """An episode as its stages are entered and left. Whatever lies between two model calls is the environment's."""

    def __init__(self, begun: float) -> None:
        self.pace = Pace()
        self._begun = begun

    def see(self, stage: Stage) -> bool:
        """Whether that was a turn."""
        model, pace = stage.stage == "llm_reasoning", self.pace
        if model and stage.phase == "exit":
            pace.waits.append(0.0)
            self._begun = stage.timestamp
            return True
        since = min(max(0.0, stage.timestamp - self._begun), SECONDS_MAX)
        if pace.waits:
            pace.waits[-1] = since
        elif model:
            pace.reset = since
        return False


def read_stages(*paths: Path) -> Trace:
    """Each (instance, attempt) of each file is an episode."""
    watches: dict[tuple[Path, str, int], Watch] = {}
    turns = 0
    for path in paths:
        for _, stage in records(path, Stage):
            key = (path, stage.instance_id, stage.attempt)
            if key not in watches:
                watches[key] = Watch(stage.timestamp)
            turns += watches[key].see(stage)
            if TURNS_MAX in (turns, len(watches)):
                break
    paces = [watch.pace for watch in watches.values() if watch.pace.waits]
    path = paths[0] if len(paths) == 1 else paths[0].parent.parent
    return _trace(path, STAGES, paces, (NO_GRADE,))


def _trace(path: Path, kind: str, paces: Sequence[Pace], assumptions: Sequence[str]) -> Trace:
    if not paces:
        raise UsageError(f"{path}: this {kind} file has no step of the model that came to its end; name a longer one.")
    slots, cut = [], 0
    work = preset(TOKENS_OF).model_copy(update={"failure": 0.0})
    for number, pace in enumerate(paces):
        episode = _episode(work, number, pace)
        cut += len(pace.waits) - len(episode.turns)
        slots.append((episode,))
    told = [DRAWN, *assumptions, REWARDED]
    if cut:
        told.append(f"{cut:,} steps for which the context of '{TOKENS_OF}' has no room are left out.")
    return Trace(name=path.name, format=kind, slots=tuple(slots), assumptions=tuple(told))


def _episode(work: Workload, number: int, pace: Pace) -> Episode:
    turns = Constant(type="constant", value=len(pace.waits), high=TURNS_MAX)
    script = work.model_copy(update={"turns": turns}).script(seed=0, task=number, slot=0, attempt=1)
    return Episode(
        turns=tuple(turn._replace(latency=wait) for turn, wait in zip(script.turns, pace.waits, strict=False)),
        trained=script.trained,
        common=script.shared,
        reset=pace.reset,
    )
