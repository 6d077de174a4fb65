"""What an episode takes along when it leaves a rank between two turns."""

from typing import NamedTuple

from springtide.core.member import Member
from springtide.core.sampling import SampleRequest
from springtide.ports.engine import HandedOver
from springtide.scheduling.retention import Session


class Parting(NamedTuple):
    """`request`: its turn, if that had not entered the engine. `handed`: its KV. `session`: what retention knows."""

    member: Member
    request: SampleRequest | None = None
    handed: HandedOver | None = None
    session: Session | None = None
