"""Events and commands as bytes: what the journal stores."""

from typing import TypeVar

import msgspec

from springtide.core.errors import RunDamagedError
from springtide.scheduling.commands import Command
from springtide.scheduling.events import Event

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
_events = msgspec.json.Decoder(Event)
_commands = msgspec.json.Decoder(Command)

EVENT = "event"
COMMAND = "command"


def encode(record: Event | Command) -> bytes:
    return _encoder.encode(record)


def decode_event(body: bytes) -> Event:
    """RunDamagedError if `body` is not an event."""
    return _decoded(_events, body)


def decode_command(body: bytes) -> Command:
    """RunDamagedError if `body` is not a command."""
    return _decoded(_commands, body)


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise RunDamagedError(
            f"The journal has an entry that cannot be read ({error}); restore it from a copy, or branch from a "
            "checkpoint with --from."
        ) from error
