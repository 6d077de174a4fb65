"""`springtide doctor`: what is wrong with a run of any framework, since when, and what to do.

`springtide doctor PATH...` is a command among `explain` and others, without a name of its own. The diagnosis is
imported when it is asked for: other commands do not wait for it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from springtide.cli import doctor_completions, doctor_follow, doctor_preflight
from springtide.cli.console import complain, errors, output
from springtide.cli.options import Json, examples
from springtide.core.errors import UsageError

if TYPE_CHECKING:
    from springtide.diagnosis.reports.account import Examined

_EXAMINE = "examine"

_UNNAMED = (_EXAMINE, doctor_follow.FOLLOW)
"""Commands that an option or its absence chooses."""

SICK, UNUSABLE, UNJUDGED = 1, UsageError.exit_code, 3
"""Exit codes; 0 says that all that was asked for is OK or WATCH."""

EXAMPLES = (
    "springtide doctor outputs/checkpoint-400/trainer_state.json",
    "springtide doctor train.log wandb/run-20300501_120000-abc --html report.html",
    "springtide doctor runs/* --json",
    "springtide doctor outputs --only S33 --verbose",
    "springtide doctor runs/quickstart-20300501-120000 --follow",
    "springtide doctor preflight train_grpo.py --pass-rate 0.3:0.2",
    "springtide doctor completions rollouts",
    "springtide doctor explain S33",
)

CODES = (
    "[b]Exit codes[/b]: 0 all runs are OK or WATCH, 1 one is SICK, 2 a path holds no log, a report cannot be "
    "written, 3 a run cannot be judged (INSUFFICIENT or UNAVAILABLE)."
)


class Ways(TyperGroup):
    """What does not begin with a command's name is a path, or an option, of the examination."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands or args[0] in _UNNAMED:
            args = [doctor_follow.FOLLOW if "--follow" in args else _EXAMINE, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name in _UNNAMED else name), command, rest


class Unnamed(TyperCommand):
    def format_usage(self, ctx: Any, formatter: Any) -> None:
        formatter.write_usage(ctx.command_path.rstrip(), " ".join(self.collect_usage_pieces(ctx)))


app = typer.Typer(cls=Ways, rich_markup_mode="rich", help="Say what is wrong with a run of any framework.")


@app.callback(subcommand_metavar="")
def doctor() -> None:
    """Say what is wrong with a run of any framework, since when, and what to do."""


@app.command(_EXAMINE, cls=Unnamed, hidden=True, epilog=f"{examples(*EXAMPLES)}\n\n{CODES}")
def examine(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Logs, or folders that hold them: of TRL, verl, our own and others."),
    ] = None,
    as_json: Json = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as one self-contained page.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write the report as Markdown.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="SYMPTOM", help="Look at this symptom; may be repeated.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also what was not found, all causes, and all that is not logged.")
    ] = False,
) -> None:
    """Say what is wrong with a run, since when, what it comes from, and what to look at and to change.

    Reads the logs of any framework as they are, without a configuration. What a log does not say is never taken for
    fine: the report names what was not checked, and the setting that turns it on.
    [cyan]springtide doctor explain[/] tells of each symptom, and
    [cyan]springtide doctor --follow --help[/] how to watch a run as it grows.
    """
    if not paths:
        raise UsageError("Name a log or a folder that holds one, such as `springtide doctor trainer_state.json`.")
    _check_writable(html=html, markdown=markdown)
    runs, unusable = _examine(paths, only or ())
    from springtide.diagnosis.reports.terminal import print_runs

    if runs:
        unusable += _write(runs, html=html, markdown=markdown)  # first, for who pipes what is printed into `head`
        print_runs(errors() if as_json else output(), runs, verbose=verbose)
    for problem in unusable:
        complain(problem)
    if as_json:
        from springtide.diagnosis.reports.document import encode

        typer.echo(encode(runs))
    raise typer.Exit(exit_code((run.diagnosis.verdict.value for run in runs), unusable=bool(unusable)))


def exit_code(verdicts: Iterable[str], *, unusable: bool = False) -> int:
    """Of several runs the worst counts; a run that cannot be judged is not fine."""
    said = set(verdicts)
    if "SICK" in said:
        return SICK
    if unusable:
        return UNUSABLE
    return UNJUDGED if said & {"INSUFFICIENT", "UNAVAILABLE"} else 0


def _examine(paths: Sequence[Path], only: Sequence[str]) -> tuple[list["Examined"], list[str]]:
    """Every path by itself: one that holds no log does not keep the others from being judged. What two paths have in
    common is judged once."""
    from springtide.diagnosis.examine import examine as examined
    from springtide.diagnosis.examine import find_rule

    for name in only:
        find_rule(name)
    runs: list[Examined] = []
    unusable: list[str] = []
    for path in paths:
        seen = {Path(run.diagnosis.source).absolute() for run in runs}
        try:
            found = examined(path, only=only)
        except UsageError as error:
            unusable.append(str(error))
        else:
            runs += [run for run in found if Path(run.diagnosis.source).absolute() not in seen]
    return runs, unusable


def _check_writable(*, html: Path | None, markdown: Path | None) -> None:
    """A report replaces nothing but an earlier report."""
    from springtide.diagnosis.reports import destination

    if html is not None:
        destination.require_free(html, option="--html", opening=destination.HTML)
    if markdown is not None:
        destination.require_free(markdown, option="--markdown", opening=destination.MARKDOWN)


def _write(runs: Sequence["Examined"], *, html: Path | None, markdown: Path | None) -> list[str]:
    """What could not be written: the diagnosis is printed all the same."""
    from springtide.diagnosis.reports import markdown as plain
    from springtide.diagnosis.reports.page import page

    problems = []
    for file, text in ((html, page), (markdown, plain.markdown)):
        if file is None:
            continue
        try:
            file.write_text(text(runs), encoding="utf-8")
        except OSError as error:
            problems.append(f"{file} could not be written ({error.strerror or error}): name another file.")
        else:
            errors().print(f"Wrote {file}", highlight=False, markup=False, soft_wrap=True)
    return problems


@app.command("explain", epilog=examples("springtide doctor explain S33", "springtide doctor explain"))
def explain(
    symptom: Annotated[
        str, typer.Argument(metavar="SYMPTOM", help="Its id, such as S33, or its name; none lists all.")
    ] = "",
) -> None:
    """Print the guide's page on a symptom: what it looks like, what it comes from, what to check and to change."""
    from springtide.diagnosis.entry import entry, index
    from springtide.diagnosis.examine import find_rule

    text = entry(find_rule(symptom)) if symptom else index()
    console = output()
    if console.is_terminal:
        from rich.markdown import Markdown

        console.print(Markdown(text))
    else:
        typer.echo(text, nl=False)


for module in (doctor_preflight, doctor_completions):
    module.register(app)
doctor_follow.register(app, cls=Unnamed)
