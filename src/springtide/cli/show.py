"""`springtide show`: what a run's agent did. An overview, or one episode turn by turn as a person reads it.

What a model or an environment says gives the terminal no orders: control characters are spelled out wherever an
episode's text is printed. Nor is any of it, or a path, read as markup.
"""

import json
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from springtide.cli.console import output
from springtide.cli.episodes import EpisodeRow, Overview, episode, open_episodes, overview
from springtide.cli.options import Json, RunName, examples
from springtide.core.message import ImagePart, Message
from springtide.core.outcome import Valid
from springtide.core.segment import Segment
from springtide.core.trajectory import Trajectory
from springtide.core.visible import visible
from springtide.telemetry.run_folder import RunFolder

ROLE_STYLES = {"system": "magenta", "user": "green", "assistant": "cyan", "tool": "yellow"}


def register(app: typer.Typer) -> None:
    app.command(
        "show",
        epilog=examples(
            "springtide show quickstart-20300501-120000",
            "springtide show quickstart-20300501-120000 --trajectory 12.3.1",
            "springtide show quickstart-20300501-120000 --trajectory e7.0",
        ),
    )(show)


def show(
    run: RunName,
    trajectory: Annotated[
        str | None,
        typer.Option(
            "--trajectory",
            metavar="ID",
            help="One episode: GROUP.SLOT or GROUP.SLOT.ATTEMPT, with an e in front for a held-out one.",
        ),
    ] = None,
    last: Annotated[int, typer.Option("--last", metavar="N", min=1, help="How many newest episodes to list.")] = 10,
    as_json: Json = False,
) -> None:
    """Show a run's newest episodes, or one of them turn by turn."""
    folder = RunFolder.open(run)
    with open_episodes(folder) as connection:
        if trajectory is None:
            found = overview(connection, newest=last)
            if as_json:
                typer.echo(json.dumps({"run": folder.id, **msgspec.to_builtins(found)}))
            else:
                print_overview(output(), folder, found)
            return
        one = episode(connection, trajectory)
    if as_json:
        typer.echo(json.dumps(episode_document(one)))
    else:
        print_episode(output(), one)


def print_overview(console: Console, folder: RunFolder, found: Overview) -> None:
    ends = ", ".join(f"{count} {end}" for end, count in found.ends.items()) or "none ended yet"
    console.print(Text.assemble((folder.id, "bold cyan"), f"  made {folder.info.created}"))
    if folder.info.parent is not None:
        console.print(Text(f"branched from {folder.info.parent.run} at step {folder.info.parent.step}"))
    console.print(f"{found.episodes} episodes, {found.invalid} of them invalid; issued slots: {ends}", highlight=False)
    if not found.newest:
        return
    table = Table("episode", "reward", "ending", "turns", "tokens", "version", box=None, pad_edge=False)
    for row in found.newest:
        table.add_row(*_cells(row))
    console.print(table)
    console.print(Text(f"springtide show {folder.path} --trajectory {found.newest[0].id}", "dim"), soft_wrap=True)


def _cells(row: EpisodeRow) -> tuple[str | Text, ...]:
    reward = Text("invalid", "red") if row.reward is None else f"{row.reward:.3g}"
    ending = visible(row.ending if len(row.ending) <= 60 else row.ending[:57] + "...")
    return (row.id, reward, Text(ending), str(row.turns), str(row.tokens), str(row.version))


def print_episode(console: Console, one: Trajectory) -> None:
    """Every message under its role, sampled turns with their tokens and policy versions, the outcome at the end."""
    task = visible(one.task_id)
    console.print(Text.assemble(("episode ", "dim"), (str(one.member), "bold"), ("  task ", "dim"), task))
    for message, segment in conversation(one):
        console.print()
        console.print(_heading(message, segment))
        extras = _extras(message)
        if message.text or not extras:
            console.print(Text(visible(message.text)) if message.text else Text("(nothing)", "dim"), soft_wrap=True)
        for extra in extras:
            console.print(Text(visible(extra), "dim"), soft_wrap=True)
    console.print()
    console.print(_outcome(one))


def conversation(one: Trajectory) -> list[tuple[Message, Segment | None]]:
    """The messages, each sampled one with its segment. Assistant turns given in the prompt were not sampled."""
    sampled = [segment for segment in one.segments if segment.sampled]
    spoken = [index for index, message in enumerate(one.messages) if message.role == "assistant"]
    own = dict(zip(spoken[max(0, len(spoken) - len(sampled)) :], sampled, strict=False))
    return [(message, own.get(index)) for index, message in enumerate(one.messages)]


def episode_document(one: Trajectory) -> dict[str, Any]:
    """An episode for machines: messages with token counts and versions, and the outcome. Token ids are left out."""
    messages = []
    for message, segment in conversation(one):
        document = msgspec.to_builtins(message)
        if segment is not None:
            document |= {"tokens": len(segment.tokens), "versions": sorted(set(segment.versions))}
        messages.append(document)
    return {
        "id": str(one.member),
        "task": one.task_id,
        "messages": messages,
        "outcome": msgspec.to_builtins(one.outcome),
        "turns": one.turns,
        "seconds": one.seconds,
    }


def _heading(message: Message, segment: Segment | None) -> Text:
    name = visible(f"{message.role} {message.name}".strip())
    heading = Text(name, f"bold {ROLE_STYLES[message.role]}")
    if segment is not None:
        versions = sorted(set(segment.versions))
        span = f"{versions[0]}" if len(versions) == 1 else f"{versions[0]} to {versions[-1]}" if versions else "none"
        heading.append(f"  {len(segment.tokens)} tokens, policy version {span}", "dim not bold")
    return heading


def _extras(message: Message) -> list[str]:
    extras = [f"calls {call.name} {json.dumps(call.arguments, ensure_ascii=False)}" for call in message.tool_calls]
    if not isinstance(message.content, str):
        images = [part for part in message.content if isinstance(part, ImagePart)]
        extras += [f"[image {image.media_type} {image.width} x {image.height}]" for image in images]
    if message.parse_error:
        extras.append(f"could not be read as a tool call: {message.parse_error}")
    return extras


def _outcome(one: Trajectory) -> Text:
    facts = f"  {one.turns} turns, {one.trained_tokens} sampled tokens, {one.seconds:.2f} s"
    if not isinstance(one.outcome, Valid):
        detail = visible(one.outcome.detail)
        text = Text.assemble(("invalid ", "bold red"), f"({one.outcome.cause.value}): {detail}")
        return text.append(facts, "dim")
    style = "bold green" if one.outcome.reward > 0 else "bold red"
    text = Text.assemble((f"reward {one.outcome.reward:g}", style), f"  {one.outcome.ending.value}")
    if one.outcome.detail:
        text.append(f": {visible(one.outcome.detail)}")
    for name, value in one.outcome.metrics.items():
        text.append(f"  {visible(name)} {value:g}", "dim")
    return text.append(facts, "dim")
