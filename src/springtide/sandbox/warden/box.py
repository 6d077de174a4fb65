"""The first process of a box: harmless itself by the time it serves, and the only one that talks to the trainer."""

from __future__ import annotations

import os

from springtide.sandbox import wire
from springtide.sandbox.warden import files
from springtide.sandbox.warden.command import Shell, StoppedError

Content = dict[bytes, bytes]


def serve(control: int, shell: Shell, work: int, content: Content) -> None:
    """Write the box's first files, say that it is open, and answer requests until it is closed. Returns only then.

    `control` is the socket to the trainer, `work` a descriptor of the working directory.
    """
    opened = _write(work, content, wire.OPENED)
    wire.send(control, opened)
    if opened[0] == wire.FAILED:
        return
    while request := wire.read_request(control):
        name = request[0]
        if name == "close":
            return
        try:
            answer = _answer(request, shell, work)
        except StoppedError:
            wire.read_request(control)
            return
        wire.send(control, answer)


def _answer(request: tuple[object, ...], shell: Shell, work: int) -> bytes:
    match request:
        case ("run", bytes(command), bytes(stdin), float(wall_seconds)):
            result = shell.run(command, stdin, wall_seconds)
            return wire.reply(
                wire.RESULT,
                end=result.end,
                code=result.code,
                seconds=result.seconds,
                detail=result.detail,
                payload=result.output,
            )
        case ("write", dict(content)):
            return _write(work, content, wire.DONE)
        case ("read", bytes(path), int(limit)):
            found = files.read_file(work, path, limit)
            return wire.reply(wire.ABSENT) if found is None else wire.reply(wire.DONE, payload=found)
    raise AssertionError(request[0])


def _write(work: int, content: Content, success: int) -> bytes:
    path = b""
    try:
        for path, data in content.items():
            files.write_file(work, path, data)
    except OSError as error:
        number = error.errno or 0
        return wire.reply(wire.FAILED, code=number, detail=f"{os.fsdecode(path)}: {os.strerror(number)}")
    return wire.reply(success)
