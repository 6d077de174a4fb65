"""Kills a training process with SIGKILL at random times, resumes it, and has a second program check the result.

    python benchmarks/kill.py --kills 20 --json

Each process of a run is killed at a time drawn uniformly over what it needs to its end, by an undisturbed run's time
(L0: real processes, real files). Up to four kills hit the same run, one after the other, unless it ends before; only
processes that a signal reached count. After the last kill the run is resumed to its end.
"""

import json
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from common.report import finish, machine, parser, say, table  # noqa: E402
from kill_support.checker import Verdict, check  # noqa: E402

KILLS_PER_RUN = 4
STEPS = 24
RECIPE = f"""
name = "kill"
[environment]
type = "custom"
path = "{HERE / "kill_support" / "echoes.py"}:Echoes"
[model]
type = "tiny"
layers = 2
hidden = 64
heads = 2
kv_heads = 1
intermediate = 128
vocabulary = 320
max_context = 256
[warm_start]
steps = 20
batch_size = 16
demonstrations = 64
[rollout]
max_turns = 4
max_tokens_per_turn = 16
max_context = 256
[engine]
capacity_tokens = 32768
[scheduling]
groups_per_step = 4
group_size = 4
steps = {STEPS}
[training.optimizer]
learning_rate = 1e-3
[checkpoint]
every = 5
[evaluation]
tasks = 16
every = 8
tasks_on_the_way = 16
"""


@dataclass(frozen=True)
class Pace:
    """How long an undisturbed run takes: in all, and before its first train step begins."""

    whole: float
    before: float

    def left(self, done: int) -> float:
        """Seconds that a process started after `done` steps needs to the end of the run."""
        return self.before + (self.whole - self.before) * (1 - done / STEPS)

    def of(self, whole: float) -> "Pace":
        """The same shares of another length."""
        return Pace(whole, self.before * whole / self.whole)


def start(recipe: Path, folder: Path, mode: str) -> subprocess.Popen[bytes]:
    """A fresh or a resumed process, whatever the folder asks for."""
    fresh = not (folder / "run.json").exists()
    which = [str(recipe), "--run-folder", str(folder), "--set", f"scheduling.mode={mode}"]
    arguments = which if fresh else ["--resume", str(folder)]
    command = [sys.executable, "-m", "springtide", "train", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def complete(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"A run failed:\n{errors.decode()}")


def undisturbed(recipe: Path, folder: Path, mode: str) -> tuple[Pace, Verdict]:
    began = time.monotonic()
    complete(start(recipe, folder, mode))
    whole = time.monotonic() - began
    connection = sqlite3.connect(folder / "journal.sqlite")
    first, last = connection.execute("SELECT min(time), max(time) FROM entries WHERE tag = 'step_finished'").fetchone()
    connection.close()
    return Pace(whole, max(0.0, whole - (last - first) * STEPS / (STEPS - 1))), check(folder)


def killed_run(
    recipe: Path, folder: Path, mode: str, *, kills: int, pace: Pace, luck: random.Random
) -> tuple[list[dict], Pace]:
    """Kill up to `kills` processes of one run, then let it end. Returns when each was killed, at which stage, and the
    pace, which is another one when a whole run has ended before its time: the machine has become faster."""
    records: list[dict] = []
    done = 0
    while len(records) < kills and done < STEPS:
        began = time.monotonic()
        process = start(recipe, folder, mode)
        at = luck.uniform(0.0, pace.left(done))
        try:
            process.wait(timeout=at)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        signalled = process.wait() == -signal.SIGKILL
        process.stderr.close()
        if not signalled:
            if not records:
                pace = pace.of(time.monotonic() - began)
            break
        phase, done = stage(folder)
        records.append({"mode": mode, "seconds": at, "phase": phase, "step": done})
    complete(start(recipe, folder, mode))
    return records, pace


def stage(folder: Path) -> tuple[str, int]:
    """What the run was doing after how many train steps, by its own status; "starting" before it has one."""
    try:
        status = json.loads((folder / "status.json").read_text())
    except (OSError, ValueError):
        return "starting", 0
    return status["phase"], status["step"]


def leftovers(scratch: str) -> int:
    """Processes that still run with a folder of ours in their command line."""
    listing = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line.split(maxsplit=1) for line in listing.splitlines()]
    return sum(scratch in args for pid, args in lines if int(pid) != os.getpid())


def series(recipe: Path, root: Path, mode: str, kills: int, seed: int) -> dict:
    luck = random.Random(f"{mode} {seed}")
    pace, reference = undisturbed(recipe, root / f"{mode}-whole", mode)
    records, verdicts = [], []
    while len(records) < kills:
        folder = root / f"{mode}-{len(verdicts)}"
        count = min(KILLS_PER_RUN, kills - len(records))
        made, pace = killed_run(recipe, folder, mode, kills=count, pace=pace, luck=luck)
        records += made
        verdicts.append(check(folder))
        say(f"{mode}: {len(records)} of {kills} kills")
    return summary(mode, pace, reference, records, verdicts)


def summary(mode: str, pace: Pace, reference: Verdict, records: list[dict], verdicts: list[Verdict]) -> dict:
    every_task = list(range(STEPS * 4))
    return {
        "mode": mode,
        "undisturbed_seconds": pace.whole,
        "kills": len(records),
        "phases": dict(Counter(record["phase"] for record in records)),
        "runs": len(verdicts),
        "lost": sum(verdict.lost for verdict in verdicts),
        "duplicated": sum(verdict.duplicated for verdict in verdicts),
        "problems": [problem for verdict in [reference, *verdicts] for problem in verdict.problems],
        # how long a task is follows from its number: the same tasks, each once, means no bias towards short ones
        "tasks_complete": all(sorted(verdict.tasks) == every_task for verdict in [reference, *verdicts]),
        "bit_identical": all(verdict.weights == reference.weights for verdict in verdicts),
        "records": records,
    }


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--kills", type=int, default=20, help="kills in each mode (default 20, in a quick run 2)")
    options = made.parse_args()
    kills = 2 if options.quick else options.kills
    started = machine()
    with tempfile.TemporaryDirectory() as scratch:
        recipe = Path(scratch) / "kill.toml"
        recipe.write_text(RECIPE)
        modes = [series(recipe, Path(scratch), mode, kills, options.seed) for mode in ("sync", "async")]
        left = leftovers(scratch)
    sync, asynchronous = modes
    figures = {
        "kills": sum(mode["kills"] for mode in modes),
        "lost": sum(mode["lost"] for mode in modes),
        "duplicated": sum(mode["duplicated"] for mode in modes),
        "bit_identical": sync["bit_identical"],
        "tasks_complete": sync["tasks_complete"] and asynchronous["tasks_complete"],
        "problems": sync["problems"] + asynchronous["problems"],
        "processes_left": left,
    }
    print(
        table(("mode", "kills", "while", "lost", "twice", "all tasks", "same weights", "at (s)"), list(map(row, modes)))
    )
    finish("kill", figures=figures, record={"machine": started, "modes": modes}, options=options)


def row(mode: dict) -> tuple[str, ...]:
    phases = ", ".join(f"{phase} {count}" for phase, count in sorted(mode["phases"].items()))
    same = str(mode["bit_identical"]) if mode["mode"] == "sync" else "not claimed"
    middle = statistics.median(record["seconds"] for record in mode["records"])
    counts = (str(mode[name]) for name in ("lost", "duplicated", "tasks_complete"))
    return mode["mode"], str(mode["kills"]), phases, *counts, same, f"{middle:.1f}"


if __name__ == "__main__":
    main()
