"""What a rank's next visit to its lane is to do."""

from collections.abc import Callable
from typing import NamedTuple

from springtide.core.member import Member
from springtide.core.sampling import SampleRequest
from springtide.runtime.parting import Parting


class Stays(NamedTuple):
    """Who is on a rank that takes no more turns: `open` in order, of whom `running` have a turn here. `withdraw`: gives
    back turns that have not entered the engine; `late` ones were not even told to retention."""

    withdraw: Callable[[], list[SampleRequest]]
    late: list[SampleRequest]
    open: tuple[Member, ...]
    running: frozenset[Member]


class Orders(NamedTuple):
    """What a visit is to do: `choose` says which turns enter, unless everybody leaves (`stays`)."""

    choose: Callable[[], list[SampleRequest]]
    cancels: list[Member]
    arrivals: list[Parting]
    releases: list[Member]
    trusts: bool
    now: float
    stays: Stays | None
