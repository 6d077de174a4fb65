"""Where commands write: results to standard output, everything else to standard error."""

from rich.console import Console
from rich.text import Text

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it. The other codes belong to the errors themselves (core/errors.py)."""


def output() -> Console:
    return Console()


def errors() -> Console:
    return Console(stderr=True)


def complain(message: str) -> None:
    """Print what went wrong, one line per sentence, never wrapped: other programs read it too."""
    console = errors()
    for line in message.splitlines():
        console.print(Text.assemble(("springtide: ", "bold red"), line), soft_wrap=True)
