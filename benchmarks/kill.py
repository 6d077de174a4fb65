"""Kills a training process with SIGKILL at random times, resumes it, and has a second program check the result.

    python benchmarks/kill.py --kills 20 --json

Each process of a run is killed at a time drawn uniformly over the length of an undisturbed run (L0: real processes,
real files); up to four kills hit the same run, one after the other. After the last one the run is resumed to its end.
"""

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kill_support.checker import Verdict, check  # noqa: E402

RESULT = HERE / "results" / "kill.json"
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


def start(recipe: Path, folder: Path, mode: str) -> subprocess.Popen[bytes]:
    """A fresh or a resumed process, whatever the folder asks for."""
    fresh = not (folder / "run.json").exists()
    which = [str(recipe), "--run-folder", str(folder), "--set", f"scheduling.mode={mode}"]
    arguments = which if fresh else ["--resume", str(folder)]
    command = [sys.executable, "-m", "springtide", "train", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"A run failed:\n{errors.decode()}")


def undisturbed(recipe: Path, folder: Path, mode: str) -> tuple[float, Verdict]:
    began = time.monotonic()
    finish(start(recipe, folder, mode))
    return time.monotonic() - began, check(folder)


def killed_run(recipe: Path, folder: Path, mode: str, *, kills: int, span: float, luck: random.Random) -> list[dict]:
    """Kill `kills` processes of one run, then let it finish. Returns when each was killed, and at which stage."""
    records = []
    while len(records) < kills:
        process = start(recipe, folder, mode)
        at = luck.uniform(0.0, span)
        try:
            process.wait(timeout=at)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        finished = process.wait() == 0
        process.stderr.close()
        records.append({"mode": mode, "seconds": at, "stage": stage(folder), "finished_before": finished})
    finish(start(recipe, folder, mode))
    return records


def stage(folder: Path) -> str:
    """What the run was doing, by its own status; '' if it had not got that far."""
    try:
        status = json.loads((folder / "status.json").read_text())
    except (OSError, ValueError):
        return ""
    return f"{status['phase']} {status['step']}"


def leftovers() -> int:
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return sum("springtide train" in line for line in listing.splitlines())


def series(recipe: Path, root: Path, mode: str, kills: int, seed: int) -> dict:
    luck = random.Random(f"{mode} {seed}")
    span, reference = undisturbed(recipe, root / f"{mode}-whole", mode)
    records, verdicts = [], []
    while len(records) < kills:
        folder = root / f"{mode}-{len(records)}"
        count = min(KILLS_PER_RUN, kills - len(records))
        records += killed_run(recipe, folder, mode, kills=count, span=span, luck=luck)
        verdicts.append(check(folder))
        print(f"{mode}: {len(records)} of {kills} kills", file=sys.stderr)
    return summary(mode, span, reference, records, verdicts)


def summary(mode: str, span: float, reference: Verdict, records: list[dict], verdicts: list[Verdict]) -> dict:
    every_task = list(range(STEPS * 4))
    return {
        "mode": mode,
        "undisturbed_seconds": span,
        "kills": len(records),
        "runs": len(verdicts),
        "lost": sum(verdict.lost for verdict in verdicts),
        "duplicated": sum(verdict.duplicated for verdict in verdicts),
        "problems": [problem for verdict in [reference, *verdicts] for problem in verdict.problems],
        # how long a task is follows from its number: the same tasks, each once, means no bias towards short ones
        "tasks_complete": all(sorted(verdict.tasks) == every_task for verdict in [reference, *verdicts]),
        "bit_identical": all(verdict.final_digest == reference.final_digest for verdict in verdicts),
        "records": records,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="kills in each mode (default 20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="two kills in each mode, result file untouched")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    options = parser.parse_args()
    kills = 2 if options.quick else options.kills
    with tempfile.TemporaryDirectory() as scratch:
        recipe = Path(scratch) / "kill.toml"
        recipe.write_text(RECIPE)
        modes = [series(recipe, Path(scratch), mode, kills, options.seed) for mode in ("sync", "async")]
    sync, asynchronous = modes
    figures = {
        "kills": sum(mode["kills"] for mode in modes),
        "lost": sum(mode["lost"] for mode in modes),
        "duplicated": sum(mode["duplicated"] for mode in modes),
        "bit_identical": sync["bit_identical"],
        "tasks_complete": sync["tasks_complete"] and asynchronous["tasks_complete"],
        "problems": sync["problems"] + asynchronous["problems"],
        "processes_left": leftovers(),
    }
    if not options.quick:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(
            json.dumps({"label": "L0", "seed": options.seed, "figures": figures, "modes": modes}, indent=1)
        )
    print(
        f"{'mode':8} {'kills':>6} {'lost':>6} {'twice':>6} {'all tasks':>10} {'same weights':>13} {'killed at (s)':>14}"
    )
    for mode in modes:
        middle = statistics.median(record["seconds"] for record in mode["records"])
        same = str(mode["bit_identical"]) if mode["mode"] == "sync" else "not claimed"
        print(
            f"{mode['mode']:8} {mode['kills']:6} {mode['lost']:6} {mode['duplicated']:6} "
            f"{mode['tasks_complete']!s:>10} {same:>13} {middle:14.1f}"
        )
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
