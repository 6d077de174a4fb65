import logging
import sys
from types import ModuleType

import pytest
from typer.testing import CliRunner

from springtide.cli.main import app
from springtide.evaluation.count import Count
from springtide.evaluation.result import RunResult


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def springtide():
    """Runs a command line in this process. Exceptions that are no exit are raised, as a traceback would be."""

    def run(*arguments):
        return CliRunner().invoke(app, list(arguments), catch_exceptions=False)

    return run


class Launches:
    """Stands in for the composition: records what it was asked for and tells its view of two steps."""

    def __init__(self):
        self.calls = []
        self.error = None
        self.warning = ""

    def __call__(self, *, recipe, folder, view):
        from springtide.telemetry.status import StatusBoard

        self.calls.append((recipe, folder))
        board = StatusBoard(folder.status, run=folder.id, steps=2)
        board.subscribe(view)
        board.update(phase="training", step=1, reward=0.25)
        board.update(phase="evaluating", step=2, success=0.5, success_step=2)
        if self.warning:
            logging.getLogger("springtide.launch").warning(self.warning)
        if self.error is not None:
            board.close(phase="failed")
            raise self.error
        board.close()
        return RunResult(
            run=folder.id, seconds=61.0, before=Count(3, 10, 1), after=Count(8, 10), goodput_tokens_per_s=123.4
        )


@pytest.fixture
def launches(monkeypatch):
    module = ModuleType("springtide.launch.train")
    module.train = launches = Launches()
    monkeypatch.setitem(sys.modules, "springtide.launch.train", module)
    return launches
