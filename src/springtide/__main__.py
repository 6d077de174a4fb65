"""The program: `springtide`, which is `python -m springtide`.

A Ctrl-C while the command line is still being imported is an interruption like any other.
"""

import sys

INTERRUPTED = 130
"""As in cli/console.py, which is not imported yet."""


def main() -> None:
    try:
        from springtide.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.stderr.write("springtide: Interrupted.\n")
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
