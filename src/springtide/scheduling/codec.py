"""Events and commands as bytes: what the journal stores."""

import msgspec

from springtide.scheduling.commands import Command
from springtide.scheduling.events import Event

_encoder = msgspec.json.Encoder()
_events = msgspec.json.Decoder(Event)
_commands = msgspec.json.Decoder(Command)

EVENT = "event"
COMMAND = "command"


def encode(record: Event | Command) -> bytes:
    return _encoder.encode(record)


def decode_event(body: bytes) -> Event:
    return _events.decode(body)


def decode_command(body: bytes) -> Command:
    return _commands.decode(body)
