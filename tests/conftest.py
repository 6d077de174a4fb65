"""What holds for all tests: no property test may fail because the machine was busy, and no error of a loop may go
unheard."""

import gc
import logging

import pytest
from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

UNHEARD: list[str] = []
"""What asyncio said when it threw away a future whose error nobody had asked for. It says so at a collection of
garbage, which may come in a later test or within the parser (where CPython 3.11 takes it badly)."""


class _Unheard(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if "never retrieved" in record.getMessage() or "was destroyed but it is pending" in record.getMessage():
            UNHEARD.append(record.getMessage())


def pytest_configure() -> None:
    logging.getLogger("asyncio").addHandler(_Unheard())


def pytest_sessionfinish(session: pytest.Session) -> None:
    gc.collect()
    if UNHEARD:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for message in UNHEARD:
        terminalreporter.line(f"UNHEARD: {message}", red=True)
