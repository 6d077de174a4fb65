"""One observation: numbers by canonical name, when they were taken and at which train step."""

import msgspec


class MetricRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`time` is Unix seconds. Non-finite values are written as null and read as NaN."""

    time: float
    step: int
    metrics: dict[str, float]
