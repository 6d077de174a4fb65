"""The way in: everything that a path holds, as one frame per run.

Containers are found, read, put together where a run is scattered over them, cut into runs, and brought to canonical
names; what several containers say of one run becomes one frame. Nothing is run, imported or written that the path
names.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from springtide.core.errors import UsageError
from springtide.diagnosis.beside import with_neighbours
from springtide.diagnosis.canonical import canonical
from springtide.diagnosis.find import Source, find, run_folder
from springtide.diagnosis.frame import Frame
from springtide.diagnosis.gather import gather
from springtide.diagnosis.identify import GENERIC, identify
from springtide.diagnosis.join import join
from springtide.diagnosis.log import Log, Note
from springtide.diagnosis.readers.csv_table import put_together
from springtide.diagnosis.split import split


def read(path: Path) -> list[Frame]:
    """One frame per run, in the order of their names; none if there is nothing to read.

    UsageError if the path does not exist or may not be read.
    """
    if not path.exists():
        raise UsageError(f"There is nothing at {path}: give a log file, or the folder of a run or of several.")
    found = find(path)
    notes = tuple(Note(text=f"{each.path} could not be read ({each.reason}).") for each in found.unreadable)
    logs = put_together(log for source in found.sources for log in read_source(source))
    frames = join([frame for log in gather(logs) for frame in frames_of(log)])
    if not frames and found.samples:
        note = Note(text="There are rollouts here and no log of metrics.")
        return [Frame(source=path, framework=GENERIC, series={}, notes=(note,), samples=found.samples)]
    if not frames and notes:
        raise UsageError(f"{notes[0].text[:-1]}, and nothing else there is a log: make it readable, or name another.")
    frames = [replace(frame, notes=(*frame.notes, *notes)) for frame in frames]
    return [with_samples(frame, found.samples, alone=len(frames) == 1) for frame in frames]


def with_samples(frame: Frame, samples: Sequence[Path], *, alone: bool) -> Frame:
    """The frame with the rollouts of its run: those in its folder, or all there are if it is the only run."""
    folder = run_folder(frame.source)
    own = tuple(each for each in samples if alone or each.is_relative_to(folder))
    return replace(frame, samples=(*frame.samples, *own)) if own else frame


def frames_of(log: Log) -> list[Frame]:
    """Frames of the runs in one log."""
    table = identify(log)
    frames = [canonical(run, table) for run in split(with_neighbours(log))]
    if len(frames) == 1:
        return frames
    return [replace(frame, source=Path(f"{frame.source}#{number}")) for number, frame in enumerate(frames, 1)]


def read_source(source: Source) -> list[Log]:
    """The logs of one container; an empty one with a note if the system does not let it be read."""
    try:
        return source.reader.read(source.path)
    except OSError as error:
        note = Note(text=f"It could not be read: {error.strerror or error}.")
        return [Log(source=source.path, container=source.reader.__name__.rpartition(".")[2], rows=(), notes=(note,))]
