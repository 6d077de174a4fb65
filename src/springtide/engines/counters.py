"""Running totals of an engine."""

from dataclasses import dataclass


@dataclass
class Counters:
    """As in `EngineStats`."""

    prefilled: int = 0
    reprefilled: int = 0
    reused: int = 0
    refreshed: int = 0
    decoded: int = 0
    preemptions: int = 0
