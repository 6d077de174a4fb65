"""What `simulate` and `plan` are asked to play, and on what."""

from pathlib import Path
from typing import Annotated

import typer

from springtide.cli.console import errors
from springtide.core.errors import UsageError
from springtide.simulation.cluster import Cluster
from springtide.simulation.script import Work
from springtide.simulation.sources import find_cluster, find_trace, find_work, require_room
from springtide.simulation.traces.fit import fit
from springtide.simulation.traces.recorded import recorded
from springtide.simulation.traces.written import text_of

ModelledWork = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="A workload's name (`springtide simulate --list`) or TOML file, a run, or the file of a recorded trace.",
    ),
]

ModelledCluster = Annotated[
    str, typer.Option("--cluster", metavar="CLUSTER", help="The modelled hardware: a name or a TOML file.")
]

GroupsPerStep = Annotated[
    int | None,
    typer.Option("--groups-per-step", min=1, metavar="N", help="Groups per batch, in place of the workload's."),
]

GroupSize = Annotated[
    int | None,
    typer.Option("--group-size", min=1, metavar="N", help="Episodes per group, in place of the workload's."),
]

Context = Annotated[
    int | None,
    typer.Option("--context", min=1, metavar="TOKENS", help="Episodes end before they are longer than this."),
]


def found(
    workload: str,
    cluster: str,
    *,
    groups_per_step: int | None,
    group_size: int | None,
    context: int | None,
) -> tuple[Work, Cluster, list[str]]:
    """The workload, the cluster, and what was assumed, which is told at once."""
    work, told = find_work(workload, groups_per_step=groups_per_step, group_size=group_size, context=context)
    hardware = find_cluster(cluster)
    require_room(work, hardware)
    _tell(work, told)
    return work, hardware, list(told)


def write_fit(
    workload: str,
    file: Path,
    *,
    groups_per_step: int | None,
    group_size: int | None,
    context: int | None,
) -> dict[str, object]:
    """Writes the file and returns what there is to say of it. UsageError where one is in the way."""
    if file.exists():
        raise UsageError(f"--fit {file}: there is such a file; name another, or remove it.")
    if not file.parent.is_dir():
        raise UsageError(f"--fit {file}: there is no folder {file.parent}; make it, or name another.")
    work, told = recorded(find_trace(workload, context=context), group_size=group_size, groups_per_step=groups_per_step)
    _tell(work, tuple(told))
    fitted = fit(work, told)
    file.write_text(text_of(fitted), encoding="utf-8")
    return {"file": str(file), "workload": fitted.workload.name, "comments": fitted.comments, "notes": fitted.notes}


def _tell(work: Work, told: tuple[str, ...]) -> None:
    if told:
        errors().print(f"{work.name}: {work.about}.", markup=False, highlight=False, soft_wrap=True)
    for sentence in told:
        errors().print(f"- {sentence}", markup=False, highlight=False, soft_wrap=True)
