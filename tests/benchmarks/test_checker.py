"""The second program of the kill benchmark finds each kind of damage; on a sound run it finds none."""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from kill_support.checker import Verdict, check
from springtide.runtime.journal import SCHEMA
from springtide.training.checkpoint import MANIFEST
from springtide.training.manifest import describe_files, write_sealed

SIZE = 2


class Run:
    """Two steps of one group each, written by hand in the format of a run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = sqlite3.connect(path / "journal.sqlite")
        self.journal.executescript(SCHEMA)
        self.checkpoint = path / "checkpoints" / "step-000002"
        self.checkpoint.mkdir(parents=True)
        for group in (0, 1):
            self.entry("command", type="issue_group", group=group, size=SIZE, task=group)
            for slot in range(SIZE):
                self.trajectory(group, slot)
                self.execute("INSERT INTO ends VALUES (?, ?, 'trained', ?, '')", group, slot, group + 1)
            boundary = {"next_group": group + 1}
            self.entry("command", type="train", step=group + 1, groups=[group], boundary=boundary)
            self.entry("event", type="step_finished", step=group + 1, digest=f"digest {group + 1}")
        (self.checkpoint / "model.safetensors").write_bytes(b"weights")
        (self.checkpoint / "optimizer.safetensors").write_bytes(b"moments")
        self.index(digest="digest 2")

    def execute(self, statement: str, *values: object) -> None:
        with self.journal:
            self.journal.execute(statement, values)

    def entry(self, kind: str, **body: object) -> None:
        self.execute("INSERT INTO entries (time, type, tag, body) VALUES (0, ?, '', ?)", kind, json.dumps(body))

    def trajectory(self, group: int, slot: int) -> None:
        columns = "(purpose, grp, slot, attempt, version, reward, ending, turns, tokens, body)"
        self.execute(
            f"INSERT INTO trajectories {columns} VALUES ('train', ?, ?, 0, 0, 1.0, '', 1, 1, x'')", group, slot
        )

    def index(self, **fields: object) -> None:
        (self.checkpoint / "trainer.json").write_text(json.dumps(fields))
        (self.checkpoint / MANIFEST).unlink(missing_ok=True)
        write_sealed(self.checkpoint / MANIFEST, {"step": 2, "position": {}, "files": describe_files(self.checkpoint)})

    def scratch(self, name: str, content: bytes) -> None:
        (self.checkpoint / name).write_bytes(content)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_sound_run_passes(run: Run) -> None:
    verdict = check(run.path)
    assert (verdict.lost, verdict.duplicated, verdict.problems) == (0, 0, [])
    assert (verdict.steps, verdict.trained, verdict.tasks) == (2, 2 * SIZE, [0, 1])
    assert verdict.weights == hashlib.sha256(b"weights").hexdigest()


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda run: run.execute("DELETE FROM ends WHERE grp = 0 AND slot = 1"), lambda v: v.lost == 1),
        (lambda run: run.execute("DELETE FROM trajectories WHERE slot = 1"), lambda v: "no valid" in v.problems[0]),
        (lambda run: run.execute("UPDATE trajectories SET reward = NULL"), lambda v: "no valid" in v.problems[0]),
        (lambda run: run.execute("INSERT INTO ends VALUES (7, 0, 'expired', 1, '')"), lambda v: bool(v.problems)),
        (lambda run: run.execute("UPDATE ends SET step = 2 WHERE grp = 0"), lambda v: bool(v.problems)),
        (
            lambda run: run.entry("command", type="train", step=2, groups=[1], boundary={"next_group": 2}),
            lambda v: v.duplicated == 2,
        ),
        (
            lambda run: run.entry("command", type="train", step=4, groups=[], boundary={"next_group": 2}),
            lambda v: v.lost == 1,
        ),
        (lambda run: run.index(digest="digest 1"), lambda v: "the journal ends at digest 2" in v.problems[0]),
        (
            lambda run: run.scratch("model.safetensors", b"weightz"),
            lambda v: "not what was written" in v.problems[0] and v.weights != hashlib.sha256(b"weights").hexdigest(),
        ),
        (
            lambda run: run.scratch("trainer.json", b'{"digest":  "digest 2"}'),
            lambda v: v.problems == ["step-000002/trainer.json is not what was written"],
        ),
        (
            lambda run: run.scratch(MANIFEST, (run.checkpoint / MANIFEST).read_bytes().replace(b": 2", b": 3")),
            lambda v: v.problems == [f"step-000002/{MANIFEST} is not what was written"],
        ),
        (
            lambda run: (run.checkpoint / "optimizer.safetensors").unlink(),
            lambda v: v.problems == ["step-000002/optimizer.safetensors is not there"],
        ),
        (
            lambda run: run.scratch("another.safetensors", b""),
            lambda v: v.problems == ["step-000002/another.safetensors is not in the manifest"],
        ),
    ],
)
def test_damage_of_each_kind_is_found(
    run: Run, damage: Callable[[Run], object], found: Callable[[Verdict], bool]
) -> None:
    damage(run)
    assert found(check(run.path))


def test_a_slot_that_ended_twice_is_found(run: Run) -> None:
    run.execute("CREATE TABLE loose AS SELECT * FROM ends")
    run.execute("INSERT INTO loose SELECT * FROM ends WHERE grp = 1 AND slot = 0")
    run.execute("DROP TABLE ends")
    run.execute("ALTER TABLE loose RENAME TO ends")
    assert check(run.path).duplicated == 1
