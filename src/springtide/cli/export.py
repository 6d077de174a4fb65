"""`springtide export`: a model folder that `transformers` loads."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from springtide.cli.console import output
from springtide.cli.extras import require_train
from springtide.cli.options import RunName, examples
from springtide.telemetry.run_folder import RunFolder


def register(app: typer.Typer) -> None:
    app.command(
        "export",
        epilog=examples(
            "springtide export quickstart-20300501-120000 my-agent",
            "springtide export quickstart-20300501-120000 my-agent-50 --step 50",
        ),
    )(export)


def export(
    run: RunName,
    target: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder for the model.")],
    step: Annotated[
        int | None, typer.Option(metavar="STEP", help="Which checkpoint; default: the newest one that is sound.")
    ] = None,
) -> None:
    """Write a run's policy as a folder with config, safetensors and tokenizer."""
    require_train("springtide export")
    folder = RunFolder.open(run)
    from springtide.launch.export import export_run

    exported = export_run(folder, target, step=step)
    place = escape(str(target))
    output().print(
        f"The policy after step {exported} is in {place}: "
        f'[cyan]AutoModelForCausalLM.from_pretrained("{place}")[/] loads it.',
        soft_wrap=True,
        highlight=False,
    )
