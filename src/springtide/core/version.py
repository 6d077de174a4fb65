"""Which weights: a number that grows by one per train step, and a digest that proves it."""

import msgspec


class PolicyVersion(msgspec.Struct, frozen=True):
    """`digest` is a hex hash over names, dtypes, shapes and bytes of all tensors."""

    number: int
    digest: str
