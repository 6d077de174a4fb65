"""Where metric records go. Observability never kills training: a sink that fails is switched off with one warning."""

import logging
from collections.abc import Sequence
from typing import Protocol

from springtide.telemetry.record import MetricRecord

LOGGER = logging.getLogger("springtide.telemetry")


class Sink(Protocol):
    name: str

    def write(self, record: MetricRecord) -> None: ...

    def close(self) -> None: ...


class SinkGroup:
    """Hands each record to every sink that still works."""

    name = "sinks"

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    def write(self, record: MetricRecord) -> None:
        for sink in list(self._sinks):
            try:
                sink.write(record)
            except Exception as error:
                self._disable(sink, error)

    def close(self) -> None:
        for sink in list(self._sinks):
            try:
                sink.close()
            except Exception as error:
                self._disable(sink, error)

    def _disable(self, sink: Sink, error: Exception) -> None:
        self._sinks.remove(sink)
        LOGGER.warning("Metrics are no longer written to %s: %s.", sink.name, error or type(error).__name__)
