"""The folder of a run: everything that is needed to look at it, resume it, branch it and rerun it.

Layout and file formats are the interface; they are described in docs/run-folder.md. One process at a time may train
in a folder: it holds an advisory lock that the kernel drops with the process.
"""

import difflib
import errno
import fcntl
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import msgspec

from springtide import __version__
from springtide.core.errors import RunDamagedError, StorageFullError, UsageError

RUNS = Path("runs")
"""Where runs live unless the user says otherwise."""

PATIENCE = 2.0
"""Seconds to wait for a lock: a killed trainer's children, or a glance at the lock, may hold it for a moment."""

VERSIONED = ("torch", "transformers")
"""Packages whose versions a run records, where they are installed."""


class Parent(msgspec.Struct, frozen=True):
    """The run and the train step that a branched run continues from."""

    run: str
    step: int


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`run.json`. `created` is UTC in ISO 8601; `versions` has python, platform and packages. `chats`: the file whose
    chats the warm start imitates, empty if it imitates the environment's demonstrations."""

    id: str
    created: str
    springtide: str
    versions: dict[str, str] = {}
    sandbox_level: str = ""
    parent: Parent | None = None
    chats: str = ""


class RunFolder:
    """Paths in a run's folder. Make one with `create` or `open`."""

    def __init__(self, path: Path, info: RunInfo) -> None:
        self.path = path
        self.info = info

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def recipe(self) -> Path:
        return self.path / "recipe.toml"

    @property
    def journal(self) -> Path:
        return self.path / "journal.sqlite"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    @property
    def diagnosis(self) -> Path:
        """What the run was diagnosed with while it trained."""
        return self.path / "diagnosis.jsonl"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def report(self) -> Path:
        return self.path / "report.md"

    @property
    def curve(self) -> Path:
        return self.path / "curve.png"

    @property
    def model(self) -> Path:
        """Architecture and tokenizer; weights are in the checkpoints."""
        return self.path / "model"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:06d}"

    def checkpoint_steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending. A checkpoint under construction has another name."""
        steps = []
        for path in self.checkpoints.glob("step-*"):
            with suppress(ValueError):
                steps.append(int(path.name.removeprefix("step-")))
        return sorted(steps)

    @classmethod
    def create(
        cls,
        *,
        name: str,
        recipe_text: str,
        path: Path | None = None,
        root: Path = RUNS,
        parent: Parent | None = None,
        chats: Path | None = None,
        created: datetime | None = None,
    ) -> "RunFolder":
        """A new folder with its recipe: `root/<name>-<YYYYMMDD-HHMMSS>[-n]` in local time, or exactly `path`."""
        created = created or datetime.now(UTC)
        folder = None
        try:
            dated = f"{name}-{created.astimezone():%Y%m%d-%H%M%S}"
            folder = _claim(path) if path is not None else _claim_dated(root, dated)
            info = RunInfo(
                id=folder.name,
                created=created.isoformat(timespec="seconds"),
                springtide=__version__,
                versions=_versions(),
                parent=parent,
                chats="" if chats is None else str(chats.resolve()),
            )
            run = cls(folder, info)
            run.recipe.write_text(recipe_text, encoding="utf-8")
            run.checkpoints.mkdir()
            run._write_info()
        except OSError as error:
            if folder is not None:
                _remove(folder)
            raise _not_made(path or root, error) from error
        return run

    @classmethod
    def open(cls, path_or_id: str | Path, *, root: Path = RUNS) -> "RunFolder":
        """The run of that folder, or of that id under `root`.

        UsageError if there is none, RunDamagedError if its run.json cannot be read.
        """
        candidates = [Path(path_or_id), root / path_or_id]
        for candidate in candidates:
            if (candidate / "run.json").is_file():
                return cls(candidate, _read_info(candidate / "run.json"))
        raise UsageError(_no_such_run(str(path_or_id), candidates[0], root))

    def branch(self, step: int, *, name: str, recipe_text: str, path: Path | None = None) -> "RunFolder":
        """A new run beside this one that starts from its checkpoint `step`: model and checkpoint are copied.

        UsageError if there is no such checkpoint, or if it goes while it is copied: a run that is being trained removes
        old ones. Whatever is raised, nothing of the new run stays.
        """
        steps = self.checkpoint_steps()
        if step not in steps:
            known = f"it has {', '.join(map(str, steps))}" if steps else "it has none"
            raise UsageError(f"--from {step}: run {self.id} has no checkpoint at that step; {known}.")
        parent = Parent(run=self.id, step=step)
        made = RunFolder.create(name=name, recipe_text=recipe_text, path=path, root=self.path.parent, parent=parent)
        try:
            if self.model.is_dir():
                _copy(self.model, made.model)
            _copy(self.checkpoint(step), made.checkpoint(step))
        except OSError as error:
            made.remove()
            if self.checkpoint(step).is_dir():
                raise _not_made(made.path, error) from error
            raise UsageError(
                f"--from {step}: run {self.id} removed that checkpoint while it was copied; branch from a newer one, "
                "or stop the run first."
            ) from error
        except BaseException:
            made.remove()
            raise
        return made

    def remove(self) -> None:
        """The run and all that is in it; a folder that cannot be removed itself, such as a mount, is left empty."""
        _remove(self.path)

    def record(self, **fields: Any) -> None:
        """Change fields of `run.json`, such as the sandbox level once it is known."""
        self.info = msgspec.structs.replace(self.info, **fields)
        self._write_info()

    @contextmanager
    def lock(self, *, patience: float = PATIENCE) -> Iterator[None]:
        """Hold the run for this process. UsageError if another process still trains it after `patience` seconds."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            deadline = monotonic() + patience
            while not _try_lock(descriptor, fcntl.LOCK_EX):
                if monotonic() >= deadline:
                    owner = os.pread(descriptor, 32, 0).decode() or "unknown"
                    raise UsageError(
                        f"Run {self.id} is being trained by process {owner}: wait for it, stop it, or branch from a "
                        "checkpoint into a new run with --from STEP."
                    )
                sleep(0.05)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def locked(self) -> bool:
        """Whether some process holds the run."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            return not _try_lock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def _write_info(self) -> None:
        text = msgspec.json.format(msgspec.json.encode(self.info), indent=2)
        write_atomically(self.path / "run.json", text + b"\n")


def _copy(source: Path, target: Path) -> None:
    """The whole folder or none of it. OSError of the first file that fails."""
    unfinished = target.with_name(target.name + ".tmp")
    unfinished.mkdir()
    for path in sorted(source.rglob("*")):
        place = unfinished / path.relative_to(source)
        if path.is_dir():
            place.mkdir()
        else:
            shutil.copy2(path, place)
    if not source.is_dir():  # then nothing says that all of it was seen
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
    os.replace(unfinished, target)


def _not_made(path: Path, error: OSError) -> StorageFullError | UsageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFullError(
            f"The disk is full: there is no room for a run in {path}; free some space, or name another place with "
            "--run-folder."
        )
    return UsageError(
        f"The run folder {path} cannot be made ({error.strerror or error}); name another with --run-folder, or give "
        "yourself the permission to write there."
    )


def list_runs(root: Path = RUNS) -> list[str]:
    """Ids of the runs under `root`, newest first."""
    found = [path.parent for path in root.glob("*/run.json")]
    return [folder.name for folder in sorted(found, key=lambda folder: (_created(folder), folder.name), reverse=True)]


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` as a whole; readers see the old or the new content."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _claim(path: Path) -> Path:
    if (path / "run.json").exists():
        raise UsageError(
            f"The folder {path} already holds a run: choose another with --run-folder, or continue this one with "
            f"--resume {path}."
        )
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"The folder {path} is in use for something else: choose an empty or a new one.")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _claim_dated(root: Path, name: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = root / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
            continue
        return path


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for package in VERSIONED:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _read_info(path: Path) -> RunInfo:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunInfo)
    except (OSError, msgspec.DecodeError) as error:
        raise RunDamagedError(f"{path} cannot be read ({error}); restore it from a copy.") from error


def _created(folder: Path) -> str:
    try:
        return _read_info(folder / "run.json").created
    except RunDamagedError:
        return ""


def _no_such_run(wanted: str, path: Path, root: Path) -> str:
    if path.is_dir():
        return f"The folder {wanted} is not a run: it has no run.json."
    runs = list_runs(root)
    if not runs:
        return f"There is no run '{wanted}', and no run at all under {root}/: give the path of a run folder."
    close = difflib.get_close_matches(wanted, runs, n=1)
    hint = f"did you mean {close[0]}?" if close else f"the newest is {runs[0]}."
    return f"There is no run '{wanted}': it is neither a run folder nor one of the {len(runs)} under {root}/; {hint}"
