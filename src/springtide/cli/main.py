"""The command line: `springtide COMMAND`. Commands are thin: they parse, call and print.

Errors that are the interface become one sentence on standard error and a stable exit code; a traceback is always a
bug. Nothing here imports torch: the commands that need it import the composition when they run.
"""

import errno
import logging
import signal
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from springtide import __version__
from springtide.cli import doctor, export, plan, recipe, report, sandbox, sft, show, simulate, status, train
from springtide.cli.console import INTERRUPTED, complain, output
from springtide.core.errors import SpringtideError, StorageFullError, UsageError

EXIT_CODES = (
    "[b]Exit codes[/b]: 0 done, 1 failed, 2 wrong usage, 3 run damaged, 4 only an unsafe sandbox is left, "
    "5 disk full, 130 interrupted."
)


class Commands(TyperGroup):
    """Turns what a command raises into an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SpringtideError as error:
            complain(str(error))
            raise SystemExit(error.exit_code) from None
        except KeyboardInterrupt:
            complain("Interrupted.")
            raise SystemExit(INTERRUPTED) from None
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                complain(f"{error.filename or 'A file'} cannot be used: {error.strerror}; change its permissions.")
                raise SystemExit(UsageError.exit_code) from None
            if error.errno != errno.ENOSPC:
                raise
            complain(f"The disk is full ({error.filename or 'no file named'}); what was written before is intact.")
            raise SystemExit(StorageFullError.exit_code) from None


class LogLines(logging.Handler):
    """Log messages as plain lines. Standard error is looked up at each, because a live view stands in for it."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(self.format(record), err=True)


app = typer.Typer(
    cls=Commands,
    name="springtide",
    help="Post-train LLM agents with reinforcement learning.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        output().print(f"springtide {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def springtide(
    _: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Post-train LLM agents with reinforcement learning."""
    logger = logging.getLogger("springtide")
    logger.handlers[:] = [LogLines()]
    logger.setLevel(logging.INFO)


for module in (train, sft, status, show, report, export, simulate, plan, sandbox):
    module.register(app)
app.add_typer(recipe.app, name="recipe")
app.add_typer(doctor.app, name="doctor")


def _terminate(number: int, frame: object) -> None:
    """A polite kill is a Ctrl-C; a shell that starts a job in the background makes it ignore Ctrl-C alone."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def main() -> None:
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(prog_name="springtide")
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # one more while the interpreter ends shows no traceback
            signal.signal(number, signal.SIG_DFL)
