"""A place for one box at a time. It holds what boxes can share one after the other, and forks a first process for each.

While a box is open its first process reads the socket to the trainer; the berth only waits for it to end, and reads the
socket again then. A first process that ends in any other way than by being closed takes the berth with it: the stream
may be torn, and the warden tells the trainer why.
"""

from __future__ import annotations

import os

from springtide.sandbox import wire
from springtide.sandbox.warden import kernel
from springtide.sandbox.warden.box import serve
from springtide.sandbox.warden.bubblewrap import Bubblewrap
from springtide.sandbox.warden.cgroups import Group
from springtide.sandbox.warden.limits import Limits
from springtide.sandbox.warden.namespaces import Namespaces
from springtide.sandbox.warden.unsafe import Bare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

Isolation = Namespaces | Bubblewrap | Bare

GONE, OUT_OF_MEMORY, LOST = 0, 3, 4
"""Exit codes of a berth: the trainer hung up; its box's first process was killed at the memory limit; or otherwise."""


def keep_berth(control: int, isolation: Isolation, group: Group) -> int:
    """Serve boxes on `control` until the trainer hangs up. The exit code. OSError when the level cannot be had."""
    kernel.die_with_parent()
    kernel.adopt_orphans()
    group.attach()
    group.open()
    isolation.prepare()
    while request := wire.read_request(control):
        match request:
            case ("open", tuple(numbers), dict(content)):
                code = _keep_box(control, isolation, group, Limits(*numbers), content)
                if code:
                    return code
                wire.send(control, wire.reply(wire.CLOSED))
            case _:
                raise AssertionError(request[0])
    return GONE


def _keep_box(control: int, isolation: Isolation, group: Group, limits: Limits, content: dict[bytes, bytes]) -> int:
    limits.apply_to_group(group)
    group.counters.memory.begin()
    pid = kernel.fork_into(isolation.box_namespaces)
    if pid == 0:
        _be_box(control, isolation, group, limits, content)
    status = os.waitpid(pid, 0)[1]
    isolation.clear()
    if status == 0:
        return 0
    return OUT_OF_MEMORY if group.counters.memory.since_begin().own else LOST


def _be_box(control: int, isolation: Isolation, group: Group, limits: Limits, content: dict[bytes, bytes]) -> NoReturn:
    """The box's whole life; the process ends here, whatever happens."""
    code = LOST
    try:
        try:
            group.close_limits()
            shell, work = isolation.enter(limits, control, content)
        except Exception as error:
            wire.send(control, wire.reply(wire.FAILED, detail=f"the box could not be made: {error}"))
        else:
            serve(control, shell, work, content)
        code = 0
    finally:
        os._exit(code)
