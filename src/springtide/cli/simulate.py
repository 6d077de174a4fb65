"""`springtide simulate`: what a workload would come to on a modelled cluster."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from springtide.cli.console import errors, output
from springtide.cli.modelled import Context, GroupSize, GroupsPerStep, ModelledCluster, ModelledWork, found, write_fit
from springtide.cli.options import Fail, Json, ModelledOverrides, examples
from springtide.core.errors import MissingExtraError, UsageError
from springtide.simulation import cluster as clusters
from springtide.simulation import workload as workloads
from springtide.simulation.bands import WIDTH, Band, bands
from springtide.simulation.failure import Failure, parse
from springtide.simulation.outcomes import Outcomes
from springtide.simulation.strategy import Strategy, strategy_from
from springtide.simulation.summary import Summary, summarise
from springtide.simulation.timeline import Timeline, draw

PICTURES = (".png", ".svg", ".pdf")


def register(app: typer.Typer) -> None:
    app.command(
        "simulate",
        epilog=examples(
            "springtide simulate tau",
            "springtide simulate tau --cluster h100-14b --set kv=keep --set evicts=warm --seeds 5",
            "springtide simulate swe --cluster h100-32b --set staleness=2 --picture swe.png",
            "springtide simulate tau --set kv=keep --bands",
            "springtide simulate tau --set elasticity=rates --fail 1@300 --fail 6@400-900 --picture tau.png",
            "springtide simulate runs/quickstart-20300501-120000 --group-size 4",
            "springtide simulate coding_trace.csv --context 60000 --cluster my-cluster.toml",
            "springtide simulate coding_trace.csv --context 60000 --fit coding.toml",
            "springtide simulate coding.toml --json",
            "springtide simulate --list",
        ),
    )(simulate)


def simulate(
    workload: ModelledWork = "",
    cluster: ModelledCluster = "h100-7b",
    overrides: ModelledOverrides = None,
    groups_per_step: GroupsPerStep = None,
    group_size: GroupSize = None,
    context: Context = None,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Train steps that are measured.")] = 6,
    warm_steps: Annotated[int, typer.Option(min=0, metavar="N", help="Train steps before them.")] = 2,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Runs, of which the median counts.")] = 1,
    seed: Annotated[int, typer.Option(min=0, metavar="SEED", help="Of the first run.")] = 0,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw what every rank did (first run).")] = None,
    with_bands: Annotated[
        bool, typer.Option("--bands", help="Also with each group of costs, and the latency, 30 % lower and higher.")
    ] = False,
    fail: Fail = None,
    fit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a workload that is fitted to a recorded trace, and simulate nothing."),
    ] = None,
    everything: Annotated[bool, typer.Option("--list", help="List workloads, clusters and settings.")] = False,
    as_json: Json = False,
) -> None:
    """Play a workload on modelled hardware in virtual time (L2), and compare with what no schedule can beat.

    The workload comes with the package, is a TOML file of yours, or was recorded: by a run, or by another program.
    """
    if everything:
        _list()
        return
    if not workload:
        raise UsageError("Name a workload, such as `springtide simulate tau`; `springtide simulate --list` shows all.")
    sizes = {"groups_per_step": groups_per_step, "group_size": group_size, "context": context}
    if fit is not None:
        _fit(workload, fit, sizes, as_json=as_json)
        return
    _require_drawable(picture)
    failures = _failures(fail or (), with_bands=with_bands)
    timeline = Timeline() if picture is not None else None
    work, hardware, assumed = found(workload, cluster, **sizes)
    summary, runs = summarise(
        work,
        hardware,
        strategy_from(overrides or ()),
        seeds=list(range(seed, seed + seeds)),
        steps=steps,
        warm_steps=warm_steps,
        timeline=timeline,
        failures=failures,
    )
    _print(summary)
    if timeline is not None and picture is not None:
        _draw(timeline, picture, summary, runs[0])
    told = {**msgspec.to_builtins(summary), "assumptions": assumed}
    if with_bands:
        changed = bands(summary, work, hardware, steps=steps, warm_steps=warm_steps, watch=_announce)
        _print_bands(changed)
        told["bands"] = msgspec.to_builtins(changed)
    if as_json:
        typer.echo(msgspec.json.encode(told).decode())


def _fit(workload: str, file: Path, sizes: dict[str, int | None], *, as_json: bool) -> None:
    told = write_fit(workload, file, **sizes)
    output().print(
        f"Written: {file}. Change it, and play it with `springtide simulate {file}`.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if as_json:
        typer.echo(msgspec.json.encode(told).decode())


def _failures(texts: Sequence[str], *, with_bands: bool) -> list[Failure]:
    if texts and with_bands:
        raise UsageError("--bands compares runs in which nothing fails; leave --fail out, or --bands.")
    return [parse(text) for text in texts]


def _draw(timeline: Timeline, picture: Path, summary: Summary, run: Outcomes) -> None:
    title = f"{summary.workload} on {summary.cluster}, {summary.strategy['mode']} (L2)"
    draw(timeline, picture, title=title, steps=run.step_ends)
    output().print(f"Timeline: {picture}", markup=False, highlight=False, soft_wrap=True)


def _require_drawable(picture: Path | None) -> None:
    """Before anything is simulated."""
    if picture is None:
        return
    if find_spec("matplotlib") is None:
        raise MissingExtraError(feature="--picture", extra="train")
    if picture.suffix.lower() not in PICTURES:
        raise UsageError(f"--picture {picture}: a picture's name ends in one of {', '.join(PICTURES)}.")
    if not picture.parent.is_dir():
        raise UsageError(f"--picture {picture}: there is no folder {picture.parent}; make it, or name another.")
    if picture.is_dir():
        raise UsageError(f"--picture {picture} is a folder; name a file in it.")


def _announce(what: str) -> None:
    errors().print(f"Simulating {what} ...", highlight=False)


def _print_bands(found: list[Band]) -> None:
    table = Table("what", f"at -{WIDTH:.0%}", f"at +{WIDTH:.0%}", "change", box=None, pad_edge=False)
    for band in found:
        change = f"{band.change_lower:+.1%} / {band.change_higher:+.1%}"
        table.add_row(band.what, f"{band.lower:,.0f}", f"{band.higher:,.0f}", change)
    output().print(table)
    chance = [band.what for band in found if band.by_chance]
    if chance:
        output().print(
            f"Chance shows in: {', '.join(chance)} (the same sign both ways); take more --steps or --seeds.",
            soft_wrap=True,
            highlight=False,
        )


def _print(summary: Summary) -> None:
    console = output()
    console.print(
        f"{summary.workload} on {summary.cluster}, {summary.strategy['mode']} (L2, {len(summary.seeds)} seeds): "
        f"[b]{summary.goodput_tokens_per_s:,.0f}[/b] trained tokens per second "
        f"({summary.lowest:,.0f} to {summary.highest:,.0f}), {summary.bound_fraction:.0%} of the bound of "
        f"{summary.bound_tokens_per_s:,.0f} ({summary.in_order_tokens_per_s:,.0f} with versions in order); "
        f"{summary.step_seconds:.0f} s per step, staleness at most "
        f"{summary.staleness_max}, KV hit rate {summary.hit_rate:.3f}",
        soft_wrap=True,
        highlight=False,
    )
    table = Table("where the time went", *summary.ledger, box=None, pad_edge=False)
    for name in sorted({name for shares in summary.ledger.values() for name in shares}):
        table.add_row(name, *(f"{shares[name]:.1%}" if name in shares else "" for shares in summary.ledger.values()))
    console.print(table)


def _list() -> None:
    console = output()
    about = {
        "workload": {name: workloads.preset(name).about for name in workloads.names()},
        "cluster": {name: clusters.cluster(name).about for name in clusters.names()},
        "setting": {name: field.description or "" for name, field in Strategy.model_fields.items()},
    }
    for kind, entries in about.items():
        table = Table(kind, "", box=None, pad_edge=False)
        for name, text in entries.items():
            table.add_row(name, text)
        console.print(table)
