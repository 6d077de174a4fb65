"""The runs as they are kept: what each logged, under canonical names, and an index of what was planted in which.

`unpacked` makes a folder of a run again, with what a diagnosis reads of one: recipe, metrics, and which checkpoints
there were.
"""

import gzip
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import tomli_w

from sick_support.plan import Half, PlannedRun, load_plan, runs
from springtide.diagnosis.metric import metrics
from springtide.recipe import dump_recipe
from springtide.telemetry.jsonl import read_metrics
from springtide.telemetry.record import MetricRecord
from springtide.telemetry.run_folder import RunFolder

FOLDER = Path(__file__).resolve().parent.parent / "results" / "sick_runs"

OWN = frozenset(
    (
        "rollout/tokens",
        "rollout/episode_seconds",
        "reward/standard_error",
        "eval/valid",
        "eval/successes",
        "groups/filtered",
        "groups/expired",
        "train/tokens",
        "train/updates",
        "train/invalid_members",
        "train/outside_support",
        "invalid/version_rate",
    )
)
"""Names that are kept besides the canonical ones of a diagnosis: it may want them under another."""

DIGITS = 6
"""Of a number that is kept."""

SMOOTHED = 5
"""Train steps that a reward in the index is the mean of."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What the index says of a run. `cause`, `dose`, `value` and `expected` are of what was planted, empty in a healthy
    run; `first`: the train step from which on it is there. `verdict`: what a diagnosis should say, of a healthy run the
    worst that it may say. Rewards are means over SMOOTHED train steps."""

    name: str
    half: Half
    verdict: str
    seed: int
    about: str
    steps: int
    seconds: float
    reward_first: float
    reward_best: float
    reward_last: float
    eval_first: float | None = None
    eval_last: float | None = None
    cause: str = ""
    dose: str = ""
    value: float | None = None
    first: int | None = None
    expected: tuple[str, ...] = ()


class _Index(msgspec.Struct):
    run: list[Entry]


def log_path(name: str, root: Path = FOLDER) -> Path:
    return root / f"{name}.jsonl.gz"


def read_index(root: Path = FOLDER) -> list[Entry]:
    path = root / "index.toml"
    if not path.exists():
        return []
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _Index).run


def write_index(entries: Sequence[Entry], root: Path = FOLDER) -> None:
    """In the order of names."""
    found = [msgspec.to_builtins(entry) for entry in sorted(entries, key=lambda entry: entry.name)]
    plain = [{name: value for name, value in entry.items() if value not in (None, "", [])} for entry in found]
    (root / "index.toml").write_text(tomli_w.dumps({"run": plain}), encoding="utf-8")


def keep(run: PlannedRun, folder: RunFolder, seconds: float, root: Path = FOLDER) -> Entry:
    """Write what `folder` logged; the entry is still to be put in the index."""
    records = [_thinned(record) for record in read_metrics(folder.metrics) if record.step >= 0]
    lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records if record.metrics)
    root.mkdir(parents=True, exist_ok=True)
    log_path(run.name, root).write_bytes(gzip.compress(lines, mtime=0))
    return describe(run, records, seconds=seconds)


def describe(run: PlannedRun, records: Sequence[MetricRecord], *, seconds: float) -> Entry:
    rewards = [record.metrics["reward/mean"] for record in records if "reward/mean" in record.metrics]
    width = min(SMOOTHED, len(rewards))
    smooth = [sum(rewards[i : i + width]) / width for i in range(len(rewards) - width + 1)]
    held_out = [record.metrics["eval/success"] for record in records if "eval/success" in record.metrics]
    return Entry(
        name=run.name,
        half=run.half,
        verdict=run.verdict,
        seed=run.seed,
        about=run.about,
        steps=len(rewards),
        seconds=round(seconds, 1),
        reward_first=round(smooth[0], 4),
        reward_best=round(max(smooth), 4),
        reward_last=round(smooth[-1], 4),
        eval_first=round(held_out[0], 4) if held_out else None,
        eval_last=round(held_out[-1], 4) if held_out else None,
        cause=run.cause,
        dose=run.dose,
        value=run.value,
        first=max((fault.first for fault in run.faults), default=1) if run.sick else None,
        expected=run.expected,
    )


@contextmanager
def unpacked(entry: Entry, root: Path = FOLDER) -> Iterator[Path]:
    """A folder of the run, until the end of the block. Nothing in it tells what was planted."""
    recipe = planned()[entry.name].recipe()
    with TemporaryDirectory() as scratch:
        folder = RunFolder.create(name="run", recipe_text=dump_recipe(recipe), path=Path(scratch) / "run")
        folder.metrics.write_bytes(gzip.decompress(log_path(entry.name, root).read_bytes()))
        for step in {*range(0, entry.steps, recipe.checkpoint.every), entry.steps}:
            folder.checkpoint(step).mkdir(parents=True)
        yield folder.path


def planned() -> dict[str, PlannedRun]:
    return {run.name: run for run in runs(load_plan())}


def _thinned(record: MetricRecord) -> MetricRecord:
    canonical = metrics()
    kept = {
        name: float(f"{value:.{DIGITS}g}")
        for name, value in record.metrics.items()
        if name in canonical or name in OWN or name.startswith("environment/")
    }
    return MetricRecord(time=round(record.time, 2), step=record.step, metrics=kept)


def summary(entry: Entry) -> list[Any]:
    """A row of a table."""
    held_out = [] if entry.eval_first is None else [f"{entry.eval_first:.2f} > {entry.eval_last:.2f}"]
    return [
        entry.name,
        entry.half,
        "" if entry.value is None else f"{entry.value:g}",
        f"{entry.reward_first:.2f} > {entry.reward_best:.2f} > {entry.reward_last:.2f}",
        *(held_out or ["-"]),
        f"{entry.seconds:.0f}",
    ]
