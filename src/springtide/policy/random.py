"""Random numbers without state: a number is a function of (stream, position) alone.

So a token is drawn with the same number whatever batch it is drawn in, after a pause, a preemption or a restart.
The mixing function is splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014)
in wrapping 64-bit integer arithmetic, which is exact on every device.
"""

import hashlib

import torch

_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


def stream_key(seed: int, purpose: str, group: int, slot: int, attempt: int) -> int:
    """The stream of one episode: a signed 64-bit integer, stable across processes and versions of Python."""
    text = f"{seed}/{purpose}/{group}/{slot}/{attempt}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


def uniforms(keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Numbers in (0, 1] with 53 random bits, float64, for int64 `keys` and `positions` that broadcast together."""
    mixed = _mix(keys) + (positions + 1) * _GAMMA
    return (_shift_right(_mix(mixed), 11) + 1).double() * 2.0**-53


def _mix(value: torch.Tensor) -> torch.Tensor:
    value = (value ^ _shift_right(value, 30)) * _MIX_1
    value = (value ^ _shift_right(value, 27)) * _MIX_2
    return value ^ _shift_right(value, 31)


def _shift_right(value: torch.Tensor, bits: int) -> torch.Tensor:
    # Torch shifts signed integers arithmetically; the mask clears the copies of the sign bit.
    return (value >> bits) & ((1 << (64 - bits)) - 1)
