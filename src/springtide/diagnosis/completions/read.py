"""Finds a run's dumped rollouts and reads them: our own journal, verl, TRL, tinker-cookbook, prime-rl, and what people
write themselves.

A file counts as a dump if its first rows hold completions. What cannot be read is said in a note, and only where
nothing at all can be read is there an error.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from springtide.core.errors import SpringtideError, UsageError
from springtide.diagnosis.completions.content import Row
from springtide.diagnosis.completions.formats import Reader, reader_of
from springtide.diagnosis.completions.journal import JOURNAL, read_journal, spread
from springtide.diagnosis.completions.lines import Lines, table_rows
from springtide.diagnosis.completions.sample import Sample, Samples
from springtide.diagnosis.completions.sieve import STEPS, Sieve
from springtide.diagnosis.completions.tinker import LOGTREE, SUMMARIES, read_iteration
from springtide.diagnosis.log import Note

SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
NOT_ROLLOUTS = re.compile(
    r"^(metrics|checkpoints|timing_spans|diagnosis|events|config|.*_logtree)\.jsonl?$|^(val|eval)"
)
"""Names of other files that live beside dumps, and rollouts of evaluations."""

NO_PYARROW = (
    "{path} is a Parquet file, which takes pyarrow to read: run `pip install pyarrow`, or write the completions as "
    "JSON lines."
)


def read_samples(path: Path) -> Samples:
    """All rollouts in a folder, or of one file. UsageError if there are none, or none that can be read."""
    if not path.exists():
        raise UsageError(f"There is no file or folder {path}: name a run's folder or its dumped rollouts.")
    found = read_files(dumps(path), source=path)
    if not found.samples:
        said = " ".join(note.text for note in found.notes)
        raise UsageError(
            said
            or f"{path} holds no rollouts: turn them on (TRL: log_completions = True; verl: trainer.rollout_data_dir; "
            "tinker-cookbook: rollout_json_export), or name the folder that they are in."
        )
    return found


def dumps(path: Path) -> list[Path]:
    """The files with rollouts in a folder, by step; for tinker-cookbook the folders of iterations."""
    if path.is_file():
        return [path]
    if (path / JOURNAL).is_file():
        return [path / JOURNAL]
    iterations = {each.parent for name in (SUMMARIES, LOGTREE) for each in path.rglob(name)}
    if iterations:
        return sorted(iterations, key=_natural)
    files = [each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file()]
    return sorted((each for each in files if not NOT_ROLLOUTS.match(each.name)), key=_natural)


def read_files(files: Sequence[Path], *, source: Path) -> Samples:
    """The rollouts in those files; a long list is thinned evenly. Never raises for what is in them."""
    sieve = Sieve()
    notes: list[Note] = []
    frameworks: list[str] = []
    chosen = [files[index] for index in spread(list(range(len(files))), 2 * STEPS)]
    for path in chosen:
        try:
            framework = _read(path, sieve, notes)
        except ModuleNotFoundError:
            notes.append(Note(text=NO_PYARROW.format(path=path.name)))
            break
        except (OSError, ValueError, SpringtideError) as error:
            notes.append(Note(text=f"{path.name} could not be read to its end: {error}"))
            continue
        if framework:
            frameworks.append(framework)
    if len(chosen) < len(files):
        notes.append(Note(text=f"Of {len(files)} files with rollouts, {len(chosen)} were read, evenly over the run."))
    framework = max(set(frameworks), key=frameworks.count) if frameworks else "generic"
    return Samples(
        source=source, framework=framework, samples=tuple(sieve.samples()), rows=sieve.rows, notes=tuple(notes)
    )


def _read(path: Path, sieve: Sieve, notes: list[Note]) -> str:
    """Adds the rollouts of a file to `sieve`. The framework, empty if it holds none."""
    if path.name == JOURNAL:
        _add(sieve, read_journal(path))
        return "springtide"
    if path.is_dir():
        _add(sieve, read_iteration(path))
        return "tinker"
    step = step_of(path)
    if path.suffix == ".parquet":
        return _add_rows(sieve, table_rows(path), step)
    lines = Lines(path)
    framework = _add_rows(sieve, iter(lines), step)
    if lines.bad and framework:
        notes.append(Note(text=f"{path.name}: {lines.bad} lines could not be read and were passed over."))
    return framework


def _add(sieve: Sieve, samples: Iterable[Sample]) -> None:
    for sample in samples:
        sieve.add(sample)


def _add_rows(sieve: Sieve, rows: Iterator[tuple[str, Row]], step: int) -> str:
    head = list(islice(rows, 3))
    reader: Reader | None = None
    framework = ""
    for place, row in head:
        framework, reader = reader_of(row)
        if reader(row, place, step) is not None:
            break
    else:
        return ""
    for chunk in (head, rows):
        for place, row in chunk:
            sample = reader(row, place, step)
            if sample is not None:
                sieve.add(sample)
    return framework


def step_of(path: Path) -> int:
    """The step that a file's name, or that of its folder, says; 0 if none does."""
    for name in (path.stem, path.parent.name):
        if numbers := re.findall(r"\d+", name):
            return int(numbers[-1][:9])
    return 0


def _natural(path: Path) -> tuple[tuple[int, int, str], ...]:
    """Sorts step 9 before step 10."""
    parts = re.split(r"(\d+)", str(path))
    return tuple((1, int(part[:18]), "") if part.isdigit() else (0, 0, part) for part in parts)
