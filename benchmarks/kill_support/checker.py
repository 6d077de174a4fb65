"""Reads a run's journal and checkpoints, and nothing else of the project: what was lost, what happened twice.

Only the standard library is used, so that a fault in the project's own reading cannot hide a fault in its writing.
"""

import hashlib
import json
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Verdict:
    """`lost` and `duplicated` are (group, slot) pairs or steps; `problems` are sentences."""

    lost: int = 0
    duplicated: int = 0
    steps: int = 0
    trained: int = 0
    tasks: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    final_digest: str = ""
    weights: str = ""
    """Hash of the last checkpoint's model file, as it is on disk."""


def check(run: Path) -> Verdict:
    """The verdict on a finished run."""
    verdict = Verdict()
    connection = sqlite3.connect(f"file:{run / 'journal.sqlite'}?mode=ro", uri=True)
    commands, events = _entries(connection)
    issued = {command["group"]: command for command in commands if command["type"] == "issue_group"}
    trains = [command for command in commands if command["type"] == "train"]
    last = trains[-1]["boundary"]["next_group"] if trains else 0
    slots = {(group, slot) for group, command in issued.items() if group < last for slot in range(command["size"])}
    _check_ends(connection, slots, trains, verdict)
    _check_steps(trains, verdict)
    _check_trajectories(connection, verdict)
    verdict.tasks = [issued[group]["task"] for train in trains for group in train["groups"]]
    verdict.final_digest = _final_digest(events)
    _check_checkpoints(run / "checkpoints", verdict)
    return verdict


def _entries(connection: sqlite3.Connection) -> tuple[list[dict], list[dict]]:
    commands, events = [], []
    for kind, body in connection.execute("SELECT type, body FROM entries ORDER BY seq"):
        (commands if kind == "command" else events).append(json.loads(body))
    return commands, events


def _check_ends(
    connection: sqlite3.Connection, slots: set[tuple[int, int]], trains: list[dict], verdict: Verdict
) -> None:
    ends = Counter()
    trained = set()
    for group, slot, end, step in connection.execute("SELECT grp, slot, end, step FROM ends"):
        ends[group, slot] += 1
        if end == "trained":
            trained.add((step, group))
            verdict.trained += 1
    verdict.lost += len(slots - set(ends))
    verdict.duplicated += sum(count - 1 for count in ends.values())
    if unknown := set(ends) - slots:
        verdict.problems.append(f"{len(unknown)} slots ended that were never issued")
    expected = {(train["step"], group) for train in trains for group in train["groups"]}
    if trained - expected:
        verdict.problems.append(f"{len(trained - expected)} groups count as trained but are in no train step")


def _check_steps(trains: list[dict], verdict: Verdict) -> None:
    steps = Counter(train["step"] for train in trains)
    groups = Counter(group for train in trains for group in train["groups"])
    verdict.steps = len(steps)
    verdict.duplicated += sum(count - 1 for count in steps.values()) + sum(count - 1 for count in groups.values())
    verdict.lost += len(set(range(1, max(steps, default=0) + 1)) - set(steps))


def _check_trajectories(connection: sqlite3.Connection, verdict: Verdict) -> None:
    missing = connection.execute(
        "SELECT count(*) FROM ends WHERE end = 'trained' AND NOT EXISTS (SELECT 1 FROM trajectories t WHERE"
        " t.purpose = 'train' AND t.grp = ends.grp AND t.slot = ends.slot AND t.reward IS NOT NULL)"
    ).fetchone()[0]
    if missing:
        verdict.problems.append(f"{missing} trained slots have no valid trajectory in the journal")


def _final_digest(events: list[dict]) -> str:
    digests = {}
    for event in events:
        if event["type"] == "process_started" and event.get("open_step"):
            event = event["open_step"]
        if "digest" in event:
            digests[event["step"]] = event["digest"]
    return digests[max(digests)] if digests else ""


def _check_checkpoints(folder: Path, verdict: Verdict) -> None:
    """The last checkpoint is that of the last step, and what its files hold is what its manifest says."""
    newest = max(folder.glob("step-*"))
    manifest = json.loads((newest / "checkpoint.json").read_text())
    seal = manifest.pop("seal", "")
    if hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest() != seal:
        verdict.problems.append(f"{newest.name}/checkpoint.json is not what was written")
    index = json.loads((newest / "trainer.json").read_text())
    verdict.weights = hashlib.sha256((newest / "model.safetensors").read_bytes()).hexdigest()
    if index.get("digest") != verdict.final_digest:
        verdict.problems.append(
            f"{newest.name} holds {index.get('digest')}, the journal ends at {verdict.final_digest}"
        )
    files = {path.name: path for path in newest.iterdir() if path.name != "checkpoint.json"}
    for name in sorted(files.keys() | manifest["files"].keys()):
        facts = manifest["files"].get(name)
        if name not in files or facts is None:
            verdict.problems.append(f"{newest.name}/{name} is {'not there' if facts else 'not in the manifest'}")
        elif hashlib.sha256(files[name].read_bytes()).hexdigest() != facts["sha256"]:
            verdict.problems.append(f"{newest.name}/{name} is not what was written")
