"""`springtide plan`: how many ranks a target rate takes, found on modelled hardware."""

from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from springtide.cli.console import errors, output
from springtide.cli.modelled import Context, GroupSize, GroupsPerStep, ModelledCluster, ModelledWork
from springtide.cli.modelled import found as modelled
from springtide.cli.options import Json, ModelledOverrides, examples
from springtide.core.errors import SpringtideError, UsageError
from springtide.simulation.plan import Candidate, Plan
from springtide.simulation.plan import plan as search
from springtide.simulation.strategy import ours


def register(app: typer.Typer) -> None:
    app.command(
        "plan",
        epilog=examples(
            "springtide plan tau --cluster h100-14b --target 5000",
            "springtide plan swe --cluster h100-32b --target 1500 --set staleness=3 --ranks-max 32",
            "springtide plan roll10 --target 12000 --groups-per-step 128 --json",
            "springtide plan runs/quickstart-20300501-120000 --cluster my-cluster.toml --target 800",
        ),
    )(plan)


def plan(
    workload: ModelledWork = "",
    cluster: ModelledCluster = "h100-7b",
    target: Annotated[
        float | None, typer.Option(metavar="TOKENS_PER_SECOND", help="Trained tokens per second that are wanted.")
    ] = None,
    ranks_max: Annotated[int, typer.Option(metavar="N", help="The most ranks to consider.")] = 64,
    overrides: ModelledOverrides = None,
    groups_per_step: GroupsPerStep = None,
    group_size: GroupSize = None,
    context: Context = None,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Train steps that are measured.")] = 6,
    warm_steps: Annotated[int, typer.Option(min=0, metavar="N", help="Train steps before them.")] = 2,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Runs, of which the median counts.")] = 1,
    seed: Annotated[int, typer.Option(min=0, metavar="SEED", help="Of the first run.")] = 0,
    as_json: Json = False,
) -> None:
    """Find the fewest ranks of a cluster's kind, and their split, that reach a target rate (L2).

    The bound says with how many ranks it begins: with fewer, no schedule gets there. Then runs are simulated with our
    policies, changed by [cyan]--set[/]. Exits with 1 where no number of ranks up to the most reaches the target.
    """
    if not workload:
        raise UsageError("Name a workload, such as `springtide plan tau`; `springtide simulate --list` shows all.")
    if target is None:
        raise UsageError("--target is missing: give the trained tokens per second that are wanted, such as 5000.")
    work, hardware, assumed = modelled(
        workload, cluster, groups_per_step=groups_per_step, group_size=group_size, context=context
    )
    found = search(
        work,
        hardware,
        ours(overrides or ()),
        target=target,
        ranks_max=ranks_max,
        seeds=list(range(seed, seed + seeds)),
        steps=steps,
        warm_steps=warm_steps,
        watch=lambda ranks: errors().print(f"Simulating {ranks} ranks ...", highlight=False),
    )
    _print(errors() if as_json else output(), found)
    if as_json:
        typer.echo(msgspec.json.encode({**msgspec.to_builtins(found), "assumptions": assumed}).decode())
    if found.ranks is None:
        raise SpringtideError(
            f"{found.target_tokens_per_s:,.0f} trained tokens per second are not reached: {found.remedy}"
        )


def _print(console: Console, found: Plan) -> None:
    if found.candidates:
        table = Table("ranks", "rollout + training", "goodput", "of the bound", "s per step", "limited by", box=None)
        for candidate in found.candidates:
            table.add_row(*_cells(candidate), style="bold" if candidate.ranks == found.ranks else None)
        console.print(table)
    if found.ranks is None:
        return
    answer = next(candidate for candidate in found.candidates if candidate.ranks == found.ranks)
    console.print(
        f"[b]{answer.ranks} ranks[/b] (rollout and training {_split(answer)}) reach "
        f"{answer.goodput_tokens_per_s:,.0f} trained tokens per second of {found.workload} on {found.cluster} "
        f"(L2, {len(found.seeds)} seeds); with fewer than {found.ranks_bound} no schedule reaches "
        f"{found.target_tokens_per_s:,.0f}.",
        soft_wrap=True,
        highlight=False,
    )
    if not found.monotone:
        console.print("A larger number falls short of it: the answer is close; take more --steps or --seeds.")


def _cells(candidate: Candidate) -> tuple[str, ...]:
    return (
        str(candidate.ranks),
        _split(candidate),
        f"{candidate.goodput_tokens_per_s:,.0f}",
        f"{candidate.bound_fraction:.0%}",
        f"{candidate.step_seconds:.0f}",
        candidate.limit,
    )


def _split(candidate: Candidate) -> str:
    if candidate.rollout_ranks == candidate.ranks:
        return "in turns"
    return f"{candidate.rollout_ranks} + {candidate.training_ranks}"
