"""Metrics as TensorBoard scalars, through TensorBoard's own writer and without torch.

TensorBoard is an optional convenience: where it is not installed, or broken, this sink is left out, and says so once.
"""

import logging
from importlib.util import find_spec
from pathlib import Path

from springtide.telemetry.record import MetricRecord

LOGGER = logging.getLogger("springtide.telemetry")


def tensorboard_sink(folder: Path) -> "TensorBoardSink | None":
    """A sink that writes event files into `folder`; None where TensorBoard is not installed, or not fit for use."""
    try:
        if find_spec("tensorboard") is None:
            LOGGER.info("TensorBoard is not installed: metrics go to metrics.jsonl only.")
            return None
        return TensorBoardSink(folder)
    except Exception as error:  # whatever an installation that is not whole raises when it is imported
        LOGGER.warning("TensorBoard failed, so metrics go to metrics.jsonl only: %s.", error or type(error).__name__)
        return None


class TensorBoardSink:
    """Scalars by canonical name."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.name = f"TensorBoard in {folder}"
        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(folder))

    def write(self, record: MetricRecord) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in record.metrics.items()]
        summary = self._summary(value=values)
        self._writer.add_event(self._event(wall_time=record.time, step=record.step, summary=summary))

    def close(self) -> None:
        self._writer.close()
