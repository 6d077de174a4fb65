"""`springtide doctor preflight`: what a configuration will run into, before anything is started."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from springtide.cli.console import errors, output
from springtide.cli.options import Json, Overrides, examples
from springtide.core.errors import UsageError

if TYPE_CHECKING:
    from springtide.diagnosis.preflight.plan import Plan
    from springtide.diagnosis.preflight.preflight import Preflight

STYLES = {"SICK": "bold red", "WATCH": "yellow", "OK": "dim"}


Configuration = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A recipe of ours, or a TRL or verl configuration: JSON, TOML, YAML, Python, or a shell script.",
    ),
]
BaseFile = Annotated[
    Path | None,
    typer.Option(
        "--base",
        metavar="FILE",
        help="The base model on the tasks: a table with a pass rate for each, or its completions with rewards.",
    ),
]
PassRate = Annotated[
    str | None,
    typer.Option("--pass-rate", metavar="RATE[:SD]", help="In place of a table: mean and spread over tasks."),
]
Success = Annotated[
    float, typer.Option("--success", metavar="REWARD", help="Reward from which a completion of --base is right.")
]
AnswerTokens = Annotated[
    str | None,
    typer.Option("--answer-tokens", metavar="P50:P95", help="Median and 95th percentile of lengths, in tokens."),
]
Parameters = Annotated[
    float | None, typer.Option("--parameters", metavar="N", min=1, help="The model's size, such as 7e9.")
]
Gpus = Annotated[int | None, typer.Option("--gpus", metavar="N", min=1, help="Devices, all nodes together.")]
DeviceMemory = Annotated[
    float | None, typer.Option("--device-memory", metavar="GIB", min=0.1, help="Memory of each device.")
]


def register(app: typer.Typer) -> None:
    app.command(
        "preflight",
        epilog=examples(
            "springtide doctor preflight quickstart --pass-rate 0.4:0.3",
            "springtide doctor preflight train_grpo.py --base base-completions.jsonl --gpus 4 --device-memory 80",
            "springtide doctor preflight run_verl.sh --base pass_rates.csv --answer-tokens 700:2000",
        ),
    )(preflight)


def preflight(
    recipe: Configuration,
    overrides: Overrides = None,
    base: BaseFile = None,
    pass_rate: PassRate = None,
    success: Success = 1.0,
    answer_tokens: AnswerTokens = None,
    parameters: Parameters = None,
    gpus: Gpus = None,
    device_memory: DeviceMemory = None,
    as_json: Json = False,
) -> None:
    """Say what a run will run into before it starts: contradictions, groups without a signal, truncation, memory.

    With what the base model does on the tasks it predicts how many groups will carry no signal (p^G + (1-p)^G), how
    many completions will be cut off, and which parts of the reward are dead. Exits with 1 if the run cannot go well.
    """
    from springtide.diagnosis.preflight import preflight as work
    from springtide.diagnosis.preflight.base import base_of_rate, read_base
    from springtide.diagnosis.preflight.shape import of_size
    from springtide.diagnosis.preflight.truncation import of_quantiles

    if base is not None and pass_rate is not None:
        raise UsageError("--base and --pass-rate both say how often the base model is right: give one of them.")
    plan = read_plan(recipe, overrides or [], gpus)
    known = read_base(base, success=success) if base else base_of_rate(pass_rate) if pass_rate else None
    limit = plan.whole("max_completion") or 0
    found = work.preflight(
        plan,
        base=known,
        truncation=of_quantiles(answer_tokens, limit) if answer_tokens and limit > 0 else None,
        shape=of_size(parameters) if parameters else None,
        device_gib=device_memory,
    )
    print_preflight(errors() if as_json else output(), found)
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(found).decode())
    raise typer.Exit(1 if found.verdict.value == "SICK" else 0)


def read_plan(recipe: str, overrides: list[str], gpus: int | None) -> "Plan":
    """Of one of our recipes, by name, file or run folder; or of another framework's configuration."""
    from springtide.diagnosis.preflight.document import Document, flat, read_document
    from springtide.diagnosis.preflight.plan import plan_of
    from springtide.diagnosis.preflight.value import plain_value

    if _is_ours(recipe):
        from springtide.recipe import load_recipe

        loaded = load_recipe(recipe, overrides)
        given = flat(loaded.model_dump(exclude_unset=True))
        return plan_of(Document(source=recipe, values=flat(loaded.model_dump())), gpus=gpus, given=given)
    document = read_document(Path(recipe))
    values: dict[str, Any] = dict(document.values)
    for override in overrides:
        name, equals, raw = override.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--set {override}: write it as setting=value, such as num_generations=16.")
        values[name.strip()] = plain_value(raw)
    return plan_of(Document(source=recipe, values=values, notes=document.notes), gpus=gpus)


def _is_ours(recipe: str) -> bool:
    from springtide.recipe import builtin_recipes

    path = Path(recipe)
    if recipe in builtin_recipes() or (path / "recipe.toml").is_file() or not path.exists():
        return True
    if path.suffix != ".toml" or not path.is_file():
        return False
    try:
        return "environment" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False


def print_preflight(console: Console, found: "Preflight") -> None:
    verdict = found.verdict.value
    console.print(Text.assemble((f"{verdict}  ", STYLES[verdict]), (found.source, "bold"), f"  ({found.framework})"))
    for each in found.findings:
        console.print()
        heading = Text.assemble(
            (f"{each.verdict.value:<5} ", STYLES[each.verdict.value]), (f"{each.field} = {each.value}", "bold")
        )
        console.print(heading.append(f"  {each.id}", "dim"), soft_wrap=True)
        console.print(Text(f"      {each.text}"), soft_wrap=True)
        console.print(Text.assemble(("      change  ", "dim"), (each.remedy, "cyan")), soft_wrap=True)
        console.print(Text(f"      source  {each.source} ({each.grade})", "dim"), soft_wrap=True)
    _print_predictions(console, found)
    for what, how in found.not_checked.items():
        console.print(Text(f"not predicted: {what}; {how}", "dim"), soft_wrap=True)
    for note in found.notes:
        console.print(Text(f"note: {note}", "dim"), soft_wrap=True)


def _print_predictions(console: Console, found: "Preflight") -> None:
    console.print()
    signal, cut, memory = found.zero_signal, found.truncation, found.memory
    if signal is not None:
        around = f" ({signal.low:.0%} to {signal.high:.0%})" if signal.low is not None else ""
        console.print(
            f"Groups without a signal: {signal.share:.0%}{around}, {signal.all_wrong:.0%} all wrong and "
            f"{signal.all_right:.0%} all right, with {signal.group_size} to a group.",
            highlight=False,
        )
    if cut is not None:
        console.print(f"Truncated completions: {cut.share:.0%} at {cut.limit:,} tokens.", highlight=False)
    if memory is None:
        return
    table = Table("memory on each device, an estimate", "GiB", "formula", box=None, pad_edge=False)
    for part in memory.parts:
        table.add_row(Text(part.name), f"{part.gib:,.2f}", Text(f"{part.formula} {part.source}".strip(), "dim"))
    unit, name = (1e9, "e9") if memory.parameters >= 1e9 else (1e6, "e6")
    size = Text(f"{memory.parameters / unit:.3g}{name} parameters: {memory.model}", "dim")
    table.add_row("in all", f"{memory.total_gib:,.2f}", size)
    console.print(table)
    for missing in memory.left_out:
        console.print(Text(f"not estimated: {missing}", "dim"), soft_wrap=True)
