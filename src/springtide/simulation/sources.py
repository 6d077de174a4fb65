"""What a user names is found: workloads and clusters that come with the package, files, traces, runs."""

from pathlib import Path
from typing import NamedTuple

from springtide.core.errors import UsageError
from springtide.simulation import cluster as clusters
from springtide.simulation import workload as workloads
from springtide.simulation.cluster import Cluster
from springtide.simulation.script import Work
from springtide.simulation.toml_file import load, parse
from springtide.simulation.traces import formats, run
from springtide.simulation.traces.recorded import recorded
from springtide.simulation.traces.thunderagent import STAGES_FILE, read_stages
from springtide.simulation.traces.trace import Trace
from springtide.simulation.workload import Workload
from springtide.telemetry.run_folder import RUNS, RunFolder


class Found(NamedTuple):
    """`told` has what was assumed, a sentence each."""

    work: Work
    told: tuple[str, ...] = ()


def find_work(
    named: str,
    *,
    groups_per_step: int | None = None,
    group_size: int | None = None,
    context: int | None = None,
) -> Found:
    """A workload by its name or its TOML file, or a trace: a run's folder or id, or a file of a known format.

    With batches and groups of its own size, or of these; episodes end before they are longer than `context` tokens.
    UsageError for what cannot be found or read, and for a workload that has no room within `context`.
    """
    given = _named(named)
    if isinstance(given, Trace):
        trace = given if context is None else given.within(context)
        work, told = recorded(trace, group_size=group_size, groups_per_step=groups_per_step)
        return Found(work, tuple(told))
    sizes = {"groups_per_step": groups_per_step, "group_size": group_size}
    changed = given.model_copy(update={name: size for name, size in sizes.items() if size is not None})
    return Found(changed if context is None else changed.within(context))


def find_trace(named: str, *, context: int | None = None) -> Trace:
    """As `find_work`, and UsageError for a workload that was not recorded."""
    given = _named(named)
    if not isinstance(given, Trace):
        raise UsageError(f"'{named}' was not recorded; name a run's folder, or the file of a trace.")
    return given if context is None else given.within(context)


def find_cluster(named: str) -> Cluster:
    """By its name, or its TOML file. UsageError for what cannot be found or is wrong."""
    if named in clusters.names() or not _is_file(Path(named)):
        return clusters.cluster(named)
    return load(Cluster, Path(named))


def require_room(work: Work, cluster: Cluster) -> None:
    """UsageError where a rank of `cluster` cannot hold the longest turn: it would wait for ever."""
    if work.longest > cluster.kv_tokens:
        raise UsageError(
            f"'{work.name}' has turns of up to {work.longest} tokens, and a rank of '{cluster.name}' holds "
            f"{cluster.kv_tokens} (kv_tokens): take another cluster, or end episodes sooner with --context."
        )


def _named(named: str) -> Workload | Trace:
    if named in workloads.names():
        return workloads.preset(named)
    path = Path(named)
    if _is_file(path):
        return _file(path)
    if _is_file(path / "run.json") or _is_file(RUNS / named / "run.json"):
        return run.read(RunFolder.open(named))
    if _exists(path):
        return _folder(path)
    raise UsageError(
        f"There is no workload '{named}'; there are: {', '.join(workloads.names())}. Nor is it a file, or a run."
    )


def _is_file(path: Path) -> bool:
    return _exists(path) and path.is_file()


def _exists(path: Path) -> bool:
    """Also of a name that is too long to be one."""
    try:
        return path.exists()
    except OSError:
        return False


def _file(path: Path) -> Workload | Trace:
    if path.suffix.lower() == ".toml":
        return load(Workload, path)
    reader = formats.reader(path)
    if reader is not None:
        return reader(path)
    try:
        tables = parse(path)
    except UsageError:
        tables = {}
    if not tables:
        raise UsageError(formats.unknown(path))
    return load(Workload, path)


def _folder(path: Path) -> Trace:
    """Of a run that ThunderAgent's agent recorded: a file per task."""
    files = sorted(path.glob(f"*/{STAGES_FILE}"))
    if not files:
        raise UsageError(
            f"The folder {path} is no trace: it has neither run.json, which a run has, nor folders with {STAGES_FILE}; "
            "name a run's folder, or a file."
        )
    return read_stages(*files)
