"""A console of 200 MB, most of it rows: in seconds, and in less memory than it has rows."""

import json
import subprocess
import sys

import pytest

SIZE = 200_000_000
SECONDS, GIGABYTES = 10.0, 1.0

PROGRAM = """
import json, resource, sys, time
from pathlib import Path
from springtide.diagnosis.read import read
began = time.process_time()
(frame,) = read(Path(sys.argv[1]))
print(json.dumps({
    "seconds": time.process_time() - began,
    "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    "last": frame.last_step,
    "rows": len(frame.series["reward/mean"]),
}))
"""

NAMES = [
    *("loss", "grad_norm", "learning_rate", "num_tokens", "reward", "reward_std", "frac_reward_zero_std", "entropy"),
    *(f"completions/{name}" for name in ("mean_length", "min_length", "max_length", "clipped_ratio")),
    *(f"rewards/{name}/{of}" for name in ("right", "format") for of in ("mean", "std")),
    *(f"sampling/importance_sampling_ratio/{of}" for of in ("min", "mean", "max")),
    *(f"clip_ratio/{name}" for name in ("low_mean", "high_mean", "region_mean")),
    "step_time",
]


def trl(step):
    row = {name: (step * 7919 + place * 104729) % 1000003 / 1000003 for place, name in enumerate(NAMES)}
    return f"\r  2%|2         | {step}/1000000 [00:09<10:50,  3.30s/it]{row | {'epoch': step / 1000}}\n"


def verl(step):
    row = {"critic/score/mean": step % 97 / 97} | {f"timing_s/part_{place}": place + step / 1e6 for place in range(60)}
    shown = " - ".join(f"{name}:{value}" for name, value in row.items())
    return f"\x1b[36m(TaskRunner pid=1)\x1b[0m step:{step} - {shown}\n"


@pytest.mark.slow
@pytest.mark.parametrize("line", [trl, verl])
def test_a_large_console(tmp_path, line):
    path = tmp_path / "train.log"
    step = size = 0
    noise = "(WorkerDict pid=7) INFO 05-01 12:00:00 some text about nothing {in particular}\n" * 5
    with path.open("w") as file:
        while size < SIZE:
            step += 1
            size += file.write(line(step) + (noise if step % 10 == 0 else ""))
    done = subprocess.run([sys.executable, "-c", PROGRAM, path], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (found["rows"], found["last"]) == (step, step)
    assert found["seconds"] < SECONDS
    assert found["gigabytes"] < GIGABYTES
