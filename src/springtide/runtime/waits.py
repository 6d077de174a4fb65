"""Nothing waits in silence: a wait has a name, an owner and an age."""

import msgspec


class Wait(msgspec.Struct, frozen=True):
    """`age` in seconds."""

    name: str
    owner: str
    age: float
